"""An agent connection, whichever transport carries it: who calls, in which session, and what its results deliver.

A result may carry a decision or instructions. A shim returns the result's receipt once it was written to the client.
Without a shim, two signs replace the receipt: the answer's bytes have left while its reader was connected, and the
agent has made its next call, which it does after reading. Only then is the delivery recorded.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, evolve, field, frozen

from actors import Name, System, ask
from intercom.agents.clients import call_wait_seconds
from intercom.agents.sent_results import SentResults
from intercom.agents.tool_call import CutCalls, Progress, ToolCall, note
from intercom.model.config import Config
from intercom.model.errors import InvalidArguments, Paused
from intercom.sessions import agent_keys
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.sessions.messages import (
    Activity,
    Admit,
    Adopt,
    Agent,
    AgentsGone,
    AgentsHere,
    FindAnonymous,
    FindEarlier,
    Proposed,
    key_of,
)
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.tool import Tool
from intercom.workspace import files

log = logging.getLogger("intercom.agents")

#: Time limit for admitting an agent, in seconds. It is tried again after a restart.
_SECONDS = 60.0
#: The shortest time between two reports of activity to a stall detector, in seconds.
_HEARD_SECONDS = 0.1
#: How long a chosen workspace is not looked at again, in seconds.
_CHOSEN_SECONDS = 1.0
_MOST_CHOSEN = 256
_MOST_OWN = 1000


@frozen
class Caller:
    """What one request says of its sender. `thread` is the client's stable name of the conversation, if it has one.
    `roots` asks the client for its workspace roots, and returns none if that is not possible."""

    client_name: str | None
    thread: str | None
    call_name: str | None
    roots: Callable[[], Awaitable[list[str]]]
    progress: Progress | None

    @property
    def conversation(self) -> str:
        """The name of the conversation within its connection; empty if it has none."""
        return f"{self.client_name or 'client'}:{self.thread}" if self.thread else ""


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
    connection notes in `connected_agents` who is connected, so this is known also while the session registry restarts.

    `workspace`, `cwd` and `channel_id` come from the shim; each may be absent. `session_id` names the session that the
    client was started for, which then holds all its conversations.

    Over HTTP, a connection belongs to one agent. It is `anonymous` if its client has no name: each call then stands
    alone, and finds an earlier call's request only by its `request_id`. `client_name` is the client's latest name for
    itself. `role_token` is the token by which it has a role in the gateway, if it has shown one. Over stdio, `agent` is
    the permanent name of the agent, if it has one: all its processes in one workspace are the same agent.
    """

    system: System
    config: Config
    connected_agents: ConnectedAgents
    key: str
    workspace: str | None
    cwd: str | None
    channel_id: str | None = None
    session_id: str | None = None
    anonymous: bool = False
    workspaces: Workspaces = field(factory=Workspaces)
    role_token: str | None = field(default=None, repr=False)
    agent: str | None = None
    name: str = field(factory=lambda: uuid.uuid4().hex, init=False)
    client_name: str | None = field(default=None, init=False)
    sent_results: SentResults = field(init=False)
    cut_calls: CutCalls = field(factory=CutCalls, init=False)
    _agents: set[str] = field(factory=set, init=False)
    _known: int = field(default=0, init=False)
    _sessions: dict[str, str] = field(factory=dict, init=False)
    #: Requests that are known to be the caller's own: those of other processes are looked up.
    _own_requests: set[str] = field(factory=set, init=False)
    _told: dict[str, float] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _admission: trio.Lock | None = field(default=None, init=False)
    _when_closed: dict[str, Callable[[], object]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.sent_results = SentResults(self.system)

    # --- calls -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def answering(
        self, tool: Tool, given: Any, caller: Caller, rpc_id: object, response: PendingResponse | None
    ) -> AsyncIterator[ToolCall]:
        """Open the call of a tool. The `with` block makes its answer.

        After the block, what the result carries counts as sent. If the block fails or is cancelled, there is no result,
        and what it would have carried is pending again. `rpc_id` is the id of the MCP request. `response` is told
        of the call's begin and end, if the transport has one.
        """
        call = await self.open_call(tool, given, caller)
        note(call.session_id, getattr(given, "request_id", None))
        if response is not None:
            response.begun(call, rpc_id)
        try:
            yield call
            # The call may be cancelled just after its answer: the SDK then sends no result.
            await trio.lowlevel.checkpoint_if_cancelled()
            self.close_call(call)
        except BaseException as ended:
            self.cut_calls.note(call, caller.client_name, ended)
            self.sent_results.abandon(call.name, call.session_id)
            raise
        finally:
            if response is not None:
                response.answered()

    async def open_call(self, tool: Tool, given: Any, caller: Caller) -> ToolCall:
        """Admit a call: find or open its session, and note the activity. Raises WorkspaceRefused if the agent has no
        usable workspace, and the errors of adoption. Raises Paused if the agent is paused and the poll interval of its
        client ends."""
        self.client_name = caller.client_name or self.client_name
        if isinstance(given, Reboot):
            # `reboot` means a restarted client, which may not have read what was written.
            self.sent_results.client_restarted()
        else:
            await self.sent_results.read_all()
        session_id = await (self._found(given, caller) if self.anonymous else self._session_for(given, caller))
        call = self._call(tool, given, caller, session_id)
        if not self.anonymous and isinstance(given, Reboot):
            while True:
                try:
                    adopted = await self._admit(caller, given)
                    break
                except Paused as paused:
                    # A paused agent cannot avoid the pause by taking over another session.
                    await call.wait_until_unpaused(paused)
            call = self._call(tool, evolve(given, adopted=adopted != session_id), caller, adopted)
        self._heard(call.session_id)
        return call

    def _call(self, tool: Tool, given: Any, caller: Caller, session_id: str) -> ToolCall:
        return ToolCall(
            name=caller.call_name or f"{self.key}/{uuid.uuid4()}",
            tool=tool,
            session_id=session_id,
            session=self.system.named(f"session/{session_id}"),
            call_wait_seconds=self._call_wait(caller.client_name),
            progress=caller.progress,
            given=given,
            on_its_way=self.sent_results.on_its_way,
        )

    def _call_wait(self, client_name: str | None) -> float | None:
        known = call_wait_seconds(client_name, self.config)
        learnt = self.cut_calls.call_wait_seconds
        return known if learnt == math.inf else learnt if known is None else min(known, learnt)

    def close_call(self, call: ToolCall) -> None:
        """Note the activity and what the call's result carries; the result is on its way, or the call is over."""
        self._heard(call.session_id)
        if call.request_id is not None and call.session_id == self._sessions.get(""):
            if len(self._own_requests) >= _MOST_OWN:
                self._own_requests.clear()
            self._own_requests.add(call.request_id)
        self.sent_results.sent(call)

    def _heard(self, session_id: str) -> None:
        """Report activity to the stall detector, at most every `_HEARD_SECONDS`: calls come in bursts. A process is not
        quiet in the sessions of earlier ones that it continues while it works in another."""
        now = trio.current_time()
        continued = (id for key in self._agents if (id := self.connected_agents.continued.get(key)) is not None)
        for id in (session_id, *continued):
            if now - self._told.get(id, -math.inf) >= _HEARD_SECONDS:
                self._told[id] = now
                self.system.named(f"stall/{id}").tell(Activity())

    @property
    def _registry(self) -> Name:
        return self.system.named("registry")

    # --- presence ----------------------------------------------------------------------------------------------------

    def opened(self, agents: Iterable[str] = ()) -> None:
        """Note that the connection is open, with its earlier agents and `agents` from an earlier connection of the
        shim."""
        self._closed = False
        self._agents.update(agents)
        self._known = len(self._agents)
        for key in (self.key, *self._agents):
            self.connected_agents.came(key, self.name, self.key)
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
        self.sent_results.lose_all()
        self._told.clear()
        self.left(for_good=for_good)
        for act in self._when_closed.values():
            act()

    def left(self, *, for_good: bool = False) -> None:
        """Note that the agents are gone, although they may have read what was written to them. `opened` ends this."""
        # An agent that comes back is admitted again: its session may have been taken over meanwhile.
        self._sessions.clear()
        self._own_requests.clear()
        # Those of calls that were cancelled before they learnt of it too.
        self._agents.update(self.connected_agents.continued_over(self.name))
        for key in (self.key, *self._agents):
            self.connected_agents.left(key, self.name, parts=for_good and key == self.key)
        self._registry.tell(AgentsGone((self.key, *self._agents), for_good))

    def when_closed(self, name: str, act: Callable[[], object]) -> None:
        """Have `act` called when the connection is closed. Another one by the same name replaces it."""
        self._when_closed[name] = act

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def _found(self, given: Any, caller: Caller) -> str:
        """Return the session of an anonymous call: that of its `request_id`, otherwise a new one."""
        request_id = getattr(given, "request_id", None)
        if isinstance(given, Reboot) and given.session_id is not None:
            raise InvalidArguments("only an agent with a key can take over a session: put ?agent=KEY into the URL")
        async with self._admitting():
            if request_id is None:
                return await ask(self._registry, Admit(await self._agent(caller)), timeout=_SECONDS, retry=True)
            found = await ask(self._registry, FindAnonymous(request_id), timeout=_SECONDS, retry=True)
            self._note(found.agent)
            return found.session_id

    async def _session_for(self, given: object, caller: Caller) -> str:
        """Return the session of a call: the caller's own, unless nothing but its process tells the caller from other
        agents, and the call continues what an earlier process of the same client has begun."""
        task = given.task_id if isinstance(given, OfTask) else None
        id = getattr(given, "request_id", None)
        proposed = _proposed(given) if id is None and not self._sessions else None
        is_process = agent_keys.is_of_process(self.key) and (self.session_id, self.agent, caller.thread) == (None,) * 3
        is_others = id is not None and id not in self._own_requests
        if is_process and (is_others or proposed is not None or task is not None):
            async with self._admitting():
                wanted = FindEarlier(await self._agent(caller), self.name, id, proposed, task)
                found = await ask(self._registry, wanted, timeout=_SECONDS, retry=True)
                if found is not None:
                    self._note(found.agent)
                    return found.session_id
        return await self.session(caller)

    async def session(self, caller: Caller, task: OfTask | None = None) -> str:
        """Return the id of the caller's session, and open one if needed; with `task` the one that has it, if the caller
        may continue that. Raises WorkspaceRefused, and Paused for a process that has no session but a paused one."""
        if task is not None:
            return await self._session_for(task, caller)
        if self._admission is None and (running := self._running(caller)) is not None:
            return running
        return await self._admit(caller)

    async def _admit(self, caller: Caller, reboot: Reboot | None = None) -> str:
        """Return the id of the session that the registry gives this caller, or lets it adopt with `reboot`."""
        async with self._admitting():
            if reboot is None and (running := self._running(caller)) is not None:
                return running
            agent = await self._agent(caller)
            wanted = Admit(agent) if reboot is None else Adopt(agent, reboot.session_id)
            session_id = await ask(self._registry, wanted, timeout=_SECONDS, retry=True)
            self._sessions[caller.conversation] = session_id
            return session_id

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

    def _running(self, caller: Caller) -> str | None:
        """Return the conversation's session if it is known and runs; an idle session needs another admission."""
        id = self._sessions.get(caller.conversation)
        return id if id is not None and self.system.ref(f"session/{id}") is not None else None

    def known_session(self, caller: Caller) -> str | None:
        """Return the session of the caller's earlier calls; None before its first call, and for an anonymous client."""
        return None if self.anonymous else self._sessions.get(caller.conversation)

    def _note(self, agent: Agent) -> None:
        """Note an agent before its admission, so that the end of the connection covers it. On a closed connection the
        agent does not count as present because nothing would report that it left."""
        if agent.key != self.key:
            self._agents.add(agent.key)
        if not self._closed:
            self.connected_agents.came(agent.key, self.name, self.key)

    async def _agent(self, caller: Caller) -> Agent:
        """Return the caller as the registry knows it, and note it."""
        if self.session_id is not None:
            agent = Agent(key_of(self.session_id), caller.client_name, "", self.channel_id, self.session_id)
        else:
            roots = [] if self.workspace is not None else await caller.roots()
            default: Path | None = self.config.default_workspace_root
            chosen = await self.workspaces.choose(self.workspace, roots, self.cwd, default)
            key = self.key
            if self.agent is not None:
                key = agent_keys.of_named(self.agent, caller.conversation, chosen)
            elif caller.thread is not None and not self.anonymous:
                # In another workspace, the conversation gets another session: relative paths mean other files there.
                key = agent_keys.of_conversation(key, f"{caller.conversation}@{chosen}")
            agent = Agent(key, caller.client_name, chosen, self.channel_id)
        self._note(agent)
        return agent


