"""The hash chain of the audit log: its verification, and its heads, which are kept outside the database.

`verify` only reads. It finds edited, removed, inserted and reordered entries, and decisions in other tables that no
entry records. A program that can write the database can rewrite its whole chain. Earlier heads reveal that, unless it
can also change every head that was logged, posted, or kept in the anchor file: JSON lines in the state directory, which
are only appended to. Uses the standard library only, because agent-intercom-ctl verifies without a server.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from intercom.model.json_types import Json, JsonObject

#: The columns that an entry's hash covers, in the order of the table.


class Entry(NamedTuple):
    """A row of the log. Another program may have stored anything in any column."""

    id: int
    at: str
    kind: str
    session_id: str | None
    who: str
    summary: str
    data: str | None
    previous: str
    hash: str


#: The previous hash of the first entry.
GENESIS: Final = "0" * 64
#: The kinds of the entry that began the chain in an older database, and of one that records a deletion.
STARTED: Final = "audit_started"
PURGED: Final = "purged"
#: The key in the data of a `purged` entry that says which entries were deleted.
PRUNED: Final = "audit_pruned"
#: The kind of the entry after which the chain's head is stored outside. The beginning of the chain precedes it. A new
#: file of heads has another such entry, whose data says `again`.
ANCHORED: Final = "audit_anchored"
#: The kind of the entry that records a posted head. Heads are stored outside by then.
POSTED: Final = "audit_posted"
#: The kinds of the entries that record a decision about a request.
DECIDED: Final = ("decided", "auto_approved")
#: The kind of the entry that takes the decision before it back.
TAKEN_BACK: Final = "decision_taken_back"
#: The channels that decide without a person who sees the request; their entries may be of kind `auto_approved`.
_BY_ITSELF: Final = ("policy", "force", "grant")
#: No entry is deleted by age before this age; the minimum of the setting is a day.
_LEAST_AGE: Final = timedelta(hours=23)
#: The most faults that are listed; the first ones suffice if the whole chain is broken.
_MOST: Final = 100


@dataclass(frozen=True)
class Head:
    """The newest entry. Its hash stands for the whole chain."""

    sequence: int
    hash: str
    at: str


@dataclass(frozen=True)
class Anchor(Head):
    """A head as it was stored outside the database whose path is `database`."""

    database: str = ""


@dataclass(frozen=True)
class Fault:
    """A fault found in the log. `entry` is the id of the entry concerned, None if there is none."""

    entry: int | None
    text: str


@dataclass
class Verification:
    """The result of a verification.

    `head` is None for an empty log. `unchained` counts the entries from before the chain. `begun_again` are the entries
    (id, time) that record a new file of heads. `more` counts the faults beyond the listed ones.
    """

    entries: int = 0
    first: int | None = None
    head: Head | None = None
    unchained: int = 0
    anchors: int = 0
    decisions: int = 0
    begun_again: list[tuple[int, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    more: int = 0

    def add(self, entry: int | None, text: str) -> None:
        if len(self.faults) < _MOST:
            self.faults.append(Fault(entry, text))
        else:
            self.more += 1


@dataclass(frozen=True)
class _Started:
    """The entry with which an older database began its chain. The log began with entry `first`. Decisions about
    `decided_before` have no entries."""

    entry: int
    first: int
    decided_before: frozenset[str]


@dataclass(frozen=True)
class _Pruned:
    """A deletion by age that an entry records: all entries up to `through`, whose hash was `hash`."""

    through: int
    hash: str


def entry_hash(entry: Entry) -> str:
    """Return the SHA-256 of an entry: over canonical JSON of its other columns, which include the previous hash."""
    shown = {name: value for name, value in entry._asdict().items() if name != "hash"}
    # Our values never need `default`; values that another program stored must not stop the verification.
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def entry_data(text: str | None) -> JsonObject:
    """Return an entry's `data`; an empty dict if the text is not a JSON object."""
    try:
        data = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def head(db: sqlite3.Connection) -> Head | None:
    """Return the newest committed entry, or None."""
    row = db.execute("select id, hash, at from audit order by id desc limit 1").fetchone()
    return None if row is None else Head(int(row[0]), str(row[1]), str(row[2]))


def entries(db: sqlite3.Connection) -> Iterator[Entry]:
    """Yield all entries, in order."""
    return map(Entry._make, db.execute(f"select {', '.join(Entry._fields)} from audit order by id"))


