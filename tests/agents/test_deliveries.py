"""A connection over a byte stream knows which cancellation still matters, and forgets what is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from intercom.agents.agent_connection import Deliveries
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
def deliveries(sessions: Sessions) -> Deliveries:
    system: Any = sessions
    return Deliveries(system)


def finish(deliveries: Deliveries, name: str) -> None:
    """The call of this name has its result, which carries a decision."""
    call: Any = SimpleNamespace(name=name, session_id="s", delivery=Delivery(name, ("r",)))
    deliveries.sent(call)


def test_a_call_that_is_cancelled_under_way_gets_no_receipt(deliveries: Deliveries, sessions: Sessions) -> None:
    deliveries.asked(1, "one")
    deliveries.withdrawn(1)
    deliveries.withdrawn(None)
    finish(deliveries, "one")
    assert (deliveries.answered(1), sessions.told) == (None, [])


def test_an_answer_that_carries_nothing_cannot_be_cancelled(deliveries: Deliveries, sessions: Sessions) -> None:
    deliveries.asked(1, "one")
    assert deliveries.answered(1) == ("one", None)
    deliveries.withdrawn(1)
    assert (deliveries.answered(1), sessions.told) == (None, [])


def test_what_an_answer_carries_is_pending_again_once_when_it_is_cancelled(
    deliveries: Deliveries, sessions: Sessions
) -> None:
    for id in ("a", 2):
        deliveries.asked(id, f"call {id}")
        finish(deliveries, f"call {id}")
        _, receipt = deliveries.answered(id) or ("", None)
        assert receipt is not None
    deliveries.withdrawn("a")
    deliveries.withdrawn("a")
    assert sessions.told == [Undeliver(("call a",))]


def test_a_cancellation_is_for_the_latest_call_of_its_id(deliveries: Deliveries, sessions: Sessions) -> None:
    for name in ("one", "another"):
        deliveries.asked(1, name)
        finish(deliveries, name)
        assert deliveries.answered(1)
    deliveries.withdrawn(1)
    assert sessions.told == [Undeliver(("another",))]
