"""The implicit session: which session an action without a session name means, also when it is repeated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from intercom.store import calls
from intercom.store.messages import Database

_TOOL = "session"


def by_act(db: Database, act_id: str, find: Callable[[Database], str], at: datetime) -> str:
    """Return the session's id: the first time as `find` returns it, then as recorded. Raises what `find` raises."""
    name = f"{act_id}/{_TOOL}"
    known = calls.answer(db, name)
    if known is not None:
        return str(known["session_id"])
    id = find(db)
    calls.record(db, name, id, _TOOL, {"session_id": id}, at)
    return id
