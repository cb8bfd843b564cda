"""What changes files: the journal of approved changes being written, and restores of checkpoints.

Each is recorded step by step, so that a crash leaves all of it or nothing. Every change of state is a compare-and-set.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from attrs import frozen
from sqlite_utils import Database

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
from intercom.store import rows
from intercom.store.requests import DECIDED
from intercom.store.rows import Codec, States, Table

# --- the apply journal -----------------------------------------------------------------------------------------------


class JournalState(StrEnum):
    """Staged files are recorded before they are renamed. A `staging` entry may be discarded, a `committed` one must be
    completed, and a `stuck` one waits for a person."""

    STAGING = "staging"
    COMMITTED = "committed"
    DONE = "done"
    ABANDONED = "abandoned"
    STUCK = "stuck"


JOURNAL_TRANSITIONS: dict[JournalState, frozenset[JournalState]] = {
    JournalState.STAGING: frozenset({JournalState.COMMITTED, JournalState.ABANDONED}),
    JournalState.COMMITTED: frozenset({JournalState.DONE, JournalState.STUCK}),
    JournalState.STUCK: frozenset({JournalState.COMMITTED, JournalState.ABANDONED}),
    JournalState.DONE: frozenset(),
    JournalState.ABANDONED: frozenset(),
}


@frozen
class Entry:
    """One apply. `steps` are the JSON text of the file transaction. `at` is when it began, `note` why it stopped,
    and `call` the tool call that it answers."""

    request_id: str
    session_id: str
    workspace_root: str
    state: JournalState
    steps: str
    at: datetime
    note: str | None = None
    call: str | None = None


class Journal(Table[Entry]):
    """The apply journal: the approved changes that are being written."""

    def begin(self, db: Database, entry: Entry) -> bool:
        """Insert an apply, or replace an abandoned one. Returns False and changes nothing if its request has another
        entry."""
        replaced = ", ".join(f"{name} = excluded.{name}" for name in self.columns.names)
        conflict = f"(request_id) do update set {replaced} where apply_journal.state = 'abandoned'"
        return self.insert(db, entry, conflict=conflict)

    def open(self, db: Database) -> tuple[Entry, ...]:
        """Return the unfinished entries (staging, committed or stuck), oldest first."""
        return self.select(db, "state in ('staging', 'committed', 'stuck') order by created_at, rowid")


journal = Journal(
    "apply_journal",
    Entry,
    key="request_id",
    names={"at": "created_at"},
    states=States("an apply", "state", JOURNAL_TRANSITIONS),
)

# --- restores --------------------------------------------------------------------------------------------------------


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


#: The states of a restore that has created its successor.
_MADE = "and state in ('handed_over', 'done', 'stuck', 'given_up')"


class Restores(Table[Restore]):
    """Restores of checkpoints, from the request to the end."""

    def known(self, db: Database, id: str) -> Restore:
        """Do as `get`, for a restore that exists: restores outlive those who carry them out."""
        restore = self.get(db, id)
        assert restore is not None
        return restore

    def steps(self, db: Database, id: str) -> str:
        """Return the steps of a restore: the JSON text of the file transaction. There may be many."""
        [found] = rows.column(db, "select steps from restore where id = ?", (id,)) or [None]
        return "[]" if found is None else str(found)

    def waiting(self, db: Database) -> tuple[Restore, ...]:
        """Return the restores that wait for a person, oldest first."""
        return self._in(db, WAITING)

    def under_way(self, db: Database) -> tuple[Restore, ...]:
        """Return the restores in progress, oldest first."""
        return self._in(db, UNDER_WAY)

    def to_clean_up(self, db: Database) -> tuple[Restore, ...]:
        """Return the restores that ended without their files and may have left staged ones, oldest first."""
        return self._in(db, CLEANED_UP, "and steps is not null")

    def save_steps(self, db: Database, id: str, steps: str) -> None:
        """Record the steps of an accepted restore, before its files are staged."""
        self.update(db, "id = :id and state = 'accepted'", {"id": id}, steps=steps)

    def forget_steps(self, db: Database, id: str) -> None:
        """Delete the steps of a restore whose staged files were discarded."""
        self.update(db, "id = :id and state in ('accepted', 'failed', 'given_up')", {"id": id}, steps=None)

    def by_successor(self, db: Database, session_id: str) -> Restore | None:
        """Return the restore that created this session, or None."""
        return self.first(db, f"successor_id = ? {_MADE}", (session_id,))

    def by_ended(self, db: Database, session_id: str) -> Restore | None:
        """Return the latest restore that replaced this session with a successor, or None."""
        where = f"session_id = ? {_MADE} order by created_at desc, rowid desc limit 1"
        return self.first(db, where, (session_id,))

    def latest_successor(self, db: Database, session_id: str) -> str:
        """Return the session that this one became through restores; itself if there were none."""
        seen = {session_id}
        while (restore := self.by_ended(db, session_id)) is not None and restore.successor_id not in seen:
            session_id = restore.successor_id
            seen.add(session_id)
        return session_id

    def _in(self, db: Database, states: Collection[RestoreState], also: str = "") -> tuple[Restore, ...]:
        return self.select(db, f"state in ({rows.literals(states)}) {also} order by created_at, rowid")


restores = Restores(
    "restore",
    Restore,
    codecs={"divergence": Codec(_divergence_text, _divergence_value)},
    parts={"decided": DECIDED},
    states=States("a restore", "state", RESTORE_TRANSITIONS),
)
