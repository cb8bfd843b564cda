"""The schema: the reference's tables are in it, the model's values are its only ones, and migrations go forward."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import DatabaseError
from intercom.model.process import Process
from intercom.model.request import ApprovalRequest, RiskLevel
from intercom.store import idempotency, rows, sessions
from intercom.store.database import open_database
from intercom.store.idempotency import Scope
from intercom.store.processes import agent_processes
from intercom.store.requests import approvals, prompts
from intercom.store.schema import FIRST, LATEST, MIGRATIONS, Migration, migrate, version
from intercom.store.sessions import stalls

from . import cases
from .cases import NOW

#: The reference's tables and columns; a question mark if the column may be null.
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


@pytest.mark.parametrize("table", REFERENCE)
def test_the_references_columns_are_all_there(db: Database, table: str) -> None:
    found = {row["name"]: row for row in rows.every(db, f"select * from pragma_table_info('{table}')")}
    for column in REFERENCE[table].split():
        assert found[column.rstrip("?")]["notnull"] == (0 if column.endswith("?") else 1), column
    assert found["id"]["pk"] == 1


def test_the_references_indexes_are_all_there(db: Database) -> None:
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
def test_a_value_the_model_does_not_know_is_kept_out(db: Database, table: str, column: str, wrong: str) -> None:
    approvals.insert(db, cases.approval("r1"))
    prompts.insert(db, cases.prompt("p1"))
    stalls.insert(db, cases.alert("t1"))
    cases_for_rest = {
        "wait": "insert into wait (id, session_id, message, status, created_at) values ('w', 's1', '', 'pending', '')",
        "apply_journal": "insert into apply_journal values ('r1', 's1', '', 'staging', '[]', null, null, '')",
    }
    if table in cases_for_rest:
        db.execute(cases_for_rest[table])
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        db.execute(f"update {table} set {column} = ?", (wrong,))


def test_the_numbers_have_no_gaps() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(FIRST, LATEST + 1))


def add_column(db: Database) -> None:
    db.execute("alter table session add column of_a_test text not null default 'red'")


#: The migrations of a later program.
LATER = (*MIGRATIONS, Migration(LATEST + 1, "of a test", add_column))


def test_an_older_database_is_copied_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    old = open_database(path, now=lambda: NOW)
    sessions.insert(old.db, cases.session("s1"))
    old.db.close()
    assert old.backed_up is None
    opened = open_database(path, now=lambda: NOW, migrations=LATER)
    assert version(opened.db) == LATEST + 1
    assert rows.column(opened.db, "select of_a_test from session") == ["red"]
    assert sessions.get(opened.db, "s1") == cases.session("s1")
    names = {step.number: step.name for step in LATER}
    assert dict(opened.db.execute("select version, name from schema_version").fetchall()) == names
    opened.db.close()
    assert opened.backed_up == tmp_path / f"intercom.db.schema-{LATEST}-20260301T120000Z"
    copy = open_database(opened.backed_up)
    assert version(copy.db) == LATEST
    assert sessions.get(copy.db, "s1") == cases.session("s1")
    copy.db.close()
    # A program that does not know the column refuses.
    with pytest.raises(DatabaseError, match="upgrade agent-intercom"):
        open_database(path)


#: A row of each table that a migration has changed since the first version.
FIRST_ROWS = (
    "insert into child values"
    " ('s1', 'running', :at, 'ada', 'docs', 2, 1, 71, 10.5, 72, 11.5, :at, null, null, 3, 9, 1, 1, 'no')",
    "insert into answered_call values ('child/s1/2', 's1', 'process', '{}', :at), ('child/x', null, 'ping', '{}', :at)",
    "insert into answered_call select column1, 's1', column2, '{}', :at from (values ('s/9', 'check_diff'),"
    " ('service/s/9', 'switch_freq'), ('ctl/1/signed', 'signed'), ('1/given', 'verdict'), ('2/unpause', 'unpause'),"
    " ('3/session', 'session'), ('slack/4', 'slack.reply'), ('slack/5', 'slack_command'),"
    " ('slack/5#answer', 'slack_command'), ('slack/5#process', 'slack_command'))",
    "insert into signed_command values ('act-0001', :at)",
)


def test_a_database_of_the_first_version_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    old = open_database(path, now=lambda: NOW, migrations=MIGRATIONS[:1])
    sessions.insert(old.db, cases.session("s1"))
    for statement in FIRST_ROWS:
        old.db.execute(statement, {"at": clock.to_text(NOW)})
    [before] = rows.every(old.db, "select * from child")
    old.db.close()
    opened = open_database(path, now=lambda: NOW)
    db = opened.db
    renamed = {"keeper_pid": "monitor_pid", "keeper_began": "monitor_began"}
    [after] = rows.every(db, "select * from spawned_agent")
    assert after == {renamed.get(name, name): value for name, value in before.items()}
    found = agent_processes.get(db, "s1")
    assert (found.monitor, found.process) == (Process(71, 10.5), Process(72, 11.5))
    acts = {
        Scope.CALL: "s1/s/9",
        Scope.MODE: "s/9",
        Scope.SIGNED: "ctl/1",
        Scope.DECISION: "1",
        Scope.UNPAUSE: "2",
        Scope.SESSION: "3",
        Scope.REPLY: "slack/4",
        Scope.COMMAND: "slack/5",
        Scope.COMMAND_ANSWER: "slack/5",
        Scope.COMMAND_PROCESS: "slack/5",
        Scope.PROCESS: "s1/2",
    }
    assert all(idempotency.was_done(db, scope, id) for scope, id in acts.items())
    # The first version knew no others.
    assert set(Scope) - set(acts) == {Scope.TAKE_BACK, Scope.TAKEN_BACK}
    used = idempotency.answer(db, Scope.SIGNED, "ctl/act-0001")
    assert "used before" in used["error"]
    assert db.execute("pragma foreign_key_check").fetchall() == []
    db.close()


def test_asking_again_finds_what_was_asked_before_requests_had_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    old = open_database(path, now=lambda: NOW, migrations=[step for step in MIGRATIONS if step.number < 28])
    rejected: dict[str, object] = {"status": "rejected", "delivered_at": clock.to_text(NOW)}
    changed: dict[str, dict[str, object]] = {
        "amended": {"diff_content": "bye\n"},
        "over": rejected,
        "hook": {"tool": "x"},
    }
    for id in ("open", "amended", "broken", "over", "hook"):
        sessions.insert(old.db, cases.session(id))
        row = {**approvals.columns.write(cases.approval(id, session_id=id)), **changed.get(id, {})}
        rows.insert(old.db, "approval_request", row)
    kept = rows.json_codec(ApprovalRequest).write(cases.approval("amended"))
    for id, proposed in (("amended", kept), ("broken", "{")):
        amendment = {"request_id": id, "verdict_id": "v", "proposed": proposed, "amended_at": ""}
        rows.insert(old.db, "amendment", amendment, conflict="do nothing")
    old.db.close()
    opened = open_database(path, now=lambda: NOW)
    asked = ("hello\n", "hello.txt", RiskLevel.LOW, "/project", "codex")
    assert set(approvals.sessions_that_ask(opened.db, *asked)) == {"open", "amended"}
    sessions.insert(opened.db, cases.session("new"))
    approvals.insert(opened.db, cases.approval("new", session_id="new", created_at=cases.after(1)))
    assert approvals.sessions_that_ask(opened.db, *asked)[0] == "new"
    assert approvals.sessions_that_ask(opened.db, "bye\n", *asked[1:]) == ()
    opened.db.close()


def before_the_release(path: Path, newest: int) -> None:
    """A database as programs made it before the first release: one row for each number up to `newest`."""
    opened = open_database(path, now=lambda: NOW, migrations=MIGRATIONS[:1])
    opened.db.execute(
        "insert into session (id, owner_user_id, workspace_root, status, mode, created_at, updated_at, client_name)"
        " values ('s1', '', '/project', 'active', 'local', :at, :at, 'codex')",
        {"at": clock.to_text(NOW)},
    )
    opened.db.execute("delete from schema_version")
    for number in range(1, newest + 1):
        opened.db.execute("insert into schema_version values (?, 'name', '')", (number,))
    opened.db.close()


def test_the_last_database_from_before_the_release_is_opened_as_one_of_the_first_version(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    before_the_release(path, FIRST)
    opened = open_database(path)
    assert (version(opened.db), opened.moved_aside) == (LATEST, None)
    assert (opened.backed_up is None) == (LATEST == FIRST)
    assert sessions.get(opened.db, "s1") == cases.session("s1")
    opened.db.close()


@pytest.mark.parametrize("newest", [1, FIRST - 1])
def test_an_older_one_from_before_the_release_is_refused_and_kept(newest: int, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    before_the_release(path, newest)
    before = path.read_bytes()
    sentence = (
        f"before the first release \\(schema {newest}, this program begins at {FIRST}\\); move it away and restart"
    )
    with pytest.raises(DatabaseError, match=sentence) as refused:
        open_database(path, migrations=LATER)
    assert refused.value.error_code == "version_mismatch"
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if "schema" in file.name or "damaged" in file.name] == []


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(db: Database) -> None:
        db.execute("create table half (id)")
        raise KeyError("typo")

    db = Database(sqlite3.connect(tmp_path / "intercom.db"))
    with pytest.raises(KeyError):
        migrate(db, NOW, (*MIGRATIONS, Migration(LATEST + 1, "broken", fail)))
    assert version(db) == LATEST
    assert not db.table("half").exists()
    # It can still be applied.
    assert migrate(db, NOW, LATER) == LATEST
    assert version(db) == LATEST + 1
    db.close()
