"""Who comes and goes while the registry is down, and sessions whose actors have nothing left to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from actors.testing import inject
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.session import SessionStatus
from intercom.sessions.agent_keys import ANONYMOUS
from intercom.sessions.messages import Describe, Wanted
from intercom.sessions.registry import GRACE_SECONDS, SWEEP_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.store.processes import agent_processes
from intercom.store.writer_messages import Transact
from tests.support.virtual_server import AgentClient, VirtualServer


@asynccontextmanager
async def registry_down(server: VirtualServer, agent: AgentClient) -> AsyncIterator[None]:
    """The registry is down meanwhile, and up when this is left."""
    inject(server.app.system, "registry", RuntimeError("a fault was asked for"), "now")
    await trio.testing.wait_all_tasks_blocked()
    assert server.app.system.ref("registry") is None
    yield
    async with server.restarting():
        await server.ask("registry", Wanted(agent.session_id))


def runs(server: VirtualServer, agent: AgentClient) -> bool:
    return server.app.system.ref(f"session/{agent.session_id}") is not None


async def leave(server: VirtualServer, agent: AgentClient) -> None:
    server.gone(agent.identity.key, for_good=True)
    await server.later(0)


async def status(agent: AgentClient) -> SessionStatus:
    return (await agent.ask(Describe())).status


async def test_an_agent_that_left_while_the_reception_was_down_is_gone(server: VirtualServer, root: Path) -> None:
    agent, other = await server.arrive(root), await server.arrive(root, "other")
    async with registry_down(server, agent):
        server.gone("agent")
    await server.later(GRACE_SECONDS)
    assert await status(agent) is SessionStatus.INTERRUPTED
    assert await status(other) is SessionStatus.ACTIVE
    assert server.app.connected_agents.here.keys() == {"other"}


async def test_an_agent_that_came_back_while_the_reception_was_down_is_here(
    server: VirtualServer, agent: AgentClient
) -> None:
    server.gone("agent")
    await server.later(GRACE_SECONDS)
    assert await status(agent) is SessionStatus.INTERRUPTED
    async with registry_down(server, agent):
        server.back("agent")
    await server.later(GRACE_SECONDS)
    assert await status(agent) is SessionStatus.ACTIVE
    assert server.app.connected_agents.here.keys() == {"agent"}


async def test_a_session_that_was_left_and_holds_nothing_rests_until_its_agent_is_back(
    server: VirtualServer, root: Path
) -> None:
    agent, other = await server.arrive(root), await server.arrive(root, "other")
    await leave(server, agent)
    await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)
    assert runs(server, other)
    back = await server.arrive(root)
    assert back.session_id == agent.session_id
    assert await status(back) is SessionStatus.ACTIVE


async def test_a_session_of_one_call_is_not_ended_while_that_is_in(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root, f"{ANONYMOUS}1")
    await server.later(SWEEP_SECONDS)
    assert await status(agent) is SessionStatus.ACTIVE
    await leave(server, agent)
    assert not runs(server, agent)


async def test_a_session_in_which_something_waits_does_not_rest(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    await leave(server, agent)
    await server.later(SWEEP_SECONDS)
    assert runs(server, agent)
    await server.decide(id, Decision.REJECT, "no")
    await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)
    # What it owes its agent is not forgotten.
    back = await server.arrive(root)
    assert [late.request_id for late in (await back.ask(Ping(call="b"))).late_verdicts] == [id]


async def test_people_reach_a_session_that_rests(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    await leave(server, agent)
    await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)
    with trio.fail_after(1):
        await server.app.service.nudge(agent.session_id, "go on", "kim", "ctl")
    assert runs(server, agent)
    # Whoever wanted it may be about to ask it more.
    await server.later(SWEEP_SECONDS)
    assert runs(server, agent)
    await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)
    back = await server.arrive(root)
    assert [word.text for word in (await back.ask(Ping(call="b"))).instructions] == ["go on"]


async def test_a_session_that_was_ended_says_so_for_as_long_as_its_agent_is_here(
    server: VirtualServer, agent: AgentClient
) -> None:
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    for _ in range(2):
        await server.later(SWEEP_SECONDS)
    with pytest.raises(InvalidState, match="was ended"):
        await agent.propose()
    await leave(server, agent)
    for _ in range(2):
        await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)


async def test_the_session_of_a_process_that_is_over_rests_although_nobody_heard_its_agent_leave(
    server: VirtualServer, agent: AgentClient
) -> None:
    child = AgentProcess(agent.session_id, AgentProcessState.RUNNING, server.now(), "kim")
    await server.ask("store", Transact(partial(agent_processes.insert, value=child)))
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    for _ in range(2):
        await server.later(SWEEP_SECONDS)
    assert runs(server, agent)
    over = evolve(child, state=AgentProcessState.OVER)
    await server.ask(
        "store", Transact(partial(agent_processes.change, process=over, expect={AgentProcessState.RUNNING}))
    )
    await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)
    # Who comes by once more is told all the same.
    await server.ask("registry", Wanted(agent.session_id))
    with pytest.raises(InvalidState, match="was ended"):
        await agent.propose()


async def test_a_reception_that_fell_knows_which_sessions_run(server: VirtualServer, agent: AgentClient) -> None:
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    async with registry_down(server, agent):
        server.gone("agent")
    await server.later(GRACE_SECONDS)
    for _ in range(2):
        await server.later(SWEEP_SECONDS)
    assert not runs(server, agent)
