"""A downstream with a connection for each agent."""

from __future__ import annotations

import trio
import trio.testing

from intercom.gateway.breaker import Circuit, Health
from intercom.gateway.budgets import Budget
from intercom.gateway.downstream import CHECK_SECONDS, MOST_OWN, OWN_IDLE_SECONDS, ROOM_SECONDS
from intercom.gateway.downstream_config import Sharing
from intercom.gateway.messages import AgentGone, InvocationStatus
from tests.gateway.fake_downstreams import (
    Port,
    Rig,
    configured,
    failure,
    no_threads,
    refusal,
    refuses,
    rig,
)

__all__ = ["no_threads", "rig"]


@configured(sharing=Sharing.AGENT)
async def test_each_agent_has_a_connection_of_its_own(rig: Rig) -> None:
    one, two = Port("one"), Port("two")
    for agent in (one, two, one):
        pending = await rig.call(agent=agent)
        (sent,) = [each for made in rig.fakes.made for each in made.open]
        sent.answer()
        await rig.quiet()
        assert pending.value
    assert [len(each.calls) for each in rig.fakes.made] == [0, 2, 1]


@configured(sharing=Sharing.AGENT)
async def test_it_ends_with_the_agent(rig: Rig) -> None:
    one, two = Port("one"), Port("two")
    running_one, running_two = await rig.call("write", one), await rig.call("write", two)
    rig.actor.tell(AgentGone("one"))
    await rig.quiet()
    assert failure(running_one)
    assert not running_two.done
    assert [each.ended for each in rig.fakes.made] == [False, True, False]
    rig.fakes.made[2].open[0].answer()
    await rig.quiet()
    assert running_two.value
    assert await rig.running() == 0


@configured(sharing=Sharing.AGENT)
async def test_calls_of_an_agent_that_is_gone_do_not_make_a_connection(rig: Rig) -> None:
    rig.fakes.gate = trio.Event()
    waiting = await rig.call(agent=Port("one"))
    rig.actor.tell(AgentGone("one"))
    await rig.quiet()
    assert failure(waiting)
    rig.fakes.gate.set()
    await rig.quiet()
    assert rig.fakes.open == 1
    assert await rig.running() == 0


@configured(sharing=Sharing.AGENT)
async def test_it_ends_if_the_agent_calls_nothing_for_long(rig: Rig) -> None:
    pending = await rig.call(agent=Port("one"))
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert pending.value
    for _ in range(int(OWN_IDLE_SECONDS / CHECK_SECONDS) + 2):
        await rig.later(CHECK_SECONDS)
        for check in rig.fakes.made[0].checks:
            check.answer()
    assert [each.ended for each in rig.fakes.made] == [False, True]


@configured(sharing=Sharing.AGENT)
async def test_its_loss_hurts_only_its_agent(rig: Rig) -> None:
    one, two = Port("one"), Port("two")
    lost, kept, repeated = await rig.call("write", one), await rig.call("write", two), await rig.call("read", one)
    rig.fakes.made[1].lose()
    await rig.quiet()
    assert failure(lost)
    assert not kept.done
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert repeated.value
    assert (await rig.state()).breaker.health is Health.READY
    assert [each.ended for each in rig.fakes.made] == [False, True, False, False]


@configured(sharing=Sharing.AGENT)
async def test_an_old_connection_of_an_agent_does_not_end_its_new_one(rig: Rig) -> None:
    one = Port("one")
    await rig.call("write", one)
    rig.fakes.end_gate = trio.Event()
    rig.fakes.last.lose()
    again = await rig.call("write", one)
    rig.fakes.end_gate.set()
    await rig.quiet()
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert again.value
    assert [each.ended for each in rig.fakes.made] == [False, True, False]


@configured(sharing=Sharing.AGENT)
async def test_connections_of_agents_that_cannot_be_made_are_not_tried_for_ever(rig: Rig) -> None:
    rig.fakes.failure = refuses()
    answers = [await rig.call("write", Port(f"agent {number}")) for number in range(20)]
    assert all((refusal(each).retry_after or 0) > 0 for each in answers)
    assert rig.fakes.attempts <= 7
    state = await rig.state()
    assert (state.breaker.circuit, state.usage.calls, await rig.running()) == (Circuit.OPEN, 0, 0)


@configured(sharing=Sharing.AGENT)
async def test_a_connection_of_an_agent_that_hangs_is_replaced(rig: Rig) -> None:
    one, two = Port("one"), Port("two")
    healthy = await rig.call(agent=two)
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert healthy.value
    for _ in range(5):
        hanging = await rig.call("write", one)
        if hanging.done:
            break
        await rig.later(30)
    made = {each.calls[0].call: each for each in rig.fakes.made if each.calls}
    assert made["call 2"].ended
    assert not made["call 1"].ended


@configured(sharing=Sharing.AGENT)
async def test_only_so_many_agents_have_connections_and_the_longest_idle_makes_room(rig: Rig) -> None:
    for number in range(MOST_OWN):
        pending = await rig.call(agent=Port(f"agent {number}"))
        if number not in (0, 2):
            rig.fakes.last.open[0].answer()
        await rig.later(0.5)
        assert pending.done == (number not in (0, 2))
    assert rig.fakes.open == MOST_OWN + 1
    # The first runs a call: the second was idle longest.
    pending = await rig.call(agent=Port("one more"))
    rig.fakes.last.open[0].answer()
    await rig.quiet()
    assert pending.value
    assert [at for at, each in enumerate(rig.fakes.made) if each.ended] == [2]
    assert rig.fakes.open == MOST_OWN + 1


@configured(sharing=Sharing.AGENT, budget=Budget(daily_quota=1000))
async def test_an_agent_for_which_there_is_no_room_is_told_when_to_try_again(rig: Rig) -> None:
    for number in range(MOST_OWN):
        await rig.call(agent=Port(f"agent {number}"))
    refused = refusal(await rig.call(agent=Port("one more")), InvocationStatus.RATE_LIMITED)
    assert refused.retry_after == ROOM_SECONDS
    assert "nothing was sent: repeat this call in 5 s" in refused.message
    assert rig.fakes.open == MOST_OWN + 1
    assert not any(each.ended for each in rig.fakes.made)
    assert (await rig.state()).remaining.calls == 1000 - MOST_OWN
    # An agent that has a connection may call.
    again = await rig.call(agent=Port("agent 3"))
    rig.fakes.made[4].open[1].answer()
    await rig.quiet()
    assert again.value


@configured(sharing=Sharing.AGENT, budget=Budget(daily_quota=1000))
async def test_connections_that_do_not_end_take_no_more_room_than_others(rig: Rig) -> None:
    rig.fakes.end_gate = trio.Event()
    refused = 0
    try:
        for number in range(5 * MOST_OWN):
            pending = await rig.call(agent=Port(f"agent {number}"))
            if pending.done:
                refusal(pending, InvocationStatus.RATE_LIMITED)
                refused += 1
            else:
                rig.fakes.last.open[0].answer()
            await rig.quiet()
        assert rig.fakes.most_open == 2 * MOST_OWN + 1
        assert refused == 3 * MOST_OWN
    finally:
        rig.fakes.end_gate.set()
    await rig.quiet()
    assert not (await rig.call(agent=Port("one more"))).done
