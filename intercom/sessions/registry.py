"""The session registry: finds or opens each agent's session, and keeps its actors running.

One actor does this, so that two first calls of one agent open one session. Connections record their own start and end
in `ConnectedAgents`, so that nothing is lost while the registry restarts: it evaluates that, and everyone may read it.

A session that a person started, or that was restored, exists before its agent does. All connections that name its id
are one agent's, so the agent finds its session again after any restart. Other agents have keys: over stdio the shim's
id, or a client's name for a conversation. `of_conversation` keeps those apart from the prefixes of other keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

from attrs import define, evolve, field, frozen

from actors import (
    Actor,
    Backoff,
    ChildSpec,
    DownEvent,
    Name,
    Refused,
    Reply,
    Restart,
    StartFailed,
    Strategy,
    Supervisor,
    System,
)
from intercom.local import shim_process
from intercom.model import crash_points
from intercom.model.card import CardKind, Notice
from intercom.model.errors import IntercomError, InvalidState, NotFound, NotStarted, Unauthorized
from intercom.model.process import AgentProcessState
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.model.visible_text import count
from intercom.sessions import lookups
from intercom.sessions.agent_keys import ONE_AGENT, is_anonymous
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.sessions.messages import (
    Admit,
    Adopt,
    Agent,
    AgentCame,
    AgentLeft,
    AgentsGone,
    AgentsHere,
    FindAnonymous,
    FindEarlier,
    RequestOwner,
    Wanted,
    key_of,
)
from intercom.sessions.policies import PolicyRegistry
from intercom.sessions.session.actor import POLICY_SECONDS
from intercom.sessions.session.message_handlers import session_actor
from intercom.sessions.session.stall import Rules, StallDetector
from intercom.sessions.session_deps import SessionDeps
from intercom.sessions.session_takeover import (
    choose,
    hand_over,
    holds_requests,
    note_continued,
    of_earlier_process,
    require_going_on,
)
from intercom.store import audit, requests, sessions
from intercom.store.apply_journal import JournalState, journal
from intercom.store.processes import agent_processes
from intercom.store.requests import Counts, counts
from intercom.store.sessions import stalls
from intercom.store.writer_messages import Database

#: A session that keeps crashing is restarted ever more slowly, and for long, because its agent waits for an answer.
_BACKOFF = Backoff(initial=0.05, factor=2.0, max=5.0)
#: A session that is to stop may first wait for its policy.
_SHUTDOWN_SECONDS = POLICY_SECONDS + 5.0


def session_spec(session: Session, deps: SessionDeps, detector_of: Name, *, is_new: bool = False) -> ChildSpec:
    """Return the spec of a session's supervisor, to be started under the `sessions` supervisor. `is_new` says that the
    session was opened just now, and nobody else knows of it: its first actor has nothing to load."""
    session_id = session.id
    new = [session] if is_new else []

    def start_session() -> Actor:
        return session_actor(session_id, deps, new.pop() if new else None)

    def start() -> Actor:
        settings = deps.config.stall
        rules = Rules(
            settings.inactivity_threshold_seconds, settings.escalation_threshold_seconds, settings.max_retries
        )
        return Supervisor(
            [
                ChildSpec(f"session/{session_id}", start_session, shutdown=_SHUTDOWN_SECONDS),
                ChildSpec(f"stall/{session_id}", lambda: StallDetector(detector_of, rules)),
            ],
            strategy=Strategy.REST_FOR_ONE,
            max_restarts=50,
            within=60.0,
            backoff=_BACKOFF,
        )

    return ChildSpec(f"session_supervisor/{session_id}", start, restart=Restart.PERMANENT, shutdown=None)


@define(eq=False)
class RunningSessions:
    """`supervisors` is the supervisor of all session supervisors, `watchers` that of the policy watchers."""

    system: System
    deps: SessionDeps
    supervisors: Name
    watchers: Name
    policy_registry: PolicyRegistry
    _ids: set[str] = field(factory=set, init=False)
    _spared: set[str] = field(factory=set, init=False)

    async def take_stock(self, known: Iterable[str], workspace_roots: Iterable[str]) -> None:
        """Start again with those of the `known` sessions that run, once both supervisors run and the policies of these
        workspaces are watched."""
        self._ids = {id for id in known if self.system.ref(f"session_supervisor/{id}") is not None}
        # The watchers first: a session may wait for its policy, and their supervisor for that session.
        await self.system.next_incarnation(self.watchers, None)
        for root in workspace_roots:
            # One that cannot be started is reported with the sessions that need it.
            with suppress(StartFailed):
                await lookups.ensure(self.watchers, self.policy_registry.watcher(root))
        await self.system.next_incarnation(self.supervisors, None)

    async def run(self, session: Session, *, is_new: bool = False) -> None:
        """Run a session's actors. The policy watcher first: the session's first proposal needs it. `is_new` as in
        `session_spec`. Raises StartFailed."""
        if self.deps.watcher(session.workspace_root).ref is None:
            await lookups.ensure(self.watchers, self.policy_registry.watcher(session.workspace_root))
        name = self.system.named(f"session/{session.id}")
        if name.ref is None:
            await lookups.ensure(self.supervisors, session_spec(session, self.deps, name, is_new=is_new))
        self._ids.add(session.id)

    async def stop(self, session_id: str) -> None:
        """Stop a session's actors. They are started again on demand."""
        await lookups.stop(self.supervisors, f"session_supervisor/{session_id}")
        self._ids.discard(session_id)

    def spare(self, session_id: str) -> None:
        """Keep this session out of the next `perhaps_idle`: a message to it is about to come."""
        self._spared.add(session_id)

    def perhaps_idle(self) -> tuple[str, ...]:
        """Return the running sessions that were not spared since the last call."""
        spared, self._spared = self._spared, set()
        return tuple(self._ids - spared)


