"""An agent connection, whichever transport carries it: who calls, in which session, and what its results deliver.

A result may carry a decision or instructions. A shim returns the result's receipt once it was written to the client.
Without a shim, two signs replace the receipt: the answer's bytes have left while its reader was connected, and the
agent has made its next call, which it does after reading. Only then is the delivery recorded.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, evolve, field, frozen

from actors import Busy, Down, Name, NotRunning, System, ask
from intercom.agents.call import Call, Progress, note
from intercom.agents.clients import call_wait_seconds
from intercom.model.config import Config
from intercom.model.errors import IntercomError, InvalidArguments, NotFound, Paused
from intercom.sessions import registry
from intercom.sessions.messages import (
    Activity,
    Admit,
    Adopt,
    Agent,
    AgentsGone,
    AgentsHere,
    Deliver,
    Delivery,
    FindAnonymous,
    Undeliver,
    Wanted,
    Written,
    key_of,
)
from intercom.sessions.registry import Presence
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.tool import Tool
from intercom.workspace import files

log = logging.getLogger("intercom.agents")

#: Time limit for admitting an agent and for recording deliveries, in seconds. Both are tried again after a restart, so
#: nothing is lost.
_SECONDS = 60.0
#: How long an agent's next call waits for the record of deliveries, in seconds. Past it, the call after it tries again.
_CONFIRM_SECONDS = 5.0
#: The shortest time between two reports of activity to a stall detector, in seconds.
_HEARD_SECONDS = 0.1
#: How long a chosen workspace is not looked at again, in seconds.
_CHOSEN_SECONDS = 1.0
_MOST_CHOSEN = 256


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

    # --- calls -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def answering(
        self, tool: Tool, given: Any, caller: Caller, request_id: object, response: PendingResponse | None
    ) -> AsyncIterator[Call]:
        """Open the tool call of a request, which the `with` block answers. Then what its result carries is on its way;
        if the block fails or is cancelled, there is no result, and that is pending again."""
        call = await self.open_call(tool, given, caller)
        note(call.session_id, getattr(given, "request_id", None))
        if response is not None:
            response.begun(call, request_id)
        try:
            yield call
            # The call may be cancelled just after its answer: the SDK then sends no result.
            await trio.lowlevel.checkpoint_if_cancelled()
            self.close_call(call)
        except BaseException:
            self.deliveries.abandon(call.name, call.session_id)
            raise
        finally:
            if response is not None:
                response.answered()

    async def open_call(self, tool: Tool, given: Any, caller: Caller) -> Call:
        """Admit a call: find or open its session, and note the activity. Raises WorkspaceRefused if the agent has no
        usable workspace, and the errors of adoption. Raises Paused if the agent is paused and the poll interval of its
        client ends."""
        self.client_name = caller.client_name or self.client_name
        if self.deliveries.has_unread:
            if isinstance(given, Reboot):
                # `reboot` means a restarted client, which may not have read what was written.
                self.deliveries.client_restarted()
            else:
                await self.deliveries.read_all()
        session_id = await (self._found(given, caller) if self.anonymous else self.session(caller))
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

    def _call(self, tool: Tool, given: Any, caller: Caller, session_id: str) -> Call:
        return Call(
            name=caller.call_name or f"{self.key}/{uuid.uuid4()}",
            tool=tool,
            session_id=session_id,
            session=self.system.named(f"session/{session_id}"),
            call_wait_seconds=call_wait_seconds(caller.client_name, self.config),
            progress=caller.progress,
            given=given,
            on_its_way=self.deliveries.on_its_way,
        )

    def close_call(self, call: Call) -> None:
        """Note the activity and what the call's result carries; the result is on its way, or the call is over."""
        self._heard(call.session_id)
        self.deliveries.sent(call)

    def _heard(self, session_id: str) -> None:
        """Report activity to the stall detector, at most every `_HEARD_SECONDS`: calls come in bursts."""
        now = trio.current_time()
        if now - self._told.get(session_id, -math.inf) >= _HEARD_SECONDS:
            self._told[session_id] = now
            self.system.named(f"stall/{session_id}").tell(Activity())

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

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def _found(self, given: Any, caller: Caller) -> str:
        """Return the session of an anonymous call: that of its `request_id`, otherwise a new one."""
        request_id = getattr(given, "request_id", None)
        if isinstance(given, Reboot) and given.session_id is not None:
            raise InvalidArguments(
                "a session can be taken over by an agent that is known again: name it in the URL with ?agent=KEY"
            )
        async with self._admitting():
            if request_id is None:
                return await ask(self._registry, Admit(await self._agent(caller)), timeout=_SECONDS, retry=True)
            found = await ask(self._registry, FindAnonymous(request_id), timeout=_SECONDS, retry=True)
            self._note(found.agent)
            return found.session_id

    async def session(self, caller: Caller) -> str:
        """Return the id of the caller's session, and open one if needed. Raises WorkspaceRefused."""
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

    def _note(self, agent: Agent) -> None:
        """Note an agent before its admission, so that the end of the connection covers it. On a closed connection the
        agent does not count as present because nothing would report that it left."""
        if agent.key != self.key:
            self._agents.add(agent.key)
        if not self._closed:
            self.presence.came(agent.key, self.name)

    async def _agent(self, caller: Caller) -> Agent:
        """Return the caller as the registry knows it, and note it."""
        if self.session_id is not None:
            agent = Agent(key_of(self.session_id), caller.client_name, "", self.channel_id, self.session_id)
        else:
            roots = [] if self.workspace is not None else await caller.roots()
            default: Path | None = self.config.default_workspace_root
            chosen = await self.workspaces.choose(self.workspace, roots, self.cwd, default)
            key = self.key
            if caller.thread is not None and not self.anonymous:
                # In another workspace, the conversation gets another session: relative paths mean other files there.
                key = registry.of_conversation(key, f"{caller.conversation}@{chosen}")
            agent = Agent(key, caller.client_name, chosen, self.channel_id)
        self._note(agent)
        return agent


