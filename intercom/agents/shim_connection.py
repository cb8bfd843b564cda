"""Shims' connections to the server, over its socket (docs/reference/shim-wire.md).

Each is an actor under the `links` supervisor, so that a crash affects one connection only. A shim whose connection
crashes reconnects and repeats its unanswered requests.
"""

from __future__ import annotations

import hmac
import itertools
import json
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mcp_types as types
import trio
from attrs import field, fields_dict, frozen
from attrs.validators import and_, deep_iterable, ge, in_, instance_of, le, matches_re, max_len, optional
from mcp.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from actors import Actor, Busy, ChildSpec, Down, Name, NotRunning, Restart, StartChild, ask
from intercom._version import __version__
from intercom.agents import hook_server, role_token
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.agent_process_records import KnownProcesses
from intercom.agents.hook_server import HookDeps
from intercom.agents.message_stream import (
    LONGEST_LINE,
    Lines,
    cancelled,
    read_or_refuse,
    run,
    to_line,
)
from intercom.agents.shim.relay import CALL_KEY, NAMED, control
from intercom.local import server_socket
from intercom.local.server_socket import Admission, Place, PlaceLimits, Renewal, Tell, listen
from intercom.model import crash_points, limits
from intercom.model.config import Config
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.store.store_and_reader import StoreUnavailable

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


def _fits(most: int, least: int = 0) -> Any:
    """Return the validator of a text: its length in characters, no NUL, and no half of a surrogate pair."""
    return matches_re(rf"[^\0\ud800-\udfff]{{{least},{most}}}")


def _text(most: int) -> str | None:
    return field(default=None, converter=lambda given: given or None, validator=optional(_fits(most)))


def _pid() -> int | None:
    return field(default=None, validator=optional(and_(instance_of(int), ge(0), le(2**31 - 1))))


_TEXTS: Any = deep_iterable(_fits(2**20), instance_of((list, tuple)))


def _or_empty(given: Sequence[str] | None) -> Sequence[str]:
    return () if given is None else given


@frozen
class Hello:
    """What a shim says of itself in its first line. Raises ValueError or TypeError for a field that is not valid."""

    wire: int = field(validator=in_((WIRE,)))
    shim: str = field(validator=_fits(200, least=1))
    version: str | None = _text(100)
    token: str | None = _text(200)
    role: str | None = _text(20)
    cwd: str | None = _text(65536)
    workspace: str | None = _text(65536)
    config: str | None = _text(65536)
    config_digest: str | None = _text(200)
    session: str | None = _text(200)
    agent: str | None = _text(1000)
    channel: str | None = field(default=None, validator=optional(and_(max_len(100), matches_re(limits.CHANNEL_ID))))
    role_token: str | None = field(default=None, repr=False, validator=optional(_fits(200)))
    pid: int | None = _pid()
    client_pid: int | None = _pid()
    delivered: Sequence[str] = field(default=(), converter=_or_empty, validator=_TEXTS)
    agents: Sequence[str] = field(default=(), converter=_or_empty, validator=_TEXTS)

    @classmethod
    def read(cls, said: object) -> Hello | None:
        """Return the hello in the first control line, or None if it is not valid. Unknown fields are ignored because a
        newer shim may send more."""
        known = fields_dict(cls)
        try:
            return cls(**{name: value for name, value in said.items() if name in known})  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError):
            return None


@frozen
class ShimServerDeps:
    """The dependencies of shim connections.

    `life` identifies this server run. `token` is what shims must know. `require_same_settings` raises IntercomError if
    a shim was started with other settings than this server. `outdated` is called if a newer shim asks this server to
    step down. Agent connections note in `connected_agents` who is connected. `processes` records which processes are
    agents'. `connections` lists all agent connections by name, also those over HTTP, with their processes; hooks find
    their agent there. `admission` counts the connections over the socket.
    """

    config: Config
    connected_agents: ConnectedAgents
    life: str
    token: str
    server: Server[Any]
    require_same_settings: Callable[[Hello], None]
    outdated: Callable[[Hello], bool]
    processes: KnownProcesses
    connections: dict[str, tuple[AgentConnection, frozenset[int]]] = field(factory=dict)
    admission: Admission = field(factory=lambda: Admission(LINKS))


