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
from tests.sessions.house import Guest, House, house

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


async def accepted(at: House, root: Path, policy: dict[str, Any]) -> None:
    """The workspace has this policy, and a person has accepted it."""
    write(root, policy)
    await at.accept(root)


async def passes(guest: Guest, path: str) -> bool:
    """Whether the policy in force lets the agent write this file; the file is looked at anew for it."""
    return (await guest.ask(AutoCheck("write", CheckContext(path)))).answer.auto_approved


async def proposed(at: House) -> Card:
    return await at.people.card(kind=CardKind.POLICY, state=CardState.PENDING)


async def held_back(at: House, root: Path) -> tuple[Guest, Card]:
    """An agent whose policy comes to grant more, which waits for an operator."""
    guest = await at.arrive(root)
    write(root, WIDE)
    assert not await passes(guest, "src/a")
    return guest, await proposed(at)


async def test_what_was_accepted_holds_from_the_first_call_on(at: House, root: Path) -> None:
    await accepted(at, root, WIDE)
    guest = await at.arrive(root)
    assert await passes(guest, "src/a")
    assert at.app.policy_registry.cards() == ()


async def test_what_comes_to_grant_more_waits_for_an_operator(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest = await at.arrive(root)
    assert await passes(guest, "docs/a")
    write(root, WIDE)
    assert not await passes(guest, "src/a")
    assert await passes(guest, "docs/a")
    card = await proposed(at)
    assert f"\n-{json.dumps(NARROW)}\n" in (card.diff or ""), "what was accepted"
    assert f"\n+{json.dumps(WIDE)}\n" in (card.diff or "")
    assert "src/**" in (card.body or "")
    assert [each.id for each in await at.app.service.pending()] == [card.id]
    done = await at.app.service.decide_policy(None, at.verdict(Decision.ACCEPT))
    assert (done.id, done.state) == (card.id, CardState.APPLIED)
    assert await passes(guest, "src/a")
    assert await at.app.service.pending() == ()
    with pytest.raises(AlreadyDecided):
        await at.decide(card.id, Decision.ACCEPT)
    assert "policy_accept" in [entry.kind for entry in await at.app.service.audit(20)]


async def test_a_policy_is_rejected_by_its_workspace_where_no_agent_has_been(clock: Clock, root: Path) -> None:
    write(root, WIDE)
    async with house(root.parent, clock) as at:
        rejected = await at.app.service.decide_policy(str(root), at.verdict(Decision.REJECT, "too much"))
        assert rejected.state is CardState.REJECTED
        assert (await at.app.service.policy(str(root))).status == "rejected"
        guest = await at.arrive(root)
        assert not await passes(guest, "src/a")
        assert not at.app.policy_registry.cards(), "it is not asked again"


async def test_the_same_verdict_again_is_answered_as_the_first_time(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest, card = await held_back(at, root)
    first = await at.decide(card.id, Decision.ACCEPT, None, "act-1")
    assert await at.decide(card.id, Decision.ACCEPT, None, "act-1") == first
    with pytest.raises(AlreadyDecided):
        await at.decide(card.id, Decision.ACCEPT, None, "act-2")
    assert await passes(guest, "src/a")
    about = [entry.data for entry in await at.app.service.audit(20) if entry.kind == "policy_accept"]
    assert [(data or {})["request_id"] for data in about].count(card.id) == 1


async def test_of_two_verdicts_at_once_the_first_wins(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest, card = await held_back(at, root)
    won: list[str] = []

    async def decide(decision: Decision) -> None:
        with contextlib.suppress(AlreadyDecided):
            decided = (await at.decide(card.id, decision)).decided
            assert decided is not None
            won.append(decided.decision)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(decide, Decision.ACCEPT)
        nursery.start_soon(decide, Decision.REJECT)
    assert len(won) == 1
    assert await passes(guest, "src/a") is (won == ["accept"])


async def test_what_comes_to_grant_less_holds_at_once(at: House, root: Path) -> None:
    await accepted(at, root, WIDE)
    guest = await at.arrive(root)
    write(root, NARROW)
    assert not await passes(guest, "src/a")
    assert await passes(guest, "docs/a")
    assert at.app.policy_registry.cards() == ()


async def test_what_was_refused_stays_out_and_is_not_asked_again(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest, card = await held_back(at, root)
    with pytest.raises(InvalidArguments):
        await at.decide(card.id, Decision.CONTINUE)
    assert (await at.decide(card.id, Decision.REJECT)).state is CardState.REJECTED
    assert not await passes(guest, "src/a")
    with pytest.raises(NotFound, match="no policy change waits"):
        await at.app.service.decide_policy(None, at.verdict(Decision.ACCEPT))


async def test_a_change_that_is_changed_again_closes_its_card(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest = await at.arrive(root)
    write(root, WIDE)
    assert not await passes(guest, "src/a")
    first = await proposed(at)
    write(root, {**WIDE, "tools": ["transmit"]})
    assert not await passes(guest, "src/a")
    second = await at.people.card(lambda card: card.id != first.id, kind=CardKind.POLICY, state=CardState.PENDING)
    await at.people.card(id=first.id, state=CardState.CLOSED)
    assert [card.id for card in at.app.policy_registry.cards()] == [second.id]


async def test_what_was_taken_back_or_accepted_is_asked_again_when_it_comes_again(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest = await at.arrive(root)
    ids = []
    for decision in (None, Decision.ACCEPT, Decision.ACCEPT):
        write(root, WIDE)
        assert not await passes(guest, "src/a")
        card = await at.people.card(lambda each: each.id not in ids, kind=CardKind.POLICY, state=CardState.PENDING)
        ids.append(card.id)
        if decision is not None:
            await at.decide(card.id, decision)
            assert await passes(guest, "src/a")
        write(root, NARROW)
        assert not await passes(guest, "src/a")
        assert at.app.policy_registry.cards() == ()


async def test_workspaces_with_the_same_file_are_asked_for_each_on_its_own(clock: Clock, root: Path) -> None:
    other = root.parent / "other"
    (other / ".intercom").mkdir(parents=True)
    async with house(root.parent, clock) as at:
        for each in (root, other):
            await accepted(at, each, NARROW)
        guests = [await at.arrive(root, "one"), await at.arrive(other, "two")]
        for each, guest in zip((root, other), guests, strict=True):
            write(each, WIDE)
            assert not await passes(guest, "src/a")
        waiting = {card.workspace_root: card.id for card in at.app.policy_registry.cards()}
        assert set(waiting) == {str(root), str(other)}
        await at.decide(waiting[str(other)], Decision.ACCEPT)
        assert [await passes(guest, "src/a") for guest in guests] == [False, True]


async def test_of_an_accepted_change_nobody_hears_that_the_file_changed_again(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    _, card = await held_back(at, root)
    await at.decide(card.id, Decision.ACCEPT)
    await at.people.card(id=card.id, state=CardState.APPLIED)
    assert [each.state for each in at.people.cards if each.id == card.id] == [CardState.PENDING, CardState.APPLIED]


async def test_who_accepts_what_has_changed_meanwhile_finds_its_card_closed(at: House, root: Path) -> None:
    await accepted(at, root, NARROW)
    guest, card = await held_back(at, root)
    watcher = at.app.system.named(watcher_name(root))
    # The watcher hears of the change before it hears of the verdict, and the registry after.
    write(root, NARROW)
    watcher.tell(FileTouched())
    with pytest.raises((AlreadyDecided, NotFound)):
        await at.decide(card.id, Decision.ACCEPT)
    await at.people.card(id=card.id, state=CardState.CLOSED)
    assert at.app.policy_registry.cards() == ()
    assert not await passes(guest, "src/a")


async def test_a_server_that_restarts_under_an_agent_does_not_take_what_it_wrote_meanwhile(
    clock: Clock, root: Path
) -> None:
    async with house(root.parent, clock) as at:
        await accepted(at, root, NARROW)
        guest = await at.arrive(root)
        assert await passes(guest, "docs/a")
        await guest.propose()
        await at.later(0)
    write(root, WIDE)
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert not await passes(guest, "src/a")
        # It may have been found, and told of, before anybody had subscribed.
        assert [card.workspace_root for card in at.app.policy_registry.cards()] == [str(root)]


@pytest.mark.server(Config(policy=PolicySettings(trust_changes=True)))
async def test_every_change_holds_at_once_where_the_configuration_trusts_them(at: House, root: Path) -> None:
    write(root, NARROW)
    guest = await at.arrive(root)
    write(root, WIDE)
    assert await passes(guest, "src/a")
