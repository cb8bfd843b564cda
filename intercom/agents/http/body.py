"""Reads request bodies with limits of size and time, and then notices the client's disconnect."""

from __future__ import annotations

from http import HTTPStatus

import trio
from starlette.types import Message, Receive, Scope

from intercom.agents.http.refusal import Refusal

#: The time limits between two parts of a request, and for all of it, in seconds.
PART_SECONDS = 20.0
WHOLE_SECONDS = 120.0
#: How much of a too large request is still read, so that its sender gets the refusal: a multiple of the limit, and a
#: time in seconds.
_OVER = 3
_OVER_SECONDS = 10.0


class Body:
    """A request that was read whole, as a replacement for `receive`; made with `read`. It returns the request once, and
    then waits for the client's disconnect, which sets `gone`."""

    __slots__ = ("_receive", "data", "gone")

    def __init__(self, receive: Receive, data: bytes | None) -> None:
        self._receive = receive
        self.data = data
        self.gone = data is None

    async def __call__(self) -> Message:
        if self.data is not None:
            # Not kept here: the receiver decides how long it needs the data.
            data, self.data = self.data, None
            return {"type": "http.request", "body": data, "more_body": False}
        if self.gone:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        return message


async def read(scope: Scope, receive: Receive, limit: int) -> Body:
    """Read a request. Raises Refusal if it is larger than `limit` bytes or too slow."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(declared) > limit:
        raise await _too_large(receive, limit, 0)
    parts: list[bytes] = []
    taken = 0
    began = trio.current_time()
    while True:
        message = await _part(receive, began)
        if message["type"] == "http.disconnect":
            return Body(receive, None)
        part: bytes = message.get("body", b"")
        taken += len(part)
        if taken > limit:
            raise await _too_large(receive, limit, taken)
        if part:
            parts.append(part)
        if not message.get("more_body", False):
            return Body(receive, parts[0] if len(parts) == 1 else b"".join(parts))


async def _part(receive: Receive, began: float) -> Message:
    left = began + WHOLE_SECONDS - trio.current_time()
    with trio.move_on_after(max(0.0, min(PART_SECONDS, left))):
        return await receive()
    raise Refusal(
        HTTPStatus.REQUEST_TIMEOUT,
        "request_too_slow",
        f"the request did not come within {PART_SECONDS:.0f} s a part and {WHOLE_SECONDS:.0f} s in all: send it again",
        ((b"connection", b"close"),),
    )


async def _too_large(receive: Receive, limit: int, taken: int) -> Refusal:
    """Return the refusal after the sender has finished or the limits are over: before that, it would not read it."""
    with trio.move_on_after(_OVER_SECONDS):
        while taken <= limit * _OVER:
            message = await receive()
            taken += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "request_too_large",
        f"the request has more than {limit} bytes: send less at once, or raise http_max_request_bytes in the"
        " server's configuration",
        ((b"connection", b"close"),),
    )