def verify(db: sqlite3.Connection, anchors: Iterable[Anchor] = ()) -> Verification:
    """Verify the whole log against the anchors and other tables. Use one transaction if others may write."""
    found = Verification()
    wanted: dict[int, Anchor] = {}
    for anchor in anchors:
        # The oldest counts: an attacker who rewrote the log could only add a newer one.
        oldest = wanted.setdefault(anchor.sequence, anchor)
        if oldest.hash != anchor.hash:
            found.add(anchor.sequence, f"it had one hash on {oldest.at}, and another was kept of {anchor.at}")
    found.anchors = len(wanted)
    started, purges = _marks(found, db, wanted)
    behind: dict[str, list[tuple[str, str, Json]]] = {}
    before: Entry | None = None
    for entry in entries(db):
        found.entries += 1
        if before is None:
            found.first = entry.id
            _check_first(found, entry, started, purges)
        else:
            _check_next(found, before, entry, started)
        if entry_hash(entry) != entry.hash:
            found.add(entry.id, "it was edited: its hash is not that of its columns")
        kept = wanted.pop(entry.id, None)
        if kept is not None and kept.hash != entry.hash:
            found.add(entry.id, f"the log was rewritten up to here: it had another hash on {kept.at}")
        if entry.kind in DECIDED and isinstance(request := entry_data(entry.data).get("request_id"), str):
            said = "approve" if entry.kind == "auto_approved" else str(entry.summary)
            behind.setdefault(request, []).append((entry.kind, said, entry_data(entry.data).get("proposal_hash")))
        elif entry.kind == TAKEN_BACK and isinstance(request := entry_data(entry.data).get("request_id"), str):
            # No decision before it counts any more; that the log knows of the request stays true.
            behind[request] = []
        before = entry
    if before is not None:
        found.head = Head(before.id, before.hash, before.at)
    _check_tail(found, db, wanted, purges)
    _check_decisions(found, db, behind, started)
    return found


def _marks(
    found: Verification, db: sqlite3.Connection, anchors: Mapping[int, Anchor]
) -> tuple[_Started | None, list[_Pruned]]:
    """Return the entry that began the chain in an older database, and the deletions by age. An implausible one is a
    fault: a chain begins before its head is stored, and young entries are not deleted."""
    started: _Started | None = None
    purges: list[_Pruned] = []
    has_begun = False
    for entry in entries(db):
        has_begun = has_begun or entry.kind == ANCHORED
        if entry.kind == STARTED:
            if has_begun or any(sequence < entry.id for sequence in anchors):
                found.add(entry.id, "it says that the chain begins here, and it had begun before")
            elif (begun := _started(entry)) is None:
                found.add(entry.id, "what it says of the chain's beginning is not what the server writes")
            else:
                started, has_begun = begun, True
        elif entry.kind == PURGED and PRUNED in entry_data(entry.data):
            pruned = _pruned(entry)
            if pruned is None:
                found.add(entry.id, "the deletion by age that it records is not what the server writes")
                continue
            purges.append(pruned)
            young = next((each for each in anchors.values() if _is_too_young(each, pruned, entry)), None)
            if young is not None:
                found.add(entry.id, f"entries were deleted by age too early: the last existed on {young.at}")
    return started, purges


def _started(entry: Entry) -> _Started | None:
    data = entry_data(entry.data)
    first, before = data.get("first", entry.id), data.get("decided_before", [])
    if type(first) is not int or not isinstance(before, list):
        return None
    return _Started(entry.id, first, frozenset(each for each in before if isinstance(each, str)))


def _pruned(entry: Entry) -> _Pruned | None:
    data = entry_data(entry.data)[PRUNED]
    if not isinstance(data, dict) or type(through := data.get("through")) is not int:
        return None
    return _Pruned(through, newest if isinstance(newest := data.get("hash"), str) else "")


def _is_too_young(anchor: Anchor, pruned: _Pruned, purge: Entry) -> bool:
    """Whether an entry, known to be the head at a time, was deleted sooner after it than any may be."""
    try:
        return anchor.sequence <= pruned.through and (
            datetime.fromisoformat(purge.at) - datetime.fromisoformat(anchor.at) < _LEAST_AGE
        )
    except (ValueError, TypeError):
        return True


def _check_first(found: Verification, entry: Entry, started: _Started | None, purges: list[_Pruned]) -> None:
    if entry.previous == GENESIS:
        first = 1 if started is None else started.first
        if entry.id != first:
            found.add(entry.id, f"entries before it were removed: the log began with entry {first}")
        return
    if not any(each.hash == entry.previous and each.through < entry.id for each in purges):
        found.add(entry.id, "entries before it were removed, and no entry says so")


