"""Opening: private, sound, up to date, or refused in words; a damaged file moved aside, never deleted."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from intercom.model.errors import DatabaseError
from intercom.store import audit, database, sessions
from intercom.store.database import backup, connect, open_database, transaction
from intercom.store.schema import LATEST

from . import cases


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def stocked(path: Path) -> None:
    """A database at `path` that holds the session "s1"."""
    db = open_database(path).db
    sessions.insert(db, cases.session("s1"))
    db.close()


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user whom file modes bind: root is not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may reach."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def test_a_new_database_and_its_directories_are_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "intercom" / "intercom.db"
    before = os.umask(0)
    try:
        opened = open_database(path)
    finally:
        os.umask(before)
    sessions.insert(opened.db, cases.session("s1"))
    assert (opened.moved_aside, opened.backed_up) == (None, None)
    assert [mode(part) for part in (path.parent.parent, path.parent)] == [0o700, 0o700]
    # the log and its index hold the same words
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    assert len(list(path.parent.iterdir())) == 3
    opened.db.close()


def test_a_file_open_to_others_is_narrowed(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    path.chmod(0o644)
    open_database(path).db.close()
    assert mode(path) == 0o600


def test_the_connection_waits_for_the_disk_and_for_others(tmp_path: Path) -> None:
    db = open_database(tmp_path / "intercom.db", busy_seconds=2.5).db
    found = {
        name: db.execute(f"pragma {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 2500}
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(
            "insert into instruction (id, session_id, kind, text, given_by, created_at)"
            " values ('i', 'nobody', 'nudge', '', '', '')"
        )
    db.close()


def test_what_was_written_is_there_when_opened_again(tmp_path: Path) -> None:
    stocked(tmp_path / "intercom.db")
    opened = open_database(tmp_path / "intercom.db")
    assert sessions.get(opened.db, "s1") == cases.session("s1")
    assert (opened.moved_aside, opened.backed_up) == (None, None)
    opened.db.close()


def damage_header(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 500)


def damage_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content) - 4096, 4096):
        content[page : page + 64] = b"\xff" * 64
    path.write_bytes(content)


def damage_a_leaf(path: Path) -> None:
    """What opening would not notice: the file's last page, made of nothing."""
    content = bytearray(path.read_bytes())
    content[-4096:] = bytes(4096)
    path.write_bytes(content)


def damage_length(path: Path) -> None:
    os.truncate(path, 6000)


@pytest.mark.parametrize("damage", [damage_header, damage_pages, damage_a_leaf, damage_length])
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(damage: object, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    damage(path)  # type: ignore[operator]
    broken = path.read_bytes()
    Path(f"{path}-wal").write_bytes(b"log")
    Path(f"{path}-shm").write_bytes(b"index")

    opened = open_database(path, now=lambda: datetime(2026, 3, 1, 12, 30, tzinfo=UTC))

    aside = opened.moved_aside
    assert aside == tmp_path / "intercom.db.damaged-20260301T123000Z"
    assert aside.read_bytes() == broken
    # the log goes with the file it belongs to, and is not mistaken for the new file's
    assert Path(f"{aside}-wal").read_bytes() == b"log"
    assert mode(Path(f"{aside}-wal")) == 0o600
    assert sessions.live(opened.db) == ()
    sessions.insert(opened.db, cases.session("s2"))
    opened.db.close()
    assert mode(path) == 0o600


def test_a_file_moved_aside_never_takes_anothers_place(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    moved = []
    for number in range(3):
        path.write_bytes(b"rubbish %d" % number * 1000)
        opened = open_database(path, now=lambda: datetime(2026, 3, 1, tzinfo=UTC))
        opened.db.close()
        moved.append(opened.moved_aside)
    assert [file.read_bytes()[:9] for file in moved if file] == [b"rubbish 0", b"rubbish 1", b"rubbish 2"]


def test_a_fault_that_is_not_damage_moves_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)

    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
        raise error

    monkeypatch.setattr("intercom.store.database.version", fail)
    with pytest.raises(DatabaseError, match="failed while reading or writing"):
        open_database(path)
    monkeypatch.undo()
    opened = open_database(path)
    assert opened.moved_aside is None
    assert sessions.get(opened.db, "s1") is not None
    opened.db.close()


def test_no_permission_on_the_file_is_said(place: Path) -> None:
    path = place / "intercom.db"
    stocked(path)
    path.chmod(0)
    with unprivileged(), pytest.raises(DatabaseError, match=r"permission denied.*give this user the right"):
        open_database(path)


def test_no_permission_on_the_directory_is_said(place: Path) -> None:
    (place / "closed").mkdir(mode=0o500)
    for path in (place / "closed" / "intercom.db", place / "closed" / "deeper" / "intercom.db"):
        with unprivileged(), pytest.raises(DatabaseError, match="permission denied"):
            open_database(path)
    (place / "closed").chmod(0o700)


def test_no_permission_for_the_log_beside_the_file_is_said(place: Path) -> None:
    inner = place / "closed"
    inner.mkdir()
    path = inner / "intercom.db"
    stocked(path)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    inner.chmod(0o555)
    with unprivileged(), pytest.raises(DatabaseError, match="database"):
        open_database(path)
    inner.chmod(0o700)
    assert open_database(path).moved_aside is None


def test_a_path_through_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="a part of the path is a file and not a directory"):
        open_database(tmp_path / "file" / "intercom.db")
    with pytest.raises(DatabaseError, match="a part of the path is a file and not a directory"):
        open_database(tmp_path / "file" / "deeper" / "intercom.db")


