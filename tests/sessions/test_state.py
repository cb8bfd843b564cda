"""The state of a session: what must reach its agent is told once, unless the result that carried it is lost; and its
cards say who waits."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.session import Instruction, Kind, Session, SessionMode, SessionStatus
from intercom.sessions.messages import Answered, Delivery
from intercom.sessions.request_kinds import LateVerdict, told
from intercom.sessions.session.state import FETCH_SECONDS, SessionState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FETCHED = NOW + timedelta(seconds=FETCH_SECONDS)
D = LateVerdict("d", "approval", "change a.txt", {"status": "approved"})
W = Instruction("w", Kind.STEER, "go on", "kim", "ctl", NOW, "s")
ROW = Session("s", "", "/work", SessionStatus.ACTIVE, SessionMode.LOCAL, NOW, NOW)
EMPTY = SessionState(ROW)
BOTH = EMPTY.queue(D, W)
ONE = Delivery("one", ("d",), ("w",))
TASK = EMPTY.reserve(("d",))
HERE = EMPTY.agent_came()
TURN_OVER = HERE.turn_ends(is_over=True)
POLLED = HERE.reserve(("d",)).leave_alone("d")


@pytest.mark.parametrize(
    ("state", "is_reachable", "is_at_work"),
    [
        (EMPTY, False, False),
        (HERE, True, True),
        (HERE.agent_left(), False, False),
        (HERE.moved(evolve(ROW, status=SessionStatus.PAUSED)), True, False),
        (HERE.turn_ends(is_over=False), True, True),
        (TURN_OVER, False, False),
        (TURN_OVER.queue(W), False, False),
        (TURN_OVER.attach(None), True, True),
        (TURN_OVER.attach(ONE), True, True),
        (TURN_OVER.waits("d"), True, True),
        (TURN_OVER.agent_left().agent_came(), True, True),
        (TURN_OVER.agent_left().attach(None), False, False),
    ],
)
def test_what_the_agent_is_doing(state: SessionState, is_reachable: bool, is_at_work: bool) -> None:
    assert (state.is_reachable, state.is_at_work) == (is_reachable, is_at_work)


@pytest.mark.parametrize(
    ("state", "unattended", "mismarked"),
    [
        (HERE.leave_alone("d", "e"), {"d", "e"}, ()),
        (HERE.leave_alone("d").waits("d"), set(), ()),
        (HERE.leave_alone("d").attend("d"), set(), ()),
        (HERE.leave_alone("d").agent_left(), {"d"}, ()),
        # A task polls it: it is attended while the agent is connected.
        (POLLED, set(), ()),
        (POLLED.agent_left(), set(), ("d",)),
        (POLLED.agent_left().leave_alone("d"), {"d"}, ()),
        (POLLED.agent_left().leave_alone("d").agent_came(), {"d"}, ("d",)),
        (POLLED.leave_to_task("d", NOW).agent_left(), set(), ()),
        (POLLED.reserve(("d",), -math.inf).leave_alone("d"), {"d"}, ()),
    ],
)
def test_what_the_cards_say(state: SessionState, unattended: set[str], mismarked: tuple[str, ...]) -> None:
    assert (state.unattended, state.mismarked) == (unattended, mismarked)


def test_a_session_keeps_its_successor_and_its_stop_hook() -> None:
    after = TURN_OVER.moved(ROW, "next").moved(evolve(ROW, status=SessionStatus.TERMINATED)).agent_came()
    assert (after.successor, after.has_stop_hook) == ("next", True)


@pytest.mark.parametrize(
    ("state", "at", "pending"),
    [
        (EMPTY, NOW, ""),
        (BOTH, NOW, "dw"),
        (BOTH.attach(None), NOW, "dw"),
        (BOTH.attach(ONE), NOW, ""),
        (BOTH.attach(Delivery("one", ("d",))), NOW, "w"),
        (BOTH.attach(ONE).detach(("one",)), NOW, "dw"),
        (BOTH.attach(ONE).detach(("two",)), NOW, ""),
        # A call that is repeated under its name carries what its last answer does.
        (BOTH.attach(ONE).attach(Delivery("one", ("d",))), NOW, "w"),
        # Two calls wait for one decision: it is pending when both results are lost.
        (BOTH.attach(ONE).attach(Delivery("two", ("d",))).detach(("two",)), NOW, ""),
        (BOTH.attach(ONE).attach(Delivery("two", ("d",))).detach(("one",)), NOW, "w"),
        (BOTH.attach(ONE).attach(Delivery("two", ("d",))).detach(("one", "two")), NOW, "dw"),
        (BOTH.attach(ONE).delivered("d").detach(("one",)), NOW, "w"),
        (BOTH.attach(ONE).drop("d").detach(("one",)), NOW, "w"),
        (BOTH.drop(BOTH.items), NOW, ""),
        (TASK.queue(W), NOW, "w"),
        (TASK.queue(D), FETCHED, ""),
        (TASK.queue(D).leave_to_task("d", NOW), NOW, ""),
        (TASK.queue(D).leave_to_task("d", NOW), FETCHED, "d"),
        (BOTH.leave_to_task("d", NOW), NOW, "dw"),
        (TASK.queue(D).leave_to_task("d", FETCHED).clock_changed(NOW), FETCHED, "d"),
        (TASK.clock_changed(NOW).queue(D), FETCHED, ""),
        (TASK.queue(D).reserve(("d",), -math.inf), NOW, "d"),
        # A decision that another one replaces stays reserved.
        (TASK.drop("d").queue(D), NOW, ""),
    ],
)
def test_what_the_next_result_carries(state: SessionState, at: datetime, pending: str) -> None:
    late, words = state.pending(at)
    assert "".join([*(each.request_id for each in late), *(each.id for each in words)]) == pending


def test_a_result_does_not_carry_the_decision_that_it_is() -> None:
    assert BOTH.pending(NOW, own="d") == ((), (W,))


def test_nothing_stays_of_what_is_over() -> None:
    over = TASK.queue(D, W).attach(ONE).grant("d", True).delivered("dw")
    assert over == EMPTY
    assert TASK.mismarked == ("d",)
    assert EMPTY.refuse("d").delivered("d").item("d").is_refused


STEPS = st.lists(
    st.tuples(st.sampled_from(("decide", "steer", "answer", "lose", "arrive", "poll", "wait")), st.integers(0, 4))
)


@given(STEPS)
def test_nothing_that_was_put_is_lost_or_told_twice_unless_its_result_is_lost(steps: list[tuple[str, int]]) -> None:
    state, now = EMPTY, NOW
    put: set[str] = set()
    told_to: Counter[str] = Counter()
    under_way: dict[str, Delivery] = {}
    for number, (step, which) in enumerate(steps):
        call = f"c{which}"
        if step == "decide" and f"d{which}" not in put:
            put.add(f"d{which}")
            verdict = LateVerdict(f"d{which}", "prompt", "?", {})
            state = state.queue(verdict).leave_to_task(verdict.request_id, now)
        elif step == "steer":
            put.add(f"w{number}")
            state = state.queue(Instruction(f"w{number}", Kind.STEER, "go on", "kim", "ctl", now, "s"))
        elif step == "poll" and f"d{which}" not in put:
            state = state.reserve((f"d{which}",))
        elif step == "wait":
            now += timedelta(seconds=30 * which)
        elif step == "answer" and call not in under_way:
            late, words = state.pending(now)
            answered = Answered(None, late, tuple(told(word) for word in words))
            delivery = answered.delivery(call)
            state = state.attach(delivery)
            if delivery is not None:
                under_way[call] = delivery
                told_to.update((*delivery.requests, *delivery.instructions))
        elif step in ("lose", "arrive") and (ended := under_way.pop(call, None)) is not None:
            ids = (*ended.requests, *ended.instructions)
            if step == "arrive":
                state = state.delivered(ids)
            else:
                told_to.subtract(ids)
            state = state.detach((call,))
        assert set(told_to.values()) <= {0, 1}, "told twice"
    late, words = state.pending(now + timedelta(seconds=FETCH_SECONDS))
    left = {each.request_id for each in late} | {each.id for each in words}
    assert left == {id for id in put if not told_to[id]}, "lost"
