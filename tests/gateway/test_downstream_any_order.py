"""The actor of a downstream in any order of events: each call is answered once, and counted while it runs."""

from __future__ import annotations

import trio
import trio.testing
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.events import ActorCrashed
from intercom.gateway.breaker import Failure
from intercom.gateway.budgets import Budget
from intercom.gateway.downstream_config import Sharing
from intercom.gateway.messages import (
    AgentGone,
    CallFailed,
    Configure,
    RpcError,
    SetEnabled,
)
from tests.gateway.fake_downstreams import (
    LIMITED,
    FakeConnection,
    Pending,
    Port,
    Rig,
    config,
    no_threads,
    refuses,
    running,
)

LOST = CallFailed(Failure.TRANSPORT, "the response was cut short")
__all__ = ["no_threads"]


OPERATIONS = (
    *("read", "write", "read", "write", "own", "quick cancel"),
    *("answer", "answer", "tool error", "rpc error", "fail", "unsent", "cancel"),
    *("lose", "lose own", "gate", "open gate", "break", "mend", "second", "minute", "quarter"),
    *("list", "budget", "command", "disable", "enable", "gone", "slow end", "fast end"),
)


async def _perform(rig: Rig, operation: str, number: int, calls: list[Pending]) -> None:
    open_calls = [each for made in rig.fakes.made for each in made.open]
    chosen = open_calls[number % len(open_calls)] if open_calls else None
    living: list[FakeConnection] = [each for each in rig.fakes.made if not each.is_lost]
    agent = Port(f"agent {number % 3}")
    match operation:
        case "read" | "write":
            calls.append(rig.begin(operation))
        case "own":
            calls.append(rig.begin("write", agent))
        case "quick cancel":
            pending = rig.begin("write", agent)
            await trio.lowlevel.checkpoint()
            pending.scope.cancel()
        case "answer" if chosen:
            chosen.answer()
        case "tool error" if chosen:
            chosen.answer({"content": [], "isError": True})
        case "rpc error" if chosen:
            chosen.answer(RpcError(-1, "no"))
        case "fail" if chosen:
            chosen.answer(LOST)
        case "unsent" if chosen:
            chosen.answer(CallFailed(Failure.TRANSPORT, "the pipe was full", was_sent=False))
        case "cancel" if calls:
            calls[number % len(calls)].scope.cancel()
        case "lose" | "lose own" if living:
            living[0 if operation == "lose" else number % len(living)].lose()
        case "gate" if rig.fakes.gate is None:
            rig.fakes.gate = trio.Event()
        case "open gate" if rig.fakes.gate is not None:
            rig.fakes.gate.set()
            rig.fakes.gate = None
        case "break":
            rig.fakes.failure = refuses()
        case "mend":
            rig.fakes.failure = None
        case "second" | "minute" | "quarter":
            await rig.later({"second": 1.0, "minute": 60.0, "quarter": 900.0}[operation])
        case "list" if living:
            living[0].tell.notified("notifications/tools/list_changed", {}, None)
        case "budget":
            limits = Budget(concurrency_limit=4 + number % 3, daily_quota=1000)
            rig.actor.tell(Configure(evolve(rig.config, budget=limits)))
        case "command":
            rig.actor.tell(Configure(evolve(rig.config, command=f"server {number}")))
        case "disable" | "enable":
            await rig.ask(SetEnabled(operation == "enable"))
        case "gone":
            rig.actor.tell(AgentGone(agent.id))
        case "slow end" if rig.fakes.end_gate is None:
            rig.fakes.end_gate = trio.Event()
        case "fast end" if rig.fakes.end_gate is not None:
            rig.fakes.end_gate.set()
            rig.fakes.end_gate = None


async def _check(rig: Rig, calls: list[Pending]) -> None:
    state = await rig.state()
    assert rig.recorder.of(ActorCrashed) == []
    waiting = [each for each in calls if not each.done and not each.scope.cancelled_caught]
    # What the budget counts as running is what has no answer: neither less than 0 nor a call that was forgotten.
    assert await rig.running() == len(waiting)
    assert 0 <= state.running <= len(waiting)
    assert all(each.answers == 1 for each in calls if each.done)


async def _any_order(steps: list[tuple[str, int]], sharing: Sharing, clock: trio.testing.MockClock) -> None:
    rig = Rig(config(budget=LIMITED, sharing=sharing), clock)
    calls: list[Pending] = []
    async with running(rig):
        for operation, number in steps:
            await _perform(rig, operation, number, calls)
            await _check(rig, calls)
        # In the end each is answered, if only because its time is over.
        for gate in (rig.fakes.gate, rig.fakes.end_gate):
            if gate is not None:
                gate.set()
        rig.fakes.gate = rig.fakes.end_gate = None
        for _ in range(3):
            await rig.later(31)
        assert all(each.done or each.scope.cancelled_caught for each in calls)
        await _check(rig, calls)
        assert await rig.running() == 0
        # What is counted is what a downstream may have got. A call that is cancelled on its way counts, too.
        quick = sum(operation == "quick cancel" for operation, _ in steps)
        got = rig.fakes.received()
        assert len(got) <= (await rig.state()).usage.calls <= len(got) + quick


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9)), max_size=30),
    st.sampled_from(Sharing),
)
def test_every_call_is_answered_once_whatever_happens(steps: list[tuple[str, int]], sharing: Sharing) -> None:
    clock = trio.testing.MockClock()
    trio.run(_any_order, steps, sharing, clock, clock=clock)