def _check_next(found: Verification, before: Entry, entry: Entry, started: _Started | None) -> None:
    if started is not None and entry.id < started.entry:
        # Before the chain, entries were deleted one by one, so gaps are normal.
        found.unchained += 1
    elif entry.id != before.id + 1:
        first, last = before.id + 1, entry.id - 1
        gone = f"entry {first} before it was" if first == last else f"entries {first} to {last} before it were"
        found.add(entry.id, f"{gone} removed")
        return
    if entry.previous != before.hash:
        found.add(entry.id, f"it does not follow entry {before.id}: one of them was inserted, moved or rewritten")


def _check_tail(found: Verification, db: sqlite3.Connection, left: dict[int, Anchor], purges: list[_Pruned]) -> None:
    last = found.head.sequence if found.head is not None else 0
    pruned = max((each.through for each in purges), default=0)
    cut = [anchor for sequence, anchor in sorted(left.items()) if sequence > last]
    if cut:
        found.add(None, f"entries {last + 1} to {cut[-1].sequence} were cut off: the last was there on {cut[-1].at}")
    for sequence, anchor in sorted(left.items()):
        if pruned < sequence <= last and (found.first or 0) <= sequence:
            found.add(sequence, f"this entry was removed: it was there on {anchor.at}")
    row = db.execute("select seq from sqlite_sequence where name = 'audit'").fetchone()
    if not cut and row is not None and int(row[0]) > last:
        found.add(None, f"entries {last + 1} to {row[0]} were removed: the database has counted them")


def _check_decisions(
    found: Verification,
    db: sqlite3.Connection,
    behind: dict[str, list[tuple[str, str, Json]]],
    started: _Started | None,
) -> None:
    known: frozenset[str] = frozenset() if started is None else started.decided_before
    rows = db.execute(
        "select id, status, verdict, decided_by, decided_via, proposal_hash from approval_request"
        " where status in ('approved', 'rejected', 'consumed')"
    )
    for id, status, verdict, by, channel, proposal in rows.fetchall():
        found.decisions += 1
        said = behind.get(str(id))
        if said is None:
            if id not in known:
                found.add(None, f"request {id} is {status} (by {by}), and no entry says that anybody decided it")
        elif not said:
            found.add(None, f"request {id} is {status} (by {by}), and the log says that this decision was taken back")
        elif not any(decision == verdict for _, decision, _ in said):
            found.add(None, f"request {id} is {status} ({verdict} by {by}), and the log says {said[-1][1]}")
        elif channel not in _BY_ITSELF and all(kind != DECIDED[0] for kind, _, _ in said):
            found.add(None, f"request {id} is {status} (by {by}), and the log says that it passed by itself")
        elif all(shown is not None and shown != proposal for _, _, shown in said):
            found.add(None, f"request {id} was changed after it was decided: its proposal's hash is another")
    applied = db.execute("select request_id from apply_journal where state in ('committed', 'done')").fetchall()
    for (id,) in applied:
        if str(id) not in behind and id not in known:
            found.add(None, f"request {id} was applied, and no entry says that anybody decided it")
        elif behind.get(str(id)) == []:
            found.add(None, f"request {id} was applied, and the log says that its decision was taken back")


# --- the heads, kept outside the database ----------------------------------------------------------------------------

#: The largest file accepted, in bytes; the server never writes one this large.
_LARGEST = 256 * 1024 * 1024


#: The state of a file: device, inode, size in bytes, modification time in nanoseconds.
State = tuple[int, int, int, int]


class AnchorError(Exception):
    """The anchor file cannot be read or written. The message says why."""


def append_anchor(file: Path, newest: Head, database: Path) -> State | None:
    """Append a head to the file, on disk when this returns. A missing directory is created.

    Returns the state of the file written, which may no longer be at this path. Returns None if another program wrote to
    it at the same time. Raises AnchorError.
    """
    line = {"sequence": newest.sequence, "hash": newest.hash, "at": newest.at, "database": str(database)}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # A server whose database is elsewhere may have no state directory yet.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, flags, 0o600)
        try:
            _check(file, descriptor)
            # A crash may have cut the last line short; start on a new line so that this one stays readable.
            end = b"" if _ends_line(file) else b"\n"
            data = end + json.dumps(line).encode("ascii") + b"\n"
            before = os.fstat(descriptor).st_size
            os.write(descriptor, data)
            os.fsync(descriptor)
            after = os.fstat(descriptor)
            return _state_of(after) if after.st_size == before + len(data) else None
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AnchorError(f"{file} cannot be written ({(error.strerror or str(error)).lower()})") from None


