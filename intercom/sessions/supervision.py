"""The actors of sessions: each session's supervisor, and which of them run."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from actors import Actor, Backoff, ChildSpec, Name, Restart, Strategy, Supervisor, System
from intercom.model.session import Session
from intercom.sessions import asking
from intercom.sessions.context import Context
from intercom.sessions.policies import PolicyBoard
from intercom.sessions.session.actor import POLICY_SECONDS
from intercom.sessions.session.handlers import session_actor
from intercom.sessions.session.stall import Rules, StallDetector

#: A session that keeps crashing is restarted ever more slowly, and for long, because its agent waits for an answer.
_BACKOFF = Backoff(initial=0.05, factor=2.0, max=5.0)
#: A session that is to stop may first wait for its policy.
_SHUTDOWN_SECONDS = POLICY_SECONDS + 5.0


def session_spec(session: Session, context: Context, detector_of: Name, *, is_new: bool = False) -> ChildSpec:
    """Return the spec of a session's supervisor, to be started under the `sessions` supervisor. `is_new` says that the
    session was opened just now, and nobody else knows of it: its first actor has nothing to load."""
    session_id = session.id
    new = [session] if is_new else []

    def start_session() -> Actor:
        return session_actor(session_id, context, new.pop() if new else None)

    def start() -> Actor:
        settings = context.config.stall
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

    return ChildSpec(f"unit/{session_id}", start, restart=Restart.PERMANENT, shutdown=None)


@define(eq=False)
class RunningSessions:
    """`units` is the supervisor of the session supervisors, `watchers` that of the policy watchers."""

    system: System
    context: Context
    units: Name
    watchers: Name
    board: PolicyBoard
    _ids: set[str] = field(factory=set, init=False)
    _spared: set[str] = field(factory=set, init=False)

    async def take_stock(self, known: Iterable[str], workspace_roots: Iterable[str]) -> None:
        """Start again with those of the `known` sessions that run, once both supervisors run and the policies of these
        workspaces are watched."""
        self._ids = {id for id in known if self.system.ref(f"unit/{id}") is not None}
        # The watchers first: a session may wait for its policy, and the `units` supervisor for that session.
        await self.system.next_incarnation(self.watchers, None)
        for root in workspace_roots:
            await asking.ensure(self.watchers, self.board.watcher(root))
        await self.system.next_incarnation(self.units, None)

    async def run(self, session: Session, *, is_new: bool = False) -> None:
        """Run a session's actors. The policy watcher first: the session's first proposal needs it. `is_new` as in
        `session_spec`."""
        if self.context.watcher(session.workspace_root).ref is None:
            await asking.ensure(self.watchers, self.board.watcher(session.workspace_root))
        name = self.system.named(f"session/{session.id}")
        if name.ref is None:
            await asking.ensure(self.units, session_spec(session, self.context, name, is_new=is_new))
        self._ids.add(session.id)

    async def stop(self, session_id: str) -> None:
        """Stop a session's actors. They are started again on demand."""
        await asking.stop(self.units, f"unit/{session_id}")
        self._ids.discard(session_id)

    def spare(self, session_id: str) -> None:
        """Keep this session out of the next `perhaps_idle`: a message to it is about to come."""
        self._spared.add(session_id)

    def perhaps_idle(self) -> tuple[str, ...]:
        """Return the running sessions that were not spared since the last call."""
        spared, self._spared = self._spared, set()
        return tuple(self._ids - spared)
