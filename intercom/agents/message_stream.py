"""JSON-RPC messages over lines, and the ends from which the SDK's server reads them and to which it writes.

A message is read when the server is ready for it, and written by the task that has it. Shims' connections
(`shim_connection`) and `serve`, for a client without a shim, send one message a line. HTTP has a package of its own,
which uses the same ends (`MessageReader`, `MessageWriter`).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self, TypeGuard

import anyio
import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.runner import serve_loop
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from intercom.agents.agent_connection import AgentConnection
from intercom.agents.shim.relay import CALL_KEY, NAMED, VERSION_KEY
from intercom.model.json_types import Json

# --- messages --------------------------------------------------------------------------------------------------------


class NotAMessage(Exception):
    """The line is not a message. `answer` is the error for its sender; None if no answer is expected."""

    def __init__(self, answer: types.JSONRPCError | None) -> None:
        super().__init__("the line is not a JSON-RPC message")
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
    return _id((message.params or {}).get("requestId"))


def _id(given: object) -> str | int | None:
    """Return what can be an id. Booleans and floats cannot: true and 1.0 would match the request 1."""
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def refuse_line(request_id: str | int | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def _answer_line(line: bytes) -> types.JSONRPCError | None:
    try:
        said: Json = json.loads(line)
    except (ValueError, RecursionError):
        return refuse_line(None, types.PARSE_ERROR, "not a line of JSON that can be read: send one message a line")
    id = None
    if isinstance(said, dict) and "method" in said:
        if "id" not in said:
            return None
        id = _id(said["id"])
    try:
        str(id).encode()
    except ValueError:
        # Half a surrogate pair can be read but not written.
        id = None
    text = "not a JSON-RPC 2.0 request: it has jsonrpc, id, method, and params: an object nested less than 200 deep"
    return refuse_line(id, types.INVALID_REQUEST, text)


# --- the ends that the SDK's server reads and writes -----------------------------------------------------------------


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


Read = Callable[[], Awaitable[SessionMessage | None]]


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

    def __init__(self, write: Callable[[SessionMessage], Awaitable[None]]) -> None:
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        try:
            await self._write(item)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as gone:
            # The SDK ignores this error; any other it logs as a handler's failure.
            raise anyio.BrokenResourceError from gone


async def run(server: Server[object], read: Read, write: Callable[[SessionMessage], Awaitable[None]]) -> None:
    """Run the SDK's server on one connection, until `read` returns None. The first message decides which protocol
    versions the connection has."""
    opening = await read()
    if opening is None:
        return
    writer, options = MessageWriter(write), server.create_initialization_options()
    left = [opening]

    async def replayed() -> SessionMessage | None:
        return left.pop() if left else await read()

    if not isinstance(opening.message, types.JSONRPCRequest) or opening.message.method != "initialize":
        await server.run(MessageReader(replayed), writer, options)
        return

    async def of_handshake() -> SessionMessage | None:
        while (item := await replayed()) is not None and _is_modern(message := item.message):
            await writer.send(SessionMessage(refuse_line(message.id, types.INVALID_REQUEST, _OF_HANDSHAKE)))
        return item

    # `Server.run` decides this, too, and then passes every message on through a task and a stream of its own: on the
    # way of a call these are three turns of the loop.
    async with server.lifespan(server) as state:
        await serve_loop(server, MessageReader(of_handshake), writer, lifespan_state=state, init_options=options)


_OF_HANDSHAKE: Final = (
    "this connection began with the handshake of an older protocol version: open another one for requests of 2026-07-28"
)


def _is_modern(message: types.JSONRPCMessage) -> TypeGuard[types.JSONRPCRequest]:
    """Whether this is a request of 2026-07-28, which names its version."""
    if not isinstance(message, types.JSONRPCRequest) or message.method == "initialize" or message.params is None:
        return False
    meta = message.params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


# --- lines -----------------------------------------------------------------------------------------------------------

#: The longest line of either side, in bytes: a proposal of a few large files fits.
LONGEST_LINE = 64 * 2**20
#: The most bytes to receive at first. Larger blocks get pages of their own (`intercom.local.daemon`), which costs more.
_RECEIVED = 16 * 1024


class Lines:
    """The lines of a stream. `longest` is the limit of one line in bytes; it can be changed between two lines."""

    def __init__(self, stream: trio.abc.ReceiveStream, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self._stream = stream
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
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
            if self._searched > self.longest:
                raise trio.ClosedResourceError("a line is too long")
            data = await self._receive(max(_RECEIVED, self._searched))
            if not data:
                return None
            self._buffer += data

    async def _receive(self, most: int) -> bytes | bytearray:
        """Receive what has come. A socket is waited for first: its own `receive_some` tries to read before that, and
        finds nothing as a rule."""
        socket = self._socket
        if socket is None:
            return await self._stream.receive_some(most)
        while True:
            if socket.fileno() < 0:
                # Trio's `wait_readable` takes no closed socket.
                raise trio.ClosedResourceError("this connection was closed")
            await trio.lowlevel.wait_readable(socket)
            try:
                return os.read(socket.fileno(), most)
            except BlockingIOError:
                continue
            except OSError as gone:
                raise trio.BrokenResourceError from gone


Send = Callable[[bytes], Awaitable[None]]


async def read_or_refuse(line: bytes, send: Send) -> types.JSONRPCMessage | None:
    """Return the message in a line; refuse any other line with an error and return None. If the connection closed
    instead, a shim would repeat the line forever."""
    try:
        return read(line)
    except NotAMessage as unread:
        if unread.answer is not None:
            await send(to_line(unread.answer))
        return None


def to_line(message: types.JSONRPCMessage) -> bytes:
    """Return a message as a line, with its end."""
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


#: How long a client without a shim may leave a line unread, in seconds; then the connection is closed.
_WRITE_SECONDS = 60.0


async def serve(server: Server[Any], connection: AgentConnection, stdin: int = 0, stdout: int = 1) -> None:
    """Serve one client over this process's own stdin and stdout, without a shim, until stdin ends. It takes over both
    descriptors; all other output goes to stderr meanwhile."""
    # The SDK's stdio transport reads in a worker thread, which cannot be cancelled. This waits on the descriptors.
    incoming, outgoing = trio.lowlevel.FdStream(os.dup(stdin)), trio.lowlevel.FdStream(os.dup(stdout))
    os.dup2(2, stdout)
    lines, sending, deliveries = Lines(incoming), trio.Lock(), connection.sent_results
    numbers = itertools.count(1)

    async def send(data: bytes) -> None:
        # Shielded: after half a line the client could not read the next answer, which would count as delivered.
        async with sending:
            with trio.move_on_after(_WRITE_SECONDS, shield=True) as limit:
                await outgoing.send_all(data)
            if limit.cancelled_caught:
                await trio.aclose_forcefully(outgoing)

    async def receive() -> SessionMessage | None:
        while (line := await lines.next()) is not None:
            message = await read_or_refuse(line, send) if line.strip() else None
            if message is None:
                continue
            if isinstance(message, types.JSONRPCRequest) and message.method in NAMED and message.params is not None:
                name = f"{connection.key}/{next(numbers)}"
                deliveries.asked(message.id, name)
                meta = message.params.get("_meta")
                named = {**(meta if isinstance(meta, dict) else {}), CALL_KEY: name}
                message = message.model_copy(update={"params": {**message.params, "_meta": named}})
            deliveries.cancelled(cancelled(message))
            return SessionMessage(message, ServerMessageMetadata(request_context=connection))
        return None

    connection.opened()
    try:
        async with incoming, outgoing, trio.open_nursery() as nursery:

            async def write(sent: SessionMessage) -> None:
                await send(to_line(sent.message))
                if isinstance(sent.message, types.JSONRPCResponse | types.JSONRPCError):
                    answered = deliveries.answered(sent.message.id)
                    if answered is not None:
                        nursery.start_soon(deliveries.reached, answered[0])

            await run(server, receive, write)
            nursery.cancel_scope.cancel()
    finally:
        connection.closed()
