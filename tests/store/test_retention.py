"""What ended long ago goes, children before parents; what is still needed stays."""

from __future__ import annotations

import pytest

from intercom.model.decision import Decided
from intercom.model.policy import PolicyDecision
from intercom.model.session import SessionStatus
from intercom.store import audit, checkpoints, idempotency, instructions, retention, rows, sessions
from intercom.store.apply_journal import JournalState, journal
from intercom.store.database import Database
from intercom.store.idempotency import Scope
from intercom.store.requests import approvals, prompts, waits
from intercom.store.sessions import stalls
from intercom.store.trust import policies
from tests.store import cases
from tests.store.cases import NOW, after

TABLES = (
    "instruction",
    "apply_journal",
    "wait",
    "approval_file",
    "stall_alert",
    "checkpoint",
    "continuation_prompt",
    "approval_request",
    "session",
)


def furnish(db: Database, id: str, **changes: object) -> None:
    """A session with one row in every table that belongs to sessions."""
    sessions.insert(db, cases.session(id, **changes))
    approvals.insert(db, cases.approval(f"a {id}", session_id=id))
    prompts.insert(db, cases.prompt(f"p {id}", session_id=id))
    waits.insert(db, cases.wait(f"w {id}", session_id=id))
    stalls.insert(db, cases.alert(f"t {id}", session_id=id))
    checkpoints.insert(db, cases.checkpoint(f"c {id}", session_id=id))
    instructions.insert(db, cases.word(f"i {id}", session_id=id))
    journal.begin(db, cases.entry(f"a {id}", session_id=id, state=JournalState.DONE))


def ended(seconds: float) -> dict[str, object]:
    return {"status": SessionStatus.TERMINATED, "terminated_at": after(seconds)}


def test_a_session_goes_with_all_that_is_its_own(db: Database) -> None:
    furnish(db, "old", **ended(-1))
    furnish(db, "recent", **ended(0))
    furnish(db, "paused", status=SessionStatus.PAUSED)
    gone = retention.purge(db, cutoff=NOW, at=after(9))
    assert {table: gone[table] for table in TABLES} == dict.fromkeys(TABLES, 1)
    assert sessions.get(db, "old") is None
    for table in TABLES[:-1]:
        assert rows.count(db, f"select count(*) from {table}") == 2, table
    assert db.execute("pragma foreign_key_check").fetchall() == []
    assert [entry.kind for entry in audit.recent(db, 9)] == ["purged"]
    again = retention.purge(db, cutoff=NOW, at=after(9))
    assert set(again.values()) == {0}
    assert len(audit.recent(db, 9)) == 1


#: What is kept, or forgets by itself.
KEPT = {
    *("schema_version", "policy_decision", "policy_narrowing", "operator_key", "api_token"),
    "push_subscription",
    *("gateway_downstream", "gateway_pin"),
    # They go when the processes do.
    *("agent_process", "operator_terminal"),
}


def test_every_table_is_purged_or_kept_on_purpose(db: Database) -> None:
    tables = set(rows.column(db, "select name from sqlite_master where type = 'table' and name not like 'sqlite%'"))
    assert set(retention.purge(db, NOW, NOW)) == tables - KEPT


@pytest.mark.parametrize("state", [JournalState.STAGING, JournalState.COMMITTED, JournalState.STUCK])
def test_a_session_with_an_apply_not_finished_stays(db: Database, state: JournalState) -> None:
    sessions.insert(db, cases.session("old", **ended(-1)))
    approvals.insert(db, cases.approval("a", session_id="old"))
    journal.begin(db, cases.entry("a", session_id="old", state=state))
    retention.purge(db, cutoff=NOW, at=NOW)
    assert sessions.get(db, "old") is not None
    assert journal.get(db, "a") is not None


def test_records_go_by_age(db: Database) -> None:
    said = Decided("v", "accept", "ada", "ctl", after(-99))
    policies.record(db, PolicyDecision("policy-1", "/project", "sha", "{}", True, said))
    for name, seconds in (("old", -1), ("new", 0)):
        idempotency.record(db, Scope.CALL, name, {}, after(seconds))
        audit.record(db, after(seconds), "noted", None, "ada", name)
    gone = retention.purge(db, cutoff=NOW, at=after(1))
    assert (gone["answered_call"], gone["audit"]) == (1, 1)
    assert idempotency.answer(db, Scope.CALL, "old") is None
    assert idempotency.answer(db, Scope.CALL, "new") == {}
    assert {entry.summary for entry in audit.recent(db, 9)} >= {"new"}
    assert policies.decisions(db, "/project") != ()


def test_checkpoints_may_go_before_their_session(db: Database) -> None:
    for id, seconds in (("old", -1), ("new", 0)):
        checkpoints.insert(db, cases.checkpoint(id, created_at=after(seconds)))
    assert retention.purge(db, after(-99), NOW)["checkpoint"] == 0
    assert retention.purge(db, after(-99), NOW, checkpoints_before=NOW)["checkpoint"] == 1
    assert [kept.id for kept in checkpoints.of(db)] == ["new"]


def test_one_call_does_a_bounded_part(db: Database) -> None:
    for number in range(5):
        furnish(db, f"old {number}", **ended(-10 - number))
    assert retention.purge(db, NOW, NOW, limit=2)["session"] == 2
    # the oldest first
    assert sessions.get(db, "old 4") is None
    assert sessions.get(db, "old 0") is not None
    assert retention.purge(db, NOW, NOW, limit=2)["session"] == 2
    assert retention.purge(db, NOW, NOW, limit=2)["session"] == 1
