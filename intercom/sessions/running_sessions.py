"""Which sessions' actors run. Each runs with a watcher of its workspace's policy."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from actors import Name, System
from intercom.model.session import Session
from intercom.sessions import supervised, unit
from intercom.sessions.context import Context
from intercom.sessions.policies import PolicyBoard


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
            await supervised.ensure(self.watchers, self.board.watcher(root))
        await self.system.next_incarnation(self.units, None)

    async def run(self, session: Session) -> None:
        """Run a session's actors. The policy watcher first: the session's first proposal needs it."""
        await supervised.ensure(self.watchers, self.board.watcher(session.workspace_root))
        name = self.system.named(f"session/{session.id}")
        await supervised.ensure(self.units, unit.spec(session.id, self.context, name))
        self._ids.add(session.id)

    async def stop(self, session_id: str) -> None:
        """Stop a session's actors. They are started again on demand."""
        await supervised.stop(self.units, f"unit/{session_id}")
        self._ids.discard(session_id)

    def spare(self, session_id: str) -> None:
        """Keep this session out of the next `perhaps_idle`: a message to it is about to come."""
        self._spared.add(session_id)

    def perhaps_idle(self) -> tuple[str, ...]:
        """Return the running sessions that were not spared since the last call."""
        spared, self._spared = self._spared, set()
        return tuple(self._ids - spared)