def find_or_open(db: Database, new: Session, continued: Iterable[str] = ()) -> Session:
    """Return the session of the agent of `new`; if it has none, open this one. Raises Paused if it has none because it
    works in the session of an earlier process, one of the keys `continued`, and that session is paused."""
    assert new.agent_key is not None, "it is an agent's"
    found = sessions.by_agent(db, new.agent_key)
    if found is not None:
        return found
    for key in continued:
        require_going_on(sessions.by_agent(db, key))
    sessions.insert(db, new)
    at, client = new.created_at, new.client_name or "an agent"
    audit.record(db, at, "session_opened", new.id, "agent", client, {"workspace_root": new.workspace_root})
    audit.record(db, at, "session_active", new.id, "agent", "the agent is connected")
    return new


_ELSE = "unset INTERCOM_SESSION_ID (or leave out --session-id) to work in a session of your own"


def claim(db: Database, agent: Agent, at: datetime, is_connected: Callable[[str | None], bool]) -> Session:
    """Bind the session that the agent names to it, in the caller's transaction, and return its new row.

    Raises NotFound for an unknown id, and InvalidState if the session is over or its other agent is connected. Raises
    Unauthorized if an agent opened the session for itself. On an error nothing has changed.
    """
    assert agent.session_id is not None, "it names a session"
    session = sessions.get(db, agent.session_id)
    if session is None:
        raise NotFound(f"no session has the id {agent.session_id[:80]!r}; {_ELSE}")
    if session.status is SessionStatus.TERMINATED:
        raise InvalidState(f"session {session.id} was ended; stop, or {_ELSE}")
    if not is_for_claiming(session):
        raise Unauthorized(f"session {session.id} belongs to another agent, and cannot be joined by its id; {_ELSE}")
    if session.agent_key == agent.key:
        if session.client_name is not None or agent.client_name is None:
            return session
    elif is_connected(session.agent_key):
        raise InvalidState(f"session {session.id} has another agent, which is connected; {_ELSE}")
    bound = sessions.bind_agent(db, session.id, agent.key, at, agent.client_name)
    assert bound is not None, "it was not over a moment ago, in this transaction"
    audit.record(db, at, "session_claimed", session.id, "agent", agent.client_name or "an agent")
    return bound


