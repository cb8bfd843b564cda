"""Whose session a hook is answered in, and what is left of one that goes at any moment."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.agents import hook_server
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.hook_server import HookDeps, HookOrigin, StoppingParams
from intercom.agents.http.access_rules import Identity
from intercom.agents.http.http_sessions import ConnectionFactory, HttpSessions
from intercom.sessions.messages import Agent, TakeInstructions, Undeliver, key_of
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.ping import Ping
from tests.sessions.test_earlier_processes import Process, asked_and_ended
from tests.sessions.test_steering import steer
from tests.support.virtual_server import VirtualServer

#: Nobody's.
FOREIGN = 1 << 22


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    (made / ".git").mkdir(parents=True)
    return made


def hook_of(server: VirtualServer, pid: int = FOREIGN, **doors: AgentConnection) -> HookDeps:
    """A hook that our parent's child of this number was; each door is our parent's."""
    known = {name: (door, frozenset({os.getppid()})) for name, door in doors.items()}
    return HookDeps(server.app.system, server.app.config, server.app.connected_agents, known, "hook/1", pid)


async def unheard(_message: dict[str, Any]) -> None:
    await trio.lowlevel.checkpoint()


async def cut_short(what: Callable[[], Awaitable[Any]], steps: int | None) -> Any:
    """Run this for so many steps of the loop, and no further; for None, to its end, and return what comes of it."""
    if steps is None:
        return await what()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(what)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return None


async def test_words_are_free_again_whenever_the_hook_that_asked_goes(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    await steer(server, agent, "one")
    for steps in (*range(40), None):
        visit = hook_server._HookConnection(hook_of(server), unheard)
        given = StoppingParams("claude-code", call=f"stop/{steps}", session=agent.session_id)
        result = await cut_short(partial(visit._stopping, given), steps)
        assert steps is not None or "one" in result["words"]
        visit.close()
        await trio.testing.wait_all_tasks_blocked()
        taken = await agent.ask(TakeInstructions("probe"))
        assert [word.text for word in taken.instructions] == ["one"], f"after {steps} steps"
        agent.tell(Undeliver(("probe",)))


async def test_a_guest_is_gone_whenever_its_hook_goes(server: VirtualServer, root: Path) -> None:
    for steps in (*range(0, 60, 3), None):
        visit = hook_server._HookConnection(hook_of(server), unheard)
        origin = HookOrigin("claude-code", f"c{steps}", str(root))
        await cut_short(partial(hook_server.session_of, visit.hook, origin, visit.admitted), steps)
        assert steps is not None or len(server.app.connected_agents.connections) == 1
        visit.close()
        assert server.app.connected_agents.connections == {}, f"after {steps} steps"


async def test_a_hook_of_two_questions_leaves_nobody_behind(server: VirtualServer, root: Path) -> None:
    visit = hook_server._HookConnection(hook_of(server), unheard)
    for conversation in ("a", "b"):
        await hook_server.session_of(visit.hook, HookOrigin("claude-code", conversation, str(root)), visit.admitted)
    assert len(server.app.connected_agents.connections) == 2
    visit.close()
    assert server.app.connected_agents.connections == {}


async def test_a_client_that_another_started_has_no_part_in_its_session(server: VirtualServer, root: Path) -> None:
    door = AgentConnection(server.app.system, server.app.config, server.app.connected_agents, "k", str(root), None)
    outer = hook_of(server, os.getpid(), door=door)
    origin = HookOrigin("claude-code", "c", str(root))
    door.client_name = "codex-mcp-client"
    assert await hook_server.known_session(outer, origin, guess=False) is None
    door.client_name = "claude-code"
    session = await hook_server.known_session(outer, origin, guess=False)
    assert session is not None
    # As long as it has not said what it is, it is what started the hook.
    door.client_name = None
    assert await hook_server.known_session(outer, origin, guess=False) == session


async def test_a_client_that_has_an_agents_environment_gets_none_of_its_words(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    id = agent.session_id
    server.app.connected_agents.here[key_of(id)] = Agent(key_of(id), "codex-mcp-client", str(root), None, id)
    inner, own = (HookOrigin(client, "c", str(root), session=id) for client in ("claude-code", "codex"))
    assert await hook_server.known_session(hook_of(server), inner, guess=False) is None
    assert await hook_server.known_session(hook_of(server), own, guess=False) == id
    # What it asks leave for is shown where people look for it.
    assert await hook_server.known_session(hook_of(server), inner) == id


async def test_a_process_that_continues_an_ended_ones_session_is_still_the_only_one_of_its_client(
    server: VirtualServer, root: Path
) -> None:
    id = await asked_and_ended(server, root, client="claude-code")
    process = Process(server, root, client="claude-code")
    await process.ask(Ping())
    assert (await process.ask(CheckClearance(request_id=id))).request_id == id
    found = await hook_server.known_session(hook_of(server), HookOrigin("claude-code", "c", str(root)))
    assert found == await process.session()


async def test_a_guess_leads_to_no_other_conversation_and_no_words(server: VirtualServer, root: Path) -> None:
    origin = HookOrigin("codex", "c2", str(root))
    await server.arrive(root, f"codex-mcp-client:c1@{root}", "codex-mcp-client")
    assert await hook_server.known_session(hook_of(server), origin) is None
    plain = await server.arrive(root, "shim", "codex-mcp-client")
    assert await hook_server.known_session(hook_of(server), origin) == plain.session_id
    assert await hook_server.known_session(hook_of(server), origin, guess=False) is None


async def test_a_hook_finds_the_agent_of_its_client_over_http(server: VirtualServer, root: Path) -> None:
    outer = hook_of(server, os.getpid())
    connections: Any = outer.connections
    visits = HttpSessions(
        ConnectionFactory(server.app.system, server.app.config, server.app.connected_agents, connections), unheard
    )
    visit = visits.of(Identity(agent="a"))
    visit.begun(frozenset({os.getppid()}))
    # Where neither the agent nor its client says where it works, its hook does.
    found = await hook_server.known_session(outer, HookOrigin("claude-code", "c", str(root)), guess=False)
    assert found is not None
    assert server.app.connected_agents.here["http:a"].workspace == str(root)
    visit.go()
    assert await hook_server.known_session(outer, HookOrigin("claude-code", "c", str(root)), guess=False) is None
