"""One agent's flood: what is refused leaves nothing, and nobody else waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.model.card import CardState
from intercom.model.config import Config, LimitSettings
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments, TooManyPending
from intercom.model.limits import TEXT
from intercom.sessions.session.new_requests import SHARE
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.store import rows
from intercom.store.writer_messages import Transact
from tests.support.virtual_server import AgentClient, VirtualServer

FEW = Config(limits=LimitSettings(pending_per_session=3, pending_total=5))


async def count(server: VirtualServer) -> dict[str, int]:
    def counted(db: Any) -> dict[str, int]:
        tables = ("approval_request", "approval_file", "continuation_prompt", "wait", "audit", "answered_call")
        there = {row["name"] for row in rows.every(db, "select name from sqlite_master where type = 'table'")}
        return {name: rows.count(db, f"select count(*) from {name}") for name in tables if name in there}

    return await server.ask("store", Transact(counted))


@pytest.mark.server(FEW)
async def test_what_is_too_much_for_a_session_is_refused_and_leaves_no_card_and_no_row(
    server: VirtualServer, agent: AgentClient
) -> None:
    first = await agent.propose("0.txt")
    await agent.ask(Transmit("go on?"))
    await agent.ask(Standby("done"))
    await server.later(2)
    before, cards = await count(server), len(server.operator.cards)
    with pytest.raises(TooManyPending, match="3 requests of this session wait for a person already"):
        await agent.propose("1.txt")
    with pytest.raises(TooManyPending):
        await agent.ask(Transmit("and now?"))
    with pytest.raises(TooManyPending):
        await agent.ask(Standby("done again"))
    await server.later(2)
    assert await count(server) == before
    assert len(server.operator.cards) == cards
    # What it has asked is waited for as ever, and asking that again is no new request.
    assert (await agent.propose("0.txt")).request_id == first.request_id
    await server.decide(first.request_id, Decision.APPROVE)
    assert (await agent.propose("1.txt")).request_id != first.request_id


@pytest.mark.server(Config(limits=LimitSettings(pending_per_session=1)))
async def test_a_limit_of_one_is_told_in_words(server: VirtualServer, agent: AgentClient) -> None:
    await agent.propose("0.txt")
    with pytest.raises(TooManyPending, match=r"^1 request of this session waits for a person already"):
        await agent.propose("1.txt")


@pytest.mark.server(Config(limits=LimitSettings(pending_per_session=20, pending_total=8)))
async def test_what_is_too_much_for_people_is_refused_and_who_asks_little_has_a_share(
    server: VirtualServer, root: Path
) -> None:
    flood, other, third = [await server.arrive(root, key) for key in ("flood", "other", "third")]
    for number in range(8):
        await flood.propose(f"flood-{number}.txt")
    with pytest.raises(TooManyPending, match="8 requests wait for people already, of all agents together"):
        await flood.propose("flood-8.txt")
    for number in range(SHARE):
        await other.propose(f"other-{number}.txt")
    with pytest.raises(TooManyPending, match="of all agents together"):
        await other.propose("other-5.txt")
    # Nor do many who ask little come to more than twice as many.
    for number in range(3):
        await third.propose(f"third-{number}.txt")
    with pytest.raises(TooManyPending, match="16 requests wait"):
        await third.propose("third-3.txt")


@pytest.mark.server(Config(limits=LimitSettings(pending_per_session=50)))
async def test_a_flood_of_one_agent_holds_up_nobody_elses_card(server: VirtualServer, root: Path) -> None:
    flood, other = await server.arrive(root), await server.arrive(root, "other")
    refused: list[BaseException] = []

    async def ask(number: int) -> None:
        try:
            await flood.propose(f"{number}.txt")
        except TooManyPending as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(ask, number)
        # While those wait in its own session's mailbox, the other's goes through.
        asked = await other.propose("mine.txt")
        waiting = await server.wait(other, asked.request_id)
        assert len(refused) < 950
        card = await server.operator.card(id=asked.request_id)
        assert card.state is CardState.PENDING
        await server.decide(asked.request_id, Decision.APPROVE)
        assert (await waiting()).answer.status == "approved"
    assert len(refused) == 950
    await server.later(2)
    await flood.settled()
    await server.later(0)
    assert len({card.id for card in server.operator.cards}) == 51


async def test_a_persons_answer_has_a_limit_too(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    with pytest.raises(InvalidArguments, match=f"at most {TEXT} characters"):
        await server.decide(id, Decision.REJECT, "x" * (TEXT + 1))
    assert (await server.decide(id, Decision.REJECT, "x" * TEXT)).state is CardState.REJECTED
