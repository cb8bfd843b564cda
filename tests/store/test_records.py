"""Alerts, checkpoints, the apply journal, answered calls, queued words, the audit trail, decisions about policies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from intercom.model.checkpoint import CheckpointLine
from intercom.model.decision import Decided
from intercom.model.errors import InvalidState
from intercom.model.policy import PolicyDecision
from intercom.model.session import STALL_TRANSITIONS, StallStatus
from intercom.store import audit, checkpoints, instructions, sessions
from intercom.store.apply_journal import JOURNAL_TRANSITIONS, JournalState, journal
from intercom.store.database import Database
from intercom.store.requests import approvals
from intercom.store.sessions import stalls
from intercom.store.trust import policies
from tests.store import cases
from tests.store.cases import NOW, after


@pytest.fixture
def db() -> Iterator[Database]:
    with cases.database() as opened:
        approvals.insert(opened, cases.approval("r1"))
        approvals.insert(opened, cases.approval("r2"))
        yield opened


@pytest.mark.parametrize("to", StallStatus)
@pytest.mark.parametrize("now", StallStatus)
def test_an_alert_moves_only_along_the_table(now: StallStatus, to: StallStatus, db: Database) -> None:
    stalls.insert(db, cases.alert("t1", status=now))
    if to not in STALL_TRANSITIONS[now]:
        with pytest.raises(InvalidState, match=f"a stall alert that is {now} cannot become {to}"):
            stalls.advance(db, "t1", now, to, nudge_count=2, nudge_message="wake up", updated_at=after(1))
        return
    assert stalls.advance(db, "t1", now, to, nudge_count=2, nudge_message="wake up", updated_at=after(1))
    assert stalls.get(db, "t1") == cases.alert("t1", status=to, nudge_count=2, nudge_message="wake up")
    # once more fits only a nudge after a nudge
    assert stalls.advance(db, "t1", {now}, to, nudge_count=3, updated_at=after(2)) == (now == to)
    kept = stalls.get(db, "t1")
    assert kept.nudge_message == "wake up"


def test_a_session_has_one_active_alert(db: Database) -> None:
    assert stalls.active(db, "s1") is None
    assert stalls.insert(db, cases.alert("t1"))
    assert not stalls.insert(db, cases.alert("t2"))
    assert stalls.get(db, "t2") is None
    assert stalls.active(db, "s1") == cases.alert("t1")
    sessions.insert(db, cases.session("s2"))
    assert stalls.insert(db, cases.alert("t3", session_id="s2"))
    stalls.advance(db, "t1", StallStatus.PENDING, StallStatus.SELF_RECOVERED, nudge_count=0, updated_at=after(1))
    assert stalls.active(db, "s1") is None
    assert stalls.insert(db, cases.alert("t2"))
    assert stalls.with_prefix(db, "t") == ("t1", "t2", "t3")


def test_checkpoints_are_newest_first(db: Database) -> None:
    sessions.insert(db, cases.session("s2"))
    assert checkpoints.last(db, "s1") is None
    for id, seconds, session_id in (("c1", 1, "s1"), ("c3", 3, "s1"), ("c2", 2, "s1"), ("c4", 4, "s2")):
        checkpoints.insert(db, cases.checkpoint(id, created_at=after(seconds), session_id=session_id))
    assert checkpoints.last(db, "s1") == CheckpointLine("c3", "s1", "/project", after(3), files=1)
    assert [kept.id for kept in checkpoints.of(db, "s1")] == ["c3", "c2", "c1"]
    assert [kept.id for kept in checkpoints.of(db, None)] == ["c4", "c3", "c2", "c1"]
    assert checkpoints.get(db, "nothing") is None


def test_a_request_is_applied_once(db: Database) -> None:
    assert journal.begin(db, cases.entry("r1"))
    assert not journal.begin(db, cases.entry("r1", steps='[{"path":"other"}]'))
    assert journal.get(db, "r1") == cases.entry("r1")
    assert journal.get(db, "r2") is None


def test_an_abandoned_apply_may_begin_again(db: Database) -> None:
    journal.begin(db, cases.entry("r1"))
    journal.advance(db, "r1", JournalState.STAGING, JournalState.ABANDONED, note="disk full")
    again = cases.entry("r1", steps='[{"path":"again"}]', at=after(9))
    assert journal.begin(db, again)
    assert journal.get(db, "r1") == again
    assert journal.unfinished(db) == (again,)


@pytest.mark.parametrize("to", JournalState)
@pytest.mark.parametrize("now", JournalState)
def test_an_apply_moves_only_along_the_table(now: JournalState, to: JournalState, db: Database) -> None:
    journal.begin(db, cases.entry("r1", state=now, note="before"))
    if to not in JOURNAL_TRANSITIONS[now]:
        with pytest.raises(InvalidState, match=f"an apply that is {now} cannot become {to}"):
            journal.advance(db, "r1", now, to)
        return
    assert journal.advance(db, "r1", now, to)
    assert not journal.advance(db, "r1", {now}, to, note="late")
    assert journal.get(db, "r1") == cases.entry("r1", state=to, note="before")


def test_open_are_the_applies_not_finished(db: Database) -> None:
    states = (
        JournalState.COMMITTED,
        JournalState.DONE,
        JournalState.STUCK,
        JournalState.ABANDONED,
        JournalState.STAGING,
    )
    for number, state in enumerate(states):
        approvals.insert(db, cases.approval(f"x{number}"))
        journal.begin(db, cases.entry(f"x{number}", state=state, at=after(10 - number)))
    assert [entry.request_id for entry in journal.unfinished(db)] == ["x4", "x2", "x0"]
    assert journal.advance(db, "x2", JournalState.STUCK, JournalState.COMMITTED, note="operator says go")
    assert [entry.note for entry in journal.unfinished(db)] == [None, "operator says go", None]


def test_instructions_are_delivered_once_and_in_order(db: Database) -> None:
    sessions.insert(db, cases.session("s2"))
    for id, seconds, session_id in (("i2", 2, "s1"), ("i1", 1, "s1"), ("i3", 3, "s2")):
        assert instructions.insert(db, cases.word(id, session_id=session_id, text=f"text of {id}", at=after(seconds)))
    assert not instructions.insert(db, cases.word("i1", text="another"))
    assert [word.text for word in instructions.queued(db, "s1")] == ["text of i1", "text of i2"]
    assert [word.id for word in instructions.mark_delivered(db, ["i1", "i3"], after(9))] == ["i1", "i3"]
    assert [word.id for word in instructions.mark_delivered(db, ["i1", "i2", "nothing"], after(10))] == ["i2"]
    assert instructions.queued(db, "s1") == ()
    kept = instructions.get(db, "i1")
    assert kept.delivered_at == after(9)


def test_the_audit_trail_is_read_from_its_end_or_followed(db: Database) -> None:
    numbers = [
        audit.record(db, after(n), "noted", "s1" if n % 2 else None, "ada", f"entry {n}", {"n": n}) for n in range(6)
    ]
    assert numbers == sorted(numbers)
    assert [entry.summary for entry in audit.recent(db, 2)] == ["entry 4", "entry 5"]
    assert [entry.summary for entry in audit.recent(db, 2, after_id=numbers[1])] == ["entry 2", "entry 3"]
    assert [entry.summary for entry in audit.recent(db, 9, session_id="s1")] == ["entry 1", "entry 3", "entry 5"]
    assert audit.recent(db, 9, session_id="s1", after_id=numbers[5]) == ()


@pytest.mark.parametrize("data", ["no json", "[1]", "{", "\x00", '"text"', "7"])
def test_entries_of_somebody_else_end_no_look_past_them(db: Database, data: str) -> None:
    kinds = {
        "s1": ("applied", "permission_used", "restore", "steer_delivered", "standby_ended", "broadcast"),
        None: ("policy_accept", "policy_narrowed", "session_adopted", "audit_posted"),
    }
    entry = "insert into audit (at, kind, session_id, who, summary, data) values ('no time', ?, ?, 'x', 'x', ?)"
    for session, some in kinds.items():
        for kind in some:
            db.execute(entry, (kind, session, data))
    audit.record(db, after(1), "applied", "s1", "intercom", "", {"request_id": "r1"})
    steps = {"restore_id": "t1", "state": "committed", "steps": "abc"}
    audit.record(db, after(2), "restore", "s1", "intercom", "", steps)
    audit.record(db, after(3), "policy_accept", None, "kim", "", {"workspace_root": "/w", "sha256": "def"})
    assert audit.first_use(db, "s1", "r1") == after(1)
    assert audit.first_use(db, "s1", "r2") is None
    assert audit.restore_states(db, "s1", "t1") == {"committed"}
    assert audit.restore_steps(db, "s1", "t1") == "abc"
    assert audit.policy_decisions(db, "/w") == (("def", True),)
    assert audit.policy_narrowing(db, "/w") == ""
    assert (audit.instruction_end(db, "i1"), audit.standby_end(db, "w1")) == (None, None)
    assert not audit.was_adopted(db, "s1", "s2")
    assert len(audit.recent(db, 99)) == 13
    assert audit.newest_at(db, ("audit_posted",)) is not None


def test_a_use_at_no_time_was_long_ago(db: Database) -> None:
    entry = "insert into audit (at, kind, session_id, who, summary, data) values ('1', 'applied', 's1', 'x', 'x', ?)"
    db.execute(entry, ('{"request_id": "r1"}',))
    found = audit.first_use(db, "s1", "r1")
    assert found is not None
    assert found < NOW


def test_decisions_about_policies_are_kept_in_order_and_each_card_is_decided_once(db: Database) -> None:
    assert policies.decisions(db, "/project") == ()
    first, second = said("policy-1", "sha 1", accepted=True), said("policy-2", "sha 2", accepted=False)
    for each in (first, second, said("policy-3", "sha 1", accepted=True, root="/other")):
        assert policies.record(db, each)
    assert not policies.record(db, evolve(first, sha256="sha 9"))
    assert policies.decisions(db, "/project") == (first, second)
    assert policies.get(db, "policy-2") == second
    assert policies.get(db, "policy-9") is None
    assert policies.roots(db) == ("/other", "/project")


def test_what_was_narrowed_is_forgotten_with_the_next_acceptance(db: Database) -> None:
    for text in ("a", "b"):
        policies.narrow(db, "/project", text, NOW)
    assert (policies.narrowing(db, "/project"), policies.narrowing(db, "/other")) == ("b", None)
    policies.record(db, said("policy-1", "sha 1", accepted=False))
    assert policies.narrowing(db, "/project") == "b"
    policies.record(db, said("policy-2", "sha 1", accepted=True))
    assert policies.narrowing(db, "/project") is None
    policies.narrow(db, "/project", "c", NOW)
    policies.narrow(db, "/project", None, NOW)
    assert policies.narrowing(db, "/project") is None


def said(id: str, sha: str, *, accepted: bool, root: str = "/project") -> PolicyDecision:
    """A person's decision about a policy."""
    decided = Decided(f"v-{id}", "accept" if accepted else "reject", "ada", "ctl", after(1), None)
    return PolicyDecision(id, root, sha, "{}", accepted, decided)


def test_writing_twice_changes_nothing(db: Database) -> None:
    assert not approvals.insert(db, evolve(cases.approval("r1"), title="another", files=()))
    assert approvals.get(db, "r1") == cases.approval("r1")
    assert checkpoints.insert(db, cases.checkpoint("c1"))
    assert not checkpoints.insert(db, cases.checkpoint("c1", label="another"))
    assert checkpoints.get(db, "c1") == cases.checkpoint("c1")
