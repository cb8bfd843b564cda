"""JSON-RPC messages on a byte stream: read line by line, and handed to the SDK's server.

A message is read when the server is ready for it, and written by the task that has it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

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


class NotAMessage(Exception):
    """The line is not a message. `answer` is the error for its sender; None if no answer is expected."""

    def __init__(self, answer: types.JSONRPCError | None) -> None:
        super().__init__("the line is no JSON-RPC message")
        self.answer = answer


def read(line: bytes) -> types.JSONRPCMessage:
    """Return the message in a line. Raises NotAMessage, and nothing else, for any other bytes."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        raise NotAMessage(_answer_line(line)) from None


def cancelled(message: types.JSONRPCMessage) -> str | int | None:
    """Return the id of the request that this message cancels; None for any other message."""
    if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    given = (message.params or {}).get("requestId")
    # Booleans and floats are not ids: true and 1.0 would match the request 1.
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def refuse_line(request_id: str | int | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def _answer_line(line: bytes) -> types.JSONRPCError | None:
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        return refuse_line(None, types.PARSE_ERROR, "not a line of JSON that can be read: send one message a line")
    if isinstance(said, dict) and "id" not in said and "method" in said:
        return None
    given = said.get("id") if isinstance(said, dict) and "method" in said else None
    known = given if isinstance(given, str | int) and not isinstance(given, bool) and _can_be_written(given) else None
    text = "not a JSON-RPC 2.0 request: it has jsonrpc, id, method, and params: an object nested less than 200 deep"
    return refuse_line(known, types.INVALID_REQUEST, text)


def _can_be_written(value: str | int) -> bool:
    """Whether an answer can contain this id: half a surrogate pair can be read but not written."""
    try:
        str(value).encode()
    except ValueError:
        return False
    return True


#: The longest line of either side, in bytes: a proposal of a few large files fits.
LONGEST_LINE = 64 * 2**20


class Lines:
    """The lines of a stream. `longest` is the limit of one line in bytes; it can be changed between two lines."""

    def __init__(self, stream: trio.abc.ReceiveStream, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self._stream = stream
        self._buffer = bytearray()
        self._searched = 0

    async def next(self) -> bytes | None:
        """Return the next line without its end; None at the end. Raises ClosedResourceError for a line over the
        limit."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if len(self._buffer) > self.longest:
                raise trio.ClosedResourceError("a line is too long")
            data = await self._stream.receive_some(65536)
            if not data:
                return None
            self._buffer += data
