"""What a session does for clients that ask after a request: whose a verdict is to tell, and what a restart keeps."""

from __future__ import annotations

import pytest
import trio.testing

from actors.testing import inject
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError
from intercom.model.request import TaskState, TaskStatus
from intercom.sessions.messages import SHOW_SECONDS, AwaitTask, CancelTask, Deliver, Delivery, FindTask, OpenTask
from intercom.sessions.session.state import FETCH_SECONDS
from intercom.sessions.tools.ping import Ping
from tests.support.virtual_server import AgentClient, VirtualServer


async def begin(agent: AgentClient) -> TaskState:
    opened = await agent.propose()
    return await agent.ask(OpenTask(agent.call(), "check_clearance", opened.request_id))


async def pending(agent: AgentClient) -> list[str]:
    """What rides on the next result."""
    call = agent.call()
    answered = await agent.ask(Ping(call=call))
    return [verdict.request_id for verdict in answered.late_verdicts]


async def test_a_verdict_is_its_tasks_to_tell_for_a_while_and_then_rides(
    server: VirtualServer, agent: AgentClient
) -> None:
    task = await begin(agent)
    await server.decide(task.request_id, Decision.APPROVE)
    assert await pending(agent) == []
    assert (await agent.ask(FindTask(task.id))).status is TaskStatus.COMPLETED
    await server.later(FETCH_SECONDS + 1)
    assert await pending(agent) == [task.request_id]


async def test_what_the_task_told_rides_no_more(server: VirtualServer, agent: AgentClient) -> None:
    task = await begin(agent)
    await server.decide(task.request_id, Decision.APPROVE)
    call = agent.call()
    answered = await agent.ask(AwaitTask(call, task.id))
    assert answered.answer.status == "approved"  # type: ignore[union-attr]
    await agent.ask(Deliver((Delivery(call, (task.request_id,)),)))
    await server.later(FETCH_SECONDS + 1)
    assert await pending(agent) == []
    # It can be asked for again all the same.
    assert (await agent.ask(AwaitTask(agent.call(), task.id))).answer == answered.answer


async def test_a_task_that_is_given_up_ends_whoever_waits_for_it_and_no_other(
    server: VirtualServer, agent: AgentClient
) -> None:
    task = await begin(agent)
    other = await agent.ask(OpenTask(agent.call(), "check_clearance", task.request_id))
    waiting = server.begin(lambda: agent.ask(AwaitTask("w1", task.id)))
    staying = server.begin(lambda: agent.ask(AwaitTask("w2", other.id)))
    await trio.testing.wait_all_tasks_blocked()
    await agent.settled()
    gone = await agent.ask(CancelTask("c", task.id))
    assert (gone.status, await agent.ask(CancelTask("c", task.id))) == (TaskStatus.CANCELLED, gone)
    with pytest.raises(IntercomError) as refused:
        await waiting()
    assert refused.value.error_code == "task_cancelled"
    await server.decide(task.request_id, Decision.APPROVE)
    assert (await staying()).answer.status == "approved"  # type: ignore[union-attr]
    assert (await agent.ask(FindTask(task.id))).status is TaskStatus.CANCELLED


async def test_a_session_that_falls_leaves_the_verdict_to_the_task_still(
    server: VirtualServer, agent: AgentClient
) -> None:
    task = await begin(agent)
    await server.decide(task.request_id, Decision.REJECT, "no")
    async with server.restarting():
        inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
        assert await pending(agent) == []
    await server.later(FETCH_SECONDS + 2)
    assert await pending(agent) == [task.request_id]


async def test_the_card_of_a_task_says_that_its_agent_is_away_while_it_is(
    server: VirtualServer, agent: AgentClient
) -> None:
    task = await begin(agent)
    await server.later(SHOW_SECONDS + 1)
    assert [card.away for card in server.operator.cards] == [False], "nobody waits, and somebody asks after it"
    server.gone(agent.identity.key, for_good=True)
    await server.later(1)
    assert server.operator.cards[-1].away is True
    server.back(agent.identity.key)
    await server.later(1)
    assert server.operator.cards[-1].away is False
    assert {card.id for card in server.operator.cards} == {task.request_id}


async def test_a_decision_in_a_pause_is_its_tasks_to_tell_for_a_while_after_it(
    server: VirtualServer, agent: AgentClient
) -> None:
    """A client that polls no more must not keep it from the agent for good."""
    task = await begin(agent)
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
    await server.decide(task.request_id, Decision.APPROVE)
    await server.later(FETCH_SECONDS + 1)
    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")
    assert await pending(agent) == []
    await server.later(FETCH_SECONDS + 1)
    assert await pending(agent) == [task.request_id]
