"""What must reach an agent is told once, unless the result that carried it is lost."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.session import Instruction, Kind
from intercom.sessions.messages import Answered, Delivery
from intercom.sessions.request_kinds import LateVerdict, told
from intercom.sessions.session.delivery import FETCH_SECONDS, PendingDeliveries

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FETCHED = NOW + timedelta(seconds=FETCH_SECONDS)
D = LateVerdict("d", "approval", "change a.txt", {"status": "approved"})
W = Instruction("w", Kind.STEER, "go on", "kim", "ctl", NOW, "s")
BOTH = PendingDeliveries().put(D, W)
ONE = Delivery("one", ("d",), ("w",))
TASK = PendingDeliveries().reserve(("d",))


@pytest.mark.parametrize(
    ("deliveries", "at", "pending"),
    [
        (PendingDeliveries(), NOW, ""),
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
        (BOTH.clear(), NOW, ""),
        (TASK.put(W), NOW, "w"),
        (TASK.put(D), FETCHED, ""),
        (TASK.put(D).leave_to_task("d", NOW), NOW, ""),
        (TASK.put(D).leave_to_task("d", NOW), FETCHED, "d"),
        (BOTH.leave_to_task("d", NOW), NOW, "dw"),
        (TASK.put(D).leave_to_task("d", FETCHED).clock_changed(NOW), FETCHED, "d"),
        (TASK.clock_changed(NOW).put(D), FETCHED, ""),
        (TASK.put(D).reserve(("d",), -float("inf")), NOW, "d"),
        # A decision that another one replaces stays reserved.
        (TASK.drop("d").put(D), NOW, ""),
    ],
)
def test_what_the_next_result_carries(deliveries: PendingDeliveries, at: datetime, pending: str) -> None:
    late, words = deliveries.pending(at)
    assert "".join([*(each.request_id for each in late), *(each.id for each in words)]) == pending


def test_a_result_does_not_carry_the_decision_that_it_is() -> None:
    assert BOTH.pending(NOW, own="d") == ((), (W,))


def test_nothing_stays_of_what_is_over() -> None:
    over = TASK.put(D, W).attach(ONE).grant("d", True).delivered("dw")
    assert over == PendingDeliveries()
    assert TASK.polled == ("d",)
    assert PendingDeliveries().refuse("d").delivered("d").item("d").is_refused


STEPS = st.lists(
    st.tuples(st.sampled_from(("decide", "steer", "answer", "lose", "arrive", "poll", "wait")), st.integers(0, 4))
)


@given(STEPS)
def test_nothing_that_was_put_is_lost_or_told_twice_unless_its_result_is_lost(steps: list[tuple[str, int]]) -> None:
    deliveries, now = PendingDeliveries(), NOW
    put: set[str] = set()
    told_to: Counter[str] = Counter()
    under_way: dict[str, Delivery] = {}
    for number, (step, which) in enumerate(steps):
        call = f"c{which}"
        if step == "decide" and f"d{which}" not in put:
            put.add(f"d{which}")
            verdict = LateVerdict(f"d{which}", "prompt", "?", {})
            deliveries = deliveries.put(verdict).leave_to_task(verdict.request_id, now)
        elif step == "steer":
            put.add(f"w{number}")
            deliveries = deliveries.put(Instruction(f"w{number}", Kind.STEER, "go on", "kim", "ctl", now, "s"))
        elif step == "poll" and f"d{which}" not in put:
            deliveries = deliveries.reserve((f"d{which}",))
        elif step == "wait":
            now += timedelta(seconds=30 * which)
        elif step == "answer" and call not in under_way:
            late, words = deliveries.pending(now)
            answered = Answered(None, late, tuple(told(word) for word in words))
            delivery = answered.delivery(call)
            deliveries = deliveries.attach(delivery)
            if delivery is not None:
                under_way[call] = delivery
                told_to.update((*delivery.requests, *delivery.instructions))
        elif step in ("lose", "arrive") and (ended := under_way.pop(call, None)) is not None:
            ids = (*ended.requests, *ended.instructions)
            if step == "arrive":
                deliveries = deliveries.delivered(ids)
            else:
                told_to.subtract(ids)
            deliveries = deliveries.detach((call,))
        assert set(told_to.values()) <= {0, 1}, "told twice"
    late, words = deliveries.pending(now + timedelta(seconds=FETCH_SECONDS))
    left = {each.request_id for each in late} | {each.id for each in words}
    assert left == {id for id in put if not told_to[id]}, "lost"
