"""The apply journal: the approved changes that are being written to files.

Each is recorded step by step, so that a crash leaves all of it or nothing. Every change of state is a compare-and-set.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen
from sqlite_utils import Database

from intercom.store.rows import States, Table


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

    def unfinished(self, db: Database) -> tuple[Entry, ...]:
        """Return the unfinished entries (staging, committed or stuck), oldest first."""
        return self.select(db, "state in ('staging', 'committed', 'stuck') order by created_at, rowid")


journal = Journal(
    "apply_journal",
    Entry,
    key="request_id",
    names={"at": "created_at"},
    states=States("an apply", "state", JOURNAL_TRANSITIONS),
)