def is_for_claiming(session: Session) -> bool:
    """Return whether a session was made for an agent to claim, and not opened by an agent."""
    return session.prompt is not None or session.agent_key == key_of(session.id)


_OPEN = (SessionStatus.CREATED, SessionStatus.ACTIVE, SessionStatus.PAUSED, SessionStatus.INTERRUPTED)


def anonymous_owner(db: Database, request_id: str) -> Session:
    """Return the session of a request that an anonymous client made. Raises NotFound also for another agent's request:
    knowing its id gives no access to it."""
    request = requests.find(db, request_id)
    session = None if request is None else sessions.get(db, request.session_id)
    if session is None or not is_anonymous(session.agent_key):
        raise NotFound(
            f"no request of this session has the id {request_id[:100]!r}; {ONE_AGENT}", code="request_not_found"
        )
    return session


def is_anonymous_spent(db: Database, session: Session) -> bool:
    """Return whether this anonymous session holds nothing that can be asked for any more."""
    if session.status not in _OPEN or not is_anonymous(session.agent_key):
        return False
    return not holds_requests(db, session.id)


def end_anonymous(db: Database, id: str, at: datetime) -> bool:
    """End the session of this id if it is spent. No call waits in it, so nobody is told."""
    session = sessions.get(db, id)
    if session is None or not is_anonymous_spent(db, session):
        return False
    if sessions.set_status(db, id, session.status, SessionStatus.TERMINATED, at) is None:
        return False
    audit.record(db, at, "session_terminated", id, "intercom", "its client was anonymous, and has its answers")
    return True


def spent_anonymous(db: Database) -> tuple[Session, ...]:
    """Return all spent sessions. In some of them a call may just have begun."""
    return tuple(session for session in sessions.live(db) if is_anonymous_spent(db, session))


_UP = (SessionStatus.ACTIVE, SessionStatus.PAUSED)


@frozen
class Recovery:
    """What an earlier server run left. `live` are the sessions that have not ended. `cut_short` are those that have,
    with an apply that is neither done nor undone. `wanted` are the ids of those with pending work, `known` the ids of
    all sessions. `has_unfinished` is whether an apply is neither done nor undone."""

    live: tuple[Session, ...]
    cut_short: tuple[Session, ...]
    wanted: frozenset[str]
    counts: Counts
    known: tuple[str, ...]
    has_unfinished: bool = False

    def going(self) -> tuple[Session, ...]:
        """Return the sessions whose actors are to run; first those with pending work."""
        found = (each for each in self.live if each.status in _UP or each.id in self.wanted)
        return (*self.cut_short, *sorted(found, key=lambda each: each.id not in self.wanted))

    @property
    def level(self) -> str:
        """The level of the notice: a warning only if a person's decision waits, or a change was cut short."""
        waiting = self.counts.pending.items()
        is_waiting = any(each.count for kind, each in waiting if kind is not CardKind.STANDBY)
        return "warning" if is_waiting or self.has_unfinished else "info"

    def sentence(self) -> str:
        """Describe this to people."""
        waiting = self.counts.pending
        away = self.counts.sessions[SessionStatus.INTERRUPTED]
        standing_by = waiting[CardKind.STANDBY].count
        agents = f", {count(standing_by, 'agent')} standing by" if standing_by else ""
        return (
            f"server restarted: {count(waiting[CardKind.APPROVAL].count, 'pending approval')},"
            f" {count(waiting[CardKind.PROMPT].count, 'pending prompt')}{agents},"
            f" {count(away, 'session')} without an agent at the moment:"
            " an agent that comes back resumes with its tool reboot"
        )


def find_recovery(db: Database) -> Recovery:
    """Read the current state."""
    unfinished = journal.unfinished(db)
    wanted = {request.session_id for request in requests.pending(db)} | {entry.session_id for entry in unfinished}
    live = sessions.live(db)
    # A stuck one waits for a person, whose decision starts the session.
    left = {entry.session_id for entry in unfinished if entry.state is not JournalState.STUCK}
    found = (sessions.get(db, id) for id in sorted(left - {each.id for each in live}))
    cut_short = tuple(each for each in found if each is not None)
    return Recovery(live, cut_short, frozenset(wanted), counts(db), sessions.ids(db), bool(unfinished))


