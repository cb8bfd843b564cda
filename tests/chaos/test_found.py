"""What the chaos runs found, each shown by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing

from actors.testing import inject
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.tool_call import ToolCall
from intercom.model.config import Config
from intercom.model.decision import Decision
from intercom.sessions.messages import AwaitDecision, Deliver, Delivery
from intercom.sessions.registry import SWEEP_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.tool_table import BY_NAME
from tests.support.virtual_server import AgentClient, VirtualServer, partial_ask


async def test_a_verdict_repeated_after_its_delivery_is_neither_delivered_nor_recorded_again(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    id, call = (await agent.propose()).request_id, agent.call()
    waiting = await server.wait(agent, id, call)
    await server.decide(id, Decision.REJECT, "no", verdict_id="v")
    assert (await waiting()).answer.reason == "no"
    await agent.ask(Deliver((Delivery(call, (id,)),)))
    await server.decide(id, Decision.REJECT, "no", verdict_id="v")
    assert (await agent.ask(Ping())).late_verdicts == ()
    assert [entry.kind for entry in await server.app.service.audit(50)].count("decided") == 1


async def test_an_agent_that_stands_by_is_told_to_stop_when_it_shall_stop(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    assert await _stopped(server, agent, None) == "stop"
    assert await _stopped(server, agent, "enough for today") == "stop: enough for today"


async def _stopped(server: VirtualServer, agent: AgentClient, text: str | None) -> str | None:
    opened = await agent.ask(Standby("nothing to do"))
    waiting = server.begin(partial_ask(agent, AwaitDecision(agent.call(), opened.request_id)))
    await trio.testing.wait_all_tasks_blocked()
    await server.decide(opened.request_id, Decision.STOP, text)
    instruction: str | None = (await waiting()).answer.instruction
    return instruction


@pytest.mark.parametrize("fallen", ["sessions", "policies"])
async def test_sessions_are_brought_back_when_what_held_them_falls(
    server: VirtualServer, root: Path, fallen: str
) -> None:
    agent = await server.arrive(root)
    id = (await agent.propose()).request_id
    began = trio.current_time()
    inject(server.app.system, fallen, RuntimeError("a fault was asked for"), "now")
    async with server.restarting():
        assert (await agent.propose()).request_id == id
        assert (await agent.propose("b.txt")).answered is None
    assert trio.current_time() - began < 4, "nobody waited for a deadline"


async def test_a_session_that_cannot_be_started_keeps_no_other_from_it(server: VirtualServer, root: Path) -> None:
    one, other = await server.arrive(root, "one"), await server.arrive(root, "other")
    for agent in (one, other):
        await agent.propose()
    inject(server.app.system, f"session/{one.session_id}", RuntimeError("a row cannot be read"), "next start")
    inject(server.app.system, "sessions", RuntimeError("a fault was asked for"), "now")
    async with server.restarting():
        told = await server.operator.notice("cannot be started")
        assert told.text.startswith(f"session {one.session_id[:8]} in {root} cannot be started: ")
        assert "RuntimeError: a row cannot be read" in told.text
        await other.ask(Ping())
        await server.arrive(root, "third")
    # It is tried again.
    await server.later(SWEEP_SECONDS)
    await server.operator.notice("was started after all")
    await one.ask(Ping())


async def test_a_reception_that_starts_does_not_keep_its_sister_from_starting(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    await agent.propose()
    # The one that has fallen before stays down for longer.
    for fallen in (["sessions"], ["sessions"], ["sessions"], ["sessions", "registry"]):
        began = trio.current_time()
        for name in fallen:
            inject(server.app.system, name, RuntimeError("a fault was asked for"), "now")
        async with server.restarting():
            await agent.ask(Ping())
        assert trio.current_time() - began < 4, "nobody waited for a deadline"


async def test_a_verdict_on_its_way_is_not_told_again_by_a_session_that_fell_meanwhile(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    await server.decide((await agent.propose()).request_id, Decision.REJECT, "no")
    connection = AgentConnection(
        server.app.system, Config(), server.app.connected_agents, agent.identity.key, str(root), None
    )
    assert await _told(connection, agent, "first") == ["no"]
    inject(server.app.system, f"session/{agent.session_id}", RuntimeError("a fault was asked for"), "now")
    async with server.restarting():
        assert await _told(connection, agent, "second") == []
    # The first result is lost after all.
    connection.sent_results.abandon("first")
    assert await _told(connection, agent, "third") == ["no"]


async def _told(connection: AgentConnection, agent: AgentClient, name: str) -> list[str]:
    """What one more call of the agent is told of late verdicts."""

    async def roots() -> list[str]:
        return []

    call: ToolCall = await connection.open_call(BY_NAME["ping"], Ping(), Caller("client", None, name, roots, None))
    told = call.finish(await agent.ask(Ping(call=name)))
    connection.close_call(call)
    return [late.answer["reason"] for late in told.late_verdicts]
