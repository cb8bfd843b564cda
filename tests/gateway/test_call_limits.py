"""The time limits of calls stand still while a client answers, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from intercom.gateway.connection import ANSWER_SECONDS, CallLimits


@contextmanager
def known(limits: CallLimits, agent: str, scope: trio.CancelScope) -> Iterator[None]:
    limits.begin(agent, scope)
    try:
        yield
    finally:
        limits.end(scope)


async def test_the_time_of_an_answer_does_not_count() -> None:
    limits = CallLimits()
    began = trio.current_time()
    with trio.move_on_after(30) as limit, known(limits, "agent 1", limit):
        await trio.sleep(20)
        with limits.answering("agent 1"):
            await trio.sleep(500)
        await trio.sleep(9)
        assert limit.deadline - trio.current_time() == pytest.approx(1)
        await trio.sleep(2)
    assert limit.cancelled_caught
    assert trio.current_time() - began == pytest.approx(530)


async def test_two_questions_at_once_count_once() -> None:
    limits = CallLimits()
    with trio.move_on_after(30) as limit, known(limits, "agent 1", limit):
        with limits.answering("agent 1"):
            await trio.sleep(50)
            with limits.answering("agent 1"):
                await trio.sleep(50)
            await trio.sleep(50)
        assert limit.deadline - trio.current_time() == pytest.approx(30)


async def test_all_calls_of_the_agent_stand_still_and_no_other() -> None:
    limits = CallLimits()
    scopes = {name: trio.CancelScope(deadline=trio.current_time() + 30) for name in ("a", "b", "c")}
    with (
        known(limits, "agent 1", scopes["a"]),
        known(limits, "agent 1", scopes["b"]),
        known(limits, "agent 2", scopes["c"]),
        limits.answering("agent 1"),
    ):
        await trio.sleep(10)
    deadlines = {name: scope.deadline - trio.current_time() for name, scope in scopes.items()}
    assert deadlines == {"a": pytest.approx(30), "b": pytest.approx(30), "c": pytest.approx(20)}


async def test_answers_cannot_hold_a_call_for_ever() -> None:
    limits = CallLimits()
    began = trio.current_time()
    with trio.move_on_after(30) as limit, known(limits, "agent 1", limit):
        while True:
            with limits.answering("agent 1"):
                await trio.sleep(ANSWER_SECONDS / 2 + 10)
    assert limit.cancelled_caught
    assert trio.current_time() - began <= ANSWER_SECONDS + 30 + 1


async def test_a_call_that_ends_during_the_answer_leaves_nothing() -> None:
    limits = CallLimits()
    with limits.answering("agent 1"):
        with trio.move_on_after(30) as limit, known(limits, "agent 1", limit):
            await trio.sleep(10)
        with trio.move_on_after(30) as second, known(limits, "agent 1", second):
            await trio.sleep(10)
    with limits.answering("agent 1"):
        await trio.sleep(1)
    assert not second.cancelled_caught
