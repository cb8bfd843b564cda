"""A policy counts when a person accepted its content for this workspace, and in no other way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.model import crash_points
from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, PolicySettings
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided, InvalidState, NotFound
from intercom.sessions.policies import CLOSED_WITHIN, MOST_CLOSED
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.store.writer_messages import Transact
from intercom.workspace.files import digest
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
POLICY = {"enabled": True, "file_patterns": {"write": ["docs/**"]}}
OTHER = {"enabled": True, "file_patterns": {"write": ["src/**"]}}
TRUSTING = Config(policy=PolicySettings(trust_changes=True))


def write(root: Path, policy: dict[str, Any], directory: str = ".intercom") -> Path:
    file = root / directory / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(policy))
    return file


def content(policy: dict[str, Any]) -> str:
    """The hash of the file that states this policy."""
    return digest(json.dumps(policy).encode())


def swap(root: Path) -> None:
    """Put a link in the place of the directory."""
    root.rename(root.parent / "other")
    root.symlink_to(root.parent / "other")


async def passes(agent: AgentClient, path: str = "docs/a") -> bool:
    return (await agent.ask(AutoCheck("write", CheckContext(path)))).answer.auto_approved


async def waiting(server: VirtualServer, root: Path) -> Card:
    return await server.operator.card(kind=CardKind.POLICY, state=CardState.PENDING, workspace_root=str(root))


async def test_a_policy_that_came_with_a_clone_grants_its_first_agent_nothing(
    server: VirtualServer, root: Path
) -> None:
    write(root, POLICY)
    agent = await server.arrive(root)
    assert (await agent.propose("docs/a.md", "x\n")).answered is None
    assert not await passes(agent)
    card = await waiting(server, root)
    assert card.title == "Nobody has accepted this policy here"
    assert "docs/**" in (card.body or "")
    assert card.detail is not None
    await server.decide(card.id, Decision.ACCEPT)
    assert await passes(agent)


async def test_a_policy_that_is_written_before_the_first_call_is_nobodys(server: VirtualServer, root: Path) -> None:
    # Connected, and no call has been made: what it writes now is there before any watcher looks.
    write(root, POLICY)
    agent = await server.arrive(root)
    assert not await passes(agent)
    assert (await waiting(server, root)).detail == content(POLICY)


async def test_a_policy_that_is_written_while_no_agent_is_there_waits_too(server: VirtualServer, root: Path) -> None:
    await server.arrive(root)
    server.gone("agent", for_good=True)
    await server.later(1)
    write(root, POLICY)
    agent = await server.arrive(root, "another")
    assert not await passes(agent)


@pytest.mark.parametrize("way", ["nested", "parent", "linked", "moved away", "case"])
async def test_a_workspace_of_the_agents_choosing_is_another_workspace(clock: Clock, tmp_path: Path, way: str) -> None:
    root = tmp_path / "outer" / "ws"
    root.mkdir(parents=True)

    async with virtual_server(tmp_path, clock) as server:
        write(root, POLICY)
        await server.accept(root)
        chosen = root
        match way:
            case "nested":
                chosen = root / "sub"
                chosen.mkdir()
            case "parent":
                chosen = root.parent
            case "linked":
                chosen = tmp_path / "link"
                chosen.symlink_to(root)
            case "moved away":
                chosen = tmp_path / "elsewhere"
                root.rename(chosen)
            case "case":
                chosen = root.parent / "WS"
                chosen.mkdir(exist_ok=True)
        if way != "linked":
            write(chosen, POLICY)
        agent = await server.arrive(chosen)
        assert not await passes(agent)


async def test_the_card_of_a_nested_workspace_names_the_one_around_it(server: VirtualServer, root: Path) -> None:
    inner = root / "sub"
    inner.mkdir()
    write(root, POLICY)
    await server.accept(root)
    await server.arrive(root)
    write(inner, POLICY)
    await server.arrive(inner, "inner")
    assert f"lies in {root}, which has a policy of its own" in ((await waiting(server, inner)).body or "")


async def test_a_directory_that_is_swapped_for_a_link_grants_nothing(server: VirtualServer, root: Path) -> None:
    write(root, POLICY)
    await server.accept(root)
    agent = await server.arrive(root)
    assert await passes(agent)
    swap(root)
    assert not await passes(agent)


async def test_the_older_file_counts_no_sooner(server: VirtualServer, root: Path) -> None:
    write(root, POLICY)
    await server.accept(root)
    agent = await server.arrive(root)
    assert await passes(agent)
    (root / ".intercom/settings.json").unlink()
    write(root, OTHER, ".monocoque")
    assert not await passes(agent, "src/a")
    assert not await passes(agent)


async def test_a_linked_policy_file_counts_by_what_it_leads_to(server: VirtualServer, root: Path) -> None:
    file = write(root, POLICY)
    await server.accept(root)
    agent = await server.arrive(root)
    real = root / ".intercom" / "real.json"
    real.write_text(json.dumps(OTHER))
    file.unlink()
    file.symlink_to(real)
    assert not await passes(agent, "src/a")
    assert not await passes(agent)


async def test_an_older_accepted_content_that_is_restored_waits_again(server: VirtualServer, root: Path) -> None:
    for policy in (OTHER, POLICY):
        write(root, policy)
        await server.accept(root)
    agent = await server.arrive(root)
    write(root, OTHER)
    assert not await passes(agent, "src/a")
    assert (await waiting(server, root)).detail == content(OTHER)


async def test_what_a_person_took_out_stays_out_over_a_restart(clock: Clock, root: Path) -> None:
    both = {"enabled": True, "file_patterns": {"write": ["docs/**", "src/**"]}}
    async with virtual_server(root.parent, clock) as server:
        write(root, both)
        await server.accept(root)
        agent = await server.arrive(root)
        write(root, POLICY)
        assert not await passes(agent, "src/a")
        await server.later(0)
        assert [each.kind for each in await server.app.service.audit(20)].count("policy_narrowed") == 1
    write(root, both)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent, "src/a")
        assert await passes(agent)
        card = next(card for card in server.app.policy_registry.cards())
        assert "its file has granted less since" in (card.body or "")
        await server.decide(card.id, Decision.ACCEPT)
        assert await passes(agent, "src/a")


async def test_what_was_accepted_holds_over_a_restart_and_what_was_not_does_not(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        write(root, POLICY)
        await server.accept(root)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert await passes(agent)
    write(root, OTHER)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent, "src/a")


async def test_what_was_rejected_is_not_asked_again_after_a_restart(clock: Clock, root: Path) -> None:
    write(root, POLICY)
    async with virtual_server(root.parent, clock) as server:
        await server.arrive(root)
        card = await waiting(server, root)
        await server.decide(card.id, Decision.REJECT)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent)
        assert server.app.policy_registry.cards() == ()
        assert (await server.app.service.policy(str(root))).status == "rejected"
        # Nothing but a person who names it has it asked anew.
        await server.accept(root)
        assert await passes(agent)


async def test_the_same_verdict_is_answered_alike_after_a_restart(clock: Clock, root: Path) -> None:
    write(root, POLICY)
    async with virtual_server(root.parent, clock) as server:
        await server.arrive(root)
        card = await waiting(server, root)
        await server.decide(card.id, Decision.ACCEPT, None, "act-1")
    async with virtual_server(root.parent, clock) as server:
        again = await server.decide(card.id, Decision.ACCEPT, None, "act-1")
        assert (again.id, again.state) == (card.id, CardState.APPLIED)
        with pytest.raises(AlreadyDecided):
            await server.decide(card.id, Decision.REJECT, None, "act-2")


async def test_what_an_edited_database_calls_accepted_is_not_unless_its_hash_says_so(
    server: VirtualServer, root: Path
) -> None:
    write(root, POLICY)
    await server.accept(root)
    wide = json.dumps({"enabled": True, "file_patterns": {"write": ["**"]}})
    await server.ask("store", Transact(lambda db: db.execute("update policy_decision set text = ?", (wide,))))
    write(root, {"enabled": True, "file_patterns": {"write": ["**"]}})
    agent = await server.arrive(root)
    assert not await passes(agent)


async def test_content_that_changed_since_it_was_shown_is_not_accepted(server: VirtualServer, root: Path) -> None:
    write(root, POLICY)
    shown = await server.app.service.policy(str(root))
    assert shown.request_id is not None
    write(root, OTHER)
    verdict = server.verdict(Decision.ACCEPT)
    with pytest.raises(InvalidState, match="has changed since it was shown"):
        await server.app.service.decide_policy(str(root), verdict, shown.sha256)
    agent = await server.arrive(root)
    assert not await passes(agent, "src/a")


async def test_a_workspace_without_an_agent_can_be_accepted_by_its_path(server: VirtualServer, root: Path) -> None:
    with pytest.raises(NotFound, match="has no policy file"):
        await server.accept(root)
    file = write(root, POLICY)
    card = await server.accept(root)
    assert card.state is CardState.APPLIED
    with pytest.raises(NotFound, match="needs no acceptance"):
        await server.accept(root)
    file.write_text("{")
    with pytest.raises(InvalidState, match="not JSON"):
        await server.accept(root)


async def test_every_policy_that_comes_into_force_is_told_once_with_who_accepted_it(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        write(root, POLICY)
        await server.accept(root)
        agent = await server.arrive(root)
        for _ in range(3):
            assert await passes(agent)
        notice = await server.operator.notice("is in force")
        assert f"{root}/.intercom/settings.json" in notice.text
        assert "accepted by kim (ctl)" in notice.text
        assert '1 write pattern ("docs/**"), up to risk low' in notice.text
        assert notice.session_id is None
        assert len([each for each in server.operator.notices if "is in force" in each.text]) == 1
        entries = [each for each in await server.app.service.audit(50) if each.kind == "policy_in_force"]
        assert [(each.data or {})["workspace_root"] for each in entries] == [str(root)]
    async with virtual_server(root.parent, clock) as server:
        await server.arrive(root)
        await server.operator.notice("is in force")


async def test_a_policy_that_the_configuration_trusts_is_told_as_accepted_by_nobody(clock: Clock, root: Path) -> None:
    write(root, POLICY)
    async with virtual_server(root.parent, clock, TRUSTING) as server:
        agent = await server.arrive(root)
        assert await passes(agent)
        assert "accepted by nobody" in (await server.operator.notice("is in force")).text
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent)


async def test_the_card_says_what_the_policy_would_have_let_through_before(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    for path in ("docs/a.md", "docs/b.md", "src/x.py"):
        await agent.propose(path, "x\n")
    write(root, POLICY)
    assert not await passes(agent)
    body = (await waiting(server, root)).body or ""
    assert "would have let 2 of 3 past requests pass: change docs/b.md; change docs/a.md" in body


async def test_how_policies_stand_is_listed(server: VirtualServer, root: Path) -> None:
    other = root.parent / "other"
    other.mkdir()
    write(root, POLICY)
    card = await server.accept(root)
    write(other, OTHER)
    await server.arrive(other)
    found = {each.workspace_root: each for each in await server.app.service.policies()}
    assert {root: each.status for root, each in found.items()} == {str(root): "in force", str(other): "waiting"}
    assert found[str(root)].accepted_sha256 == card.detail
    assert found[str(root)].accepted_by == "kim"
    assert found[str(other)].request_id == (await waiting(server, other)).id


async def test_an_acceptance_that_a_crash_cuts_short_holds(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    write(root, POLICY)

    def crash(name: str) -> None:
        if name == "verdict.recorded":
            raise Crash

    async with virtual_server(tmp_path, clock) as server:
        agent = await server.arrive(root)
        card = await waiting(server, root)
        with monkeypatch.context() as patch:
            patch.setattr(crash_points, "hook", crash)
            with pytest.raises(Crash):
                await server.decide(card.id, Decision.ACCEPT, None, "act-1")
        assert not await passes(agent)
    async with virtual_server(tmp_path, clock) as server:
        agent = await server.arrive(root)
        assert await passes(agent)
        assert (await server.decide(card.id, Decision.ACCEPT, None, "act-1")).state is CardState.APPLIED


class Crash(Exception):
    """The server fell here."""


async def test_what_agents_and_files_say_can_not_pass_for_a_line_of_ours(server: VirtualServer, root: Path) -> None:
    forged = "docs/**\nthis content was accepted by kim (ctl)\u202e"
    agent = await server.arrive(root)
    call = CheckClearance("x\nwould have let 0 of 9 past requests pass", "x\n", "docs/a", call=agent.call())
    await agent.ask(call)
    write(root, {"enabled": True, "file_patterns": {"write": ["docs/**", forged]}})
    assert not await passes(agent)
    lines = ((await waiting(server, root)).body or "").split("\n")
    assert lines[1] == ("would have let 1 of 1 past requests pass: x would have let 0 of 9 past requests pass")
    assert not [line for line in lines if line.startswith("this content was accepted")]
    assert "\u202e" not in "".join(lines)


async def test_a_file_that_changes_again_and_again_does_not_flood_people(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    for number in range(3 * MOST_CLOSED):
        write(root, {"enabled": True, "file_patterns": {"write": [f"docs/{number}"]}})
        assert not await passes(agent)
    shown = {card.id for card in server.operator.cards if card.kind is CardKind.POLICY}
    assert len(shown) <= MOST_CLOSED
    assert server.app.policy_registry.cards() == ()
    await server.operator.notice("changes again and again")
    # A person decides all the same, by the workspace's name.
    await server.accept(root)
    assert await passes(agent, f"docs/{3 * MOST_CLOSED - 1}")
    await server.later(CLOSED_WITHIN.total_seconds())
    write(root, POLICY)
    assert not await passes(agent)
    await server.operator.card(detail=content(POLICY), state=CardState.PENDING)
