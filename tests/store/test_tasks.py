"""Tasks on record: once a call, given up once, and gone with their session."""

from __future__ import annotations

from attrs import evolve

from intercom.model.decision import Decided
from intercom.model.request import ApprovalStatus, Task
from intercom.store import sessions
from intercom.store.database import Database
from intercom.store.requests import approvals, tasks
from tests.store import cases
from tests.store.cases import NOW, after


def task(id: str, call: str | None = None, seconds: float = 0, session_id: str = "s") -> Task:
    return Task(id, session_id, "a", "check_clearance", call or f"call {id}", after(seconds))


def test_a_call_has_one_task_however_often_it_is_asked(db: Database) -> None:
    sessions.insert(db, cases.session("s"))
    first = tasks.insert_or_get(db, task("one", "the call"))
    assert tasks.insert_or_get(db, task("two", "the call")) == first
    assert tasks.get(db, "two") is None


def test_a_task_is_given_up_once_and_only_while_its_request_is_open(db: Database) -> None:
    sessions.insert(db, cases.session("s"))
    approvals.insert(db, cases.approval("a", session_id="s"))
    for id in ("one", "two"):
        tasks.insert_or_get(db, task(id))
    assert tasks.asked_after(db, "s") == ("a",)
    assert tasks.cancel(db, "one", "by me", after(1))
    assert tasks.cancel(db, "one", "by me", after(2)), "asked again under the same name"
    assert not tasks.cancel(db, "one", "by another", after(3))
    assert tasks.get(db, "one") == evolve(task("one"), cancelled_at=after(1), cancelled_by="by me")
    approvals.decide(db, "a", ApprovalStatus.APPROVED, Decided("v", "approve", "kim", "ctl", NOW))
    assert not tasks.cancel(db, "two", "by me", after(4))
    assert not tasks.cancel(db, "none", "by me", after(4))
    assert tasks.asked_after(db, "s") == ("a",)


def test_pages_follow_each_other_without_gap_or_repetition(db: Database) -> None:
    for session in ("s", "other"):
        sessions.insert(db, cases.session(session))
    tasks.insert_or_get(db, task("foreign", session_id="other"))
    # Several of one instant, as bursts make them.
    made = [tasks.insert_or_get(db, task(f"t{number}", seconds=number // 3)) for number in range(7)]
    found: list[Task] = []
    while page := tasks.page(db, "s", found[-1].id if found else None, 2):
        found += page
    assert found == made
