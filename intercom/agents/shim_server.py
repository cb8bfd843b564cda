"""The server's end of the shims' connections (docs/reference/shim-wire.md).

Each connection is an actor under the `links` supervisor, so that a crash affects one connection only. A shim whose
connection crashes reconnects and repeats its unanswered requests.
"""

from __future__ import annotations

import hmac
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import mcp_types as types
import trio
from attrs import define, field, frozen
from mcp.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from actors import Actor, Busy, ChildSpec, Down, Name, NotRunning, Restart, StartChild, ask
from intercom._version import __version__
from intercom.agents import hook_server, message_streams
from intercom.agents.call_names import CALL_KEY, NAMED
from intercom.agents.client_processes import KnownProcesses
from intercom.agents.connection import AgentConnection
from intercom.agents.hook_server import HookDeps
from intercom.agents.message_streams import LONGEST_LINE, Lines, MessageReader, MessageWriter
from intercom.local import server_socket
from intercom.local.server_socket import Admission, Place, PlaceLimits, Renewal, Tell, listen
from intercom.model import crash_points, limits
from intercom.model.config import Config
from intercom.model.errors import IntercomError
from intercom.model.limits import is_channel_id
from intercom.sessions.registry import Presence
from intercom.store.client import StoreUnavailable

#: The longest allowed text of each field, in characters.
_TEXTS = {
    "version": 100,
    "shim": 200,
    "token": 200,
    "cwd": 65536,
    "workspace": 65536,
    "config": 65536,
    "config_digest": 200,
    "session": 200,
    "role": 20,
}
#: The longest text of a list.
_LONGEST = 2**20
_LARGEST_PID = 2**31 - 1


def is_sound(hello: Mapping[str, Any]) -> bool:
    """Whether every field of a hello is absent, null, or valid: texts, process ids, a channel id, lists of texts.
    Unknown fields are ignored because a newer shim may send more."""
    texts = all(_is_text(hello.get(name), longest) for name, longest in _TEXTS.items())
    pids = all(_is_pid(hello.get(name)) for name in ("pid", "client_pid"))
    lists = all(_are_texts(hello.get(name)) for name in ("delivered", "agents"))
    return texts and pids and lists and _is_channel(hello.get("channel"))


def _is_text(value: object, longest: int) -> bool:
    if value is None:
        return True
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_channel(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= 100 and is_channel_id(value))


def _are_texts(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(each, str) and _is_text(each, _LONGEST) for each in value)


def _is_pid(value: object) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value <= _LARGEST_PID)


@define
class KnownCalls:
    """Calls whose cancellation still matters. That ends with the answer or, if a delivery is attached to it, when it
    has reached the client. A cancellation may cross with such an answer, which the shim then drops."""

    _by_id: dict[str | int, str] = field(factory=dict, init=False)
    _leaving: dict[str, str | int] = field(factory=dict, init=False)

    def came(self, id: str | int, name: str) -> None:
        """Add a call."""
        self._by_id[id] = name

    def cancelled(self, id: str | int | None) -> str | None:
        """Remove a cancelled call. Returns its name; None if the cancellation does not matter."""
        name = None if id is None else self._by_id.pop(id, None)
        if name is not None:
            self._leaving.pop(name, None)
        return name

    def answers(self, id: str | int | None) -> str | None:
        """Return the name of the call whose answer is about to be sent."""
        return None if id is None else self._by_id.get(id)

    def left(self, id: str | int | None, *, laden: bool) -> None:
        """Note that the answer was sent; `laden` if a decision or instructions are attached."""
        name = self.answers(id)
        if id is None or name is None:
            return
        if laden:
            self._leaving[name] = id
        else:
            del self._by_id[id]

    def arrived(self, name: str) -> None:
        """Note that the answer to this call has reached the client."""
        id = self._leaving.pop(name, None)
        if id is not None and self._by_id.get(id) == name:
            del self._by_id[id]


log = logging.getLogger("intercom.agents")