@frozen
class OfTask:
    """What is asked about a task: the session that has it is wanted."""

    task_id: str


def _proposed(given: object) -> Proposed | None:
    """Return the change that a call proposes; None if it proposes none, or not a whole one."""
    if not isinstance(given, CheckClearance) or given.file_path is None:
        return None
    text = given.diff if given.content is None else given.content
    return None if text is None else Proposed(text, given.file_path, given.risk_level)


@define(eq=False)
class PendingResponse:
    """One request of an agent over HTTP, and whether its answer was written to somebody.

    `call` is the request's tool call, None for other requests. `streams` finds the response of a stream's answer by the
    id of the request. `event` is the id of the event that stores the answer, None before the answer.
    """

    connection: AgentConnection
    streams: dict[str, PendingResponse] | None = None
    call: ToolCall | None = field(default=None, init=False)
    event: str | None = field(default=None, init=False)
    is_written: bool = field(default=False, init=False)
    is_left: bool = field(default=False, init=False)
    _answered: bool = field(default=False, init=False)
    _cancelled: bool = field(default=False, init=False)
    _id: object = field(default=None, init=False)
    _readers: int = field(default=0, init=False)
    _news: trio.Event | None = field(default=None, init=False)

    def begun(self, call: ToolCall, rpc_id: object) -> None:
        """Note that the request is this tool call."""
        self.call = call
        self._id = rpc_id
        if self.streams is not None:
            self.streams[str(rpc_id)] = self
        if self.is_left:
            call.stop_waiting()

    def answered(self) -> None:
        """Note that the call has its result. Its deliveries are lost if nobody is there to read it."""
        self._answered = True
        if (self.is_left or self._cancelled) and not self.is_written:
            self._lose()

    def written(self) -> None:
        """Note that the answer's last byte has left to a connected reader."""
        if not self.is_written:
            self.is_written = True
            self._forget()
            self._changed()
            if self.call is not None and not self._cancelled:
                self.connection.sent_results.written(self.call.name, self._id)

    @property
    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request."""
        return self._cancelled

    def cancelled(self) -> None:
        """Note that the client has cancelled the request. It ignores an answer that still arrives."""
        self._cancelled = True
        if self._answered and not self.is_written and self.call is not None:
            self.connection.sent_results.lost(self.call.name)

    def leave(self) -> None:
        """Note that nobody will read the answer: its deliveries become pending again, and a waiting call ends."""
        if self.is_written or self.is_left:
            return
        self.is_left = True
        if self._answered:
            self._lose()
        else:
            self.stop_waiting()

    def stop_waiting(self) -> None:
        """End a waiting call because its client is gone, or the server stops."""
        if self.call is not None:
            self.call.stop_waiting()

    def number(self, event: str) -> None:
        """Note the id of the event that stores the answer."""
        self.event = event
        self._changed()

    async def numbered(self) -> None:
        """Wait for that event id."""
        await self._change(lambda: self.event is not None)

    async def returns_within(self, seconds: float) -> bool:
        """Wait for a new reader of the answer, at most this time. Returns whether one came."""
        with trio.move_on_after(seconds):
            await self._change(lambda: self._readers > 0)
            return True
        return False

    async def reader_gone(self) -> None:
        """Wait until no new reader is connected, or the answer is written."""
        await self._change(lambda: self._readers == 0 or self.is_written)

    @contextmanager
    def read_again(self) -> Iterator[None]:
        """Count a new reader of an abandoned answer during the `with` block."""
        self._readers += 1
        self._changed()
        try:
            yield
        finally:
            self._readers -= 1
            self._changed()

    async def _change(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            if self._news is None:
                self._news = trio.Event()
            await self._news.wait()

    def _changed(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def _lose(self) -> None:
        self._forget()
        if self.call is not None:
            self.connection.sent_results.lost(self.call.name)

    def _forget(self) -> None:
        if self.streams is not None and self.call is not None and self.streams.get(str(self._id)) is self:
            del self.streams[str(self._id)]