class ShimListener(Actor):
    """The actor `shims`: accepts connections at `path` and starts a `ShimConnection` for each under `links`. `tell`
    reports a socket that was removed."""

    def __init__(self, path: str, deps: ShimServerDeps, links: Name, tell: Tell = lambda _text, _level: None) -> None:
        super().__init__()
        self._path, self._deps, self._links, self._tell = path, deps, links, tell

    def on_start(self) -> None:
        listener = listen(self._path)
        self.spawn(self._accept, listener)
        self.spawn(Renewal(self._tell, listener.renew).keep)

    async def _accept(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        async with listener:
            for number in itertools.count(1):
                stream = await listener.accept()
                start = partial(ShimConnection, stream, self._deps)
                spec = ChildSpec(f"link/{id(self)}-{number}", start, restart=Restart.TEMPORARY)
                try:
                    await ask(self._links, StartChild(spec), timeout=5.0, retry=True)
                except (IntercomError, Busy, trio.TooSlowError):
                    # The shim sees the closed connection and tries again.
                    await trio.aclose_forcefully(stream)


class ShimConnection(Actor):
    """One shim's connection, from its hello to its end."""

    def __init__(self, stream: trio.SocketStream, deps: ShimServerDeps) -> None:
        super().__init__()
        self._stream = stream
        self._at = deps
        self._sending = trio.Lock()
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
        at = self._at
        lines = Lines(self._stream, LONGEST_HELLO)
        with trio.fail_after(HELLO_SECONDS):
            hello = await self._hello(lines)
        if hello is None:
            return
        is_hook = hello.role == "hook"
        if not (at.admission.watch(place) if is_hook else at.admission.authenticate(place)):
            await self._refuse_busy()
            return
        lines.longest = LONGEST_LINE
        # The shim's own claim is no evidence: the system says which process it is.
        peer = server_socket.peer(self._stream)
        welcome: JsonObject = {"intercom": {"welcome": {"wire": WIRE, "version": __version__, "life": at.life}}}
        if is_hook:
            await self._hook(lines, peer.pid, welcome)
            return
        agent = AgentConnection(
            self.system,
            at.config,
            at.connected_agents,
            hello.shim,
            hello.workspace,
            hello.cwd,
            hello.channel,
            hello.session,
            role_token=None if hello.role_token is None else role_token.hashed(hello.role_token),
            agent=hello.agent,
        )
        pids = frozenset(pid for pid in (hello.client_pid, hello.pid, peer.pid) if pid is not None and pid > 1)
        at.connections[agent.name] = (agent, pids)
        try:
            # Before the welcome, and so before any call of its agent is answered.
            await at.processes.came(agent.name, {peer.pid}, with_drivers=True)
            await self._send(welcome)
            agent.opened(hello.agents)
            if hello.delivered:
                await self._delivered(agent, hello.delivered)
            await self._mcp(agent, lines)
        finally:
            at.connections.pop(agent.name, None)
            at.processes.left(agent.name)
            agent.closed(for_good=self._said_goodbye)

    async def _hello(self, lines: Lines) -> Hello | None:
        """Return the hello of a shim that may go on. Any other one is refused."""
        hello = Hello.read(control(await lines.next() or b"").get("hello"))
        if hello is None:
            await self._refuse("version_mismatch", f"this server speaks wire {WIRE}; use the shim of its own version")
            return None
        if not hmac.compare_digest((hello.token or "").encode(), self._at.token.encode()):
            await self._refuse("unauthorized", "the shim does not know this server's token", retry=True)
            return None
        if self._at.outdated(hello):
            await self._send({"intercom": {"handover": {}}})
            return None
        if hello.role_token is not None and not role_token.is_usable(hello.role_token):
            await self._refuse("invalid_arguments", role_token.FAULT)
            return None
        if hello.agent is not None and not limits.is_agent_name(hello.agent):
            await self._refuse(
                "invalid_arguments", f"the agent (--agent or INTERCOM_AGENT) is not {limits.AGENT_NAME_FORM}"
            )
            return None
        try:
            self._at.require_same_settings(hello)
        except IntercomError as refused:
            await self._refuse(refused.error_code, refused.message)
            return None
        return hello

    async def _hook(self, lines: Lines, pid: int, welcome: JsonObject) -> None:
        """Answer a client's permission hook. Its client counts as an agent's from here on, also after the hook has
        ended."""
        at = self._at
        name = f"hook/{uuid.uuid4().hex}"
        try:
            await at.processes.came(name, {pid}, with_drivers=True)
            await self._send(welcome)
            asking = HookDeps(self.system, at.config, at.connected_agents, at.connections, name, pid)
            await hook_server.attend(asking, lines.next, self._send)
        finally:
            at.processes.left(name)

    async def _mcp(self, agent: AgentConnection, lines: Lines) -> None:
        """Transfer messages between the shim and the SDK's server until the shim disconnects."""
        deliveries = agent.sent_results

        async def receive() -> SessionMessage | None:
            while (line := await lines.next()) is not None:
                if line.startswith(b'{"intercom"'):
                    told = control(line)
                    if isinstance(receipts := told.get("delivered"), list):
                        self.spawn(self._delivered, agent, [text for text in receipts if isinstance(text, str)])
                    self._said_goodbye = self._said_goodbye or "bye" in told
                    continue
                message = await read_or_refuse(line, self._send_bytes)
                if message is None:
                    continue
                if isinstance(message, types.JSONRPCRequest):
                    params = message.params or {}
                    meta, info = params.get("_meta"), params.get("clientInfo")
                    if message.method in NAMED and isinstance(meta, dict) and isinstance(meta.get(CALL_KEY), str):
                        deliveries.asked(message.id, meta[CALL_KEY])
                    elif message.method == "initialize" and isinstance(info, dict):
                        # A hook may come before the client's first call.
                        name = info.get("name")
                        agent.client_name = name[: limits.NAME] if isinstance(name, str) and name else None
                else:
                    # A cancelled call gets no answer, or its client ignores the answer.
                    deliveries.cancelled(cancelled(message))
                return SessionMessage(message, ServerMessageMetadata(request_context=agent))
            return None

        async def write(sent: SessionMessage) -> None:
            if not self.actor_ref.is_alive():
                # The SDK fails the calls of a closing connection. They have not failed: the shim repeats them.
                return
            data = to_line(sent.message)
            if (agents := agent.news_of_agents()) is not None:
                data = _line({"intercom": {"agents": agents}}) + data
            if isinstance(sent.message, types.JSONRPCResponse | types.JSONRPCError):
                name, receipt = deliveries.answered(sent.message.id) or (None, None)
                if receipt is not None:
                    # Sent before the answer, so that the shim returns it after passing the answer on.
                    data = _line({"intercom": {"receipt": {"call": name, "text": receipt}}}) + data
            await self._send_bytes(data)
            crash_points.reach("answer.left")

        await run(self._at.server, receive, write)

    async def _delivered(self, agent: AgentConnection, receipts: Sequence[str]) -> None:
        try:
            await agent.sent_results.delivered(receipts)
            await self._send({"intercom": {"recorded": receipts}})
        except _PASSING as failed:
            # The shim repeats its receipts until it gets this confirmation.
            log.info("deliveries could not be recorded now: %r", failed)

    async def _refuse_busy(self) -> None:
        await self._refuse("busy", "too many connections to the server; try again shortly", retry=True)

    async def _refuse(self, code: str, message: str, *, retry: bool = False) -> None:
        await self._send({"intercom": {"refused": {"code": code, "message": message, "retry": retry}}})

    async def _send(self, message: JsonObject) -> None:
        await self._send_bytes(_line(message))

    async def _send_bytes(self, data: bytes) -> None:
        try:
            # `acquire` would let all other tasks run first, and the agent wait for them.
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            sent = self._write(data)
            if sent < len(data):
                with trio.fail_after(STALLED_SECONDS):
                    await self._stream.send_all(data[sent:])
        except BaseException:
            # Part of a line may be sent: the next data would be read as its rest.
            await trio.aclose_forcefully(self._stream)
            raise
        finally:
            self._sending.release()

    def _write(self, data: bytes) -> int:
        """Write what the socket takes at once. Most answers need no more than this, and none waits for other tasks."""
        try:
            return os.write(self._stream.socket.fileno(), data)
        except OSError:
            # It is full or closed, and `send_all` says which.
            return 0


def _line(message: JsonObject) -> bytes:
    return json.dumps(message).encode() + b"\n"
