"""The actors of sessions: which of them run, each with the policy of its workspace watched."""

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
    """`units` is the supervisor of the sessions' units, `watchers` that of the policies' watchers."""

    system: System
    context: Context
    units: Name
    watchers: Name
    board: PolicyBoard
    _ids: set[str] = field(factory=set, init=False)
    _spared: set[str] = field(factory=set, init=False)

    async def take_stock(self, known: Iterable[str], workspace_roots: Iterable[str]) -> None:
        """Begin anew, with those of the `known` sessions that run, once both supervisors are there and the policies of
        these workspaces are watched."""
        self._ids = {id for id in known if self.system.ref(f"unit/{id}") is not None}
        # Before anybody who could hold this up: a session may wait for its policy, and its supervisor for the session.
        await self.system.next_incarnation(self.watchers, None)
        for root in workspace_roots:
            await supervised.ensure(self.watchers, self.board.watcher(root))
        await self.system.next_incarnation(self.units, None)

    async def run(self, session: Session) -> None:
        """See to it that a session's actors run. The policy first: the session's first proposal is judged by it."""
        await supervised.ensure(self.watchers, self.board.watcher(session.workspace_root))
        name = self.system.named(f"session/{session.id}")
        await supervised.ensure(self.units, unit.spec(session.id, self.context, name))
        self._ids.add(session.id)

    async def stop(self, session_id: str) -> None:
        """Stop a session's actors; whoever wants them has them run again."""
        await supervised.stop(self.units, f"unit/{session_id}")
        self._ids.discard(session_id)

    def spare(self, session_id: str) -> None:
        """Somebody is about to ask this session something: it is not among the `perhaps_idle` of next time."""
        self._spared.add(session_id)

    def perhaps_idle(self) -> tuple[str, ...]:
        """The sessions that run and that nobody has wanted since this was asked last; forgets who was spared."""
        spared, self._spared = self._spared, set()
        return tuple(self._ids - spared)
