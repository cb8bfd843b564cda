"""Looking at a database changes nothing."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from intercom.store import database, sessions
from intercom.store.database import check, connect, open_database
from intercom.store.requests import approvals, waits
from intercom.store.schema import FIRST, LATEST
from tests.store import cases


def stocked(path: Path) -> None:
    db = open_database(path).db
    sessions.insert(db, cases.session("s1"))
    approvals.insert(db, cases.approval("r1"))
    waits.insert(db, cases.wait("w1"))
    db.close()


def test_a_sound_database_is_told_with_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    server = open_database(path).db
    server.execute("begin immediate")
    health = check(path)
    assert (health.exists, health.version, health.fault) == (True, LATEST, None)
    assert (health.sessions, health.requests) == (1, 2)
    assert health.size == path.stat().st_size
    server.close()


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert not check(tmp_path / "intercom.db").exists
    assert os.listdir(tmp_path) == []


def test_an_older_schema_is_no_fault_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    before = path.read_bytes()
    monkeypatch.setattr(database, "LATEST", LATEST + 1)
    health = check(path)
    assert (health.version, health.fault) == (LATEST, None)
    assert path.read_bytes() == before


def test_a_schema_from_before_the_first_release_is_told(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    db = connect(path)
    db.execute("delete from schema_version")
    db.execute("insert into schema_version values (?, 'old', '')", (FIRST - 1,))
    db.close()
    health = check(path)
    assert health.version == FIRST - 1
    assert "move it away and restart" in str(health.fault)


def test_a_newer_schema_is_told(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    db = connect(path)
    db.execute("insert into schema_version values (?, 'future', '')", (LATEST + 1,))
    db.close()
    health = check(path)
    assert health.version == LATEST + 1
    assert "upgrade agent-intercom" in str(health.fault)


@pytest.mark.parametrize("damage", ["header", "leaf"])
def test_damage_is_told_and_left_in_its_place(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    stocked(path)
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:100] = b"x" * 100
    else:
        content[-4096:] = bytes(4096)
    path.write_bytes(content)
    assert "is damaged" in str(check(path).fault)
    assert path.read_bytes() == content
    assert [name for name in os.listdir(tmp_path) if "damaged" in name] == []


def test_another_programs_database_is_told(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("create table recipe (id)")
    other.close()
    assert "belongs to another program" in str(check(tmp_path / "other.db").fault)


def test_a_path_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "not a directory" in str(check(tmp_path / "file" / "intercom.db").fault)
    assert "cannot be opened" in str(check(tmp_path).fault)
