"""How many requests may wait for people: one agent's flood is refused before it hides what others ask."""

from __future__ import annotations

from intercom.model.errors import TooManyPending
from intercom.sessions.actor import SessionActor
from intercom.store import requests
from intercom.store.messages import Database

#: How many requests of one session may wait although those of all sessions are as many as may, or fewer than twice as
#: many: who asks little is not kept out by who asks much.
SHARE = 5


def require_room(db: Database, session: SessionActor) -> None:
    """Raises TooManyPending where no further request may wait; in the transaction that would record it, so that nothing
    of a refused one is left."""
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
