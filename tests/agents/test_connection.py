"""Agent connections: who has come in by one, and what becomes of a call that is cut off."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
import trio
import trio.testing

from actors import StopChild
from intercom.agents import mcp_server
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.tool_call import ToolCall, content
from intercom.embedding import Switchboard
from intercom.model.decision import Decision
from intercom.model.errors import DatabaseError
from intercom.sessions.messages import Adopt, Answered
from intercom.sessions.registry import GRACE_SECONDS
from intercom.sessions.request_kinds import PERSON_ANSWERED
from intercom.sessions.session import deliveries
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.tool_table import BY_NAME
from intercom.sessions.tools.transmit import Transmit
from intercom.store.writer_messages import Transact
from intercom.workspace import files
from tests.support.virtual_server import STUCK, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def no_roots() -> list[str]:
    return []


#: What a client says that has names for its conversations.
THREAD = Caller("codex", "thread", None, no_roots, None)


async def cut_off(server: VirtualServer, what: Callable[[], Awaitable[Any]]) -> None:
    """Begin something, and cancel it while it waits for the store."""
    release = threading.Event()
    held = server.begin(partial(server.ask, "store", Transact(lambda db: release.wait(STUCK))))
    begun = server.begin(what)
    await trio.testing.wait_all_tasks_blocked()
    begun.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert begun.outcome is None
    release.set()
    await held()


async def test_a_connection_that_ends_takes_along_an_agent_that_was_on_its_way_in(
    server: VirtualServer, root: Path
) -> None:
    await server.arrive(root)
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
    )
    await cut_off(server, partial(connection.open_call, BY_NAME["ping"], None, THREAD))
    connection.closed()
    await server.later(GRACE_SECONDS)
    assert server.app.connected_agents.here.keys() == {"agent"}
    assert server.app.connected_agents.connections.keys() == {"agent"}


async def test_who_is_let_in_after_its_connection_has_ended_is_not_connected(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, release = threading.Event(), threading.Event()

    def slow(*given: Any) -> str:
        looking.set()
        release.wait(STUCK)
        return str(root)

    monkeypatch.setattr(files, "choose_workspace", slow)
    async with virtual_server(root.parent, clock) as server:
        connection = AgentConnection(
            server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
        )
        connection.opened()
        # A hook is answered by way of the connection, and outlives it.
        asked = server.begin(partial(connection.session, THREAD))
        assert await trio.to_thread.run_sync(looking.wait, STUCK)
        connection.closed()
        release.set()
        await asked()
        await server.later(GRACE_SECONDS)
        assert (server.app.connected_agents.here, server.app.connected_agents.connections) == ({}, {})


async def test_a_conversation_that_goes_on_in_another_workspace_is_another_session(
    server: VirtualServer, root: Path
) -> None:
    other = root.parent / "other"
    other.mkdir()
    connections = [
        AgentConnection(server.app.system, server.app.config, server.app.connected_agents, f"shim{n}", str(each), None)
        for n, each in enumerate((root, other))
    ]
    calls = [await connection.open_call(BY_NAME["ping"], None, THREAD) for connection in connections]
    stand = {session.id: session.workspace_root for session in await server.app.service.sessions()}
    assert [stand[call.session_id] for call in calls] == [str(root), str(other)]
    # And in the same one it is the same, by whichever connection.
    back = await AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
    ).open_call(BY_NAME["ping"], None, THREAD)
    assert back.session_id == calls[0].session_id


async def test_what_rode_on_a_cancelled_call_of_a_program_rides_on_its_next(server: VirtualServer, root: Path) -> None:
    agent = Switchboard(server.app, str(root)).agent("bot")
    session_id = (await agent.ping()).answer.session_id
    await server.app.service.nudge(session_id, "go on", "kim", "ctl")
    await cut_off(server, partial(agent.ping, progress_snapshot=()))
    told = await agent.call(Ping())
    assert [word.text for word in told.instructions] == ["go on"]
    assert (await agent.ping()).instructions == ()


async def test_a_program_gets_its_answer_although_its_delivery_can_not_be_recorded(
    server: VirtualServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: Any, **_named: Any) -> None:
        raise DatabaseError("the disk is full")

    agent = Switchboard(server.app, str(root)).agent("bot")
    asked = server.begin(partial(agent.transmit, "well?"))
    card = await server.operator.card(away=False)
    monkeypatch.setattr(deliveries, "_mark", full)
    await server.decide(card.id, Decision.STOP)
    assert (await asked()).answer.decision == "stop"


async def test_an_answer_that_crossed_with_its_calls_cancellation_was_not_delivered(
    server: VirtualServer, root: Path
) -> None:
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
    )

    async def call(tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
        opened = await connection.open_call(BY_NAME[tool], BY_NAME[tool].takes(**given), THREAD)
        answered = content(await opened.run())
        connection.close_call(opened)
        return opened.name, answered

    asked = server.begin(partial(call, "transmit", prompt_text="well?"))
    card = await server.operator.card(away=False)
    await server.decide(card.id, Decision.STOP)
    name, _ = await asked()
    connection.sent_results.asked(7, name)
    _, receipt = connection.sent_results.answered(7) or ("", None)
    assert receipt is not None
    # The client cancels while the shim still has the answer, which it then writes to somebody who heeds it not.
    connection.sent_results.cancelled(7)
    await connection.sent_results.delivered([receipt])
    _, told = await call("ping")
    assert [late["answer"] for late in told["late_verdicts"]] == [
        {"decision": "stop", "message": PERSON_ANSWERED["stop"]}
    ]


async def test_an_instruction_on_the_answer_of_a_call_that_is_cancelled_just_now_comes_with_the_next(
    server: VirtualServer, root: Path
) -> None:
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
    )
    tool = BY_NAME["ping"]

    async def ping(number: int, *, is_cancelled: bool = False) -> list[str]:
        caller = Caller("client", None, f"call {number}", no_roots, None)
        connection.sent_results.asked(number, f"call {number}")
        async with connection.answering(tool, Ping(), caller, number, None) as call:
            answered = await call.run()
            if is_cancelled:
                # The connection reads the cancellation now, and the SDK cancels the call a moment later: too late.
                connection.sent_results.cancelled(number)
        connection.sent_results.answered(number)
        return [word.text for word in answered.instructions]

    await ping(1)
    (session,) = await server.app.service.sessions()
    await server.app.service.nudge(session.id, "go on", "kim", "ctl")
    assert await ping(2, is_cancelled=True) == ["go on"]
    assert await ping(3) == ["go on"]


async def written(server: VirtualServer, connection: AgentConnection) -> str:
    """A verdict that was written to a client without a shim; the card's id."""
    caller = Caller("client", None, None, no_roots, None)

    async def call() -> str:
        opened = await connection.open_call(BY_NAME["transmit"], Transmit("well?"), caller)
        await opened.run()
        connection.close_call(opened)
        return opened.name

    asked = server.begin(call)
    card = await server.operator.card(away=False)
    await server.decide(card.id, Decision.STOP)
    connection.sent_results.written(await asked())
    return card.id


