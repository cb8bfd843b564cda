"""Decisions from the page at the whole server: the first one wins, a repeated one counts once, a key is required."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import uuid4

import pytest
import trio
import trio.testing

from intercom.model.card import CardState
from intercom.model.errors import AlreadyDecided, SignatureRefused
from intercom.model.json_types import JsonObject
from intercom.operators.commands.command_execution import CommandRequest, carry_out
from intercom.operators.router_messages import Channel
from tests.sessions.signed.keyed_server import keyed
from tests.support.keys import Key
from tests.support.virtual_server import VirtualServer, virtual_server

Clock = trio.testing.MockClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    return made


async def send(
    server: VirtualServer,
    command: str,
    channel: Channel = Channel.WEB,
    act: str | None = None,
    by: str | None = None,
    **fields: str,
) -> JsonObject:
    request = CommandRequest(command, fields, act or uuid4().hex)
    done: JsonObject = await carry_out(server.app.service, request, by or channel.value, None, channel)
    return done


async def at_once(
    server: VirtualServer, sent: list[tuple[Channel, str]], id: str
) -> tuple[dict[Channel, JsonObject], dict[Channel, AlreadyDecided]]:
    """Send these commands about one card at once. Returns the answers, and the refusals of those that came later."""
    answers: dict[Channel, JsonObject] = {}
    late: dict[Channel, AlreadyDecided] = {}

    async def decide(channel: Channel, command: str) -> None:
        try:
            answers[channel] = await send(server, command, channel, id=id)
        except AlreadyDecided as first:
            late[channel] = first

    async with trio.open_nursery() as nursery:
        for channel, command in sent:
            nursery.start_soon(decide, channel, command)
    return answers, late


@pytest.mark.parametrize("seed", range(3))
async def test_of_two_decisions_at_once_the_first_wins_and_both_are_told_who(
    root: Path, clock: Clock, seed: int
) -> None:
    pick = random.Random(seed)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        for number in range(10):
            id = (await agent.propose(f"{number}.txt")).request_id
            both = [(Channel.WEB, "approve"), (Channel.CTL, "reject")]
            pick.shuffle(both)
            answers, late = await at_once(server, both, id)
            ((winner, done),) = answers.items()
            ((loser, refused),) = late.items()
            decided = (await server.app.service.card(id)).decided
            assert decided is not None
            assert (decided.channel, decided.by) == (winner.value, winner.value)
            assert done["status"] == {Channel.WEB: "approved", Channel.CTL: "rejected"}[winner]
            assert {winner, loser} == {Channel.WEB, Channel.CTL}
            assert winner.value in refused.message


@pytest.mark.parametrize("acts", [("act-of-kim", "act-of-lee"), ("the-same-act", "the-same-act")])
async def test_of_two_people_of_the_page_who_decide_the_same_one_is_told_that_the_other_was_first(
    root: Path, clock: Clock, acts: tuple[str, str]
) -> None:
    said: dict[str, str] = {}

    async def approve(by: str, act: str) -> None:
        try:
            said[by] = str((await send(server, "approve", act=act, by=by, id=id))["decision_id"])
        except AlreadyDecided as refused:
            said[by] = refused.message

    async with virtual_server(root.parent, clock) as server:
        id = (await (await server.arrive(root)).propose()).request_id
        async with trio.open_nursery() as nursery:
            for by, act in zip(("kim", "lee"), acts, strict=True):
                nursery.start_soon(approve, by, act)
        decided = (await server.app.service.card(id)).decided
        assert decided is not None
        assert said.pop(decided.by) == decided.verdict_id
        ((_, refused),) = said.items()
        assert f"approve by {decided.by}" in refused


async def test_a_decision_that_is_sent_again_to_the_next_server_counts_once(root: Path, clock: Clock) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        first = await send(server, "approve", act="same-act", id=id)
        # The server ends before the answer leaves.
    async with virtual_server(root.parent, clock) as server:
        again = await send(server, "approve", act="same-act", id=id)
        assert again["status"] == first["status"] == "approved"
        with pytest.raises(AlreadyDecided):
            await send(server, "approve", act="other-act", id=id)
        with pytest.raises(AlreadyDecided):
            await send(server, "reject", act="same-act-elsewhere", id=id)


async def test_where_there_is_an_operator_key_an_unsigned_decision_is_refused_with_a_sentence(
    root: Path, clock: Clock
) -> None:
    async with keyed(root, clock, Key()) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        for command, fields in (
            ("approve", {"id": id}),
            ("steer", {"session": agent.session_id, "text": "go on"}),
            ("gateway-enable", {"id": "x"}),
        ):
            with pytest.raises(SignatureRefused, match="this server takes only decisions signed with an operator key"):
                await send(server, command, **fields)
        assert (await server.app.service.card(id)).state is CardState.PENDING
        # To stop an agent needs no key.
        assert (await send(server, "pause", session=agent.session_id))["status"] == "paused"
