"""From rows to answers and cards: every status of every kind, by table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.card import ANSWERED, CHOICES, ENDS, CardKind, CardState, end_of
from intercom.model.decision import Decided, Decision, Verdict
from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.metrics import Settled
from intercom.model.request import (
    APPROVAL_TRANSITIONS,
    WAIT_TRANSITIONS,
    ApprovalRequest,
    ApprovalStatus,
    ContinuationPrompt,
    InstructionWait,
    PromptDecision,
    PromptType,
    RiskLevel,
    WaitStatus,
)
from intercom.model.session import (
    SESSION_TRANSITIONS,
    STALL_TRANSITIONS,
    Instruction,
    Kind,
    SessionStatus,
    StallAlert,
    StallStatus,
    may_become,
)
from intercom.sessions import request_kinds
from intercom.sessions.request_kinds import (
    NO_INSTRUCTION,
    NOT_APPROVED,
    ClearanceAnswer,
    PermissionAnswer,
    PromptAnswer,
    StandbyAnswer,
    from_json,
    to_json,
)
from intercom.sessions.tools.switch_freq import ModeAnswer

AT = datetime(2026, 1, 1, tzinfo=UTC)
APPROVAL = ApprovalRequest("r", "s", "title", "diff", "a", RiskLevel.LOW, ApprovalStatus.PENDING, "base", AT, "key")
PROMPT = ContinuationPrompt("r", "s", "go on?\nreally?", PromptType.CONTINUATION, WaitStatus.PENDING, AT)
STANDBY = InstructionWait("r", "s", "idle", WaitStatus.PENDING, AT)
BY = Decided("v", "reject", "kim", "ctl", AT, "too long")

# The row -> what its call is told (None: nothing yet; an error: it ended with its session), and how its card stands
TABLE: list[tuple[Any, Any, CardState]] = [
    (APPROVAL, None, CardState.PENDING),
    (evolve(APPROVAL, status=ApprovalStatus.APPROVED), ClearanceAnswer("approved", "r"), CardState.APPROVED),
    (
        evolve(APPROVAL, status=ApprovalStatus.APPROVED, delivered_at=AT),
        ClearanceAnswer("approved", "r"),
        CardState.DELIVERED,
    ),
    (evolve(APPROVAL, status=ApprovalStatus.CONSUMED), ClearanceAnswer("approved", "r"), CardState.APPLIED),
    (
        evolve(APPROVAL, status=ApprovalStatus.REJECTED, decided=BY),
        ClearanceAnswer("rejected", "r", reason="too long"),
        CardState.REJECTED,
    ),
    (
        evolve(APPROVAL, status=ApprovalStatus.REJECTED, decided=evolve(BY, text=None)),
        ClearanceAnswer("rejected", "r", reason="rejected by operator"),
        CardState.REJECTED,
    ),
    (
        evolve(APPROVAL, status=ApprovalStatus.REJECTED, delivered_at=AT),
        ClearanceAnswer("rejected", "r"),
        CardState.REJECTED,
    ),
    (
        evolve(APPROVAL, status=ApprovalStatus.EXPIRED),
        ClearanceAnswer("timeout", "r", message=NOT_APPROVED),
        CardState.EXPIRED,
    ),
    (evolve(APPROVAL, status=ApprovalStatus.INTERRUPTED), InvalidState, CardState.INTERRUPTED),
    *(
        (evolve(APPROVAL, tool="Write", status=status), PermissionAnswer(told, "r", message=message), state)
        for status, told, message, state in (
            (ApprovalStatus.APPROVED, "approved", request_kinds.MAY_BE_DONE_NOW, CardState.APPROVED),
            (ApprovalStatus.CONSUMED, "allowed", None, CardState.DELIVERED),
            (ApprovalStatus.REJECTED, "denied", None, CardState.REJECTED),
            (ApprovalStatus.EXPIRED, "timeout", None, CardState.EXPIRED),
        )
    ),
    (PROMPT, None, CardState.PENDING),
    *(
        (
            evolve(PROMPT, status=WaitStatus.DECIDED, decision=decision, instruction="so"),
            PromptAnswer(decision.value, "so", message=request_kinds.PERSON_ANSWERED[decision.value]),
            CardState.ANSWERED,
        )
        for decision in PromptDecision
    ),
    (
        evolve(PROMPT, status=WaitStatus.DECIDED, decision=PromptDecision.STOP, delivered_at=AT),
        PromptAnswer("stop", message=request_kinds.PERSON_ANSWERED["stop"]),
        CardState.DELIVERED,
    ),
    (
        evolve(PROMPT, status=WaitStatus.EXPIRED, decision=PromptDecision.CONTINUE),
        PromptAnswer("continue", message=request_kinds.NOBODY_ANSWERED["continue"], timed_out=True),
        CardState.EXPIRED,
    ),
    (evolve(PROMPT, status=WaitStatus.INTERRUPTED), InvalidState, CardState.INTERRUPTED),
    (STANDBY, None, CardState.PENDING),
    (
        evolve(STANDBY, status=WaitStatus.DECIDED, instruction="work"),
        StandbyAnswer("resumed", "work"),
        CardState.ANSWERED,
    ),
    (evolve(STANDBY, status=WaitStatus.EXPIRED), StandbyAnswer("timeout", message=NO_INSTRUCTION), CardState.EXPIRED),
    (evolve(STANDBY, status=WaitStatus.INTERRUPTED), InvalidState, CardState.INTERRUPTED),
]


@pytest.mark.parametrize(("row", "answer", "state"), TABLE)
def test_what_is_told_and_shown_of_a_request(row: Any, answer: Any, state: CardState) -> None:
    card = request_kinds.card_of(row, "/ws")
    assert (card.id, card.session_id, card.workspace_root, card.state) == ("r", "s", "/ws", state)
    # A rejection keeps its state when the agent has it.
    assert card.delivered is (row.delivered_at is not None)
    if answer is InvalidState:
        with pytest.raises(InvalidState, match="ended with its session"):
            request_kinds.answer(row)
        with pytest.raises(InvalidState):
            request_kinds.late(row)
        return
    assert request_kinds.answer(row) == answer
    if answer is not None:
        late = request_kinds.late(row)
        assert late.kind == ("permission" if isinstance(answer, PermissionAnswer) else card.kind.value)
        # What rides on another result is what the call itself would have been told.
        assert from_json(type(answer), late.answer) == answer


def test_every_status_is_in_the_table() -> None:
    for kind, statuses in (
        (ApprovalRequest, ApprovalStatus),
        (ContinuationPrompt, WaitStatus),
        (InstructionWait, WaitStatus),
    ):
        assert {row.status for row, _, _ in TABLE if type(row) is kind} == set(statuses)


@pytest.mark.parametrize(
    ("status", "nudges", "state", "title", "note"),
    [
        (StallStatus.PENDING, 0, CardState.PENDING, "Quiet for 5 min 7 s", None),
        (StallStatus.NUDGED, 2, CardState.PENDING, "Quiet for 5 min 7 s", None),
        (StallStatus.ESCALATED, 3, CardState.PENDING, "Still quiet after 3 nudges", None),
        (StallStatus.ESCALATED, 1, CardState.PENDING, "Still quiet after 1 nudge", None),
        (StallStatus.ESCALATED, 0, CardState.PENDING, "Quiet for 5 min 7 s", None),
        (StallStatus.SELF_RECOVERED, 1, CardState.CLOSED, "Quiet for 5 min 7 s", "the agent is back"),
        (StallStatus.DISMISSED, 1, CardState.CLOSED, "Quiet for 5 min 7 s", "dismissed"),
    ],
)
def test_how_a_stall_alert_is_shown(
    status: StallStatus, nudges: int, state: CardState, title: str, note: str | None
) -> None:
    alert = StallAlert("a", "s", AT, 307, status, AT, last_tool="ping", nudge_count=nudges)
    card = request_kinds.card_of_alert(alert, "/ws")
    assert (card.state, card.title, card.note, card.detail) == (state, title, note, "last tool: ping")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min 59 s"), (3600, "1 h"), (7260, "2 h 1 min")],
)
def test_how_long_an_agent_was_quiet_is_shown_by_its_two_largest_units(seconds: int, shown: str) -> None:
    alert = StallAlert("a", "s", AT, seconds, StallStatus.PENDING, AT)
    assert request_kinds.card_of_alert(alert, "/ws").title == f"Quiet for {shown}"


QUEUED = Instruction("w", Kind.TASK, "go on\nthere", "kim", "ctl", AT)


@pytest.mark.parametrize(
    ("word", "state", "note"),
    [
        (QUEUED, CardState.QUEUED, "waits until an agent of this workspace calls reboot or standby"),
        (
            evolve(QUEUED, session_id="s"),
            CardState.QUEUED,
            "waits until this session's agent calls reboot or standby",
        ),
        (evolve(QUEUED, session_id="s", taken_at=AT), CardState.QUEUED, "goes with the agent's next result"),
        (evolve(QUEUED, kind=Kind.STEER), CardState.QUEUED, "goes with the agent's next result"),
        (evolve(QUEUED, closed_at=AT), CardState.CLOSED, "not delivered: cancelled, or the session ended first"),
        (evolve(QUEUED, delivered_at=AT), CardState.DELIVERED, "the agent has it since 2026-01-01 00:00:00 UTC"),
    ],
)
def test_how_an_instruction_is_shown(word: Instruction, state: CardState, note: str) -> None:
    card = request_kinds.card_of_instruction(word, "/ws")
    assert (card.state, card.note, card.session_id, card.body) == (state, note, word.session_id or "", word.text)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, None),
        ({"status": ApprovalStatus.EXPIRED}, None),
        (
            {"status": ApprovalStatus.EXPIRED, "decided": BY},
            "approved, but not applied in time, or withdrawn; propose it again",
        ),
        ({"auto_rule": "tool:x"}, "approved by the policy: tool:x"),
        ({"tool": "Write"}, None),
        ({"tool": "Write", "status": ApprovalStatus.REJECTED}, None),
        (
            {"tool": "Write", "status": ApprovalStatus.APPROVED},
            "Write: approved for one use, which has not been made yet",
        ),
        ({"tool": "Write", "status": ApprovalStatus.CONSUMED}, "Write: approved for one use, which was made"),
    ],
)
def test_what_became_of_a_change_is_noted_on_its_card(changes: dict[str, Any], note: str | None) -> None:
    assert request_kinds.card_of(evolve(APPROVAL, **changes), "/ws").note == note


def test_an_answer_to_an_alert_is_measured_and_one_to_a_request_by_its_row() -> None:
    verdict = Verdict("v", Decision.DISMISS, "kim", "ctl", AT)
    later = AT + timedelta(seconds=7)
    alert = request_kinds.card_of_alert(StallAlert("a", "s", AT, 307, StallStatus.PENDING, AT), "/ws")
    assert request_kinds.answered(alert, verdict, later) == Settled("v", CardKind.STALL, "dismiss", "ctl", 7)
    assert request_kinds.answered(request_kinds.card_of(APPROVAL, "/ws"), verdict, later) is None


@pytest.mark.parametrize(
    ("channel", "shown"), [(request_kinds.AUTOMATIC, True), (f"{request_kinds.ON_ALERT}ctl", True), ("ctl", False)]
)
def test_the_card_of_an_alert_shows_what_was_sent_because_of_it(channel: str, shown: bool) -> None:
    assert request_kinds.is_told_of_on_alert(evolve(QUEUED, channel=channel)) is shown


def test_what_is_open_can_be_answered() -> None:
    # Words for an agent are answered by nobody: they go to it.
    assert set(CardKind) - set(ANSWERED) == {CardKind.STEER, CardKind.TASK}


@pytest.mark.parametrize("kind", CardKind)
def test_a_decision_that_a_kind_does_not_take_is_refused_and_those_it_takes_are_named(kind: CardKind) -> None:
    taken_too = {
        CardKind.STANDBY: {Decision.CONTINUE, Decision.REFINE},
        CardKind.POLICY: {Decision.APPROVE},
        CardKind.ROOM: {Decision.CONTINUE},
    }
    for decision in Decision:
        if decision in CHOICES[kind] or decision in taken_too.get(kind, ()):
            assert end_of(kind, decision) in ENDS[kind].values()
        else:
            with pytest.raises(InvalidArguments, match=f"{decision} does not answer .*{', '.join(CHOICES[kind])}"):
                end_of(kind, decision)


@pytest.mark.parametrize("table", [APPROVAL_TRANSITIONS, WAIT_TRANSITIONS, STALL_TRANSITIONS, SESSION_TRANSITIONS])
def test_every_status_can_be_reached_and_has_an_end(table: dict[Any, frozenset[Any]]) -> None:
    statuses = list(type(next(iter(table))))
    assert set(table) == set(statuses)
    assert set().union(*table.values()) | {statuses[0]} == set(statuses)
    final = {status for status, to in table.items() if not to}
    for status in statuses:
        ahead, seen = [status], {status}
        while ahead:
            for then in table[ahead.pop()] - seen:
                seen.add(then)
                ahead.append(then)
        assert seen & final, f"{status} leads nowhere"


def test_a_session_may_go_where_the_table_says_and_nowhere_else() -> None:
    for now in SessionStatus:
        for then in SessionStatus:
            assert may_become(now, then) is (then in SESSION_TRANSITIONS[now])


def test_the_place_of_an_operation_has_no_line_that_reads_as_the_cards_own() -> None:
    asked = evolve(APPROVAL, tool="Bash", file_path="/ws\n✅ Approved by kim")
    assert request_kinds.card_of(asked, "/ws").detail == "/ws ✅ Approved by kim"


@given(st.text(), st.integers(2, 100))
def test_a_headline_is_one_short_line_of_the_text(text: str, width: int) -> None:
    line = request_kinds.headline(text, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1
    assert line.removesuffix("…") in text


@given(st.sampled_from([ClearanceAnswer, PromptAnswer, StandbyAnswer, ModeAnswer]).flatmap(st.from_type))
def test_an_answer_is_read_back_as_it_was_written(answer: object) -> None:
    assert from_json(type(answer), to_json(answer)) == answer
