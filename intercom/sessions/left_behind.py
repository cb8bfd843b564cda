"""Recovery: the sessions of an earlier server run that can still be answered or applied."""

from __future__ import annotations

from attrs import frozen

from intercom.model.session import Session, SessionStatus
from intercom.store import journal, requests, sessions
from intercom.store.messages import Database

_UP = (SessionStatus.ACTIVE, SessionStatus.PAUSED)


@frozen
class LeftBehind:
    """What an earlier server run left. `live` are the sessions that have not ended, `wanted` the ids of those with
    pending work, `known` the ids of all sessions."""

    live: tuple[Session, ...]
    wanted: frozenset[str]
    counts: requests.Counts
    known: tuple[str, ...]

    def going(self) -> tuple[Session, ...]:
        """Return the sessions whose actors are to run; first those with pending work."""
        found = (each for each in self.live if each.status in _UP or each.id in self.wanted)
        return tuple(sorted(found, key=lambda each: each.id not in self.wanted))

    def sentence(self) -> str:
        """Describe this to people."""
        counts = self.counts
        return (
            f"server restarted: {counts.interrupted_sessions} interrupted session(s),"
            f" {counts.pending_approvals} pending approval(s), {counts.pending_prompts} pending prompt(s),"
            f" {counts.pending_waits} agent(s) standing by; agents can use reboot to resume"
        )


def look(db: Database) -> LeftBehind:
    """Read the current state."""
    wanted = {request.session_id for request in requests.pending(db)} | {entry.session_id for entry in journal.open(db)}
    live = sessions.live(db)
    return LeftBehind(live, frozenset(wanted), requests.counts(db), sessions.ids(db))