def anchor_state(file: Path) -> State | None:
    """Return the file's state; None if there is no file."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return _state_of(found)


def holds_anchor(file: Path, database: Path, newest: Head) -> bool:
    """Whether the file contains this head of the database. Raises AnchorError."""
    kept = ((anchor.sequence, anchor.hash) for anchor in read_anchors(file, database))
    return (newest.sequence, newest.hash) in kept


def read_anchors(file: Path, database: Path) -> list[Anchor]:
    """Return the heads of this database, oldest first; none if there is no file. A line that was cut short is
    skipped. Raises AnchorError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AnchorError(f"{file} cannot be read ({(error.strerror or str(error)).lower()})") from None
    with os.fdopen(descriptor, "rb") as opened:
        _check(file, descriptor)
        data = opened.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise AnchorError(f"{file} is larger than any that the server writes: move it aside")
    return [anchor for anchor in _parsed(data) if anchor.database == str(database)]


def examine(database: Path, file: Path) -> Verification:
    """Verify the audit log of a database read-only, even while a server has it open. Raises AnchorError, and
    sqlite3.Error if the file is not our database."""
    anchors = read_anchors(file, database)
    with closing(connect(database)) as db:
        db.execute("begin")
        found = verify(db, anchors)
        if (fault := beginning_fault(db, anchors, file)) is not None:
            found.add(None, fault)
        again = db.execute("select id, at, data from audit where kind = ? order by id", (ANCHORED,))
        found.begun_again = [
            (int(id), str(at)) for id, at, data in again.fetchall() if entry_data(data).get("again") is True
        ]
        return found


def beginning_fault(db: sqlite3.Connection, anchors: list[Anchor], file: Path) -> str | None:
    """Return a sentence if the file does not date from the log entry that records its beginning, else None. A
    replaced file holds no head as old as that entry, unless another entry records the replacement."""
    begun = db.execute("select max(id) from audit where kind = ?", (ANCHORED,)).fetchone()[0]
    if begun is None:
        # Retention may have deleted that entry. A posted head was written to the file first.
        begun = db.execute("select min(id) from audit where kind = ?", (POSTED,)).fetchone()[0]
    if begun is None:
        return None
    if not anchors:
        return f"{file} is gone, or holds nothing of this database: the log's head was kept there"
    first = anchors[0]
    if first.sequence > begun:
        return (
            f"{file} was begun again on {first.at}, and no entry says so: heads were kept there since entry {begun},"
            f" and its first is of entry {first.sequence}"
        )
    return None


def compare(db: sqlite3.Connection, anchors: list[Anchor]) -> list[str]:
    """Return how the newest anchors contradict the log, in sentences; fast enough for every start. The log may be
    newer than its last anchor: a crash can come between the two."""
    newest = head(db)
    faults: list[str] = []
    for anchor in anchors[-_COMPARED:]:
        if newest is None or anchor.sequence > newest.sequence:
            last = 0 if newest is None else newest.sequence
            faults.append(
                f"entries {last + 1} to {anchor.sequence} of the audit log are gone: the last was there on {anchor.at}"
            )
            continue
        row = db.execute("select hash from audit where id = ?", (anchor.sequence,)).fetchone()
        if row is None:
            oldest = db.execute("select min(id) from audit").fetchone()[0]
            if anchor.sequence > oldest:
                faults.append(f"entry {anchor.sequence} of the audit log is gone: it was there on {anchor.at}")
        elif row[0] != anchor.hash:
            faults.append(f"entry {anchor.sequence} of the audit log is not what it was on {anchor.at}")
    return faults


#: How many of the newest anchors are compared at a start; `audit verify` compares all.
_COMPARED = 200


def connect(database: Path) -> sqlite3.Connection:
    """Open a read-only connection."""
    db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("pragma query_only = on")
    # Another program may have stored bytes that are not UTF-8. They must not stop the verification or compare equal.
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return db


def _state_of(found: os.stat_result) -> State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _check(file: Path, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise AnchorError(f"{file} is not a file of yours alone: run chmod 600 on it, or move it aside")


def _ends_line(file: Path) -> bool:
    with open(file, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        if size == 0:
            return True
        opened.seek(size - 1)
        return opened.read(1) == b"\n"


def _parsed(data: bytes) -> Iterator[Anchor]:
    for line in data.split(b"\n"):
        try:
            found = json.loads(line)
            yield Anchor(int(found["sequence"]), str(found["hash"]), str(found["at"]), str(found["database"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
