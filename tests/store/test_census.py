"""The census counts what there is."""

from __future__ import annotations

from intercom.model.approval import ApprovalStatus
from intercom.model.card import CardKind
from intercom.model.prompt import WaitStatus
from intercom.model.session import SessionStatus
from intercom.model.stall import StallStatus
from intercom.store import approvals, census, journal, prompts, sessions, stalls, waits
from intercom.store.census import Waiting
from intercom.store.journal import JournalState

from . import cases
from .cases import NOW, after


def test_every_kind_and_status_is_told_also_where_there_is_none() -> None:
    with cases.database() as db:
        taken = census.take(db)
    assert set(taken.pending) == set(CardKind) - {CardKind.POLICY}
    assert set(taken.pending.values()) == {Waiting()}
    assert taken.sessions == dict.fromkeys(SessionStatus, 0) | {cases.session("s1").status: 1}


def test_what_waits_is_counted_and_its_oldest_dated_and_what_is_over_is_left_out() -> None:
    with cases.database() as db:
        sessions.insert(db, cases.session("s2", status=SessionStatus.PAUSED))
        for id, at in (("a1", after(5)), ("a2", NOW), ("a3", after(9))):
            approvals.insert(db, cases.approval(id, key=id, created_at=at))
        approvals.insert(db, cases.approval("a0", key="a0", created_at=after(-60), status=ApprovalStatus.EXPIRED))
        prompts.insert(db, cases.prompt("p1", created_at=after(1)))
        waits.insert(db, cases.wait("w1"))
        waits.insert(db, cases.wait("w0", status=WaitStatus.INTERRUPTED))
        stalls.insert(db, cases.alert("t1", status=StallStatus.ESCALATED))
        stalls.insert(db, cases.alert("t2", session_id="s2", status=StallStatus.DISMISSED))
        journal.begin(db, cases.entry("a1"))
        journal.begin(db, cases.entry("a2", state=JournalState.STUCK, at=after(3)))
        taken = census.take(db)
    assert taken.pending == {
        CardKind.APPROVAL: Waiting(3, NOW),
        CardKind.PROMPT: Waiting(1, after(1)),
        CardKind.STANDBY: Waiting(1, NOW),
        CardKind.STALL: Waiting(1, NOW),
        CardKind.APPLY: Waiting(1, after(3)),
    }
    assert taken.sessions[SessionStatus.PAUSED] == 1