async def test_that_an_answer_was_read_is_recorded_although_the_call_that_says_so_is_cut_off(
    server: VirtualServer, root: Path
) -> None:
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "http", str(root), None
    )
    id = await written(server, connection)
    await cut_off(server, connection.sent_results.read_all)
    await server.later(0)
    assert (await server.app.service.card(id)).state.value == "delivered"


async def test_that_an_answer_was_read_is_recorded_later_where_it_can_not_be_now(
    server: VirtualServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: Any, **_named: Any) -> None:
        raise DatabaseError("the disk is full")

    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "http", str(root), None
    )
    id = await written(server, connection)
    with monkeypatch.context() as patched:
        patched.setattr(deliveries, "_mark", full)
        await connection.sent_results.read_all()
    await connection.sent_results.read_all()
    assert (await server.app.service.card(id)).state.value == "delivered"


async def test_who_comes_back_after_another_took_over_its_session_is_not_let_into_that(
    server: VirtualServer, root: Path
) -> None:
    caller = Caller("client", None, None, no_roots, None)
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "first", str(root), None
    )
    connection.opened()
    left = (await connection.open_call(BY_NAME["ping"], None, caller)).session_id
    connection.closed(for_good=True)
    await server.later(1)
    other = await server.arrive(root, "second")
    assert await server.ask("registry", Adopt(other.identity, left)) == left
    connection.opened()
    assert (await connection.open_call(BY_NAME["ping"], None, caller)).session_id != left


async def test_a_session_that_rests_is_let_in_anew(server: VirtualServer, root: Path) -> None:
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
    )
    first = await connection.open_call(BY_NAME["ping"], None, THREAD)
    await server.ask("sessions", StopChild(f"session_supervisor/{first.session_id}"))
    second = await connection.open_call(BY_NAME["ping"], None, THREAD)
    assert second.session_id == first.session_id
    with trio.fail_after(1):
        assert (await second.ask(Ping(call="again"))).answer.acknowledged


async def test_what_rode_on_an_answer_rides_again_where_its_call_was_cancelled_that_moment(
    server: VirtualServer, root: Path
) -> None:
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None
    )
    session_id = (await connection.open_call(BY_NAME["ping"], None, THREAD)).session_id
    await server.app.service.nudge(session_id, "go on", "kim", "ctl")
    said = SimpleNamespace(client_params=None, client_capabilities=None)
    ctx: Any = SimpleNamespace(
        request=connection, meta={"threadId": "thread"}, session=said, protocol_version=None, request_id=1
    )
    said.client_params = SimpleNamespace(client_info=SimpleNamespace(name=THREAD.client_name))
    cancelled = trio.CancelScope()

    went = ToolCall.run

    async def run(call: ToolCall) -> Answered[Any]:
        answered = await went(call)
        # Of a call that is cancelled the SDK lets no result leave, however far it got.
        cancelled.cancel()
        return answered

    params = types.CallToolRequestParams(name="ping", arguments={})
    with cancelled, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolCall, "run", run)
        await mcp_server._call_tool(ctx, params, offered=dict(BY_NAME), measured=lambda _: None)
    result = await mcp_server._call_tool(ctx, params, offered=dict(BY_NAME), measured=lambda _: None)
    assert [word["text"] for word in (result.structured_content or {})["instructions"]] == ["go on"]
