"""A session that is there before its agent: whoever brings its id is its agent, and nobody else's is to be had so."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.shim_connection import Hello
from intercom.cli import main
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, InvalidState, NotFound, Unauthorized
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.sessions.messages import Admit, Adopt, Agent, key_of
from intercom.sessions.registry import GRACE_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.store import sessions
from intercom.store.writer_messages import Transact
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def made_for_an_agent(server: VirtualServer, root: Path, id: str = "s-1") -> Session:
    """A session as one is on record before its agent has come."""
    session = Session(
        id=id,
        owner_user_id="U1",
        workspace_root=str(root),
        status=SessionStatus.ACTIVE,
        mode=SessionMode.LOCAL,
        created_at=server.now(),
        updated_at=server.now(),
        prompt="tidy up",
        agent_key=key_of(id),
    )
    await server.ask("store", Transact(lambda db: sessions.insert(db, session)))
    return session


def claimant(id: str = "s-1", client: str | None = "client") -> Agent:
    return Agent(key_of(id), client, "", None, id)


async def come(server: VirtualServer, id: str = "s-1") -> AgentClient:
    server.app.connected_agents.came(key_of(id), "door")
    return AgentClient(server, claimant(id), await server.ask("registry", Admit(claimant(id))))


async def row(server: VirtualServer, id: str = "s-1") -> Session:
    (found,) = [each for each in await server.app.service.sessions(everything=True) if each.id == id]
    return found


async def test_who_brings_the_id_gets_the_session_with_its_workspace(server: VirtualServer, root: Path) -> None:
    await made_for_an_agent(server, root)
    agent = await come(server)
    assert agent.session_id == "s-1"
    assert (await row(server)).client_name == "client"
    request = (await agent.propose()).request_id
    assert (await server.app.service.card(request)).workspace_root == str(root)
    assert [each.workspace for each in server.app.connected_agents.here.values()] == [str(root)]
    assert len(await server.app.service.sessions()) == 1


async def test_it_is_found_again_after_a_restart_and_by_a_second_connection(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        await made_for_an_agent(server, root)
        id = (await (await come(server)).propose()).request_id
    async with virtual_server(root.parent, clock) as server:
        await server.decide(id, Decision.APPROVE)
        back = await come(server)
        server.app.connected_agents.came(key_of("s-1"), "another door")
        assert await server.ask("registry", Admit(claimant(client="another"))) == "s-1"
        assert [late.request_id for late in (await back.ask(Ping(call="b"))).late_verdicts] == [id]
        # What it said of itself first is what it is called.
        assert (await row(server)).client_name == "client"


async def test_reboot_leaves_it_where_it_is(server: VirtualServer, root: Path) -> None:
    left = await server.arrive(root, "left")
    server.gone("left", for_good=True)
    await server.later(1)
    await made_for_an_agent(server, root)
    agent = await come(server)
    assert await server.ask("registry", Adopt(agent.identity)) == "s-1"
    with pytest.raises(InvalidState, match="cannot take over another"):
        await server.ask("registry", Adopt(agent.identity, left.session_id))


async def test_what_is_not_to_be_had_is_refused_and_nothing_changes(server: VirtualServer, root: Path) -> None:
    other = await server.arrive(root, "somebody")
    await made_for_an_agent(server, root, "over")
    await server.app.service.end("over", "kim", "ctl", "enough")
    refused: list[tuple[str, type[IntercomError], str]] = [
        ("nothing", NotFound, "no session has the id 'nothing'"),
        (other.session_id, Unauthorized, "another agent"),
        ("over", InvalidState, "was ended"),
    ]
    for id, kind, why in refused:
        with pytest.raises(kind, match=why):
            await server.ask("registry", Admit(claimant(id)))
    assert [session.agent_key for session in await server.app.service.sessions()] == ["somebody"]


async def test_an_agent_that_took_it_over_keeps_it_while_it_is_connected(server: VirtualServer, root: Path) -> None:
    await made_for_an_agent(server, root)
    other = await server.arrive(root, "other")
    assert await server.ask("registry", Adopt(other.identity, "s-1")) == "s-1"
    with pytest.raises(InvalidState, match="another agent, which is connected"):
        await server.ask("registry", Admit(claimant()))
    server.gone("other")
    await server.later(GRACE_SECONDS)
    assert (await come(server)).session_id == "s-1"
    assert (await row(server)).agent_key == key_of("s-1")


async def test_all_conversations_of_a_door_with_an_id_are_in_that_session(server: VirtualServer, root: Path) -> None:
    await made_for_an_agent(server, root)
    door = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", None, "/", session_id="s-1"
    )

    async def no_roots() -> list[str]:
        raise AssertionError("its workspace is known")

    for thread in (None, "t-1", "t-2"):
        assert await door.session(Caller("codex", thread, None, no_roots, None)) == "s-1"
    # What the shim repeats to the next server is this agent, and no other.
    assert door.news_of_agents() == [key_of("s-1")]
    stranger = evolve(claimant(), key="codex:t-1@/")
    with pytest.raises(InvalidState):
        await server.ask("registry", Admit(stranger))


def test_the_shim_takes_the_id_from_its_line_or_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERCOM_SESSION_ID", raising=False)
    assert main.session_id(main.parser().parse_args([])) is None
    monkeypatch.setenv("INTERCOM_SESSION_ID", "from-environment")
    assert main.session_id(main.parser().parse_args([])) == "from-environment"
    assert main.session_id(main.parser().parse_args(["--session-id", "from-line"])) == "from-line"
    for given, is_valid in (("from-line", True), (5, False), (["s"], False), ("s" * 1000, False), ("s\0", False)):
        assert (Hello.read({"wire": 1, "shim": "one", "session": given}) is not None) is is_valid
