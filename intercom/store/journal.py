"""The apply journal: each step of an approved change being written, so that a crash leaves all of it or nothing.

Staged files are recorded before they are renamed. A `staging` entry may be discarded, a `committed` one must be
completed, and a `stuck` one waits for a person.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import InvalidState
from intercom.store import rows
from intercom.store.rows import Table


class JournalState(StrEnum):
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


_ENTRIES = Table("apply_journal", Entry, names={"at": "created_at"})


def begin(db: Database, entry: Entry) -> bool:
    """Insert an apply, or replace an abandoned one. Returns False and changes nothing if its request has another
    entry."""
    columns = (*_ENTRIES.columns.names, "updated_at")
    replaced = ", ".join(f"{name} = excluded.{name}" for name in columns if name != "request_id")
    return _ENTRIES.insert(
        db,
        entry,
        conflict=f"(request_id) do update set {replaced} where apply_journal.state = 'abandoned'",
        updated_at=clock.to_text(entry.at),
    )


def get(db: Database, request_id: str) -> Entry | None:
    """Return the entry of this request, or None."""
    return _ENTRIES.first(db, "request_id = ?", (request_id,))


def advance(
    db: Database,
    request_id: str,
    expect: JournalState | Collection[JournalState],
    to: JournalState,
    note: str | None = None,
    at: datetime | None = None,
) -> bool:
    """Move an entry from `expect` (one state or several) to `to`. Returns whether this call did it. If `note` is
    None, the present one stays. Raises InvalidState if the transition table lacks the move."""
    expected = (expect,) if isinstance(expect, JournalState) else tuple(expect)
    for state in expected:
        if to not in JOURNAL_TRANSITIONS[state]:
            raise InvalidState(f"an apply that is {state} cannot become {to}")
    return rows.changed(
        db,
        "update apply_journal set state = ?, note = coalesce(?, note), updated_at = coalesce(?, updated_at)"
        f" where request_id = ? and state in ({rows.placeholders(expected)})",
        (to.value, note, rows.time_text(at), request_id, *(state.value for state in expected)),
    )


def open(db: Database) -> tuple[Entry, ...]:
    """Return the unfinished entries (staging, committed or stuck), oldest first."""
    return _ENTRIES.select(db, "state in ('staging', 'committed', 'stuck') order by created_at, rowid")
