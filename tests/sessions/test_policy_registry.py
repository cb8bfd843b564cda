"""The registry of policies: what is in force where, and what waits for an operator's word."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, PolicySettings
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided, InvalidArguments, NotFound
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from intercom.workspace.policy_watcher import FileTouched, watcher_name
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
NARROW = {"enabled": True, "file_patterns": {"write": ["docs/**"]}}
WIDE = {"enabled": True, "file_patterns": {"write": ["docs/**", "src/**"]}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    (made / ".intercom").mkdir(parents=True)
    return made


def write(root: Path, policy: dict[str, Any]) -> None:
    (root / ".intercom/settings.json").write_text(json.dumps(policy))


async def accepted(server: VirtualServer, root: Path, policy: dict[str, Any]) -> None:
    """The workspace has this policy, and a person has accepted it."""
    write(root, policy)
    await server.accept(root)


async def passes(agent: AgentClient, path: str) -> bool:
    """Whether the policy in force lets the agent write this file; the file is looked at anew for it."""
    return (await agent.ask(AutoCheck("write", CheckContext(path)))).answer.auto_approved


async def proposed(server: VirtualServer) -> Card:
    return await server.operator.card(kind=CardKind.POLICY, state=CardState.PENDING)


async def held_back(server: VirtualServer, root: Path) -> tuple[AgentClient, Card]:
    """An agent whose policy comes to grant more, which waits for an operator."""
    agent = await server.arrive(root)
    write(root, WIDE)
    assert not await passes(agent, "src/a")
    return agent, await proposed(server)


async def test_what_was_accepted_holds_from_the_first_call_on(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, WIDE)
    agent = await server.arrive(root)
    assert await passes(agent, "src/a")
    assert server.app.policy_registry.cards() == ()


async def test_what_comes_to_grant_more_waits_for_an_operator(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, NARROW)
    agent = await server.arrive(root)
    assert await passes(agent, "docs/a")
    write(root, WIDE)
    assert not await passes(agent, "src/a")
    assert await passes(agent, "docs/a")
    card = await proposed(server)
    assert f"\n-{json.dumps(NARROW)}\n" in (card.diff or ""), "what was accepted"
    assert f"\n+{json.dumps(WIDE)}\n" in (card.diff or "")
    assert "src/**" in (card.body or "")
    assert [each.id for each in await server.app.service.pending()] == [card.id]
    done = await server.app.service.decide_policy(None, server.verdict(Decision.ACCEPT))
    assert (done.id, done.state) == (card.id, CardState.APPLIED)
    assert await passes(agent, "src/a")
    assert await server.app.service.pending() == ()
    with pytest.raises(AlreadyDecided):
        await server.decide(card.id, Decision.ACCEPT)
    assert "policy_accept" in [entry.kind for entry in await server.app.service.audit(20)]


async def test_a_policy_is_rejected_by_its_workspace_where_no_agent_has_been(server: VirtualServer, root: Path) -> None:
    write(root, WIDE)
    rejected = await server.app.service.decide_policy(str(root), server.verdict(Decision.REJECT, "too much"))
    assert rejected.state is CardState.REJECTED
    assert (await server.app.service.policy(str(root))).status == "rejected"
    agent = await server.arrive(root)
    assert not await passes(agent, "src/a")
    assert not server.app.policy_registry.cards(), "it is not asked again"


async def test_the_same_verdict_again_is_answered_as_the_first_time(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, NARROW)
    agent, card = await held_back(server, root)
    first = await server.decide(card.id, Decision.ACCEPT, None, "act-1")
    assert await server.decide(card.id, Decision.ACCEPT, None, "act-1") == first
    with pytest.raises(AlreadyDecided):
        await server.decide(card.id, Decision.ACCEPT, None, "act-2")
    assert await passes(agent, "src/a")
    about = [entry.data for entry in await server.app.service.audit(20) if entry.kind == "policy_accept"]
    assert [(data or {})["request_id"] for data in about].count(card.id) == 1


async def test_of_two_verdicts_at_once_the_first_wins(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, NARROW)
    agent, card = await held_back(server, root)
    won: list[str] = []

    async def decide(decision: Decision) -> None:
        with contextlib.suppress(AlreadyDecided):
            decided = (await server.decide(card.id, decision)).decided
            won.append(decided.decision)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(decide, Decision.ACCEPT)
        nursery.start_soon(decide, Decision.REJECT)
    assert len(won) == 1
    assert await passes(agent, "src/a") is (won == ["accept"])


async def test_what_comes_to_grant_less_holds_at_once(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, WIDE)
    agent = await server.arrive(root)
    write(root, NARROW)
    assert not await passes(agent, "src/a")
    assert await passes(agent, "docs/a")
    assert server.app.policy_registry.cards() == ()


async def test_what_was_refused_stays_out_and_is_not_asked_again(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, NARROW)
    agent, card = await held_back(server, root)
    with pytest.raises(InvalidArguments):
        await server.decide(card.id, Decision.CONTINUE)
    assert (await server.decide(card.id, Decision.REJECT)).state is CardState.REJECTED
    assert not await passes(agent, "src/a")
    with pytest.raises(NotFound, match="no policy change waits"):
        await server.app.service.decide_policy(None, server.verdict(Decision.ACCEPT))


async def test_a_change_that_is_changed_again_closes_its_card(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, NARROW)
    agent = await server.arrive(root)
    write(root, WIDE)
    assert not await passes(agent, "src/a")
    first = await proposed(server)
    write(root, {**WIDE, "tools": ["transmit"]})
    assert not await passes(agent, "src/a")
    second = await server.operator.card(lambda card: card.id != first.id, kind=CardKind.POLICY, state=CardState.PENDING)
    await server.operator.card(id=first.id, state=CardState.CLOSED)
    assert [card.id for card in server.app.policy_registry.cards()] == [second.id]


async def test_what_was_taken_back_or_accepted_is_asked_again_when_it_comes_again(
    server: VirtualServer, root: Path
) -> None:
    await accepted(server, root, NARROW)
    agent = await server.arrive(root)
    ids = []
    for decision in (None, Decision.ACCEPT, Decision.ACCEPT):
        write(root, WIDE)
        assert not await passes(agent, "src/a")
        card = await server.operator.card(
            lambda each: each.id not in ids, kind=CardKind.POLICY, state=CardState.PENDING
        )
        ids.append(card.id)
        if decision is not None:
            await server.decide(card.id, decision)
            assert await passes(agent, "src/a")
        write(root, NARROW)
        assert not await passes(agent, "src/a")
        assert server.app.policy_registry.cards() == ()


async def test_workspaces_with_the_same_file_are_asked_for_each_on_its_own(server: VirtualServer, root: Path) -> None:
    other = root.parent / "other"
    (other / ".intercom").mkdir(parents=True)
    for each in (root, other):
        await accepted(server, each, NARROW)
    agents = [await server.arrive(root, "one"), await server.arrive(other, "two")]
    for each, agent in zip((root, other), agents, strict=True):
        write(each, WIDE)
        assert not await passes(agent, "src/a")
    waiting = {card.workspace_root: card.id for card in server.app.policy_registry.cards()}
    assert set(waiting) == {str(root), str(other)}
    await server.decide(waiting[str(other)], Decision.ACCEPT)
    assert [await passes(agent, "src/a") for agent in agents] == [False, True]


async def test_of_an_accepted_change_nobody_hears_that_the_file_changed_again(
    server: VirtualServer, root: Path
) -> None:
    await accepted(server, root, NARROW)
    _, card = await held_back(server, root)
    await server.decide(card.id, Decision.ACCEPT)
    await server.operator.card(id=card.id, state=CardState.APPLIED)
    assert [each.state for each in server.operator.cards if each.id == card.id] == [
        CardState.PENDING,
        CardState.APPLIED,
    ]


async def test_who_accepts_what_has_changed_meanwhile_finds_its_card_closed(server: VirtualServer, root: Path) -> None:
    await accepted(server, root, NARROW)
    agent, card = await held_back(server, root)
    watcher = server.app.system.named(watcher_name(root))
    # The watcher hears of the change before it hears of the verdict, and the registry after.
    write(root, NARROW)
    watcher.tell(FileTouched())
    with pytest.raises((AlreadyDecided, NotFound)):
        await server.decide(card.id, Decision.ACCEPT)
    await server.operator.card(id=card.id, state=CardState.CLOSED)
    assert server.app.policy_registry.cards() == ()
    assert not await passes(agent, "src/a")


async def test_a_server_that_restarts_under_an_agent_does_not_take_what_it_wrote_meanwhile(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        await accepted(server, root, NARROW)
        agent = await server.arrive(root)
        assert await passes(agent, "docs/a")
        await agent.propose()
        await server.later(0)
    write(root, WIDE)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent, "src/a")
        # It may have been found, and told of, before anybody had subscribed.
        assert [card.workspace_root for card in server.app.policy_registry.cards()] == [str(root)]


@pytest.mark.server(Config(policy=PolicySettings(trust_changes=True)))
async def test_every_change_holds_at_once_where_the_configuration_trusts_them(
    server: VirtualServer, root: Path
) -> None:
    write(root, NARROW)
    agent = await server.arrive(root)
    write(root, WIDE)
    assert await passes(agent, "src/a")
