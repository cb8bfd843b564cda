"""Rules made from cards: shown before, written whole, in force only once a person accepts them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments, InvalidState, SignatureRefused
from intercom.model.policy import RuleWritten
from intercom.model.request import FileTouch, Operation, OperationKind, RiskLevel
from intercom.operators.commands.caller_and_handler import Caller
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.router_messages import Channel
from intercom.sessions.messages import AskPermission
from tests.sessions.signed.keyed_server import keyed
from tests.support.crash_points import calling
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def allow(server: VirtualServer, id: str, channel: Channel = Channel.CTL, **more: Any) -> RuleWritten:
    done: RuleWritten = await handler_of("allow")(server.app.service, Caller("kim", channel), id, **more)
    return done


async def status(agent: AgentClient, path: str, diff: str, risk: RiskLevel = RiskLevel.LOW) -> str | None:
    opened = await agent.propose(path, diff, risk)
    return None if opened.answered is None else str(opened.answered.answer.status)


async def ask(agent: AgentClient, operation: Operation) -> Any:
    return await agent.ask(AskPermission(agent.call(), "client", operation, "one"))


def run(command: str) -> Operation:
    return Operation(OperationKind.COMMAND, "Bash", f"Run: {command}", command, command)


def policy_file(root: Path) -> Path:
    return root / ".intercom" / "settings.json"


def kept(backup: str) -> tuple[str, int]:
    return Path(backup).read_text(), os.stat(backup).st_mode & 0o777


async def test_a_rule_is_written_accepted_and_lets_pass_what_the_card_asked(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    (root / "src").mkdir()
    id = (await agent.propose("src/[a]*.txt")).request_id
    done = await allow(server, id)
    assert (done.status, done.policy_id, done.backup) == ("in force", None, None)
    stated = json.loads(policy_file(root).read_text())
    assert stated == {
        "enabled": True,
        "file_patterns": {"write": [r"src/\[a\]\*.txt"]},
        "risk_level_threshold": "low",
    }
    assert await status(agent, "src/[a]*.txt", "b\n") == "approved"
    assert await status(agent, "src/aab.txt", "b\n") is None
    with pytest.raises(InvalidState, match="has this rule already"):
        await allow(server, id)
    assert "policy_rule" in [each.kind for each in await server.app.service.audit(50)]


async def test_the_file_keeps_its_form_and_its_earlier_content_is_kept_outside(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    policy_file(root).parent.mkdir()
    before = '{\n   "enabled": true,\n   "commands": ["ls *"]\n}\n'
    policy_file(root).write_text(before)
    await server.accept(root)
    asked = await ask(agent, run("make 'a b'"))
    done = await allow(server, asked.request_id)
    assert policy_file(root).read_text() == '{\n   "enabled": true,\n   "commands": ["ls *", "make \'a b\'"]\n}\n'
    assert done.backup is not None
    assert kept(done.backup) == (before, 0o600)
    assert not Path(done.backup).is_relative_to(root)
    assert os.listdir(root / ".intercom") == ["settings.json"]


async def test_the_preview_is_honest_about_the_past(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    policy_file(root).parent.mkdir()
    policy_file(root).write_text('{"enabled": true, "file_patterns": {"write": ["docs/*"]}}')
    await server.accept(root)
    for name in ("docs/a", "src/a", "src/b", "lib/a"):
        (root / name).parent.mkdir(exist_ok=True)
        await agent.propose(f"{name}.txt")
    # What no policy may allow is tried as well, and does not pass.
    await agent.propose("CLAUDE.md")
    outside = Operation(OperationKind.WRITE, "Write", "w", "w", touches=(FileTouch("/etc/hosts", "x"),))
    await ask(agent, outside)
    id = next(card.id for card in await server.app.service.pending() if card.title == "change src/b.txt")
    shown = await server.app.service.rules.preview(id, pattern="src/*")
    assert shown.trial == (
        "would have let 1 more of 5 past requests pass: change src/a.txt"
        " (1 pass by the present policy, 3 would still be asked)"
    )
    assert shown.ways == ('write pattern added: "src/*"',)
    assert "+" in shown.diff
    assert policy_file(root).read_text() == '{"enabled": true, "file_patterns": {"write": ["docs/*"]}}'


async def test_a_card_that_no_policy_may_let_pass_makes_no_rule(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    for path, risk, why in (
        ("CLAUDE.md", RiskLevel.LOW, "is protected"),
        ("b.txt", RiskLevel.CRITICAL, "always needs a person"),
        ("c.txt", RiskLevel.HIGH, "add --risk high"),
    ):
        with pytest.raises(InvalidState, match=why):
            await allow(server, (await agent.propose(path, risk=risk)).request_id)
    with pytest.raises(InvalidArguments, match="not a single plain command"):
        await allow(server, (await ask(agent, run("make; rm x"))).request_id)
    with pytest.raises(InvalidState, match="no such rule lets this card itself pass"):
        await allow(server, (await agent.propose("d.txt")).request_id, pattern="src/*")
    tool = Operation(OperationKind.MCP, "github_comment", "comment", "x", "{}")
    with pytest.raises(InvalidArguments, match="a pattern is for files and commands"):
        await allow(server, (await ask(agent, tool)).request_id, pattern="*")
    assert not policy_file(root).exists()
    done = await allow(server, (await agent.propose("e.txt", risk=RiskLevel.HIGH)).request_id, risk="high")
    assert done.status == "in force"
    assert json.loads(policy_file(root).read_text())["risk_level_threshold"] == "high"


async def test_other_changes_of_the_file_are_not_accepted_on_the_way(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    policy_file(root).parent.mkdir()
    for text, why in (
        ('{"enabled": true, "file_patterns": {"write": ["**"]}}', "which nobody has accepted"),
        ('{"enabled": false, "commands": ["*"]}', "switched off"),
        ('{"enabled": true, ', "has a fault"),
    ):
        policy_file(root).write_text(text)
        with pytest.raises(InvalidState, match=why):
            await allow(server, id)
        assert policy_file(root).read_text() == text


async def test_a_file_that_changed_since_it_was_shown_is_left(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    shown = await server.app.service.rules.preview(id)
    policy_file(root).parent.mkdir()
    policy_file(root).write_text('{"log_auto_approved": true}')
    with pytest.raises(InvalidState, match="has changed since this was shown"):
        await allow(server, id, sha256=shown.sha256)
    assert policy_file(root).read_text() == '{"log_auto_approved": true}'


async def test_what_another_program_writes_meanwhile_is_not_accepted(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    shown = await server.app.service.rules.preview(id)

    def replace(name: str) -> None:
        if name == "policy.written":
            policy_file(root).write_text('{"enabled": true, "file_patterns": {"write": ["**"]}}')

    for given in (shown.sha256, None):
        policy_file(root).unlink(missing_ok=True)
        with calling(replace), pytest.raises(InvalidState, match="was changed just now, and nothing was accepted"):
            await allow(server, id, sha256=given)
        assert await status(agent, "b.txt", "b\n") is None
        assert (await server.app.service.policy(str(root))).status == "waiting"


async def test_killed_between_writing_and_accepting_the_policy_waits(clock: Clock, root: Path) -> None:
    class Killed(Exception):
        pass

    def kill(name: str) -> None:
        if name == "policy.written":
            raise Killed

    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        shown = await server.app.service.rules.preview(id)
        with calling(kill), pytest.raises(Killed):
            await allow(server, id, sha256=shown.sha256)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        found = await server.app.service.policy(str(root))
        assert (found.status, found.sha256) == ("waiting", shown.sha256)
        assert (await agent.propose("a.txt", "b\n", call="c1")).answered is None
        # The same command again writes nothing more, and accepts it.
        assert (await allow(server, id, sha256=shown.sha256)).status == "in force"
        assert (await agent.propose("a.txt", "c\n", call="c2")).answered is not None


async def test_with_a_key_a_rule_waits_for_a_signed_acceptance(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        done = await allow(server, id)
        assert done.status == "waiting"
        assert done.policy_id is not None
        assert await status(agent, "a.txt", "b\n") is None
        with pytest.raises(SignatureRefused):
            await server.accept(root)
        card = await server.app.service.card(done.policy_id)
        await server.app.service.decide(card.id, key.verdict(card, Decision.ACCEPT, server.now()))
        assert await status(agent, "a.txt", "c\n") == "approved"
        with pytest.raises(SignatureRefused, match="slack"):
            await allow(server, (await agent.propose("z.txt")).request_id, Channel.SLACK)
        assert "z.txt" not in policy_file(root).read_text()
        assert (await server.app.service.policy(str(root))).status == "in force"