WIRE = 1
#: The time limit of a shim's hello, in seconds.
HELLO_SECONDS = 10.0
#: The longest line before the token was checked, in bytes: a hello with some thousand receipts fits.
LONGEST_HELLO = 2**20
#: The most connections without a token, and of agents with one. Hooks have separate places, so that neither blocks the
#: other.
LINKS = PlaceLimits(unauthenticated=64, shared=1024, reserved=0, watching=512, reserved_watching=0)
#: Errors that pass by themselves, or with the connection.
_PASSING = (
    Busy,
    Down,
    IntercomError,
    NotRunning,
    StoreUnavailable,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
STALLED_SECONDS = 600.0


@frozen
class ShimServerDeps:
    """The dependencies of shim connections.

    `life` identifies this server run. `token` is what shims must know. `judge` refuses a shim by its hello (it raises
    IntercomError). `outdated` is called if a newer shim asks this server to step down. Agent connections note in
    `presence` who is connected. `processes` records which processes are agents'. `doors` lists all agent connections by
    name, also those over HTTP, with their processes; hooks find their agent there. `admission` counts the connections
    over the socket.
    """

    config: Config
    presence: Presence
    life: str
    token: str
    server: Server[Any]
    judge: Callable[[dict[str, Any]], None]
    outdated: Callable[[dict[str, Any]], bool]
    processes: KnownProcesses
    doors: dict[str, tuple[AgentConnection, frozenset[int]]] = field(factory=dict)
    admission: Admission = field(factory=lambda: Admission(LINKS))


class ShimListener(Actor):
    """The actor `shims`: accepts connections at `path` and starts a `Link` for each. `tell` reports a socket that was
    removed."""

    def __init__(
        self, path: str, surroundings: ShimServerDeps, links: Name, tell: Tell = lambda _text, _level: None
    ) -> None:
        super().__init__()
        self._tell = tell
        self._path = path
        self._surroundings = surroundings
        self._links = links
        self._count = 0

    def on_start(self) -> None:
        listener = listen(self._path)
        self.spawn(self._accept, listener)
        self.spawn(Renewal(self._tell, listener.renew).keep)

    async def _accept(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        async with listener:
            while True:
                stream = await listener.accept()
                self._count += 1
                start = partial(ShimConnection, stream, self._surroundings)
                spec = ChildSpec(f"link/{id(self)}-{self._count}", start, restart=Restart.TEMPORARY)
                try:
                    await ask(self._links, StartChild(spec), timeout=5.0, retry=True)
                except (IntercomError, Busy, trio.TooSlowError):
                    # The shim sees the closed connection and tries again.
                    await trio.aclose_forcefully(stream)


class ShimConnection(Actor):
    """One shim's connection, from its hello to its end."""

    def __init__(self, stream: trio.SocketStream, surroundings: ShimServerDeps) -> None:
        super().__init__()
        self._stream = stream
        self._at = surroundings
        self._sending = trio.Lock()
        self._names = KnownCalls()
        self._said_goodbye = False

    def on_start(self) -> None:
        self.spawn(self._attend)

    async def on_stop(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def _attend(self) -> None:
        admission = self._at.admission
        try:
            async with self._stream:
                with trio.CancelScope() as scope:
                    place = admission.arrive(scope.cancel)
                    try:
                        await self._converse(place)
                    finally:
                        admission.leave(place)
                if scope.cancelled_caught:
                    await self._refuse_busy()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            # The shim is gone, or does not read; it may reconnect.
            pass
        finally:
            self.stop()

    async def _converse(self, place: Place) -> None:
        lines = Lines(self._stream, LONGEST_HELLO)
        with trio.fail_after(HELLO_SECONDS):
            hello = await self._hello(lines)
        if hello is None:
            return
        is_hook = hello.get("role") == "hook"
        if not (self._at.admission.watch(place) if is_hook else self._at.admission.authenticate(place)):
            await self._refuse_busy()
            return
        lines.longest = LONGEST_LINE
        shim = str(hello["shim"])
        channel = _text(hello, "channel")
        workspace, cwd = _text(hello, "workspace"), _text(hello, "cwd")
        session = _text(hello, "session")
        door = AgentConnection(self.system, self._at.config, self._at.presence, shim, workspace, cwd, channel, session)
        peer = server_socket.peer(self._stream)
        ours = (hello.get("client_pid"), hello.get("pid"), peer.pid)
        pids = frozenset(pid for pid in ours if isinstance(pid, int) and pid > 1)
        welcome = {"intercom": {"welcome": {"wire": WIRE, "version": __version__, "life": self._at.life}}}
        if is_hook:
            await self._hook(lines, peer.pid, welcome)
            return
        self._at.doors[door.name] = (door, pids)
        try:
            # Before the welcome, and so before any call of its agent is answered. The shim's own claim is no evidence:
            # the system says which process it is.
            await self._at.processes.came(door.name, {peer.pid}, with_drivers=True)
            await self._send(welcome)
            door.opened(_texts(hello.get("agents")))
            if resent := [str(name) for name in hello.get("delivered") or ()]:
                await self._delivered(door, resent)
            await self._mcp(door, lines)
        finally:
            self._at.doors.pop(door.name, None)
            self._at.processes.left(door.name)
            door.closed(for_good=self._said_goodbye)

    async def _hello(self, lines: Lines) -> dict[str, Any] | None:
        first = _control(await lines.next() or b"", "hello")
        if not isinstance(first, dict) or first.get("wire") != WIRE or not first.get("shim") or not is_sound(first):
            await self._refuse("version_mismatch", f"this server speaks wire {WIRE}; use the shim of its own version")
            return None
        if not hmac.compare_digest(str(first.get("token") or "").encode(), self._at.token.encode()):
            await self._refuse("unauthorized", "the shim does not know this server's token", retry=True)
            return None
        if self._at.outdated(first):
            await self._send({"intercom": {"handover": {}}})
            return None
        try:
            self._at.judge(first)
        except IntercomError as refused:
            await self._refuse(refused.error_code, refused.message)
            return None
        hello: dict[str, Any] = first
        return hello

    async def _hook(self, lines: Lines, pid: int, welcome: dict[str, Any]) -> None:
        """Answer a client's permission hook. Its client counts as an agent's from here on, also after the hook has
        ended."""
        at = self._at
        name = f"hook/{uuid.uuid4().hex}"
        try:
            await at.processes.came(name, {pid}, with_drivers=True)
            await self._send(welcome)
            asking = HookDeps(self.system, at.config, at.presence, at.doors, name, pid)
            await hook_server.attend(asking, lines.next, self._send)
        finally:
            at.processes.left(name)

    async def _mcp(self, door: AgentConnection, lines: Lines) -> None:
        """Transfer messages between the shim and the SDK's server until the shim disconnects."""
        names = self._names

        async def read() -> SessionMessage | None:
            while (line := await lines.next()) is not None:
                if line.startswith(b'{"intercom"'):
                    self._control_line(door, line)
                    continue
                try:
                    message = message_streams.read(line)
                except message_streams.NotAMessage as unread:
                    # If the connection closed instead, the shim would repeat the line forever.
                    if unread.answer is not None:
                        await self._send_bytes(unread.answer.model_dump_json(exclude_unset=True).encode() + b"\n")
                    continue
                if isinstance(message, types.JSONRPCRequest) and (name := call_name(message)) is not None:
                    names.came(message.id, name)
                elif isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
                    # A hook may come before the client's first call.
                    door.client_name = _client_name(message)
                elif (cancelled := names.cancelled(message_streams.cancelled(message))) is not None:
                    # A cancelled call gets no answer, or its client ignores the answer.
                    door.deliveries.abandon(cancelled)
                return SessionMessage(message, ServerMessageMetadata(request_context=door))
            return None

        async def write(sent: SessionMessage) -> None:
            if not self.actor_ref.is_alive():
                # The SDK fails the calls of a closing connection. They have not failed: the shim repeats them.
                return
            data = sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            if (agents := door.news_of_agents()) is not None:
                data = json.dumps({"intercom": {"agents": agents}}).encode() + b"\n" + data
            if isinstance(sent.message, types.JSONRPCResponse | types.JSONRPCError):
                name = names.answers(sent.message.id)
                receipt = None if name is None else door.deliveries.receipt(name)
                names.left(sent.message.id, laden=receipt is not None)
                if receipt is not None:
                    # Sent before the answer, so that the shim returns it after passing the answer on.
                    wish = {"intercom": {"receipt": {"call": name, "text": receipt}}}
                    data = json.dumps(wish).encode() + b"\n" + data
            await self._send_bytes(data)
            crash_points.reach("answer.left")

        server = self._at.server
        await server.run(MessageReader(read), MessageWriter(write), server.create_initialization_options())

    def _control_line(self, door: AgentConnection, line: bytes) -> None:
        if (told := _control(line, "delivered")) is not None:
            self.spawn(self._delivered, door, _texts(told))
        elif _control(line, "bye") is not None:
            self._said_goodbye = True

    async def _delivered(self, door: AgentConnection, receipts: list[str]) -> None:
        try:
            for name in await door.deliveries.delivered(receipts):
                self._names.arrived(name)
            await self._send({"intercom": {"recorded": receipts}})
        except _PASSING as failed:
            # The shim repeats its receipts until it gets this confirmation.
            log.info("deliveries could not be recorded now: %r", failed)

    async def _refuse_busy(self) -> None:
        await self._refuse("busy", "too many connections to the server; try again shortly", retry=True)

    async def _refuse(self, code: str, message: str, *, retry: bool = False) -> None:
        await self._send({"intercom": {"refused": {"code": code, "message": message, "retry": retry}}})

    async def _send(self, message: dict[str, Any]) -> None:
        await self._send_bytes(json.dumps(message).encode() + b"\n")

    async def _send_bytes(self, data: bytes) -> None:
        async with self._sending:
            try:
                with trio.fail_after(STALLED_SECONDS):
                    await self._stream.send_all(data)
            except BaseException:
                # Part of a line may be sent: the next data would be read as its rest.
                await trio.aclose_forcefully(self._stream)
                raise


def call_name(request: types.JSONRPCRequest) -> str | None:
    """Return the name that the shim gave a call; None if it has none."""
    meta = (request.params or {}).get("_meta") if request.method in NAMED else None
    name = meta.get(CALL_KEY) if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def _client_name(initialize: types.JSONRPCRequest) -> str | None:
    """Return a client's name from its `initialize`; None if there is none."""
    info = (initialize.params or {}).get("clientInfo")
    name = _text(info, "name") if isinstance(info, dict) else None
    return None if name is None else name[: limits.NAME]


def _control(line: bytes, kind: str) -> Any:
    """Return the value of a control line of this kind; None for any other line."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    body = said.get("intercom") if isinstance(said, dict) else None
    return body.get(kind) if isinstance(body, dict) else None


def _texts(told: object) -> list[str]:
    return [name for name in told if isinstance(name, str)] if isinstance(told, list) else []


def _text(hello: dict[str, Any], key: str) -> str | None:
    value = hello.get(key)
    return value if isinstance(value, str) and value else None
