"""The session registry: opens or finds each agent's session, runs its actors, and tracks which agents are here.

One actor does this, so that two first calls of one agent open one session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from attrs import evolve, frozen

from actors import Actor, DownEvent, Name, Refused, Reply, ask
from intercom.local import shim_id
from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.errors import IntercomError, NotFound
from intercom.model.session import SessionMode, SessionStatus
from intercom.sessions import adoption, agent_keys, claiming, left_behind, nameless, opening, resting
from intercom.sessions.context import Context
from intercom.sessions.messages import AgentCame, AgentLeft
from intercom.sessions.policies import PolicyBoard
from intercom.sessions.presence import Presence
from intercom.sessions.reception_messages import (
    Admit,
    Adopt,
    Agent,
    AgentsGone,
    AgentsHere,
    FindNameless,
    Nameless,
    Wanted,
)
from intercom.sessions.running_sessions import RunningSessions
from intercom.store import sessions
from intercom.store.messages import Database, Transact

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


class Reception(Actor):
    """The actor `reception`. `in_session` is called with a session's id and its agent's connections."""

    refusals = (Refused, IntercomError)
    #: After a server crash all agents come at once, and none may be rejected.
    mailbox_size = 50_000

    def __init__(
        self,
        context: Context,
        presence: Presence,
        units: Name,
        watchers: Name,
        board: PolicyBoard,
        default_mode: SessionMode,
        in_session: Callable[[str, frozenset[str]], object] = lambda _session_id, _connections: None,
    ) -> None:
        super().__init__()
        self._context = context
        self._presence = presence
        self._units = units
        self._watchers = watchers
        self._board = board
        self._default_mode = default_mode
        self._in_session = in_session
        self._brought_back = self._announced = False
        self._awaited: set[str] = set()
        self._running: RunningSessions
        self._postponed: list[tuple[Adopt, Reply[str]]] = []

    def on_start(self) -> None:
        self._running = RunningSessions(self.system, self._context, self._units, self._watchers, self._board)
        # Recovery asks sibling actors. One that is down is not restarted while its supervisor waits for this start.
        self.actor_ref.tell(BringBack())

    async def _bring_back(self) -> None:
        """Recover the sessions of an earlier server run that can still be answered or applied."""
        found = await self._transact(left_behind.look)
        going = found.going()
        await self._running.take_stock(found.known, {each.workspace_root for each in going})
        for session in going:
            await self._running.run(session)
        for session in found.live:
            agent = session.agent_key
            if session.status is not SessionStatus.INTERRUPTED and agent is not None and not self._presence.has(agent):
                self.set_timer(Gone(agent), START_GRACE_SECONDS, Gone(agent))
                self._awaited.add(agent)
        # Connections that came or went while this actor was down are recorded in `Presence`.
        for key in self._presence.leaving():
            self.set_timer(Gone(key), GRACE_SECONDS, Gone(key))
        for key in self._presence.coming():
            await self._here(key)
        self.set_timer(AllBack(), RETURN_SECONDS, AllBack())
        self.set_timer(Sweep(), SWEEP_SECONDS, Sweep())
        if found.wanted and not self._announced:
            told = found.sentence()
            log.warning("%s", told)
            self._context.operators.tell(Notice(told, "warning", self._context.now()))
        crash_points.reach("sessions.brought_back")
        self._announced = self._brought_back = True
        self.monitor(self._units)
        self.monitor(self._watchers)

    async def on_receive(self, message: object) -> Any:
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
            case FindNameless(request_id):
                return await self._nameless(request_id)
            case Wanted(session_id):
                return await self._wanted(session_id)
            case AgentsHere(keys):
                for key in keys:
                    await self._here(key)
            case AgentsGone(keys, for_good):
                for key in keys:
                    if self._presence.has(key) and not self._presence.connected(key):
                        self.set_timer(Gone(key), 0.0 if for_good else GRACE_SECONDS, Gone(key))
            case Gone(key):
                await self._gone(key)
            case AllBack():
                await self._all_back()
            case Sweep():
                await self._sweep()
        return None

    async def _admit(self, agent: Agent) -> str:
        session = await self._transact(
            partial(claiming.claim, agent=agent, at=self._now(), is_connected=self._presence.connected)
            if agent.session_id is not None
            else partial(
                opening.find_or_open, agent=agent, id=self._context.new_id(), mode=self._default_mode, at=self._now()
            )
        )
        crash_points.reach("session.opened")
        self._in_session(session.id, frozenset(self._presence.doors.get(agent.key, ())))
        # With the session's workspace: an agent that was started for a session need not know it.
        self._note(agent if agent.session_id is None else evolve(agent, workspace=session.workspace_root))
        await self._running.run(session)
        self.system.named(f"session/{session.id}").tell(AgentCame())
        return session.id

    async def _adopt(self, asked: Adopt) -> str | None:
        agent = asked.agent
        own = await self._admit(agent)
        chosen = await self._transact(
            partial(adoption.choose, agent=agent, own=own, wanted=asked.session_id, is_live=self._lives)
        )
        if chosen.id == own:
            return own
        if chosen.agent_key in self._awaited and not shim_id.is_dead(chosen.agent_key):
            # Its agent may be alive, and wait for a decision that another agent would then get. Dead agents are not
            # waited for: if servers ran shorter than this wait, no adoption would succeed.
            self._postponed.append((asked, self.defer()))
            return None
        session = await self._transact(
            partial(adoption.hand_over, agent=agent, own=own, chosen=chosen.id, at=self._now())
        )
        crash_points.reach("session.adopted")
        await self._running.run(session)
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
        session = await self._transact(partial(sessions.get, id=session_id))
        if session is None:
            raise NotFound(f"no session has the id {session_id}")
        self._running.spare(session.id)
        await self._running.run(session)
        return session.id

    async def _nameless(self, request_id: str) -> Nameless:
        session = await self._transact(partial(nameless.owner, request_id=request_id))
        assert session.agent_key is not None, "it is by its agent that it was found"
        agent = Agent(session.agent_key, session.client_name, session.workspace_root, session.channel_id)
        self._note(agent)
        await self._running.run(session)
        self.system.named(f"session/{session.id}").tell(AgentCame())
        return Nameless(session.id, agent)

    async def _end_if_spent(self, session_id: str) -> bool:
        """End an anonymous session that is spent, and stop its actors. Returns whether it ended."""
        if not await self._transact(partial(nameless.end, id=session_id, at=self._now())):
            return False
        await self._running.stop(session_id)
        return True

    async def _here(self, key: str) -> None:
        session = await self._transact(partial(sessions.by_agent, agent_key=key))
        if session is not None and self._presence.connected(key):
            self._in_session(session.id, frozenset(self._presence.doors.get(key, ())))
            self._note(Agent(key, session.client_name, session.workspace_root))
            await self._running.run(session)
            self.system.named(f"session/{session.id}").tell(AgentCame())

    async def _gone(self, key: str) -> None:
        self._awaited.discard(key)
        if self._presence.connected(key):
            # The agent came back while the timer's message was in the mailbox.
            return
        self._presence.here.pop(key, None)
        session = await self._transact(partial(sessions.by_agent, agent_key=key))
        ended = session is not None and agent_keys.is_nameless(key) and await self._end_if_spent(session.id)
        if session is not None and not ended:
            self.system.named(f"session/{session.id}").tell(AgentLeft())

    def _is_in(self, key: str | None) -> bool:
        return self._presence.has(key) or self._presence.connected(key)

    def _lives(self, key: str | None) -> bool:
        return self._presence.has(key) and not shim_id.is_dead(key)

    def _note(self, agent: Agent) -> None:
        self._presence.here[agent.key] = agent
        self._awaited.discard(agent.key)
        if self._presence.connected(agent.key):
            self.cancel_timer(Gone(agent.key))
        else:
            # Its connection ended while it was being admitted.
            self.set_timer(Gone(agent.key), GRACE_SECONDS, Gone(agent.key))

    async def _sweep(self) -> None:
        """Stop the actors of sessions that are over or abandoned and hold nothing. They are started again on demand."""
        self.set_timer(Sweep(), SWEEP_SECONDS, Sweep())
        for session in await self._transact(nameless.spent):
            if not self._is_in(session.agent_key):
                await self._end_if_spent(session.id)
        over = await self._transact(partial(resting.to_stop, running=self._running.perhaps_idle()))
        for id, agent_key in over:
            if not self._is_in(agent_key):
                await self._running.stop(id)

    async def _transact(self, work: Callable[[Database], T]) -> T:
        return await ask(self._context.store, Transact(work), timeout=30.0, retry=True)

    def _now(self) -> datetime:
        return self._context.now()
