"""Reading requests: no larger than allowed, and no slower; and hearing, after that, that their client is gone."""

from __future__ import annotations

from http import HTTPStatus

import trio
from starlette.types import Message, Receive, Scope

from intercom.agents.http.refusal import Refusal

#: How long a client may take between two parts of a request, and over all of it, in seconds.
PART_SECONDS = 20.0
WHOLE_SECONDS = 120.0
#: How much of a request that is too large is taken in all the same, so that its sender hears why, as a multiple of what
#: is allowed; and for how long, in seconds.
_OVER = 3
_OVER_SECONDS = 10.0


class Body:
    """A request that was read whole. In place of `receive` it gives that, once, and then what comes after: that the
    client is `gone`. Made with `read`."""

    __slots__ = ("_receive", "data", "gone")

    def __init__(self, receive: Receive, data: bytes | None) -> None:
        self._receive = receive
        self.data = data
        self.gone = data is None

    async def __call__(self) -> Message:
        if self.data is not None:
            # Whoever takes it keeps it, for as long as that is needed.
            data, self.data = self.data, None
            return {"type": "http.request", "body": data, "more_body": False}
        if self.gone:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        return message


async def read(scope: Scope, receive: Receive, limit: int) -> Body:
    """Read a request. Raises Refusal when it is larger than `limit` bytes, or slower than a client may be."""
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
    """The refusal, once the sender is done or has gone on for too long: before that it would not listen."""
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
