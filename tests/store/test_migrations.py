"""The schema's history, from nothing and from every version there has been."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from intercom.model.errors import DatabaseError
from intercom.model.prompt import WaitStatus
from intercom.model.stall import StallStatus
from intercom.store import approvals, prompts, rows, sessions, stalls
from intercom.store.database import open_database
from intercom.store.migrations import LATEST, MIGRATIONS, Migration, migrate, version

from . import cases
from .cases import NOW

#: The reference's tables, column by column: name, type, NOT NULL, default, primary key.
REFERENCE = {
    "session": "id owner_user_id workspace_root status prompt? mode created_at updated_at terminated_at? last_tool? "
    "nudge_count stall_paused progress_snapshot?",
    "approval_request": "id session_id title description? diff_content file_path risk_level status original_hash "
    "slack_ts? created_at consumed_at?",
    "checkpoint": "id session_id label? session_state file_hashes workspace_root progress_snapshot? created_at",
    "continuation_prompt": "id session_id prompt_text prompt_type elapsed_seconds? actions_taken? decision? "
    "instruction? slack_ts? created_at",
    "stall_alert": "id session_id last_tool? last_activity_at idle_seconds nudge_count status nudge_message? "
    "progress_snapshot? slack_ts? created_at",
}

INDEXES = {
    ("approval_request", "idx_approval_session"),
    ("checkpoint", "idx_checkpoint_session"),
    ("continuation_prompt", "idx_prompt_session"),
    ("stall_alert", "idx_stall_session"),
}

#: One row of each table of the first version.
FIRST_ROWS = (
    "insert into session values ('s1', 'U1', '/project', 'active', null, 'remote', :at, :at, null, 'ping', 2, 1, null)",
    "insert into approval_request values"
    " ('a1', 's1', 'Title', null, '+x', 'f.txt', 'low', 'pending', 'abc', null, :at, null)",
    "insert into checkpoint values ('c1', 's1', null, '{}', '{}', '/project', null, :at)",
    "insert into continuation_prompt values ('p1', 's1', 'Go on?', 'continuation', 5, 6, null, null, null, :at)",
    "insert into continuation_prompt values ('p2', 's1', 'Go on?', 'continuation', 5, 6, 'stop', null, null, :at)",
    "insert into stall_alert values ('t1', 's1', null, :at, 300, 0, 'pending', null, null, null, :at)",
    "insert into stall_alert values ('t2', 's1', null, :at, 300, 1, 'nudged', null, null, null, :at)",
)


def shape(db: Database) -> list[tuple[str, str]]:
    """The schema as SQLite keeps it."""
    found = db.execute("select name, sql from sqlite_master where sql is not null order by type, name").fetchall()
    return [(name, sql) for name, sql in found]


def test_the_numbers_have_no_gaps() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, LATEST + 1))


@pytest.mark.parametrize("table", REFERENCE)
def test_the_references_columns_are_all_there(table: str) -> None:
    with cases.database() as db:
        found = {row["name"]: row for row in rows.every(db, f"select * from pragma_table_info('{table}')")}
        for column in REFERENCE[table].split():
            assert found[column.rstrip("?")]["notnull"] == (0 if column.endswith("?") else 1), column
        assert found["id"]["pk"] == 1


def test_the_references_indexes_are_all_there() -> None:
    with cases.database() as db:
        found = db.execute("select tbl_name, name from sqlite_master where type = 'index'").fetchall()
        assert set(found) >= INDEXES


@pytest.mark.parametrize(
    ("table", "column", "wrong"),
    [
        ("session", "status", "gone"),
        ("session", "mode", "silent"),
        ("approval_request", "status", "maybe"),
        ("approval_request", "risk_level", "medium"),
        ("continuation_prompt", "prompt_type", "chat"),
        ("continuation_prompt", "status", "maybe"),
        ("wait", "status", "maybe"),
        ("stall_alert", "status", "asleep"),
        ("apply_journal", "state", "half"),
        ("approval_file", "kind", "link"),
    ],
)
def test_a_value_the_model_does_not_know_is_kept_out(table: str, column: str, wrong: str) -> None:
    with cases.database() as db:
        approvals.insert(db, cases.approval("r1"))
        prompts.insert(db, cases.prompt("p1"))
        stalls.insert(db, cases.alert("t1"))
        cases_for_rest = {
            "wait": "insert into wait (id, session_id, message, status, created_at)"
            " values ('w', 's1', '', 'pending', '')",
            "apply_journal": "insert into apply_journal values ('r1', 's1', '', 'staging', '[]', null, null, '', '')",
        }
        if table in cases_for_rest:
            db.execute(cases_for_rest[table])
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            db.execute(f"update {table} set {column} = ?", (wrong,))


@pytest.mark.parametrize("start", range(LATEST + 1))
def test_every_earlier_version_becomes_the_same_as_a_new_one(start: int, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    old = Database(sqlite3.connect(path))
    if start:
        migrate(old, NOW, MIGRATIONS[:start])
        for statement in FIRST_ROWS:
            # later versions added columns behind those of the first
            named = statement.replace(" values", f" ({', '.join(_first_columns(statement.split()[2]))}) values", 1)
            if start == 1 or "'t2'" not in statement:
                old.execute(named, {"at": "2026-03-01T12:00:00.000000+00:00"})
    assert version(old) == start
    old.close()

    opened = open_database(path, now=lambda: NOW)
    with cases.database() as new:
        assert shape(opened.db) == shape(new)
    assert version(opened.db) == LATEST
    if start:
        session = sessions.get(opened.db, "s1")
        assert session is not None
        assert (session.nudge_count, session.stall_paused, session.agent_key) == (2, True, None)
        assert [request.id for request in approvals.pending(opened.db)] == ["a1"]
        assert opened.db.execute("pragma foreign_key_check").fetchall() == []
    if start == 1:
        assert [request.id for request in prompts.pending(opened.db)] == ["p1"]
        decided = prompts.get(opened.db, "p2")
        assert decided is not None
        assert decided.status is WaitStatus.DECIDED
        active = stalls.active(opened.db, "s1")
        assert active is not None
        assert active.id == "t2"
        older = stalls.get(opened.db, "t1")
        assert older is not None
        assert older.status is StallStatus.DISMISSED
    if 0 < start < LATEST:
        assert opened.backed_up == tmp_path / f"intercom.db.schema-{start}-20260301T120000Z"
        kept = Database(sqlite3.connect(opened.backed_up))
        assert version(kept) == start
        kept.close()
    else:
        assert opened.backed_up is None
    opened.db.close()


def _first_columns(table: str) -> list[str]:
    return [column.rstrip("?") for column in REFERENCE[table].split()]


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(db: Database) -> None:
        db.execute("create table half (id)")
        raise KeyError("typo")

    db = Database(sqlite3.connect(tmp_path / "intercom.db"))
    broken = (*MIGRATIONS, Migration(LATEST + 1, "broken", fail))
    with pytest.raises(KeyError):
        migrate(db, NOW, broken)
    assert version(db) == LATEST
    assert not db.table("half").exists()
    # and the step is still to be done
    mended = (*MIGRATIONS, Migration(LATEST + 1, "mended", lambda db: None))
    assert migrate(db, NOW, mended) == LATEST
    assert version(db) == LATEST + 1
    with pytest.raises(DatabaseError, match="upgrade agent-intercom"):
        migrate(db, NOW)
    db.close()


def test_each_step_is_recorded() -> None:
    with cases.database() as db:
        found = rows.every(db, "select version, name from schema_version order by version")
        assert found == [{"version": step.number, "name": step.name} for step in MIGRATIONS]