@define
class Deliveries:
    """The pending deliveries of one agent connection, by the names of calls.

    `_sent` holds those on their way, with the session of each. `_arrived` holds those whose arrival is being recorded.
    `_cancelled` names those abandoned after they were sent. `_written` holds those written without a shim, with the id
    of the request that each answers. `_asked` holds the names of calls whose cancellation still matters, by request id.
    """

    system: System
    _sent: dict[str, tuple[str, Delivery]] = field(factory=dict, init=False)
    _arrived: dict[str, Delivery] = field(factory=dict, init=False)
    # A dict, not a set: empty, it takes a third of the memory, and there may be thousands of connections.
    _cancelled: dict[str, None] = field(factory=dict, init=False)
    _written: dict[str, object] = field(factory=dict, init=False)
    _asked: dict[str | int, str] = field(factory=dict, init=False)

    @property
    def has_unread(self) -> bool:
        """Whether a result was written to a connection without a shim, and the agent has made no call since."""
        return bool(self._written)

    def asked(self, request_id: str | int, name: str) -> None:
        """Note a call with this name over a byte stream."""
        self._asked[request_id] = name

    def withdrawn(self, request_id: str | int | None) -> None:
        """Make pending again what the call of a cancelled request carried over a byte stream. The cancellation may
        cross with the answer; its client then drops the answer."""
        name = None if request_id is None else self._asked.pop(request_id, None)
        if name is not None:
            self.abandon(name)

    def answered(self, request_id: str | int | None) -> tuple[str, str | None] | None:
        """Note that the answer to a request is about to be sent over a byte stream. Returns the name of its call, with
        the receipt for the shim to give back once it was written; the receipt is None if nothing needs a record. It
        holds everything to record, so a server that does not know the call can record it."""
        name = None if request_id is None else self._asked.get(request_id)
        if request_id is None or name is None:
            return None
        sent = self._sent.get(name)
        if sent is None:
            del self._asked[request_id]
        return name, None if sent is None else receipt(*sent)

    def sent(self, call: Call) -> None:
        """Note what the call's result carries; the result is on its way."""
        if call.delivery is not None:
            self._sent[call.name] = (call.session_id, call.delivery)

    def abandon(self, name: str, session_id: str | None = None) -> None:
        """Make pending again what this call's result carried: the result does not reach the client."""
        if name in self._sent:
            self._cancelled[name] = None
        elif session_id is not None:
            self._undeliver(session_id, name)
        self.lost(name)

    def lost(self, name: str) -> None:
        """Make pending again what this call's result carried: nobody received it."""
        sent = self._sent.pop(name, None)
        if sent is not None:
            self._undeliver(sent[0], name)

    def _undeliver(self, session_id: str, *names: str) -> None:
        self.system.named(f"session/{session_id}").tell(Undeliver(names))

    def written(self, name: str, request_id: object = None) -> None:
        """Note that this call's result was written to a connection without a shim, as the answer to this request. The
        agent's next call confirms that it was read."""
        if name in self._sent:
            self._written[name] = request_id
            session_id, delivery = self._sent[name]
            if delivery.instructions:
                # Told at once: the server may crash while the agent works on it for long.
                self.system.named(f"session/{session_id}").tell(Written(delivery.instructions))

    def cancelled(self, request_id: object) -> None:
        """Make pending again what answered this request: its client cancelled it, and ignores the answer."""
        # The SDK does not distinguish the ids 1 and "1" either.
        for name in [name for name, id in self._written.items() if str(id) == str(request_id)]:
            del self._written[name]
            self.lost(name)

    def client_restarted(self) -> None:
        """Make pending again all that is unread: the agent's client has restarted."""
        for name in self._written:
            self.lost(name)
        self._written.clear()

    async def delivered(self, receipts: Iterable[str]) -> None:
        """Record the results of these receipts as delivered. Calls that were abandoned before are left out."""
        by_session: dict[str, list[Delivery]] = {}
        for text in receipts:
            session_id, delivery = read_receipt(text)
            if delivery.call in self._cancelled:
                # Written, but to a client that had already cancelled the call.
                del self._cancelled[delivery.call]
                continue
            self._sent.pop(delivery.call, None)
            self._arrived[delivery.call] = delivery
            by_session.setdefault(session_id, []).append(delivery)
        arrived = {each.call for deliveries in by_session.values() for each in deliveries}
        try:
            for session_id, deliveries in by_session.items():
                await record(self.system, session_id, deliveries)
        finally:
            for name in arrived:
                self._arrived.pop(name, None)
            self._asked = {id: name for id, name in self._asked.items() if name not in arrived}

    def on_its_way(self) -> frozenset[str]:
        """Return the ids of the requests and instructions that results carry to the agent now."""
        if not self._sent and not self._arrived:
            return frozenset()
        deliveries = (*self._arrived.values(), *(delivery for _, delivery in self._sent.values()))
        return frozenset(id for each in deliveries for id in (*each.requests, *each.instructions))

    async def read_all(self) -> None:
        """Record all written results as read by the agent. If that fails now, a later call tries again."""
        written, self._written = self._written, {}
        await self._confirm(written)

    async def reached(self, name: str) -> None:
        """Record that this call's result has reached its client. A failure is logged, and the next call tries again."""
        await self._confirm({name: None})

    async def _confirm(self, written: dict[str, object]) -> None:
        """Record that these calls' results were read. Shielded from the caller's cancellation."""
        sent = {name: self._sent[name] for name in written if name in self._sent}
        if not sent:
            return
        is_recorded = False
        try:
            with trio.move_on_after(_CONFIRM_SECONDS, shield=True):
                await self.delivered(receipt(*each) for each in sent.values())
                is_recorded = True
        except (Busy, Down, IntercomError, NotRunning, trio.TooSlowError) as failed:
            log.warning("a delivery could not be recorded: %r", failed)
        if not is_recorded:
            self._sent |= sent
            self._written |= {name: written[name] for name in sent}

    def lose_all(self) -> None:
        """Make pending again all that was not confirmed: the connection is closed."""
        by_session: dict[str, list[str]] = {}
        for name, (session_id, _) in self._sent.items():
            by_session.setdefault(session_id, []).append(name)
        for session_id, names in by_session.items():
            self._undeliver(session_id, *names)
        self._sent.clear()
        self._written.clear()


