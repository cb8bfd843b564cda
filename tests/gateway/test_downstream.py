"""The actor of a downstream: its calls, its budget, its breaker, losses and crashes, with scripted connections."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
import trio
import trio.testing

from actors.events import MailboxOverflowed
from actors.testing import inject
from intercom.gateway import downstream, pins
from intercom.gateway.breaker import BreakerSettings, Circuit, Failure, Health
from intercom.gateway.budgets import Budget, Usage
from intercom.gateway.connection import Connection
from intercom.gateway.downstream import CHECK_SECONDS
from intercom.gateway.downstream_config import DownstreamConfig, MissingVariables, Sharing
from intercom.gateway.downstream_lists import DownstreamLists
from intercom.gateway.downstream_tasks import (
    AgentConnected,
    AgentDisconnected,
    Checked,
    Connected,
    Listed,
    Lost,
    NotConnected,
    Recalled,
    ToolsPinned,
)
from intercom.gateway.messages import (
    CallFailed,
    Configure,
    InvocationStatus,
    RpcError,
)
from intercom.model.errors import ConfigError, IntercomError
from tests.gateway.fake_downstreams import (
    BEGAN,
    LIMITED,
    NAME,
    FakeConnection,
    Pending,
    Port,
    Rig,
    config,
    configured,
    failure,
    no_threads,
    refusal,
    refuses,
    rig,
    running,
    tool,
)

__all__ = ["no_threads", "rig"]


# --- Connecting and calling


async def test_it_connects_and_offers_what_it_listed(rig: Rig) -> None:
    state = await rig.state()
    assert state.breaker.health is Health.READY
    assert (state.offer.version, state.offer.instructions) == ("2025-11-25", "do")
    assert set(state.offer.capabilities) == {"tools", "logging"}
    assert (state.pid, state.handshake_seconds) == (4711, 0.1)
    assert rig.tools() == ["read", "write"]
    assert rig.told == ["the downstream files is ready: its handshake succeeded"]


async def test_a_call_is_sent_and_answered(rig: Rig) -> None:
    pending = await rig.call()
    (sent,) = rig.fakes.last.open
    assert sent.params == {"name": "read", "arguments": {}}
    assert not pending.done
    sent.answer({"content": [], "vendor": 1})
    await rig.quiet()
    assert pending.value.result == {"content": [], "vendor": 1}
    assert pending.value.remaining.calls == 999
    state = await rig.state()
    assert (state.calls, state.errors, state.running, state.usage.calls) == (1, 0, 0, 1)


async def test_what_is_not_counted_has_no_budget(rig: Rig) -> None:
    pending = await rig.call(counts=False)
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert pending.value.remaining is None
    state = await rig.state()
    assert (state.calls, state.usage.calls) == (0, 0)


@configured(capabilities=("files.read*",))
async def test_only_what_the_file_allows_is_offered(rig: Rig) -> None:
    assert rig.tools() == ["read"]


async def test_an_error_of_the_downstream_is_passed_on(rig: Rig) -> None:
    pending = await rig.call()
    rig.fakes.last.open[0].answer(RpcError(-32602, "no such file", {"x": 1}))
    await rig.quiet()
    assert isinstance(pending.error, RpcError)
    assert pending.error.data == {"x": 1}
    state = await rig.state()
    assert (state.errors, state.breaker.failures) == (1, 0)


async def test_a_calls_time_limit_is_what_stands_still_while_its_agent_answers(rig: Rig) -> None:
    pending = await rig.call()
    (sent,) = rig.fakes.last.open
    assert sent.limit is not None
    sent.limit.deadline += 600
    await rig.later(500)
    sent.answer()
    await rig.quiet()
    assert pending.value.result == {"content": []}


async def test_a_second_call_of_the_same_name_is_refused(rig: Rig) -> None:
    first, second = await rig.call(call="x"), await rig.call(call="x")
    assert isinstance(second.error, IntercomError)
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert first.value.result == {"content": []}
    assert await rig.running() == 0


async def test_a_name_is_free_again_after_a_cancellation(rig: Rig) -> None:
    first = await rig.call("write", call="x")
    # The answer comes at the same moment.
    rig.fakes.last.open[0].answer()
    first.scope.cancel()
    await rig.quiet()
    second = await rig.call("write", call="x")
    assert await rig.running() == 1
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert second.value.result == {"content": []}
    assert await rig.running() == 0


async def test_names_of_calls_do_not_meet_the_timers(clock: trio.testing.MockClock) -> None:
    rig = Rig(config(), clock)
    rig.fakes.gate = trio.Event()
    async with running(rig):
        waiting = [await rig.call(call=name) for name in ("check", "probe", "lists")]
        rig.fakes.gate.set()
        await rig.quiet()
        for each in rig.fakes.last.open:
            each.answer()
        await rig.quiet()
        assert all(each.value for each in waiting)
        await rig.later(CHECK_SECONDS)
        assert len(rig.fakes.last.checks) == 1


# --- Budgets


@configured(budget=Budget(requests_per_second=2.0, burst_size=2, concurrency_limit=9))
async def test_the_rate_refuses_and_says_when_to_come_back(rig: Rig) -> None:
    await rig.succeed()
    await rig.succeed()
    refused = refusal(await rig.call(), InvocationStatus.RATE_LIMITED)
    assert refused.retry_after == pytest.approx(0.5)
    await rig.later(0.5)
    await rig.succeed()
    assert (await rig.state()).usage.calls == 3


@configured(budget=Budget(concurrency_limit=2))
async def test_a_running_call_keeps_its_place_until_it_ends(rig: Rig) -> None:
    first, _second = await rig.call(), await rig.call()
    assert refusal(await rig.call(), InvocationStatus.RATE_LIMITED).retry_after is None
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert first.done
    assert not (await rig.call()).done
    assert await rig.running() == 2


@configured(budget=Budget(daily_quota=2))
async def test_the_quota_holds_until_midnight(rig: Rig) -> None:
    await rig.succeed()
    await rig.succeed()
    refused = refusal(await rig.call(), InvocationStatus.RATE_LIMITED)
    assert refused.retry_after == timedelta(hours=12).total_seconds() - rig.clock.current_time()
    await rig.later(refused.retry_after)
    await rig.succeed()
    assert (await rig.state()).usage == Usage(BEGAN.date() + timedelta(days=1), 1)


async def test_the_meter_is_exact_however_calls_end(rig: Rig) -> None:
    await rig.succeed()
    pending = await rig.call("write")
    rig.fakes.last.open[0].answer(RpcError(1, "no"))
    await rig.quiet()
    assert pending.done
    cancelled = await rig.call("write")
    cancelled.scope.cancel()
    await rig.quiet()
    assert rig.fakes.last.calls[-1].cancelled
    late = await rig.call("write")
    await rig.later(30)
    assert failure(late, Failure.TIMEOUT).reason == "did not answer within 30 s"
    lost = await rig.call("write")
    rig.fakes.last.lose()
    await rig.quiet()
    assert failure(lost).was_sent
    state = await rig.state()
    assert (state.usage.calls, state.calls, state.errors) == (5, 5, 3)
    assert await rig.running() == 0


# --- The breaker


async def test_failures_degrade_and_open_the_circuit_and_a_success_closes_it(rig: Rig) -> None:
    for _ in range(3):
        assert isinstance(await rig.fail(), CallFailed)
    state = await rig.state()
    assert (state.breaker.health, state.breaker.circuit) == (Health.DEGRADED, Circuit.CLOSED)
    await rig.succeed()
    assert (await rig.state()).breaker.health is Health.READY
    for _ in range(5):
        await rig.fail()
    state = await rig.state()
    assert (state.breaker.health, state.breaker.circuit) == (Health.OFFLINE, Circuit.OPEN)
    assert rig.fakes.last.ended
    assert (refusal(await rig.call()).retry_after or 0) > 0
    assert (await rig.state()).usage.calls == 9


@configured(budget=Budget(timeout_seconds=2))
async def test_time_outs_count(rig: Rig) -> None:
    for health in (Health.READY, Health.READY, Health.DEGRADED, Health.DEGRADED, Health.OFFLINE):
        pending = await rig.call("write")
        await rig.later(2)
        assert failure(pending, Failure.TIMEOUT)
        assert (await rig.state()).breaker.health is health
    assert "timed out" in (await rig.state()).breaker.reason


async def test_errors_that_a_tool_reports_do_not_count(rig: Rig) -> None:
    for _ in range(10):
        pending = await rig.call()
        rig.fakes.last.open[0].answer({"content": [], "isError": True})
        await rig.quiet()
        assert pending.value.result["isError"]
    state = await rig.state()
    assert (state.breaker.health, state.breaker.failures) == (Health.READY, 0)


@configured(breaker=BreakerSettings(count_tool_errors=True))
async def test_they_count_if_the_file_says_so(rig: Rig) -> None:
    for _ in range(5):
        await rig.call()
        rig.fakes.last.open[0].answer({"content": [], "isError": True})
        await rig.quiet()
    assert (await rig.state()).breaker.circuit is Circuit.OPEN


async def test_a_half_open_circuit_is_tested_by_a_new_connection(rig: Rig) -> None:
    for _ in range(5):
        await rig.fail()
    wait = (await rig.state()).breaker.probe_at
    assert wait is not None
    rig.fakes.gate = trio.Event()
    await rig.later(wait - rig.clock.current_time())
    assert (await rig.state()).breaker.circuit is Circuit.HALF_OPEN
    assert rig.fakes.attempts == 2
    waiting = await rig.call()
    assert not waiting.done
    rig.fakes.gate.set()
    await rig.quiet()
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert waiting.value
    assert (await rig.state()).breaker.health is Health.READY
    assert len(rig.fakes.made[0].calls) == 5


async def test_delays_grow_while_handshakes_fail(rig: Rig) -> None:
    rig.fakes.failure = refuses()
    rig.fakes.last.lose()
    await rig.quiet()
    waits = []
    for _ in range(4):
        state = await rig.state()
        assert state.breaker.circuit is Circuit.OPEN
        assert state.last_error == "the connection could not be made: the process exited with status 1"
        waits.append(round((state.breaker.probe_at or 0) - rig.clock.current_time(), 3))
        await rig.later(waits[-1])
    assert waits == sorted(waits)
    assert waits[-1] >= 8 * waits[0] / 2
    rig.fakes.failure = None
    await rig.later(((await rig.state()).breaker.probe_at or 0) - rig.clock.current_time())
    await rig.succeed()


async def test_a_degraded_downstream_is_connected_again_if_nothing_succeeds(rig: Rig) -> None:
    for _ in range(3):
        await rig.fail()
    await rig.later(30)
    assert rig.fakes.attempts == 2
    assert rig.fakes.made[0].ended
    assert (await rig.state()).breaker.health is Health.READY


async def test_a_version_that_worked_is_remembered(rig: Rig) -> None:
    rig.fakes.last.lose()
    await rig.quiet()
    assert rig.fakes.versions == [None, "2025-11-25"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (MissingVariables("files", {}), "variables of its configuration have no value"),
        (ConfigError("the file x"), "its configuration has a fault"),
    ],
)
async def test_a_configuration_that_cannot_be_expanded_is_said(
    clock: trio.testing.MockClock, fault: Exception, said: str
) -> None:
    def expand(_config: DownstreamConfig) -> DownstreamConfig:
        raise fault

    rig = Rig(config(), clock, expand=expand)
    async with running(rig):
        state = await rig.state()
        assert said in state.breaker.reason
        assert refusal(await rig.call())


async def test_an_idle_connection_is_checked_and_never_with_a_tool(rig: Rig) -> None:
    first = rig.fakes.last
    for _ in range(5):
        await rig.later(CHECK_SECONDS)
        await rig.later(10)
    assert len(first.checks) >= 3
    assert first.calls == []
    # It answered none of them: another took its place.
    assert rig.fakes.attempts > 1


async def test_a_busy_connection_is_not_checked(rig: Rig) -> None:
    rig.actor.tell(Configure(config(budget=Budget(timeout_seconds=1000))))
    await rig.call()
    await rig.later(CHECK_SECONDS)
    assert rig.fakes.last.checks == []


# --- Calls that wait for the connection


async def test_calls_wait_while_the_connection_is_made(clock: trio.testing.MockClock) -> None:
    rig = Rig(config(budget=LIMITED), clock)
    rig.fakes.gate = trio.Event()
    async with running(rig):
        waiting = [await rig.call(), await rig.call("write")]
        assert await rig.running() == 2
        rig.fakes.gate.set()
        await rig.quiet()
        for each in rig.fakes.last.open:
            each.answer()
        await rig.quiet()
        assert all(each.value for each in waiting)
        assert sorted(rig.fakes.sent()) == ["call 1", "call 2"]
        assert (await rig.running(), (await rig.state()).usage.calls) == (0, 2)


async def test_calls_that_wait_are_refused_if_it_fails(clock: trio.testing.MockClock) -> None:
    rig = Rig(config(budget=LIMITED), clock)
    rig.fakes.gate, rig.fakes.failure = trio.Event(), refuses()
    async with running(rig):
        waiting = await rig.call()
        rig.fakes.gate.set()
        await rig.quiet()
        assert (refusal(waiting).retry_after or 0) > 0
        assert (await rig.running(), (await rig.state()).usage.calls) == (0, 0)


async def test_a_call_that_waits_too_long_says_when_to_come_back(clock: trio.testing.MockClock) -> None:
    rig = Rig(config(budget=LIMITED), clock)
    rig.fakes.gate = trio.Event()
    async with running(rig):
        waiting = await rig.call()
        await rig.later(30)
        assert (refusal(waiting).retry_after or 0) > 0
        rig.fakes.gate.set()
        await rig.quiet()
        assert rig.fakes.sent() == []
        assert (await rig.running(), (await rig.state()).usage.calls) == (0, 0)


async def test_a_call_that_is_cancelled_while_it_waits_is_never_sent(clock: trio.testing.MockClock) -> None:
    rig = Rig(config(budget=LIMITED), clock)
    rig.fakes.gate = trio.Event()
    async with running(rig):
        waiting, other = await rig.call(), await rig.call()
        waiting.scope.cancel()
        await rig.quiet()
        rig.fakes.gate.set()
        await rig.quiet()
        assert rig.fakes.sent() == ["call 2"]
        rig.fakes.last.open[0].answer()
        await rig.quiet()
        assert other.value
        assert (await rig.running(), (await rig.state()).usage.calls) == (0, 1)


@pytest.mark.parametrize("passes", range(5))
async def test_a_call_that_is_cancelled_on_its_way_is_counted_only_if_it_was_sent(rig: Rig, passes: int) -> None:
    pending = rig.begin("write")
    for _ in range(passes):
        await trio.lowlevel.checkpoint()
    pending.scope.cancel()
    await rig.quiet()
    assert pending.scope.cancelled_caught
    assert all(each.cancelled for each in rig.fakes.last.calls)
    assert (await rig.state()).usage.calls == len(rig.fakes.sent())
    assert await rig.running() == 0


async def test_all_calls_can_end_at_once(clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than an ordinary mailbox takes: no message about them is lost, and what exceeds the limit is refused."""
    monkeypatch.setattr(downstream, "MOST_CALLS", 1500)
    rig = Rig(config(budget=Budget(concurrency_limit=100_000)), clock)
    async with running(rig):
        calls = [rig.begin("write") for _ in range(1510)]
        await rig.quiet()
        refused = [each for each in calls if each.done]
        assert len(refused) == 10
        assert all(refusal(each, InvocationStatus.RATE_LIMITED).retry_after for each in refused)
        rig.fakes.last.lose()
        await rig.quiet()
        assert all(each.answers == 1 for each in calls)
        assert await rig.running() == 0
        assert rig.recorder.of(MailboxOverflowed) == []


