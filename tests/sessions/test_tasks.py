"""What a session does for clients that ask after a request: whose a verdict is to tell, and what a restart keeps."""

from __future__ import annotations

import pytest
import trio.testing

from actors.testing import inject
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError
from intercom.model.request import TaskState, TaskStatus
from intercom.sessions.messages import SHOW_SECONDS, AwaitTask, CancelTask, Deliver, Delivery, FindTask, OpenTask
from intercom.sessions.session.delivery import FETCH_SECONDS
from intercom.sessions.tools.ping import Ping
from tests.sessions.house import Guest, House

Clock = trio.testing.MockClock


async def begin(guest: Guest) -> TaskState:
    opened = await guest.propose()
    return await guest.ask(OpenTask(guest.call(), "check_clearance", opened.request_id))


async def pending(guest: Guest) -> list[str]:
    """What rides on the next result."""
    call = guest.call()
    answered = await guest.ask(Ping(call=call))
    return [verdict.request_id for verdict in answered.late_verdicts]


async def test_a_verdict_is_its_tasks_to_tell_for_a_while_and_then_rides(at: House, guest: Guest) -> None:
    task = await begin(guest)
    await at.decide(task.request_id, Decision.APPROVE)
    assert await pending(guest) == []
    assert (await guest.ask(FindTask(task.id))).status is TaskStatus.COMPLETED
    await at.later(FETCH_SECONDS + 1)
    assert await pending(guest) == [task.request_id]


async def test_what_the_task_told_rides_no_more(at: House, guest: Guest) -> None:
    task = await begin(guest)
    await at.decide(task.request_id, Decision.APPROVE)
    call = guest.call()
    answered = await guest.ask(AwaitTask(call, task.id))
    assert answered.answer.status == "approved"  # type: ignore[union-attr]
    await guest.ask(Deliver((Delivery(call, (task.request_id,)),)))
    await at.later(FETCH_SECONDS + 1)
    assert await pending(guest) == []
    # It can be asked for again all the same.
    assert (await guest.ask(AwaitTask(guest.call(), task.id))).answer == answered.answer


async def test_a_task_that_is_given_up_ends_whoever_waits_for_it_and_no_other(at: House, guest: Guest) -> None:
    task = await begin(guest)
    other = await guest.ask(OpenTask(guest.call(), "check_clearance", task.request_id))
    waiting = at.begin(lambda: guest.ask(AwaitTask("w1", task.id)))
    staying = at.begin(lambda: guest.ask(AwaitTask("w2", other.id)))
    await trio.testing.wait_all_tasks_blocked()
    await guest.settled()
    gone = await guest.ask(CancelTask("c", task.id))
    assert (gone.status, await guest.ask(CancelTask("c", task.id))) == (TaskStatus.CANCELLED, gone)
    with pytest.raises(IntercomError) as refused:
        await waiting()
    assert refused.value.error_code == "task_cancelled"
    await at.decide(task.request_id, Decision.APPROVE)
    assert (await staying()).answer.status == "approved"  # type: ignore[union-attr]
    assert (await guest.ask(FindTask(task.id))).status is TaskStatus.CANCELLED


async def test_a_session_that_falls_leaves_the_verdict_to_the_task_still(at: House, guest: Guest) -> None:
    task = await begin(guest)
    await at.decide(task.request_id, Decision.REJECT, "no")
    async with at.restarting():
        inject(at.app.system, f"session/{guest.session_id}", ValueError("boom"), "now")
        assert await pending(guest) == []
    await at.later(FETCH_SECONDS + 2)
    assert await pending(guest) == [task.request_id]


async def test_the_card_of_a_task_says_that_its_agent_is_away_while_it_is(at: House, guest: Guest) -> None:
    task = await begin(guest)
    await at.later(SHOW_SECONDS + 1)
    assert [card.away for card in at.people.cards] == [False], "nobody waits, and somebody asks after it"
    at.gone(guest.agent.key, for_good=True)
    await at.later(1)
    assert at.people.cards[-1].away is True
    at.back(guest.agent.key)
    await at.later(1)
    assert at.people.cards[-1].away is False
    assert {card.id for card in at.people.cards} == {task.request_id}
