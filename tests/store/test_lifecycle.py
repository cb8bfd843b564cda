"""Whatever waits for a person lives by the same rules: approvals, prompts and standbys."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from intercom.model.errors import InvalidArguments
from intercom.model.request import ApprovalStatus, PromptDecision, WaitStatus
from intercom.store import requests, sessions
from intercom.store.apply_journal import JournalState, journal
from intercom.store.database import Database, connect, open_database, transaction
from intercom.store.requests import RequestTable, approvals, prompts, waits

from . import cases
from .cases import NOW, after, verdict


@frozen
class Kind:
    name: str
    module: RequestTable[Any, Any]
    make: Callable[..., Any]
    yes: StrEnum
    expired: StrEnum
    interrupted: StrEnum
    word: str
    other_word: str


KINDS = [
    Kind(
        "approval",
        approvals,
        cases.approval,
        ApprovalStatus.APPROVED,
        ApprovalStatus.EXPIRED,
        ApprovalStatus.INTERRUPTED,
        "approve",
        "reject",
    ),
    Kind(
        "prompt",
        prompts,
        cases.prompt,
        WaitStatus.DECIDED,
        WaitStatus.EXPIRED,
        WaitStatus.INTERRUPTED,
        "continue",
        "stop",
    ),
    Kind("wait", waits, cases.wait, WaitStatus.DECIDED, WaitStatus.EXPIRED, WaitStatus.INTERRUPTED, "resume", "stop"),
]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@every_kind
def test_the_first_verdict_wins(db: Database, kind: Kind) -> None:
    kind.module.insert(db, kind.make("r1"))
    first = verdict("v1", kind.word, text="because")
    assert kind.module.decide(db, "r1", kind.yes, first)
    assert not kind.module.decide(db, "r1", kind.yes, verdict("v2", kind.other_word))
    kept = kind.module.get(db, "r1")
    assert (kept.status, kept.decided) == (kind.yes, first)


@every_kind
def test_a_verdict_given_again_is_not_mistaken_for_a_late_one(db: Database, kind: Kind) -> None:
    kind.module.insert(db, kind.make("r1"))
    assert kind.module.decide(db, "r1", kind.yes, verdict("v1", kind.word))
    kind.module.mark_delivered(db, "r1", after(1))
    before = kind.module.get(db, "r1")
    assert kind.module.decide(db, "r1", kind.yes, verdict("v1", kind.word, after(5)))
    assert kind.module.get(db, "r1") == before


@every_kind
def test_a_verdict_after_the_deadline_changes_nothing(db: Database, kind: Kind) -> None:
    kind.module.insert(db, kind.make("r1", expires_at=after(60)))
    before = kind.module.get(db, "r1")
    assert not kind.module.decide(db, "r1", kind.yes, verdict("v1", kind.word, after(60)))
    assert kind.module.get(db, "r1") == before
    assert kind.module.decide(db, "r1", kind.yes, verdict("v1", kind.word, after(59.999)))


@every_kind
def test_an_expired_request_is_not_revived_by_a_late_tap(db: Database, kind: Kind) -> None:
    kind.module.insert(db, kind.make("r1"))
    assert kind.module.expire(db, "r1", after(60))
    assert not kind.module.expire(db, "r1", after(60))
    assert not kind.module.decide(db, "r1", kind.yes, verdict("v1", kind.word, after(61)))
    assert kind.module.get(db, "r1").status == kind.expired


@every_kind
def test_a_time_out_that_answers_is_recorded_as_a_verdict(db: Database, kind: Kind) -> None:
    kind.module.insert(db, kind.make("r1", expires_at=after(60)))
    decided = evolve(verdict("v1", kind.word, after(60)), by="timeout", channel="timeout")
    assert kind.module.decide(db, "r1", kind.expired, decided)
    kept = kind.module.get(db, "r1")
    assert (kept.status, kept.decided) == (kind.expired, decided)


@every_kind
def test_a_verdict_on_nothing_is_refused(db: Database, kind: Kind) -> None:
    assert not kind.module.decide(db, "nothing", kind.yes, verdict("v1", kind.word))
    assert not kind.module.expire(db, "nothing", NOW)
    assert not kind.module.mark_delivered(db, "nothing", NOW)
    assert kind.module.get(db, "nothing") is None


@every_kind
def test_due_are_the_pending_ones_whose_time_is_up(db: Database, kind: Kind) -> None:
    for id, seconds in (("late", 30), ("first", 10), ("later", 31)):
        kind.module.insert(db, kind.make(id, expires_at=after(seconds)))
    kind.module.insert(db, kind.make("patient"))
    kind.module.insert(db, kind.make("answered", expires_at=after(5)))
    kind.module.decide(db, "answered", kind.yes, verdict("v1", kind.word))
    assert [request.id for request in kind.module.due(db, after(30))] == ["first", "late"]


@every_kind
def test_an_answer_is_delivered_once(db: Database, kind: Kind) -> None:
    kind.module.insert(db, kind.make("r1"))
    assert not kind.module.mark_delivered(db, "r1", after(1))
    kind.module.decide(db, "r1", kind.yes, verdict("v1", kind.word))
    assert kind.module.mark_delivered(db, "r1", after(2))
    assert not kind.module.mark_delivered(db, "r1", after(3))
    assert kind.module.get(db, "r1").delivered_at == after(2)


@every_kind
def test_pending_are_oldest_first_and_by_session(db: Database, kind: Kind) -> None:
    sessions.insert(db, cases.session("s2"))
    kind.module.insert(db, kind.make("b", created_at=after(2)))
    kind.module.insert(db, kind.make("a", created_at=after(1), session_id="s2"))
    kind.module.insert(db, kind.make("c", created_at=after(3)))
    kind.module.decide(db, "c", kind.yes, verdict("v1", kind.word))
    assert [request.id for request in kind.module.pending(db)] == ["a", "b"]
    assert [request.id for request in kind.module.pending(db, "s1")] == ["b"]


@every_kind
def test_a_session_that_ends_interrupts_what_it_leaves(db: Database, kind: Kind) -> None:
    sessions.insert(db, cases.session("s2"))
    kind.module.insert(db, kind.make("b", created_at=after(2)))
    kind.module.insert(db, kind.make("a", created_at=after(1)))
    kind.module.insert(db, kind.make("other", session_id="s2"))
    kind.module.insert(db, kind.make("expired"))
    kind.module.expire(db, "expired", NOW)
    assert kind.module.interrupt(db, "s1", after(9)) == ("a", "b")
    assert kind.module.interrupt(db, "s1", after(9)) == ()
    assert kind.module.get(db, "a").status == kind.interrupted
    assert kind.module.get(db, "other").status == "pending"
    assert kind.module.get(db, "expired").status == kind.expired


@every_kind
def test_of_many_verdicts_at_once_one_wins(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    db = open_database(path).db
    sessions.insert(db, cases.session("s1"))
    for number in range(10):
        kind.module.insert(db, kind.make(f"r{number}"))
    won: list[tuple[str, str]] = []
    together = threading.Barrier(4)

    def tap(who: str) -> None:
        mine = connect(path)
        together.wait()
        for number in range(10):
            with transaction(mine):
                if kind.module.decide(mine, f"r{number}", kind.yes, verdict(f"{who}{number}", kind.word)):
                    won.append((f"r{number}", f"{who}{number}"))
        mine.close()

    threads = [threading.Thread(target=tap, args=(who,)) for who in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(id for id, _ in won) == [f"r{number}" for number in range(10)]
    for id, verdict_id in won:
        assert kind.module.get(db, id).decided.verdict_id == verdict_id
    db.close()


def test_a_prompt_keeps_what_was_decided_in_its_own_columns(db: Database) -> None:
    prompts.insert(db, cases.prompt("p1"))
    assert prompts.decide(db, "p1", WaitStatus.DECIDED, verdict("v1", "refine", text="use tabs"))
    kept = prompts.get(db, "p1")
    assert (kept.decision, kept.instruction) == (PromptDecision.REFINE, "use tabs")


def test_a_prompt_is_not_answered_with_another_kinds_word(db: Database) -> None:
    prompts.insert(db, cases.prompt("p1"))
    with pytest.raises(InvalidArguments, match="continue, refine or stop, not approve"):
        prompts.decide(db, "p1", WaitStatus.DECIDED, verdict("v1", "approve"))
    assert [request.id for request in prompts.pending(db)] == ["p1"]


def test_a_wait_keeps_its_instruction(db: Database) -> None:
    waits.insert(db, cases.wait("w1"))
    assert waits.decide(db, "w1", WaitStatus.DECIDED, verdict("v1", "resume", text="do the next one"))
    kept = waits.get(db, "w1")
    assert kept.instruction == "do the next one"


@pytest.mark.parametrize(
    ("status", "delivered", "named"),
    [
        ("pending", False, True),
        ("approved", False, True),
        ("approved", True, True),
        ("rejected", False, True),
        ("rejected", True, False),
        ("expired", False, False),
        ("consumed", False, False),
        ("interrupted", False, False),
    ],
)
def test_a_key_names_a_request_while_it_matters(db: Database, status: str, delivered: bool, named: bool) -> None:
    kept = cases.approval("r1", key="k", status=ApprovalStatus(status), delivered_at=after(1) if delivered else None)
    approvals.insert(db, kept)
    assert approvals.reattachable(db, "k") == (kept if named else None)
    assert approvals.reattachable(db, "other") is None


def test_a_key_names_the_newest_request(db: Database) -> None:
    approvals.insert(db, cases.approval("new", key="k", created_at=after(1)))
    approvals.insert(db, cases.approval("old", key="k"))
    found = approvals.reattachable(db, "k")
    assert found.id == "new"


def test_an_approval_is_consumed_once(db: Database) -> None:
    approvals.insert(db, cases.approval("r1"))
    assert not approvals.consume(db, "r1", after(1))
    approvals.decide(db, "r1", ApprovalStatus.APPROVED, verdict("v1", "approve"))
    assert approvals.consume(db, "r1", after(2))
    assert not approvals.consume(db, "r1", after(3))
    kept = approvals.get(db, "r1")
    assert (kept.status, kept.consumed_at) == (ApprovalStatus.CONSUMED, after(2))


def test_an_approval_never_applied_lapses(db: Database) -> None:
    for number in range(3):
        approvals.insert(db, cases.approval(f"r{number}", created_at=after(number)))
        approvals.decide(db, f"r{number}", ApprovalStatus.APPROVED, verdict(f"v{number}", "approve", after(number)))
    assert approvals.lapse(db, after(2), after(99)) == ("r0", "r1")
    assert approvals.lapse(db, after(2), after(99)) == ()
    assert not approvals.consume(db, "r0", after(99))
    assert approvals.consume(db, "r2", after(99))


@pytest.mark.parametrize(
    ("state", "kept"), [("staging", True), ("committed", True), ("stuck", True), ("abandoned", False)]
)
def test_an_approval_being_applied_neither_lapses_nor_is_interrupted(db: Database, state: str, kept: bool) -> None:
    approvals.insert(db, cases.approval("r1"))
    approvals.decide(db, "r1", ApprovalStatus.APPROVED, verdict("v1", "approve"))
    journal.begin(db, cases.entry("r1", state=JournalState(state)))
    assert approvals.lapse(db, after(9), after(9)) == (() if kept else ("r1",))
    if kept:
        assert approvals.interrupt(db, "s1", after(9)) == ()


def test_a_session_that_ends_takes_its_unused_approvals_with_it(db: Database) -> None:
    approvals.insert(db, cases.approval("r1"))
    approvals.insert(db, cases.approval("r2"))
    approvals.decide(db, "r1", ApprovalStatus.APPROVED, verdict("v1", "approve"))
    assert approvals.interrupt(db, "s1", after(9)) == ("r1", "r2")
    assert not approvals.consume(db, "r1", after(10))


def test_requests_of_all_kinds_share_one_space_of_ids(db: Database) -> None:
    approvals.insert(db, cases.approval("ab1", created_at=after(3)))
    prompts.insert(db, cases.prompt("ab2", created_at=after(1)))
    waits.insert(db, cases.wait("b3", created_at=after(2)))
    for id in ("ab1", "ab2", "b3"):
        found = requests.find(db, id)
        assert found.id == id
    assert requests.find(db, "ab") is None
    assert requests.with_prefix(db, "ab") == (("approval", "ab1"), ("prompt", "ab2"))
    assert requests.with_prefix(db, "b3") == (("standby", "b3"),)
    assert requests.with_prefix(db, "") == (("approval", "ab1"), ("prompt", "ab2"), ("standby", "b3"))
    assert [request.id for request in requests.pending(db)] == ["ab2", "b3", "ab1"]
    assert requests.pending(db, "another") == ()


@pytest.mark.parametrize("prefix", ["%", "_", "a%", "[ab]", "*", "'"])
def test_a_prefix_is_taken_literally(db: Database, prefix: str) -> None:
    approvals.insert(db, cases.approval("abc"))
    assert requests.with_prefix(db, prefix) == ()
    approvals.insert(db, cases.approval(f"{prefix}x"))
    assert requests.with_prefix(db, prefix) == (("approval", f"{prefix}x"),)


def test_a_call_finds_the_request_it_made(db: Database) -> None:
    approvals.insert(db, cases.approval("a1", call="shim/1"))
    prompts.insert(db, cases.prompt("p1", call="shim/2"))
    waits.insert(db, cases.wait("w1"))
    for call, id in (("shim/1", "a1"), ("shim/2", "p1")):
        found = requests.by_call(db, "s1", call)
        assert found.id == id
    assert requests.by_call(db, "s1", "shim/3") is None
    assert requests.by_call(db, "s1", "") is None
    assert requests.by_call(db, "s2", "shim/1") is None


def test_undelivered_is_what_an_agent_is_still_owed(db: Database) -> None:
    made = {
        "approved": ApprovalStatus.APPROVED,
        "rejected": ApprovalStatus.REJECTED,
        "expired": ApprovalStatus.EXPIRED,
        "pending": ApprovalStatus.PENDING,
        "consumed": ApprovalStatus.CONSUMED,
        "interrupted": ApprovalStatus.INTERRUPTED,
    }
    for number, (id, status) in enumerate(made.items()):
        approvals.insert(db, cases.approval(id, status=status, created_at=after(10 - number)))
    approvals.insert(db, cases.approval("told", status=ApprovalStatus.APPROVED, delivered_at=NOW))
    prompts.insert(db, cases.prompt("p", status=WaitStatus.DECIDED, created_at=after(0)))
    waits.insert(db, cases.wait("w", status=WaitStatus.EXPIRED, created_at=after(99)))
    waits.insert(db, cases.wait("i", status=WaitStatus.INTERRUPTED))
    assert [r.id for r in requests.undelivered(db, "s1")] == ["p", "expired", "rejected", "approved", "w"]
    for id in ("p", "approved", "w"):
        assert requests.mark_delivered(db, id, after(100))
        assert not requests.mark_delivered(db, id, after(101))
    assert [r.id for r in requests.undelivered(db, "s1")] == ["expired", "rejected"]
