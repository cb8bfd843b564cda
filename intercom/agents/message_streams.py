"""The two ends of a connection as the SDK's server needs them, without the queues and tasks of its own transports.

A message is read when the server is ready for it, and written by the task that has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
import trio
from mcp.shared.message import SessionMessage

Read = Callable[[], Awaitable[SessionMessage | None]]
Write = Callable[[SessionMessage], Awaitable[None]]


class _Closing:
    """The base of both ends. Closing does nothing because the connection closes them."""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class MessageReader(_Closing):
    """Reads with `read`, which returns None at the end."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def receive(self) -> SessionMessage | Exception:
        message = await self._read()
        if message is None:
            raise anyio.EndOfStream
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message = await self._read()
        if message is None:
            raise StopAsyncIteration
        return message


class MessageWriter(_Closing):
    """Writes with `write`."""

    def __init__(self, write: Write) -> None:
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        try:
            await self._write(item)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as gone:
            # The SDK ignores this error; any other it logs as a handler's failure.
            raise anyio.BrokenResourceError from gone
