"""Queries on restores of checkpoints, from the request to the end. Every change of state is a compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.checkpoint import (
    CLEANED_UP,
    RESTORE_TRANSITIONS,
    UNDER_WAY,
    WAITING,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Restore,
    RestoreState,
)
from intercom.model.decision import Decided
from intercom.model.errors import InvalidState
from intercom.store import rows
from intercom.store.requests import DECIDED
from intercom.store.rows import Codec, Table


def _divergence_text(found: DivergenceSummary) -> str:
    return rows.json_text(
        {
            "modified": found.modified,
            "deleted": found.deleted,
            "added": found.added,
            "first": [[each.kind.value, each.path] for each in found.first],
            "remarks": list(found.remarks),
        }
    )


def _divergence_value(text: str) -> DivergenceSummary:
    data = json.loads(text)
    first = tuple(Divergence(path, DivergenceKind(kind)) for kind, path in data["first"])
    return DivergenceSummary(data["modified"], data["deleted"], data["added"], first, tuple(data["remarks"]))


_RESTORES = Table(
    "restore",
    Restore,
    codecs={"divergence": Codec(_divergence_text, _divergence_value)},
    parts={"decided": DECIDED},
)


def insert(db: Database, restore: Restore) -> bool:
    """Insert a new restore. Returns False and changes nothing if its id exists."""
    return _RESTORES.insert(db, restore)


def get(db: Database, id: str) -> Restore | None:
    """Return the restore with this id, or None."""
    return _RESTORES.get(db, id)


def known(db: Database, id: str) -> Restore:
    """Do as `get`, for a restore that exists: restores outlive those who carry them out."""
    restore = get(db, id)
    assert restore is not None
    return restore


def steps(db: Database, id: str) -> str:
    """Return the steps of a restore: the JSON text of the file transaction. There may be many."""
    row = rows.one(db, "select steps from restore where id = ?", (id,))
    return "[]" if row is None or row["steps"] is None else str(row["steps"])


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return _RESTORES.with_prefix(db, prefix)


def waiting(db: Database) -> tuple[Restore, ...]:
    """Return the restores that wait for a person, oldest first."""
    return _in(db, WAITING)


def under_way(db: Database) -> tuple[Restore, ...]:
    """Return the restores in progress, oldest first."""
    return _in(db, UNDER_WAY)


def to_clean_up(db: Database) -> tuple[Restore, ...]:
    """Return the restores that ended without their files and may have left staged ones, oldest first."""
    return _in(db, CLEANED_UP, "and steps is not null")


def save_steps(db: Database, id: str, steps: str) -> None:
    """Record the steps of an accepted restore, before its files are staged."""
    db.execute("update restore set steps = ? where id = ? and state = 'accepted'", (steps, id))


def forget_steps(db: Database, id: str) -> None:
    """Delete the steps of a restore whose staged files were discarded."""
    db.execute("update restore set steps = null where id = ? and state in ('accepted', 'failed', 'given_up')", (id,))


def advance(
    db: Database,
    id: str,
    expect: RestoreState,
    to: RestoreState,
    at: datetime,
    *,
    note: str | None = None,
    steps: str | None = None,
    decided: Decided | None = None,
) -> bool:
    """Move a restore from `expect` to `to`. Returns whether this call did it. Arguments of None change nothing.
    Raises InvalidState if the transition table lacks the move."""
    if to not in RESTORE_TRANSITIONS[expect]:
        raise InvalidState(f"a restore that is {expect} cannot become {to}")
    columns = {} if decided is None else DECIDED.write(decided)
    sets = "".join(f", {name} = :{name}" for name in columns)
    return rows.changed(
        db,
        "update restore set state = :to, updated_at = :at, note = coalesce(:note, note),"
        f" steps = coalesce(:steps, steps){sets} where id = :id and state = :expect",
        {
            "to": to.value,
            "at": clock.to_text(at),
            "note": note,
            "steps": steps,
            "id": id,
            "expect": expect.value,
            **columns,
        },
    )


def by_successor(db: Database, session_id: str) -> Restore | None:
    """Return the restore that created this session, or None."""
    return _RESTORES.first(db, f"successor_id = ? {_MADE}", (session_id,))


def by_ended(db: Database, session_id: str) -> Restore | None:
    """Return the latest restore that replaced this session with a successor, or None."""
    where = f"session_id = ? {_MADE} order by created_at desc, rowid desc limit 1"
    return _RESTORES.first(db, where, (session_id,))


def latest_successor(db: Database, session_id: str) -> str:
    """Return the session that this one became through restores; itself if there were none."""
    seen = {session_id}
    while (restore := by_ended(db, session_id)) is not None and restore.successor_id not in seen:
        session_id = restore.successor_id
        seen.add(session_id)
    return session_id


_MADE = "and state in ('handed_over', 'done', 'stuck', 'given_up')"


def _in(db: Database, states: Collection[RestoreState], also: str = "") -> tuple[Restore, ...]:
    where = f"state in ({rows.placeholders(list(states))}) {also} order by created_at, rowid"
    return _RESTORES.select(db, where, [state.value for state in states])