def receipt(session_id: str, delivery: Delivery) -> str:
    """Return the receipt that the client's side gives back after this delivery."""
    return json.dumps([session_id, delivery.call, delivery.requests, delivery.instructions])


def read_receipt(text: str) -> tuple[str, Delivery]:
    """Read a receipt. Returns an empty session id and call for text that is not a receipt."""
    try:
        session_id, call, requests, instructions = json.loads(text)
        return str(session_id), Delivery(str(call), tuple(map(str, requests)), tuple(map(str, instructions)))
    except (ValueError, TypeError):
        return "", Delivery("")


async def record(system: System, session_id: str, deliveries: Iterable[Delivery]) -> None:
    """Record deliveries in their session, if it exists: it may be purged, or a receipt forged."""
    try:
        await ask(system.named("registry"), Wanted(session_id), timeout=_SECONDS, retry=True)
    except NotFound:
        return
    await ask(system.named(f"session/{session_id}"), Deliver(tuple(deliveries)), timeout=_SECONDS, retry=True)


@define(eq=False)
class PendingResponse:
    """One request of an agent over HTTP, and whether its answer was written to somebody.

    `call` is the request's tool call, None for other requests. `streams` finds the response of a stream's answer by the
    id of the request. `event` is the id of the event that stores the answer, None before the answer.
    """

    connection: AgentConnection
    streams: dict[str, PendingResponse] | None = None
    call: Call | None = field(default=None, init=False)
    event: str | None = field(default=None, init=False)
    is_written: bool = field(default=False, init=False)
    is_left: bool = field(default=False, init=False)
    _answered: bool = field(default=False, init=False)
    _cancelled: bool = field(default=False, init=False)
    _id: object = field(default=None, init=False)
    _readers: int = field(default=0, init=False)
    _news: trio.Event | None = field(default=None, init=False)

    def begun(self, call: Call, request_id: object) -> None:
        """Note that the request is this tool call."""
        self.call = call
        self._id = request_id
        if self.streams is not None:
            self.streams[str(request_id)] = self
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
                self.connection.deliveries.written(self.call.name, self._id)

    def cancelled(self) -> None:
        """Note that the client has cancelled the request. It ignores an answer that still arrives."""
        self._cancelled = True
        if self._answered and not self.is_written and self.call is not None:
            self.connection.deliveries.lost(self.call.name)

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
            self.connection.deliveries.lost(self.call.name)

    def _forget(self) -> None:
        if self.streams is not None and self.call is not None and self.streams.get(str(self._id)) is self:
            del self.streams[str(self._id)]