# --- Losses


async def test_a_read_only_call_is_repeated_once(rig: Rig) -> None:
    pending = await rig.call("read")
    rig.fakes.last.lose()
    await rig.quiet()
    assert rig.fakes.sent() == ["call 1", "call 1"]
    assert not pending.done
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert pending.value
    state = await rig.state()
    assert (state.usage.calls, state.calls, await rig.running()) == (1, 1, 0)


async def test_and_not_twice(rig: Rig) -> None:
    pending = await rig.call("read")
    rig.fakes.last.lose()
    await rig.quiet()
    rig.fakes.last.lose()
    await rig.quiet()
    assert failure(pending).was_sent
    assert len(rig.fakes.sent()) == 2
    assert (await rig.state()).usage.calls == 1
    assert await rig.running() == 0


@configured(retry=0)
async def test_retry_0_repeats_nothing(rig: Rig) -> None:
    pending = await rig.call("read")
    rig.fakes.last.lose()
    await rig.quiet()
    assert failure(pending).was_sent
    assert len(rig.fakes.sent()) == 1


async def test_a_mutating_call_is_never_repeated(rig: Rig) -> None:
    pending = await rig.call("write")
    rig.fakes.last.lose()
    await rig.quiet()
    assert failure(pending).was_sent
    assert rig.fakes.sent() == ["call 1"]


