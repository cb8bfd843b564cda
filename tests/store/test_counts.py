"""The census counts what there is."""

from __future__ import annotations

from intercom.model.card import ANSWERED, CardKind
from intercom.model.checkpoint import RestoreState
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.request import ApprovalStatus, WaitStatus
from intercom.model.session import Kind, SessionStatus, StallStatus
from intercom.store import instructions, sessions
from intercom.store.apply_journal import JournalState, journal
from intercom.store.checkpoints import restores
from intercom.store.processes import agent_processes
from intercom.store.requests import Waiting, approvals, counts, prompts, waits
from intercom.store.sessions import stalls
from tests.store import cases
from tests.store.cases import NOW, after


def test_every_kind_and_status_is_told_also_where_there_is_none() -> None:
    with cases.database() as db:
        taken = counts(db)
    # Those of policies, of rooms and of changed tools are not in this database.
    elsewhere = {CardKind.POLICY, CardKind.ROOM, CardKind.TOOLS}
    assert {*taken.pending, *elsewhere} == set(ANSWERED)
    assert {*taken.pending, *taken.queued, *elsewhere} == set(CardKind)
    assert {*taken.pending.values(), *taken.queued.values()} == {Waiting()}
    assert taken.agents == dict.fromkeys(set(AgentProcessState) - {AgentProcessState.OVER}, 0)
    assert taken.sessions == dict.fromkeys(SessionStatus, 0) | {cases.session("s1").status: 1}


def test_what_waits_is_counted_and_its_oldest_dated_and_what_is_over_is_left_out() -> None:
    with cases.database() as db:
        sessions.insert(db, cases.session("s2", status=SessionStatus.INTERRUPTED))
        for id, at in (("a1", after(5)), ("a2", NOW), ("a3", after(9))):
            approvals.insert(db, cases.approval(id, key=id, created_at=at))
        approvals.insert(db, cases.approval("a0", key="a0", created_at=after(-60), status=ApprovalStatus.EXPIRED))
        prompts.insert(db, cases.prompt("p1", created_at=after(1)))
        waits.insert(db, cases.wait("w1"))
        waits.insert(db, cases.wait("w0", status=WaitStatus.INTERRUPTED))
        stalls.insert(db, cases.alert("t1", status=StallStatus.ESCALATED))
        stalls.insert(db, cases.alert("t2", session_id="s2", status=StallStatus.DISMISSED))
        for id, kind in (("i1", Kind.STEER), ("i2", Kind.NUDGE), ("i3", Kind.TASK)):
            instructions.insert(db, cases.word(id, kind=kind))
        instructions.insert(db, cases.word("i4", kind=Kind.STEER, delivered_at=NOW))
        instructions.insert(db, cases.word("i5", kind=Kind.TASK, closed_at=NOW))
        agent_processes.insert(db, AgentProcess("s1", AgentProcessState.RUNNING, NOW, "ada"))
        agent_processes.insert(db, AgentProcess("s2", AgentProcessState.OVER, NOW, "ada"))
        journal.begin(db, cases.entry("a1"))
        journal.begin(db, cases.entry("a2", state=JournalState.STUCK, at=after(3)))
        for id, state, seconds in (
            ("r1", RestoreState.ASKED, 7),
            ("r2", RestoreState.STUCK, 2),
            ("r3", RestoreState.DONE, -9),
        ):
            restores.insert(db, cases.restore(id=id, state=state, created_at=after(seconds)))
        taken = counts(db)
    assert taken.pending == {
        CardKind.APPROVAL: Waiting(3, NOW),
        CardKind.PROMPT: Waiting(1, after(1)),
        CardKind.STANDBY: Waiting(1, NOW),
        CardKind.STALL: Waiting(1, NOW),
        CardKind.APPLY: Waiting(1, after(3)),
        CardKind.RESTORE: Waiting(2, after(2)),
    }
    assert taken.queued == {CardKind.STEER: Waiting(2, NOW), CardKind.TASK: Waiting(1, NOW)}
    assert taken.sessions[SessionStatus.INTERRUPTED] == 1
    assert taken.agents[AgentProcessState.RUNNING] == 1
