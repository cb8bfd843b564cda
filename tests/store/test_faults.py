"""SQLite's errors in words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from intercom.store import faults


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
        (sqlite3.SQLITE_CANTOPEN, "can not be opened; check that its directory exists"),
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
    refused = faults.refusal(error, Path("/state/intercom.db"))
    assert refused is not None
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
    assert faults.refusal(error, Path("/state/intercom.db")) is None