async def test_one_that_was_never_sent_is_sent_on_the_next_connection(rig: Rig) -> None:
    pending = await rig.call("write")
    first = rig.fakes.last
    first.open[0].answer(CallFailed(Failure.TRANSPORT, "the pipe was full", was_sent=False))
    first.lose()
    await rig.quiet()
    assert rig.fakes.sent() == ["call 1", "call 1"]
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert pending.value
    assert (await rig.state()).usage.calls == 1


async def test_one_that_no_connection_takes_costs_nothing(rig: Rig) -> None:
    pending = await rig.call("write")
    for _ in range(2):
        rig.fakes.last.open[0].answer(CallFailed(Failure.TRANSPORT, "the host is unreachable", was_sent=False))
        await rig.quiet()
    assert (refusal(pending).retry_after or 0) > 0
    assert "nothing was sent" in str(pending.error)
    assert (await rig.state()).usage.calls == 0
    assert await rig.running() == 0


async def test_calls_after_a_loss_wait_for_the_next_connection(rig: Rig) -> None:
    """Also while the old one still ends, which may take seconds."""
    rig.fakes.end_gate = trio.Event()
    rig.fakes.last.lose()
    pending = await rig.call("write")
    assert not pending.done
    assert rig.fakes.attempts == 1
    rig.fakes.end_gate.set()
    await rig.quiet()
    assert rig.fakes.most_open == 1
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert pending.value


