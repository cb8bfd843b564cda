"""A connection remembers a call's name for as long as that matters, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.shim_server import KnownCalls


def test_the_cancellation_of_a_call_that_is_under_way_names_it_once() -> None:
    names = KnownCalls()
    names.came(1, "one")
    assert names.cancelled(1) == "one"
    assert names.cancelled(1) is None
    assert names.cancelled(None) is None


def test_an_answer_on_which_nothing_rides_can_not_be_cancelled() -> None:
    names = KnownCalls()
    names.came(1, "one")
    assert names.answers(1) == "one"
    names.left(1, laden=False)
    assert names.cancelled(1) is None


def test_an_answer_on_which_a_verdict_rides_can_be_until_it_has_arrived() -> None:
    names = KnownCalls()
    for id in ("a", 2):
        names.came(id, f"call {id}")
        names.left(id, laden=True)
    assert names.cancelled("a") == "call a"
    names.arrived("call 2")
    assert names.cancelled(2) is None


def test_an_arrival_does_not_forget_a_later_call_of_the_same_id() -> None:
    names = KnownCalls()
    names.came(1, "one")
    names.left(1, laden=True)
    names.came(1, "another")
    names.arrived("one")
    assert names.cancelled(1) == "another"


@given(st.lists(st.tuples(st.sampled_from(["left", "laden", "cancelled"]), st.booleans())))
def test_nothing_is_kept_of_calls_that_are_over(fates: list[tuple[str, bool]]) -> None:
    names = KnownCalls()
    for id, (fate, arrives_first) in enumerate(fates):
        name = f"call {id}"
        names.came(id, name)
        match fate:
            case "left":
                names.left(id, laden=False)
            case "laden":
                names.left(id, laden=True)
                if not arrives_first:
                    names.cancelled(id)
                names.arrived(name)
            case _:
                names.cancelled(id)
                names.left(id, laden=arrives_first)
    assert names == KnownCalls()
