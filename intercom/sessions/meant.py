"""Which session an act means that names none: the same ever after, as it is sent again when its answer was lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from intercom.store import calls
from intercom.store.messages import Database

_TOOL = "session"


def by_act(db: Database, act_id: str, find: Callable[[Database], str], at: datetime) -> str:
    """The session's id: as `find` says the first time, whose refusals are raised; then as on record."""
    name = f"{act_id}/{_TOOL}"
    known = calls.answer(db, name)
    if known is not None:
        return str(known["session_id"])
    id = find(db)
    calls.record(db, name, id, _TOOL, {"session_id": id}, at)
    return id