def test_a_directory_in_the_files_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"set \[database\] path to a file, not a directory"):
        open_database(tmp_path)


@pytest.mark.parametrize("fresh", [True, False])
def test_a_file_locked_by_another_program_is_said(fresh: bool, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    if not fresh:
        stocked(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    other.execute("create table if not exists schema_version (x)")
    with pytest.raises(DatabaseError, match="locked by another program; close that program and try again"):
        open_database(path, busy_seconds=0.05)
    other.rollback()
    other.close()
    opened = open_database(path)
    assert opened.moved_aside is None
    opened.db.close()


def test_several_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    found: list[object] = []
    together = threading.Barrier(4)

    def enter(path: Path) -> None:
        together.wait()
        try:
            opened = open_database(path)
            found.append(opened.moved_aside)
            opened.db.close()
        except DatabaseError as refused:
            found.append(refused)

    for number in range(10):
        threads = [threading.Thread(target=enter, args=(tmp_path / f"{number}.db",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [None] * 40


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("create table recipe (id)")
    other.commit()
    other.close()
    with pytest.raises(DatabaseError, match="belongs to another program"):
        open_database(path)
    other = sqlite3.connect(path)
    assert other.execute("select name from sqlite_master").fetchall() == [("recipe",)]
    other.close()


def test_a_newer_schema_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    db = connect(path)
    db.execute("insert into schema_version values (?, 'future', '')", (LATEST + 1,))
    db.close()
    with pytest.raises(DatabaseError, match=f"schema {LATEST + 1}, this program knows {LATEST}") as refused:
        open_database(path)
    assert refused.value.error_code == "version_mismatch"
    db = connect(path)
    assert sessions.get(db, "s1") == cases.session("s1")
    db.close()
    assert [file.name for file in tmp_path.iterdir() if "damaged" in file.name or "schema" in file.name] == []


def test_a_backup_is_a_whole_private_database(tmp_path: Path) -> None:
    path, copy = tmp_path / "intercom.db", tmp_path / "copy.db"
    db = open_database(path).db
    sessions.insert(db, cases.session("s1"))
    backup(db, copy)
    sessions.insert(db, cases.session("s2"))
    db.close()
    assert mode(copy) == 0o600
    kept = open_database(copy)
    assert [session.id for session in sessions.live(kept.db)] == ["s1"]
    kept.db.close()


def test_a_backup_never_takes_anothers_place(tmp_path: Path) -> None:
    db = open_database(tmp_path / "intercom.db").db
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(DatabaseError, match="exists already; choose another name"):
        backup(db, tmp_path / "copy.db")
    with pytest.raises(DatabaseError, match="no such file or directory"):
        backup(db, tmp_path / "nowhere" / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    db.close()


def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    db = open_database(tmp_path / "intercom.db").db
    db.close()
    with pytest.raises(sqlite3.ProgrammingError):
        backup(db, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    db = open_database(tmp_path / "intercom.db").db

    def half() -> None:
        with transaction(db):
            audit.record(db, cases.NOW, "noted", None, "test", "lost")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    with transaction(db):
        audit.record(db, cases.NOW, "noted", None, "test", "kept")
    assert [entry.summary for entry in audit.recent(db, 9)] == ["kept"]
    db.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_BUSY, "locked by another program"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked by another program"),
        (sqlite3.SQLITE_LOCKED, "locked by another program"),
        (sqlite3.SQLITE_FULL, "is full; free some space"),
        (sqlite3.SQLITE_READONLY, "no permission to write"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "no permission to write"),
        (sqlite3.SQLITE_PERM, "no permission to write"),
        (sqlite3.SQLITE_AUTH, "no permission to write"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened; check that its directory exists"),
        (sqlite3.SQLITE_IOERR, "failed while reading or writing"),
        (sqlite3.SQLITE_IOERR_FSYNC, "failed while reading or writing"),
        (sqlite3.SQLITE_CORRUPT, "is damaged; restart the server"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "is damaged; restart the server"),
        (sqlite3.SQLITE_NOTADB, "is damaged; restart the server"),
    ],
)
def test_a_condition_of_the_database_is_told_with_what_to_do(code: int, words: str) -> None:
    error = sqlite3.OperationalError("whatever")
    error.sqlite_errorcode = code
    refused = database.refusal(error, Path("/state/intercom.db"))
    assert refused.error_code == "db"
    assert words in str(refused)
    assert "/state/intercom.db" in str(refused)
    assert str(refused)[0].islower()
    assert not str(refused).endswith(".")


@pytest.mark.parametrize("code", [sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT_CHECK, sqlite3.SQLITE_MISUSE, None])
def test_a_mistake_of_ours_is_no_refusal(code: int | None) -> None:
    error = sqlite3.ProgrammingError("near selekt: syntax error")
    if code is not None:
        error.sqlite_errorcode = code
    assert database.refusal(error, Path("/state/intercom.db")) is None
