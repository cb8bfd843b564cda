"""Queries on restores of checkpoints, from the request to the end. Every change of state is a compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.checkpoint import Divergence, DivergenceKind
from intercom.model.errors import InvalidState
from intercom.model.restore import (
    RESTORE_TRANSITIONS,
    UNDER_WAY,
    WAITING,
    DivergenceSummary,
    Files,
    Restore,
    RestoreState,
)
from intercom.model.verdict import Decided
from intercom.store import rows
from intercom.store.lifecycle import decided_columns, decided_value
from intercom.store.rows import Row

#: All columns but the steps, which may be large and are rarely needed.
_COLUMNS = (
    "id, checkpoint_id, session_id, successor_id, safety_id, workspace_root, state, files, label, asked_by, asked_via,"
    " divergence, digest, note, created_at, expires_at, updated_at, verdict_id, verdict, decided_by, decided_via,"
    " decided_at, decided_text, decided_origin, signature"
)


def _from_row(row: Row) -> Restore:
    return Restore(
        id=row["id"],
        checkpoint_id=row["checkpoint_id"],
        session_id=row["session_id"],
        successor_id=row["successor_id"],
        safety_id=row["safety_id"],
        workspace_root=row["workspace_root"],
        state=RestoreState(row["state"]),
        files=Files(row["files"]),
        label=row["label"],
        asked_by=row["asked_by"],
        asked_via=row["asked_via"],
        divergence=_divergence_value(row["divergence"]),
        digest=row["digest"],
        steps=tuple(json.loads(row.get("steps") or "[]")),
        note=row["note"],
        created_at=clock.from_text(row["created_at"]),
        expires_at=rows.time_value(row["expires_at"]),
        updated_at=clock.from_text(row["updated_at"]),
        decided=decided_value(row),
    )


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


def insert(db: Database, restore: Restore) -> bool:
    """Insert a new restore. Returns False and changes nothing if its id exists."""
    return rows.insert(
        db,
        "restore",
        {
            "id": restore.id,
            "checkpoint_id": restore.checkpoint_id,
            "session_id": restore.session_id,
            "successor_id": restore.successor_id,
            "safety_id": restore.safety_id,
            "workspace_root": restore.workspace_root,
            "state": restore.state.value,
            "files": restore.files.value,
            "label": restore.label,
            "asked_by": restore.asked_by,
            "asked_via": restore.asked_via,
            "divergence": _divergence_text(restore.divergence),
            "digest": restore.digest,
            "steps": steps_text(restore.steps) if restore.steps else None,
            "note": restore.note,
            "created_at": clock.to_text(restore.created_at),
            "expires_at": rows.time_text(restore.expires_at),
            "updated_at": clock.to_text(restore.updated_at),
            **decided_columns(restore.decided),
        },
    )


def steps_text(steps: Iterable[Mapping[str, Any]]) -> str:
    """Return steps as column text. Call it outside the writer's thread, because there may be many."""
    return f"[{','.join(rows.json_text(dict(step)) for step in steps)}]"


def get(db: Database, id: str) -> Restore | None:
    """Return the restore with this id, without its steps, or None."""
    row = rows.one(db, f"select {_COLUMNS} from restore where id = ?", (id,))
    return None if row is None else _from_row(row)


def steps(db: Database, id: str) -> str:
    """Return the steps of a restore, as JSON text."""
    row = rows.one(db, "select steps from restore where id = ?", (id,))
    return "[]" if row is None or row["steps"] is None else str(row["steps"])


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return rows.ids_with_prefix(db, "restore", prefix)


def waiting(db: Database) -> tuple[Restore, ...]:
    """Return the restores that wait for a person, oldest first."""
    return _in(db, WAITING)


def under_way(db: Database) -> tuple[Restore, ...]:
    """Return the restores in progress, oldest first."""
    return _in(db, UNDER_WAY)


def given_up(db: Database) -> tuple[Restore, ...]:
    """Return the restores that a person gave up and that still need cleanup, oldest first."""
    return _in(db, {RestoreState.GIVEN_UP}, "and steps is not null")


def forget_steps(db: Database, id: str) -> None:
    """Delete the steps of a restore that was given up, after its cleanup."""
    db.execute("update restore set steps = null where id = ? and state = 'given_up'", (id,))


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
        raise InvalidState(f"a restore that is {expect} can not become {to}")
    verdict = {} if decided is None else decided_columns(decided)
    sets = "".join(f", {name} = :{name}" for name in verdict)
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
            **verdict,
        },
    )


def by_successor(db: Database, session_id: str) -> Restore | None:
    """Return the restore that created this session, or None."""
    row = rows.one(db, f"select {_COLUMNS} from restore where successor_id = ? {_MADE}", (session_id,))
    return None if row is None else _from_row(row)


def by_ended(db: Database, session_id: str) -> Restore | None:
    """Return the latest restore that replaced this session with a successor, or None."""
    where = f"session_id = ? {_MADE} order by created_at desc, rowid desc limit 1"
    row = rows.one(db, f"select {_COLUMNS} from restore where {where}", (session_id,))
    return None if row is None else _from_row(row)


def newest_of_line(db: Database, session_id: str) -> str:
    """Return the session that this one became through restores; itself if there were none."""
    seen = {session_id}
    while (restore := by_ended(db, session_id)) is not None and restore.successor_id not in seen:
        session_id = restore.successor_id
        seen.add(session_id)
    return session_id


_MADE = "and state in ('handed_over', 'done', 'stuck', 'given_up')"


def _in(db: Database, states: Collection[RestoreState], also: str = "") -> tuple[Restore, ...]:
    where = f"state in ({rows.holders(list(states))}) {also} order by created_at, rowid"
    found = rows.every(db, f"select {_COLUMNS} from restore where {where}", [state.value for state in states])
    return tuple(_from_row(row) for row in found)