async def test_two_connections_never_overlap_though_a_third_is_wanted(rig: Rig) -> None:
    rig.fakes.end_gate = trio.Event()
    for number in range(3):
        rig.actor.tell(Configure(config(command=f"server-{number}")))
        await rig.quiet()
    assert rig.fakes.most_open == 1
    rig.fakes.end_gate.set()
    await rig.quiet()
    assert rig.fakes.last.config.command == "server-2"
    assert rig.fakes.most_open == 1


async def test_a_loss_is_told_once_to_people(rig: Rig) -> None:
    rig.fakes.last.lose()
    await rig.quiet()
    assert [text for text in rig.told if "degraded" in text] == [
        "the downstream files is degraded: the connection was lost: the process exited with status 1"
    ]
    assert rig.tools() == ["read", "write"]


@configured(sharing=Sharing.AGENT)
async def test_what_an_earlier_connection_reports_changes_nothing(rig: Rig) -> None:
    await rig.call("write", Port("one"))
    waiting = await rig.call("write", Port("two"))
    old = cast("Connection", FakeConnection(config(), None, rig.fakes.last.tell, [], pid=1))
    before = await rig.state()
    for message in (
        Connected(0, old, DownstreamLists()),
        Lost(0, "was lost"),
        NotConnected(0, "could not be made"),
        Listed(0, DownstreamLists()),
        Checked(0, Failure.TIMEOUT),
        AgentConnected("one", 0, old),
        AgentDisconnected("two", 0, "was lost"),
    ):
        rig.actor.tell(message)
    after = await rig.state()
    assert (after.pid, after.breaker, after.offer) == (before.pid, before.breaker, before.offer)
    assert after.last_error is None
    assert not waiting.done
    await rig.call("write", Port("one"))
    assert [len(each.calls) for each in rig.fakes.made] == [0, 2, 1]


