"""A connection knows where each result is, and which cancellation still matters; it forgets what is over."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents import sent_results as results
from intercom.agents.sent_results import SentResults
from intercom.sessions.messages import Delivery, Undeliver


class Sessions:
    """Notes what sessions are told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def named(self, _label: str) -> Any:
        return SimpleNamespace(tell=self.told.append)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def deliveries(sessions: Sessions) -> SentResults:
    system: Any = sessions
    return SentResults(system)


def finish(deliveries: SentResults, name: str) -> None:
    """The call of this name has its result, which carries a decision."""
    call: Any = SimpleNamespace(name=name, session_id="s", delivery=Delivery(name, ("r",)))
    deliveries.sent(call)


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ("asked", "nothing to tell"),
        ("asked answered sent", "on its way"),
        ("asked sent answered", "on its way"),
        ("asked cancelled", "nothing to tell"),
        ("asked cancelled sent", "pending again"),
        ("asked cancelled sent closed", "pending again"),
        ("asked cancelled failed", "pending again"),
        ("asked cancelled asked sent", "on its way"),
        ("sent abandoned", "pending again"),
        ("asked sent cancelled cancelled", "pending again"),
        ("asked sent cancelled closed", "pending again"),
        ("asked sent cancelled receipt", "pending again"),
        ("asked sent receipt cancelled closed", "recorded"),
        ("sent read", "on its way"),
        ("written", "nothing to tell"),
        ("sent written", "on its way"),
        ("sent written read", "recorded"),
        ("sent written cancelled read", "pending again"),
        ("sent written restarted read", "pending again"),
        ("sent restarted", "on its way"),
        ("sent lost closed", "pending again"),
        ("sent closed receipt", "pending again, recorded"),
        ("sent closed closed", "pending again"),
    ],
)
async def test_where_a_result_is(
    deliveries: SentResults, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, steps: str, end: str
) -> None:
    recorded = AsyncMock()
    monkeypatch.setattr(results, "record_deliveries", recorded)
    step: dict[str, Callable[[], object]] = {
        "asked": lambda: deliveries.asked(1, "one"),
        "answered": lambda: deliveries.answered(1),
        "sent": lambda: finish(deliveries, "one"),
        "written": lambda: deliveries.written("one", "1"),
        "cancelled": lambda: deliveries.cancelled(1),
        "abandoned": lambda: deliveries.abandon("one"),
        "failed": lambda: deliveries.abandon("one", "s"),
        "restarted": deliveries.client_restarted,
        "lost": lambda: deliveries.lost("one"),
        "closed": deliveries.lose_all,
        "read": deliveries.read_all,
        "receipt": lambda: deliveries.delivered([results.receipt("s", Delivery("one", ("r",)))]),
    }
    for name in steps.split():
        done = step[name]()
        if inspect.isawaitable(done):
            await done
    ends = ["pending again"] * len(sessions.told) + ["recorded"] * recorded.await_count
    ends += ["on its way"] * len(deliveries.on_its_way())
    assert (", ".join(ends) or "nothing to tell") == end


def test_a_call_that_is_cancelled_under_way_gets_no_receipt(deliveries: SentResults, sessions: Sessions) -> None:
    deliveries.asked(1, "one")
    deliveries.cancelled(1)
    deliveries.cancelled(None)
    finish(deliveries, "one")
    assert (deliveries.answered(1), sessions.told) == (None, [Undeliver(("one",))])


def test_an_answer_that_carries_nothing_cannot_be_cancelled(deliveries: SentResults, sessions: Sessions) -> None:
    deliveries.asked(1, "one")
    assert deliveries.answered(1) == ("one", None)
    deliveries.cancelled(1)
    assert (deliveries.answered(1), sessions.told) == (None, [])


def test_what_an_answer_carries_is_pending_again_once_when_it_is_cancelled(
    deliveries: SentResults, sessions: Sessions
) -> None:
    for id in ("a", 2):
        deliveries.asked(id, f"call {id}")
        finish(deliveries, f"call {id}")
        _, receipt = deliveries.answered(id) or ("", None)
        assert receipt is not None
    deliveries.cancelled("a")
    deliveries.cancelled("a")
    assert sessions.told == [Undeliver(("call a",))]


def test_a_cancellation_is_for_the_latest_call_of_its_id(deliveries: SentResults, sessions: Sessions) -> None:
    for name in ("one", "another"):
        deliveries.asked(1, name)
        finish(deliveries, name)
        assert deliveries.answered(1)
    deliveries.cancelled(1)
    assert sessions.told == [Undeliver(("another",))]


@given(st.lists(st.tuples(st.sampled_from(["plain", "carries", "cancelled"]), st.booleans())))
def test_nothing_is_kept_of_calls_that_are_over(fates: list[tuple[str, bool]]) -> None:
    async def end_all(deliveries: SentResults) -> None:
        for id, (fate, is_late) in enumerate(fates):
            name = f"call {id}"
            deliveries.asked(id, name)
            if fate == "cancelled" and not is_late:
                deliveries.cancelled(id)
                finish(deliveries, name)
                assert deliveries.answered(id) is None
                continue
            if fate != "plain":
                finish(deliveries, name)
            _, receipt = deliveries.answered(id) or ("", None)
            if fate == "cancelled":
                deliveries.cancelled(id)
            if receipt is not None:
                await deliveries.delivered([receipt])

    system: Any = Sessions()
    deliveries = SentResults(system)
    with patch.object(results, "record_deliveries", AsyncMock()):
        trio.run(end_all, deliveries)
    assert deliveries == SentResults(system)


def test_of_calls_whose_last_sign_never_comes_only_the_latest_are_known(deliveries: SentResults) -> None:
    for id in range(1000):
        deliveries.asked(id, f"call {id}")
        if id % 2:
            finish(deliveries, f"call {id}")
        deliveries.cancelled(id)
    assert list(deliveries._results) == [f"call {id}" for id in range(900, 1000)]
