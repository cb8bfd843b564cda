"""Cards say whether anybody waits for the answer, also after a restart; and a nudge knows whom it is for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio.testing

from actors.testing import inject
from intercom.model.card import CardKind
from intercom.model.config import Config, StallSettings
from intercom.model.decision import Decision
from intercom.model.errors import Ambiguous, NotFound
from intercom.model.session import Session, SessionStatus, StallAlert, StallStatus
from intercom.operators.router_messages import Channel, Subscribe
from intercom.sessions.messages import RETURN_SECONDS, SHOW_SECONDS, Unattended
from intercom.sessions.tools.ping import Ping
from intercom.store.sessions import stalls
from intercom.store.writer_messages import Transact
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
CALM = Config(stall=StallSettings(enabled=False))


async def away(server: VirtualServer, id: str) -> bool:
    """What a channel is told that looks, which must be what it was shown last."""
    (listed,) = [card.away for card in await server.app.service.pending() if card.id == id]
    assert (await server.app.service.card(id)).away == listed
    return listed


def shown(server: VirtualServer, id: str) -> list[bool]:
    return [card.away for card in server.operator.cards if card.id == id]


@pytest.mark.server(CALM)
async def test_a_card_says_whether_a_call_waits(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    assert not await away(server, id)
    await server.later(SHOW_SECONDS)
    assert await away(server, id)
    await server.wait(agent, id)
    assert not await away(server, id)
    assert shown(server, id) == [True, False]
    await server.decide(id, Decision.APPROVE)
    assert not (await server.app.service.card(id)).away
    assert await agent.ask(Unattended()) == frozenset()


async def test_after_a_restart_cards_say_whose_agents_have_not_come_back(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock, CALM) as server:
        agent, other = await server.arrive(root), await server.arrive(root, "other")
        mine, theirs = (await agent.propose()).request_id, (await other.propose("b.txt")).request_id
    async with virtual_server(root.parent, clock, CALM) as server:
        # Nobody knows yet, and nobody is told anything.
        assert not await away(server, mine)
        back = await server.arrive(root)
        await server.wait(back, mine, "the call")
        await server.later(RETURN_SECONDS)
        assert (await away(server, mine), await away(server, theirs)) == (False, True)
        assert (shown(server, mine), shown(server, theirs)) == ([False], [True])
        # Later than that is not too late.
        late = await server.arrive(root, "other")
        await server.wait(late, theirs, "the other call")
        assert not await away(server, theirs)


@pytest.mark.server(CALM)
async def test_after_a_sessions_fall_a_call_that_was_given_up_meanwhile_is_missed(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    waiting.scope.cancel()
    inject(server.app.system, f"session/{agent.session_id}", RuntimeError("a fault was asked for"), "now")
    async with server.restarting():
        await agent.settled()
    assert not await away(server, id)
    await server.later(RETURN_SECONDS)
    assert await away(server, id)
    assert shown(server, id)[-1] is True


@pytest.mark.server(CALM)
async def test_a_router_that_was_restarted_says_whether_a_call_waits(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.later(SHOW_SECONDS)
    inject(server.app.system, "card_router", RuntimeError("a fault was asked for"), "now")
    async with server.restarting():
        cards = await server.ask("card_router", Subscribe("operator", Channel.CTL))
    assert [(card.id, card.away) for card in cards] == [(id, True)]


async def only(server: VirtualServer) -> Session:
    (session,) = await server.app.service.sessions()
    return session


@pytest.mark.parametrize("for_good", [True, False], ids=["it leaves", "the server stops"])
async def test_the_last_tool_of_an_agent_outlives_it(clock: Clock, root: Path, for_good: bool) -> None:
    async with virtual_server(root.parent, clock, CALM) as server:
        agent = await server.arrive(root)
        await agent.propose()
        await agent.ask(Ping())
        if for_good:
            server.gone("agent", for_good=True)
            await server.later(0)
            assert (await only(server)).status is SessionStatus.INTERRUPTED
    async with virtual_server(root.parent, clock, CALM) as server:
        assert (await only(server)).last_tool == "ping"


# --- whom a nudge is for ----------------------------------------------------------------------------------------------


async def alert(server: VirtualServer, agent: AgentClient, id: str) -> None:
    raised = StallAlert(
        id=id,
        session_id=agent.session_id,
        status=StallStatus.PENDING,
        created_at=server.now(),
        last_tool=None,
        last_activity_at=server.now(),
        idle_seconds=300,
    )
    await server.ask("store", Transact(partial(stalls.insert, value=raised)))


@pytest.mark.server(CALM)
async def test_a_nudge_with_a_prefix_that_fits_several_says_so(server: VirtualServer, root: Path) -> None:
    agent, other = await server.arrive(root), await server.arrive(root, "other")
    await alert(server, agent, "alert-1")
    await alert(server, other, "alert-12")
    with pytest.raises(Ambiguous, match="fits 2 session or stall alerts"):
        await server.app.service.nudge("alert", None, "kim", "ctl")
    # A whole id is nobody else's, although another begins with it.
    card = await server.app.service.nudge("alert-1", None, "kim", "ctl")
    assert getattr(card, "kind", None) is CardKind.STALL
    with pytest.raises(NotFound, match="no session or stall alert"):
        await server.app.service.nudge("zzz", None, "kim", "ctl")
    session = await server.app.service.nudge(other.session_id[:30], "go on", "kim", "ctl")
    assert session.id == other.session_id