def to_stop(db: Database, running: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return those of these sessions that are over or abandoned and hold nothing. Each comes with the agent key that
    keeps it running while that agent is connected, or None."""
    held = {entry.session_id for entry in journal.unfinished(db)}
    found = []
    for session in sessions.inactive(db, running):
        if session.id in held or requests.pending(db, session.id) or stalls.active(db, session.id):
            continue
        elsewhere = session.agent_key is not None and sessions.by_agent(db, session.agent_key)
        is_over = session.status is SessionStatus.TERMINATED and elsewhere
        agent_process = agent_processes.get(db, session.id)
        # Over HTTP no disconnect is seen, and an agent that people started has no other session to come back to.
        has_ended = agent_process is not None and agent_process.state is AgentProcessState.OVER
        found.append((session.id, None if is_over or has_ended else session.agent_key))
    return found


log = logging.getLogger("intercom.sessions")

#: Seconds within which an agent with a lost connection may come back. A shim reconnects in well under one.
GRACE_SECONDS = 5.0
#: The grace period after a server start, in seconds: shims first have to notice that the old server died.
START_GRACE_SECONDS = 60.0
#: For this long after a start, in seconds, no session is taken over whose agent may still come back.
RETURN_SECONDS = 3.0
#: Seconds between two checks for sessions whose actors are idle.
SWEEP_SECONDS = 20.0


T = TypeVar("T")


@frozen
class BringBack:
    """Told by the actor to itself on start, so that recovery happens even without a request."""


@frozen
class Gone:
    """A timer: this agent has not come back."""

    key: str


@frozen
class AllBack:
    """A timer: living agents have come back by now."""


@frozen
class Sweep:
    """A timer: some sessions' actors may be idle."""


class SessionRegistry(Actor):
    """The actor `registry`. `in_session` is called with a session's id and its agent's connections. `has_role` says
    that the gateway gives a session a role of its own: no other agent may take it over."""

    refusals = (Refused, IntercomError)
    #: After a server crash all agents come at once, and none may be rejected.
    mailbox_size = 50_000

    def __init__(
        self,
        deps: SessionDeps,
        connected_agents: ConnectedAgents,
        supervisors: Name,
        watchers: Name,
        policy_registry: PolicyRegistry,
        default_mode: SessionMode,
        in_session: Callable[[str, frozenset[str]], object] = lambda _session_id, _connections: None,
        has_role: Callable[[str], bool] = lambda _session_id: False,
    ) -> None:
        super().__init__()
        self._deps = deps
        self._agents = connected_agents
        self._supervisors = supervisors
        self._watchers = watchers
        self._policy_registry = policy_registry
        self._default_mode = default_mode
        self._in_session = in_session
        self._has_role = has_role
        self._brought_back = self._announced = False
        self._awaited: set[str] = set()
        #: The keys of all agents with a session that is not over, and perhaps of others. An agent that comes for the
        #: first time is not among them.
        self._with_session: set[str] = set()
        self._running: RunningSessions
        self._postponed: list[tuple[Adopt, Reply[str]]] = []
        #: Why sessions do not start, by their ids, as people were told.
        self._not_started: dict[str, str] = {}

    def on_start(self) -> None:
        self._running = RunningSessions(
            self.system, self._deps, self._supervisors, self._watchers, self._policy_registry
        )
        # Recovery asks sibling actors. One that is down is not restarted while its supervisor waits for this start.
        self.actor_ref.tell(BringBack())

    async def _bring_back(self) -> None:
        """Recover the sessions of an earlier server run that can still be answered or applied."""
        found = await self._deps.store.transact(find_recovery)
        going = found.going()
        self._with_session = {each.agent_key for each in found.live if each.agent_key is not None}
        await self._running.take_stock(found.known, {each.workspace_root for each in going})
        for session in going:
            with suppress(NotStarted):
                await self._run(session)
        for session in found.live:
            agent = session.agent_key
            if session.status is not SessionStatus.INTERRUPTED and agent is not None and not self._agents.has(agent):
                self.set_timer(Gone(agent), START_GRACE_SECONDS, Gone(agent))
                self._awaited.add(agent)
        # Connections that came or went while this actor was down are recorded in `ConnectedAgents`.
        for key in self._agents.leaving():
            self.set_timer(Gone(key), GRACE_SECONDS, Gone(key))
        await self._all_here(self._agents.coming())
        self.set_timer(AllBack(), RETURN_SECONDS, AllBack())
        self.set_timer(Sweep(), SWEEP_SECONDS, Sweep())
        if found.wanted and not self._announced:
            told = found.sentence()
            log.log(logging.WARNING if found.level == "warning" else logging.INFO, "%s", told)
            self._deps.card_router.tell(Notice(told, found.level, self._deps.now()))
        self._announced = self._brought_back = True
        self.monitor(self._supervisors)
        self.monitor(self._watchers)

    async def on_receive(self, message: object) -> str | RequestOwner | None:
        if not self._brought_back:
            await self._bring_back()
        match message:
            case DownEvent():
                # All session or watcher actors ended with their supervisor, which restarts empty.
                self._brought_back = False
                await self._bring_back()
            case Admit(agent):
                return await self._admit(agent)
            case Adopt():
                return await self._adopt(message)
            case FindAnonymous(request_id):
                return await self._anonymous(request_id)
            case FindEarlier():
                return await self._earlier(message)
            case Wanted(session_id):
                return await self._wanted(session_id)
            case AgentsHere(keys):
                await self._all_here(keys)
            case AgentsGone(keys, for_good):
                for key in keys:
                    if self._agents.has(key) and not self._agents.connected(key):
                        self.set_timer(Gone(key), 0.0 if for_good else GRACE_SECONDS, Gone(key))
            case Gone(key):
                await self._gone(key)
            case AllBack():
                await self._all_back()
            case Sweep():
                await self._sweep()
        return None

    async def _run(self, session: Session, *, is_new: bool = False) -> None:
        """Run a session's actors. If they do not start, tell people why, once for each cause, and raise NotStarted."""
        name = f"session {session.id[:8]} in {session.workspace_root}"
        try:
            await self._running.run(session, is_new=is_new)
        except StartFailed as failed:
            why = _cause(failed)
            text = f"{name} cannot be started: {why}; repair that, and its agent can go on within seconds"
            if self._not_started.get(session.id) != why:
                self._not_started[session.id] = why
                log.error("%s", text, exc_info=failed)
                self._deps.card_router.tell(Notice(text, "error", self._now()))
            raise NotStarted(text, session_id=session.id) from failed
        if self._not_started.pop(session.id, None) is not None:
            self._deps.card_router.tell(Notice(f"{name} was started after all", "info", self._now()))

    async def _admit(self, agent: Agent) -> str:
        new = self._new_session(agent)
        session = await self._deps.store.transact(
            partial(claim, agent=agent, at=self._now(), is_connected=self._agents.connected)
            if agent.session_id is not None
            else partial(find_or_open, new=new, continued=self._agents.stood_in_for(agent.key))
        )
        is_new = session.id == new.id
        crash_points.reach("session.opened")
        self._in_session(session.id, frozenset(self._agents.connections.get(agent.key, ())))
        # With the session's workspace: an agent that was started for a session need not know it.
        self._note(agent if agent.session_id is None else evolve(agent, workspace=session.workspace_root))
        await self._run(session, is_new=is_new)
        if not is_new:
            self.system.named(f"session/{session.id}").tell(AgentCame())
        return session.id

    def _new_session(self, agent: Agent) -> Session:
        now = self._now()
        return Session(
            id=self._deps.new_id(),
            owner_user_id="",
            workspace_root=agent.workspace,
            # Its agent is connected.
            status=SessionStatus.ACTIVE,
            mode=self._default_mode,
            created_at=now,
            updated_at=now,
            agent_key=agent.key,
            client_name=agent.client_name,
            channel_id=agent.channel_id,
        )

    async def _adopt(self, asked: Adopt) -> str | None:
        agent = asked.agent
        own = await self._admit(agent)
        chosen = await self._deps.store.transact(
            partial(
                choose,
                agent=agent,
                own=own,
                wanted=asked.session_id,
                is_live=partial(self._lives, asker=agent.key),
                has_role=self._has_role,
            )
        )
        if chosen.id == own:
            return own
        if chosen.agent_key in self._awaited and not shim_process.is_dead(chosen.agent_key):
            # Its agent may be alive, and wait for a decision that another agent would then get. Dead agents are not
            # waited for: if servers ran shorter than this wait, no adoption would succeed.
            self._postponed.append((asked, self.defer()))
            return None
        session = await self._deps.store.transact(
            partial(hand_over, agent=agent, own=own, chosen=chosen.id, at=self._now())
        )
        crash_points.reach("session.adopted")
        await self._run(session)
        self.system.named(f"session/{own}").tell(AgentLeft())
        self.system.named(f"session/{session.id}").tell(AgentCame())
        return session.id

    async def _all_back(self) -> None:
        self._awaited.clear()
        postponed, self._postponed = self._postponed, []
        for asked, reply in postponed:
            if reply.abandoned:
                continue
            try:
                adopted = await self._adopt(asked)
            except self.refusals as refused:
                reply.fail(refused)
                continue
            assert adopted is not None, "nobody is awaited any more"
            reply.set(adopted)

    async def _wanted(self, session_id: str) -> str:
        session = await self._deps.store.transact(partial(sessions.get, id=session_id))
        if session is None:
            raise NotFound(f"no session has the id {session_id}")
        self._running.spare(session.id)
        await self._run(session)
        return session.id

    async def _anonymous(self, request_id: str) -> RequestOwner:
        return await self._join(await self._deps.store.transact(partial(anonymous_owner, request_id=request_id)))

    async def _earlier(self, asked: FindEarlier) -> RequestOwner | None:
        for session, others in await self._deps.store.transact(partial(of_earlier_process, asked=asked)):
            key = str(session.agent_key)
            if self._has_role(session.id) or not self._may_stand_in(asked, key, others):
                continue
            if asked.connection not in self._agents.connections.get(asked.agent.key, ()):
                # It was closed meanwhile, so nothing would report that it does not stand in any more.
                return None
            is_known = asked.connection in self._agents.connections.get(key, ())
            # At once, so that the next one to ask sees it.
            self._agents.came(key, asked.connection, asked.agent.key)
            if not is_known:
                note = partial(note_continued, session=session, by=asked.agent.key, at=self._now())
                await self._deps.store.transact(note)
            self._in_session(session.id, frozenset((asked.connection,)))
            return await self._join(session)
        return None

    def _may_stand_in(self, asked: FindEarlier, key: str, before: Iterable[str]) -> bool:
        """Return whether the process of this key has ended, as far as is known, and no other living one stands in for
        it: the requests of that one may be in this session too. `before` are the keys of those that did."""
        mine = self._agents.connections.get(asked.agent.key, set()) | {asked.connection}
        others = self._agents.connections.get(key, set()) - mine
        stand_ins = self._agents.stand_ins.get(key, set())
        is_dead = shim_process.is_dead(key)
        if is_dead:
            # The end of its own connection has not been heard yet.
            others = others & stand_ins
        elif key in self._awaited or self._runs_on(key):
            return False
        if stand_ins & mine:
            # Two that came back at once after a restart of the server must not shut each other out.
            return others <= stand_ins
        return not others and not any(map(self._runs_on, before)) and (is_dead or not self._agents.has(key))

    async def _join(self, session: Session) -> RequestOwner:
        """Let a caller count as the agent of this session, and run the session's actors."""
        assert session.agent_key is not None, "it is by its agent that it was found"
        agent = Agent(session.agent_key, session.client_name, session.workspace_root, session.channel_id)
        self._agents.note_continued(agent.key, session.id)
        self._note(agent)
        await self._run(session)
        self.system.named(f"session/{session.id}").tell(AgentCame())
        return RequestOwner(session.id, agent)

    async def _end_if_spent(self, session_id: str) -> bool:
        """End an anonymous session that is spent, and stop its actors. Returns whether it ended."""
        if not await self._deps.store.transact(partial(end_anonymous, id=session_id, at=self._now())):
            return False
        await self._running.stop(session_id)
        return True

    async def _all_here(self, keys: Iterable[str]) -> None:
        for key in keys:
            with suppress(NotStarted):
                await self._here(key)

    async def _here(self, key: str) -> None:
        if key not in self._with_session and not key.startswith(key_of("")):
            return
        session = await self._deps.store.transact(partial(sessions.by_agent, agent_key=key))
        if session is not None and self._agents.connected(key):
            self._agents.note_continued(key, session.id)
            self._in_session(session.id, frozenset(self._agents.connections.get(key, ())))
            self._note(Agent(key, session.client_name, session.workspace_root))
            await self._run(session)
            self.system.named(f"session/{session.id}").tell(AgentCame())

    async def _gone(self, key: str) -> None:
        self._awaited.discard(key)
        if self._agents.connected(key):
            # The agent came back while the timer's message was in the mailbox.
            return
        self._agents.here.pop(key, None)
        session = await self._deps.store.transact(partial(sessions.by_agent, agent_key=key))
        ended = session is not None and is_anonymous(key) and await self._end_if_spent(session.id)
        if session is not None and not ended:
            self.system.named(f"session/{session.id}").tell(AgentLeft())

    def _is_in(self, key: str | None) -> bool:
        return self._agents.has(key) or self._agents.connected(key)

    def _lives(self, key: str | None, *, asker: str) -> bool:
        """Return whether the agent of this key may come back, or a later process stands in for it that is not the one
        of `asker`."""
        if self._agents.has(key):
            return not shim_process.is_dead(key) or self._is_continued(key, asker)
        return self._runs_on(key)

    def _runs_on(self, key: str | None) -> bool:
        """Return whether the process of this key runs, and has not said goodbye. One that is stopped, or slow, may have
        lost its connection, and come back."""
        return shim_process.is_alive(key) and key not in self._agents.parted

    def _is_continued(self, key: str | None, asker: str) -> bool:
        others = self._agents.stand_ins.get(str(key), set()) - self._agents.connections.get(asker, set())
        return bool(others)

    def _note(self, agent: Agent) -> None:
        self._agents.here[agent.key] = agent
        self._with_session.add(agent.key)
        self._awaited.discard(agent.key)
        if self._agents.connected(agent.key):
            self.cancel_timer(Gone(agent.key))
        else:
            # Its connection ended while it was being admitted.
            self.set_timer(Gone(agent.key), GRACE_SECONDS, Gone(agent.key))

    async def _sweep(self) -> None:
        """Stop the actors of sessions that are over or abandoned and hold nothing. They are started again on demand.
        Those that could not be started are tried again."""
        self.set_timer(Sweep(), SWEEP_SECONDS, Sweep())
        for id in tuple(self._not_started):
            try:
                await self._wanted(id)
            except NotStarted:
                continue
            except NotFound:
                del self._not_started[id]
        for session in await self._deps.store.transact(spent_anonymous):
            if not self._is_in(session.agent_key):
                await self._end_if_spent(session.id)
        over = await self._deps.store.transact(partial(to_stop, running=self._running.perhaps_idle()))
        for id, agent_key in over:
            if not self._is_in(agent_key):
                await self._running.stop(id)
        self._with_session = set(await self._deps.store.transact(sessions.agent_keys)) | self._agents.here.keys()

    def _now(self) -> datetime:
        return self._deps.now()


def _cause(failed: StartFailed) -> str:
    """Return why a child at the bottom of a tree did not start."""
    reason: BaseException | None = failed
    while isinstance(reason, StartFailed):
        failed, reason = reason, reason.reason
    if reason is None or isinstance(reason, IntercomError):
        return str(reason or failed)
    return f"{type(reason).__name__}: {reason}"
