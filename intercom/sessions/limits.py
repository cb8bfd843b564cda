"""Limits on requests that wait for people. One agent's flood is refused before it hides other agents' requests."""

from __future__ import annotations

from intercom.model.errors import TooManyPending
from intercom.sessions.actor import SessionActor
from intercom.store import requests
from intercom.store.messages import Database

#: How many requests one session may have pending although the total limit is reached, up to twice that limit. An agent
#: with few requests is not blocked by one with many.
SHARE = 5


def require_room(db: Database, session: SessionActor) -> None:
    """Raise TooManyPending if no further request may wait. Runs in the transaction that would record the request, so
    that nothing of a refused one remains."""
    limits = session.context.config.limits
    own = requests.waiting(db, session.id)
    if own >= limits.pending_per_session:
        raise TooManyPending(
            f"{own} requests of this session wait for a person already, and no more may: wait for those, by their"
            " request_id, and ask again when some are answered; nothing was recorded"
        )
    everybody = requests.waiting(db)
    if everybody >= limits.pending_total and (own >= SHARE or everybody >= 2 * limits.pending_total):
        raise TooManyPending(
            f"{everybody} requests wait for people already, of all agents together, and no more may: ask again when"
            " some are answered; nothing was recorded"
        )
