"""An agent connection, whichever transport carries it: who calls, in which workspace and session."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, evolve, field, frozen

from actors import Name, System, ask
from intercom.agents.call import Call
from intercom.agents.clients import slice_seconds
from intercom.agents.deliveries import Deliveries
from intercom.model.config import Config
from intercom.model.errors import InvalidArguments, Paused
from intercom.sessions import registry
from intercom.sessions.messages import Activity, Admit, Adopt, Agent, AgentsGone, AgentsHere, FindAnonymous, key_of
from intercom.sessions.registry import Presence
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.tool import Tool
from intercom.workspace import files

#: Time limit for admitting an agent, in seconds. It is tried again after a restart, so nothing is lost.
_ADMIT_SECONDS = 60.0
#: The shortest time between two reports of activity to a stall detector, in seconds.
_HEARD_SECONDS = 0.1


@frozen
class Caller:
    """What one request says of its sender. `thread` is the client's stable name of the conversation, if it has one.
    `roots` asks the client for its workspace roots, and returns none if that is not possible."""

    client_name: str | None
    thread: str | None
    call_name: str | None
    roots: Callable[[], Awaitable[list[str]]]
    progress: Callable[[float, str], Awaitable[None]] | None


#: How long a chosen workspace is not looked at again, in seconds.
_CHOSEN_SECONDS = 1.0
_MOST_CHOSEN = 256


@define(eq=False)
class Workspaces:
    """Chooses workspaces, and remembers each choice for a moment: the agents of one client come many at a time."""

    _chosen: dict[tuple[object, ...], tuple[float, str]] = field(factory=dict, init=False)

    async def choose(self, option: str | None, roots: Iterable[str], cwd: str | None, default: Path | None) -> str:
        """As `files.choose_workspace`, in a thread, because a file system may not answer."""
        wanted = option, tuple(roots), cwd, default
        now = trio.current_time()
        known = self._chosen.get(wanted)
        if known is not None and now - known[0] < _CHOSEN_SECONDS:
            return known[1]
        chosen = await trio.to_thread.run_sync(files.choose_workspace, *wanted)
        if len(self._chosen) >= _MOST_CHOSEN:
            self._chosen.clear()
        self._chosen[wanted] = (now, chosen)
        return chosen


@define
class AgentConnection:
    """One agent connection.

    `key` identifies the agent of a client that does not name its conversations; it is the same for a shim's whole run.
    `name` is unique to this connection: a shim may open a new one before its old one is known to be closed. The
    connection notes in `presence` who is connected, so this is known also while the session registry restarts.

    `workspace`, `cwd` and `channel_id` come from the shim; each may be absent. `session_id` names the session that the
    client was started for, which then holds all its conversations.

    Over HTTP, a connection belongs to one agent. It is `anonymous` if its client has no name: each call then stands
    alone, and finds an earlier call's request only by its `request_id`. `client_name` is the client's latest name for
    itself.
    """

    system: System
    config: Config
    presence: Presence
    key: str
    workspace: str | None
    cwd: str | None
    channel_id: str | None = None
    session_id: str | None = None
    anonymous: bool = False
    workspaces: Workspaces = field(factory=Workspaces)
    name: str = field(factory=lambda: uuid.uuid4().hex, init=False)
    client_name: str | None = field(default=None, init=False)
    deliveries: Deliveries = field(init=False)
    _agents: set[str] = field(factory=set, init=False)
    _known: int = field(default=0, init=False)
    _sessions: dict[str, str] = field(factory=dict, init=False)
    _told: dict[str, float] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _admission: trio.Lock | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.deliveries = Deliveries(self.system)

    async def open_call(self, tool: Tool, given: Any, caller: Caller) -> Call:
        """Admit a call: find or open its session, and note the activity. Raises WorkspaceRefused if the agent has no
        usable workspace, and the errors of adoption. Raises Paused if the agent is paused and the poll interval of its
        client ends."""
        self.client_name = caller.client_name or self.client_name
        if self.deliveries.has_unread:
            await self._heard_again(given)
        session_id = await (self._found(given, caller) if self.anonymous else self.session(caller))
        call = self._call(tool, given, caller, session_id)
        if self.anonymous or not isinstance(given, Reboot):
            self._heard(session_id)
            return call
        while True:
            try:
                adopted = await self._adopt(caller, given.session_id)
                break
            except Paused as paused:
                # A paused agent cannot avoid the pause by taking over another session.
                await call.wait_until_unpaused(paused)
        self._heard(adopted)
        return self._call(tool, evolve(given, adopted=adopted != session_id), caller, adopted)

    def _call(self, tool: Tool, given: Any, caller: Caller, session_id: str) -> Call:
        return Call(
            name=caller.call_name or f"{self.key}/{uuid.uuid4()}",
            tool=tool,
            session_id=session_id,
            session=self.system.named(f"session/{session_id}"),
            slice_seconds=slice_seconds(caller.client_name, self.config),
            progress=caller.progress,
            given=given,
            on_its_way=self.deliveries.on_its_way,
        )

    def close_call(self, call: Call) -> None:
        """Note the activity and what the call's result carries; the result is on its way, or the call is over."""
        self._heard(call.session_id)
        self.deliveries.sent(call)

    async def _heard_again(self, given: Any) -> None:
        if isinstance(given, Reboot):
            # `reboot` means a restarted client, which may not have read what was written.
            self.deliveries.client_restarted()
        else:
            await self.deliveries.read_all()

    def _heard(self, session_id: str) -> None:
        """Report activity to the stall detector, at most every `_HEARD_SECONDS`: calls come in bursts."""
        now = trio.current_time()
        if now - self._told.get(session_id, -math.inf) >= _HEARD_SECONDS:
            self._told[session_id] = now
            self.system.named(f"stall/{session_id}").tell(Activity())

    def opened(self, agents: Iterable[str] = ()) -> None:
        """Note that the connection is open, with its earlier agents and `agents` from an earlier connection of the
        shim."""
        self._closed = False
        self._agents.update(agents)
        self._known = len(self._agents)
        for key in (self.key, *self._agents):
            self.presence.came(key, self.name)
        self._registry.tell(AgentsHere((self.key, *self._agents)))

    def news_of_agents(self) -> list[str] | None:
        """Return the agents whose conversations the client has named; None if the shim has them already. The shim
        reports them after the death of the server."""
        if len(self._agents) == self._known:
            return None
        self._known = len(self._agents)
        return sorted(self._agents)

    def closed(self, *, for_good: bool = False) -> None:
        """Note that the connection is closed: its deliveries are lost, and its agents may be gone. `for_good` says that
        their client closed it and will not come back."""
        self._closed = True
        self.deliveries.lose_all()
        # An agent that comes back is admitted again: its session may have been taken over meanwhile.
        self._sessions.clear()
        self._told.clear()
        for key in (self.key, *self._agents):
            self.presence.left(key, self.name)
        self._registry.tell(AgentsGone((self.key, *self._agents), for_good))

    @property
    def _registry(self) -> Name:
        return self.system.named("registry")

    async def _found(self, given: Any, caller: Caller) -> str:
        """Return the session of an anonymous call: that of its `request_id`, otherwise a new one."""
        request_id = getattr(given, "request_id", None)
        if isinstance(given, Reboot) and given.session_id is not None:
            raise InvalidArguments(
                "a session can be taken over by an agent that is known again: name it in the URL with ?agent=KEY"
            )
        async with self._admitting():
            if request_id is not None:
                found = await ask(self._registry, FindAnonymous(request_id), timeout=_ADMIT_SECONDS, retry=True)
                self._note(found.agent)
                return found.session_id
            agent = await self._agent(caller)
            self._note(agent)
            return await ask(self._registry, Admit(agent), timeout=_ADMIT_SECONDS, retry=True)

    async def session(self, caller: Caller) -> str:
        """Return the id of the caller's session, and open one if needed. Raises WorkspaceRefused."""
        key = _conversation(caller)
        if self._runs(key) and self._admission is None:
            return self._sessions[key]
        async with self._admitting():
            if not self._runs(key):
                agent = await self._agent(caller)
                self._note(agent)
                self._sessions[key] = await ask(self._registry, Admit(agent), timeout=_ADMIT_SECONDS, retry=True)
            return self._sessions[key]

    @asynccontextmanager
    async def _admitting(self) -> AsyncIterator[None]:
        """Admit one caller at a time. The lock exists only during admissions."""
        lock = self._admission = self._admission or trio.Lock()
        async with lock:
            try:
                yield
            finally:
                if not lock.statistics().tasks_waiting:
                    self._admission = None

    def _runs(self, conversation: str) -> bool:
        """Whether this conversation's session is known and runs; an idle session needs another admission."""
        id = self._sessions.get(conversation)
        return id is not None and self.system.ref(f"session/{id}") is not None

    async def _adopt(self, caller: Caller, wanted: str | None) -> str:
        key = _conversation(caller)
        async with self._admitting():
            agent = await self._agent(caller)
            self._note(agent)
            self._sessions[key] = await ask(self._registry, Adopt(agent, wanted), timeout=_ADMIT_SECONDS, retry=True)
            return self._sessions[key]

    def _note(self, agent: Agent) -> None:
        """Note an agent before its admission, so that the end of the connection covers it. On a closed connection the
        agent does not count as present because nothing would report that it left."""
        if agent.key != self.key:
            self._agents.add(agent.key)
        if not self._closed:
            self.presence.came(agent.key, self.name)

    async def _agent(self, caller: Caller) -> Agent:
        if self.session_id is not None:
            return Agent(key_of(self.session_id), caller.client_name, "", self.channel_id, self.session_id)
        roots = [] if self.workspace is not None else await caller.roots()
        default: Path | None = self.config.default_workspace_root
        chosen = await self.workspaces.choose(self.workspace, roots, self.cwd, default)
        return Agent(self._agent_key(caller, chosen), caller.client_name, chosen, self.channel_id)

    def _agent_key(self, caller: Caller, workspace: str) -> str:
        if caller.thread is None or self.anonymous:
            return self.key
        # In another workspace, the conversation gets another session: relative paths mean other files there.
        return registry.of_conversation(self.key, f"{_conversation(caller)}@{workspace}")


def _conversation(caller: Caller) -> str:
    """Return the name of a conversation within its connection; empty if it has none."""
    return f"{caller.client_name or 'client'}:{caller.thread}" if caller.thread else ""
