"""The shutdown notice in Slack. It is posted immediately or never, because later it would be wrong."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial

import trio

from actors import Busy, Down, Name, NotRunning, ask
from intercom.model.errors import IntercomError
from intercom.model.outbox import RowState, Urgency
from intercom.operators.slack.draw import lines
from intercom.operators.slack.messages import Wake
from intercom.store import outbox
from intercom.store.messages import Database, Transact

log = logging.getLogger(__name__)

#: Seconds until the notice must be posted, and between two checks.
FAREWELL_SECONDS = 1.5
_LOOK_SECONDS = 0.05


async def say(store: Name, sender: Name, channel: str, pending: int, now: Callable[[], datetime]) -> None:
    """Post in `channel` that the server stops while `pending` requests wait. `sender` is the outbox's actor. Returns
    once the notice is posted or has failed; raises nothing."""
    key = f"farewell/{uuid.uuid4()}"
    content = lines.shutdown(pending).content()
    try:
        with trio.move_on_after(FAREWELL_SECONDS):
            put = partial(outbox.put, key=key, content=content, at=now(), channel=channel, urgency=Urgency.CARD)
            await ask(store, Transact(put))
            sender.tell(Wake())
            while True:
                if not await ask(store, Transact(partial(_is_on_its_way, key=key))):
                    return
                await trio.sleep(_LOOK_SECONDS)
        with trio.move_on_after(FAREWELL_SECONDS):
            await ask(store, Transact(partial(outbox.abandon, key=key)))
    except (IntercomError, Busy, Down, NotRunning) as fault:
        log.info("that the server stops is not said in slack: %s", fault)


def _is_on_its_way(db: Database, key: str) -> bool:
    row = outbox.by_key(db, key)
    return row is not None and row.state in (RowState.QUEUED, RowState.POSTING)
