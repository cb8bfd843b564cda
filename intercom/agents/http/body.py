"""Reading requests: no larger than allowed, and no slower."""

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
    """Receives a request in place of `receive`. Raises Refusal while the request is being read; after its last part it
    only passes on that the client is gone."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._taken = 0
        self._whole = False
        self._began = trio.current_time()
        self.gone = trio.Event()
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        self._declared = int(declared) if declared.isdigit() and len(declared) < 20 else 0

    async def __call__(self) -> Message:
        if self._whole:
            message = await self._receive()
        elif self._declared > self._limit:
            raise await self._too_large()
        else:
            message = await self._part()
        if message["type"] == "http.disconnect":
            self._whole = True
            self.gone.set()
            return message
        self._taken += len(message.get("body", b""))
        if self._taken > self._limit:
            raise await self._too_large()
        if not message.get("more_body", False):
            self._whole = True
        return message

    async def _part(self) -> Message:
        left = self._began + WHOLE_SECONDS - trio.current_time()
        with trio.move_on_after(max(0.0, min(PART_SECONDS, left))):
            return await self._receive()
        raise Refusal(
            HTTPStatus.REQUEST_TIMEOUT,
            "request_too_slow",
            f"the request did not come within {PART_SECONDS:.0f} s a part and {WHOLE_SECONDS:.0f} s in all: send it"
            " again",
            ((b"connection", b"close"),),
        )

    async def _too_large(self) -> Refusal:
        """The refusal, once the sender is done or has gone on for too long: before that it would not listen."""
        self._whole = True
        with trio.move_on_after(_OVER_SECONDS):
            while self._taken <= self._limit * _OVER:
                message = await self._receive()
                self._taken += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    break
        return Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "request_too_large",
            f"the request has more than {self._limit} bytes: send less at once, or raise http_max_request_bytes in the"
            " server's configuration",
            ((b"connection", b"close"),),
        )