# --- Crashes


def says_that_it_is_not_known(pending: Pending) -> bool:
    """Whether a call failed because the actor ended, and its agent learns that it may have had its effect."""
    error = pending.error
    return isinstance(error, IntercomError) and error.error_code == "unavailable" and "is not known" in error.message


@pytest.mark.parametrize("tool_name", ["write", "read"])
async def test_a_call_in_flight_is_not_repeated_when_the_actor_crashes(rig: Rig, tool_name: str) -> None:
    pending = await rig.call(tool_name)
    inject(rig.system, NAME, RuntimeError("crash"), "now")
    await rig.quiet()
    assert says_that_it_is_not_known(pending)
    assert rig.fakes.sent() == ["call 1"]
    await rig.succeed("write")


async def test_a_call_that_has_its_answer_keeps_it_when_the_actor_crashes(rig: Rig) -> None:
    pending = await rig.call("write")
    rig.fakes.last.open[0].answer()
    inject(rig.system, NAME, RuntimeError("crash"), "now")
    await rig.quiet()
    assert pending.value.result == {"content": []}


async def test_calls_in_flight_learn_that_the_actor_crashed(rig: Rig) -> None:
    rig.fakes.tools = [tool("read", "reads more"), tool("write", "writes")]
    rig.recalled = Recalled(pins.compare((), [tool("read"), tool("write", "writes")]).added, Usage(BEGAN.date(), 41, 0))
    pending = await rig.call("write")
    inject(rig.system, NAME, RuntimeError("crash"), "now")
    await rig.quiet()
    assert says_that_it_is_not_known(pending)
    assert rig.fakes.made[0].ended
    state = await rig.state()
    assert (state.usage.calls, state.breaker.health) == (41, Health.READY)
    assert state.withheld == ("read",)
    assert [each for each in rig.published if isinstance(each, ToolsPinned)][1:] == []
    await rig.succeed("write")
    assert (await rig.state()).usage.calls == 42


async def test_parked_calls_learn_it_too(clock: trio.testing.MockClock) -> None:
    rig = Rig(config(), clock)
    rig.fakes.gate = trio.Event()
    async with running(rig):
        pending = await rig.call("write")
        inject(rig.system, NAME, RuntimeError("crash"), "now")
        await rig.quiet()
        assert says_that_it_is_not_known(pending)
        rig.fakes.gate.set()
        await rig.quiet()
        assert rig.fakes.sent() == []
