"""What is learnt from calls that a client has cut off, and what of them is told."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from actors import System
from intercom.agents.tool_call import CutCalls, CutOff, ToolCall
from intercom.sessions.tools import check_clearance
from intercom.sessions.tools.check_clearance import CheckClearance

CHANGE = CheckClearance("Add a", "a\n", "a.txt")


async def ended(given: Any = CHANGE, request_id: str | None = "r1", session: str = "s1") -> ToolCall:
    """A call that was under way."""
    call = ToolCall("c1", check_clearance.TOOL, session, System([]).named("session/s1"), 50.0, given=given)
    call.request_id = request_id
    return call


async def cancellation() -> BaseException:
    """What ends a call that its client has cut off."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cut:
            return cut
    raise AssertionError("it was cancelled")


@pytest.mark.parametrize(("seconds", "learnt"), [(5.0, 4.0), (1.0, 1.0), (0.0, 1.0), (30.0, 24.0)])
async def test_the_poll_interval_is_shorter_than_the_time_a_call_was_given(
    clock: trio.testing.MockClock, seconds: float, learnt: float
) -> None:
    calls, call = CutCalls(), await ended()
    clock.jump(seconds)
    calls.note(call, "mcp", await cancellation())
    assert calls.call_wait_seconds == pytest.approx(learnt)
    # The shortest counts.
    clock.jump(100)
    calls.note(call, "mcp", await cancellation())
    assert calls.call_wait_seconds == pytest.approx(learnt)


async def test_nothing_is_learnt_of_a_client_with_a_name_a_fault_or_a_server_that_stops() -> None:
    calls, stopped = CutCalls(), await ended()
    stopped.stop_waiting()
    calls.note(await ended(), "claude-code", await cancellation())
    calls.note(await ended(), "mcp", ValueError("fault"))
    calls.note(await ended(request_id=None), "mcp", await cancellation())
    calls.note(stopped, "mcp", await cancellation())
    assert calls.call_wait_seconds == float("inf")


async def test_a_group_of_cancellations_is_one_and_a_group_with_a_fault_is_none() -> None:
    calls, cut = CutCalls(), await cancellation()
    calls.note(await ended(), None, BaseExceptionGroup("", [cut, ValueError("fault")]))
    assert calls.take(await ended(request_id=None)) == ()
    calls.note(await ended(), None, BaseExceptionGroup("", [BaseExceptionGroup("", [cut])]))
    assert calls.take(await ended(request_id=None)) == (CutOff("r1", "check_clearance"),)


async def test_what_was_cut_off_is_told_once_and_in_its_own_session() -> None:
    calls, cut = CutCalls(), await cancellation()
    for number in range(30):
        calls.note(await ended(request_id=f"r{number}"), None, cut)
    assert calls.take(await ended(request_id=None, session="s2")) == ()
    told = calls.take(await ended(request_id="r29"))
    assert [each.request_id for each in told] == [f"r{number}" for number in range(10, 29)]
    assert calls.take(await ended(request_id=None)) == ()


async def test_an_id_that_the_client_gave_itself_is_not_told() -> None:
    calls = CutCalls()
    calls.note(await ended(CheckClearance(request_id="r1")), None, await cancellation())
    assert calls.take(await ended(request_id=None)) == ()
