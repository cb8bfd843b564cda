"""An agent that stands by gets no other result, so a decision that no call waits for ends its standby, as a message
does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.model.decision import Decision
from intercom.sessions.messages import Deliver, Delivery, OpenTask, Undeliver
from intercom.sessions.session.state import FETCH_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.standby import Standby
from tests.sessions.signed.keyed_server import approve, keyed
from tests.sessions.test_retraction import faults
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer


async def standing_by(server: VirtualServer, agent: AgentClient) -> Any:
    opened = await agent.ask(Standby("idle"))
    assert opened.answered is None
    return await server.wait(agent, opened.request_id)


def told(answered: Any) -> tuple[str, list[str]]:
    return answered.answer.status, [each.request_id for each in answered.late_verdicts]


async def test_a_decision_ends_the_standby_and_is_told_once(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    call = await standing_by(server, agent)
    await server.decide(id, Decision.APPROVE)
    assert told(await call()) == ("resumed", [id])
    await agent.ask(Deliver((Delivery("any", (id,)),)))
    await standing_by(server, agent)
    assert faults(server) == []


async def test_a_decision_that_waits_ends_the_next_standby_at_once(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.REJECT)
    opened = await agent.ask(Standby("idle"))
    assert told(opened.answered) == ("resumed", [id])


async def test_a_time_out_ends_it_too(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    until = (await server.app.service.card(id)).expires_at
    call = await standing_by(server, agent)
    assert until is not None
    await server.later((until - server.now()).total_seconds() + 1)
    assert told(await call()) == ("resumed", [id])


async def test_a_decision_whose_result_was_lost_ends_it(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    lost = agent.call()
    assert (await agent.ask(Ping(call=lost))).late_verdicts
    call = await standing_by(server, agent)
    agent.tell(Undeliver((lost,)))
    assert told(await call()) == ("resumed", [id])


async def test_a_decision_that_its_task_does_not_fetch_ends_it(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await agent.ask(OpenTask(agent.call(), "check_clearance", id))
    call = await standing_by(server, agent)
    await server.decide(id, Decision.APPROVE)
    await server.later(FETCH_SECONDS - 1)
    assert call.outcome is None
    await server.later(3)
    assert told(await call()) == ("resumed", [id])


async def test_a_decision_in_a_pause_ends_it_when_the_pause_does(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    call = await standing_by(server, agent)
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
    await server.decide(id, Decision.APPROVE)
    await server.later(0)
    assert call.outcome is None
    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")
    assert told(await call()) == ("resumed", [id])


@pytest.mark.parametrize("restarts", [False, True])
async def test_with_an_operator_key_the_signed_decision_proves_the_end(
    root: Path, clock: trio.testing.MockClock, restarts: bool
) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        call = await standing_by(server, agent)
        await approve(server, key, id)
        assert told(await call()) == ("resumed", [id])
        if not restarts:
            return
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        late = (await agent.ask(Ping())).late_verdicts
        assert [(each.kind, each.answer["status"]) for each in late] == [
            ("approval", "approved"),
            ("standby", "resumed"),
        ]
