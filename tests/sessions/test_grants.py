"""Grants: what a person permitted in advance passes, counted, in its session, and nothing else does."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve

from intercom.model.config import Config, PolicySettings
from intercom.model.decision import Decision
from intercom.model.errors import (
    AlreadyConsumed,
    IntercomError,
    InvalidArguments,
    InvalidState,
    NotFound,
    PathViolation,
)
from intercom.model.grant import GrantLine
from intercom.model.request import FileTouch, Operation, OperationKind, RiskLevel
from intercom.model.session import SessionMode
from intercom.sessions.messages import Adopt, AskPermission
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.store.audit_chain import verify
from tests.sessions import test_checkpoints as checkpoints
from tests.support.crash_points import calling
from tests.support.virtual_server import SILENT_CHAT, AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def grant(server: VirtualServer, id: str, **more: Any) -> GrantLine:
    return await server.app.service.grants.make(id, "kim", "ctl", **more)


async def lines(server: VirtualServer) -> tuple[GrantLine, ...]:
    return await server.app.service.grants.listed(everything=True)


async def status(agent: AgentClient, path: str, diff: str, risk: RiskLevel = RiskLevel.LOW) -> str | None:
    """What a new proposal is answered at once; None if it waits for a person."""
    opened = await agent.propose(path, diff, risk)
    return None if opened.answered is None else str(opened.answered.answer.status)


def run(command: str, **more: Any) -> Operation:
    return Operation(OperationKind.COMMAND, "Bash", f"Run: {command}", command, command, **more)


async def may(agent: AgentClient, operation: Operation, *, slot: str = "one", turn: str = "", call: str = "") -> Any:
    """What a hook is answered at once; None if it waits for a person."""
    opened = await agent.ask(AskPermission(call or agent.call(), "client", operation, slot, turn))
    return None if opened.answered is None else opened.answered.answer


async def test_a_grant_lets_as_many_changes_pass_as_it_has_uses(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    (root / "src").mkdir()
    id = (await agent.propose("src/a.txt")).request_id
    made = await grant(server, id, uses="2")
    assert made.grant.scope.patterns == ("src/*",)
    opened = await agent.propose("src/b.txt", "b\n")
    assert opened.answered is not None
    answer = opened.answered.answer
    assert (answer.status, answer.auto_approved) == ("approved", made.grant.rule)
    await agent.ask(CheckDiff(opened.request_id))
    assert (root / "src/b.txt").read_text() == "b\n"
    assert await status(agent, "src/c.txt", "c\n") == "approved"
    assert await status(agent, "src/d.txt", "d\n") is None
    (line,) = await lines(server)
    assert (line.used, line.over) == (2, "its uses are spent")
    told = await server.operator.notice("a grant let pass: change src/b.txt")
    assert "use 1 of 2" in told.text
    assert (told.event, told.grant_id, told.by) == ("grant_used", made.grant.id, None)


async def test_without_limits_of_its_own_a_grant_is_for_twenty_minutes_and_ten_uses(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose("a.txt")).request_id
    shown = await server.app.service.grants.preview(id)
    assert (shown.seconds, shown.uses) == (20 * 60, 10)


async def test_the_audit_log_explains_what_passed(server: VirtualServer, agent: AgentClient) -> None:
    made = await grant(server, (await agent.propose()).request_id)
    opened = await agent.propose("b.txt", "b\n")
    await agent.ask(CheckDiff(opened.request_id))
    asked = await agent.ask(AskPermission(agent.call(), "client", run("make"), "one"))
    for_command = await grant(server, asked.request_id)
    await server.decide(asked.request_id, Decision.APPROVE)
    assert (await may(agent, run("make"))).rule is None
    assert (await may(agent, run("make"))).rule == for_command.grant.rule
    entries = [each for each in await server.app.service.audit(50) if each.kind == "auto_approved"]
    assert [(each.data or {}).get("matched_rule") for each in entries] == [made.grant.rule, for_command.grant.rule]
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        assert verify(db).faults == []


async def test_a_repeated_call_uses_a_grant_once(server: VirtualServer, agent: AgentClient) -> None:
    await grant(server, (await agent.propose()).request_id)
    first = await agent.propose("b.txt", call="the call")
    again = await agent.propose("b.txt", call="the call")
    joined = await agent.propose("b.txt", call="another call")
    assert first.request_id == again.request_id == joined.request_id
    (line,) = await lines(server)
    assert line.used == 1


async def test_what_lies_outside_of_the_scope_is_asked(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    (root / "other").mkdir()
    await grant(server, (await agent.propose()).request_id)
    assert await status(agent, "other/a.txt", "b\n") is None
    assert await status(agent, "b.txt", "b\n", RiskLevel.HIGH) is None
    assert await status(agent, ".hidden", "b\n") is None
    assert (
        await may(agent, Operation(OperationKind.WRITE, "Write", "c", "c", touches=(FileTouch("c.txt", "c"),))) is None
    )
    assert await status(agent, "b.txt", "b\n") == "approved"


async def test_what_is_protected_always_needs_a_person(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    (root / "docs").mkdir()
    (root / ".claude").mkdir()
    (root / ".claude" / "commands").symlink_to("../docs")
    await grant(server, (await agent.propose()).request_id, pattern="**")
    for path in ("CLAUDE.md", ".git/hooks/pre-commit", "HEAD", "docs/a.md", ".intercom/settings.json"):
        assert await status(agent, path, "b\n") is None, path
    os.symlink("b.txt", root / "AGENTS.md")
    assert await status(agent, "b.txt", "b\n") is None
    (line,) = await lines(server)
    assert line.used == 0


async def test_a_card_that_only_a_person_may_answer_makes_no_grant(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    protected = (await agent.propose("CLAUDE.md")).request_id
    with pytest.raises(InvalidState, match="protected"):
        await grant(server, protected)
    critical = (await agent.propose("b.txt", risk=RiskLevel.CRITICAL)).request_id
    with pytest.raises(InvalidState, match="a critical risk always needs a person"):
        await grant(server, critical)
    with pytest.raises(InvalidState, match="up to low"):
        await grant(server, (await agent.propose("c.txt", risk=RiskLevel.HIGH)).request_id, risk="low")
    with pytest.raises(InvalidState, match="would not let this card itself pass"):
        await grant(server, (await agent.propose("d.txt")).request_id, pattern="src/**")
    outside = Operation(OperationKind.WRITE, "Write", "w", "w", touches=(FileTouch("/etc/hosts", "x"),))
    asked = await agent.ask(AskPermission(agent.call(), "client", outside, "one"))
    with pytest.raises(InvalidState, match="only a person may allow this each time"):
        await grant(server, asked.request_id)
    with pytest.raises(NotFound):
        await grant(server, "nothing")
    assert not await lines(server)


@pytest.mark.parametrize("duration", ["", "0m", "25h", "20", "20 m", "-5m", "1e3s", "٣m", "20m\n"])
async def test_a_duration_that_is_none_is_refused(server: VirtualServer, agent: AgentClient, duration: str) -> None:
    with pytest.raises(InvalidArguments, match="no duration"):
        await grant(server, (await agent.propose()).request_id, duration=duration)


@pytest.mark.parametrize("uses", ["", "0", "-1", "1001", "1e1", "٣", "10000000000"])
async def test_a_number_of_uses_that_is_none_is_refused(server: VirtualServer, agent: AgentClient, uses: str) -> None:
    with pytest.raises(InvalidArguments, match="no number of uses"):
        await grant(server, (await agent.propose()).request_id, uses=uses)


async def test_a_grant_ends_with_its_time(server: VirtualServer, agent: AgentClient) -> None:
    await grant(server, (await agent.propose()).request_id, duration="10m")
    await server.later(599)
    assert await status(agent, "b.txt", "b\n") == "approved"
    await server.later(2)
    assert await status(agent, "c.txt", "c\n") is None
    (line,) = await lines(server)
    assert line.over == "its time is over"


async def test_a_clock_that_is_set_back_makes_no_grant_last_longer(server: VirtualServer, agent: AgentClient) -> None:
    await grant(server, (await agent.propose()).request_id, duration="10m")
    await server.later(300)
    assert await status(agent, "b.txt", "b\n") == "approved"
    await server.set_clock(-400)
    assert await status(agent, "c.txt", "c\n") is None
    (line,) = await lines(server)
    assert line.over == "the clock was set back since"


async def test_a_revoked_grant_lets_nothing_pass_and_nothing_be_applied(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    made = await grant(server, (await agent.propose()).request_id)
    opened = await agent.propose("b.txt", "b\n")
    revoked = await server.app.service.grants.revoke(made.grant.id[:6], "kim", "ctl")
    assert revoked.over == "it was revoked"
    with pytest.raises(InvalidState, match="it was revoked"):
        await agent.ask(CheckDiff(opened.request_id))
    assert not (root / "b.txt").exists()
    assert await status(agent, "c.txt", "c\n") is None
    await server.app.service.grants.revoke(made.grant.id, "kim", "ctl")
    assert [each.kind for each in await server.app.service.audit(50)].count("grant_revoked") == 1
    for event, text in (("grant_made", "permitted in advance"), ("grant_revoked", "revoked the grant")):
        told = await server.operator.notice(text)
        assert (told.event, told.grant_id, told.by) == (event, made.grant.id, "kim")


async def test_a_grant_that_is_over_lets_be_applied_what_it_let_pass(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    await grant(server, (await agent.propose()).request_id, uses="1", duration="10m")
    opened = await agent.propose("b.txt", "b\n")
    await server.later(700)
    await agent.ask(CheckDiff(opened.request_id))
    with pytest.raises(AlreadyConsumed):
        await agent.ask(CheckDiff(opened.request_id))


async def test_what_became_protected_since_is_not_applied(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    await grant(server, (await agent.propose()).request_id)
    opened = await agent.propose("b.txt", "b\n")
    os.symlink("b.txt", root / "CLAUDE.md")
    with pytest.raises(InvalidState, match="the grant does not cover it"):
        await agent.ask(CheckDiff(opened.request_id))


async def test_two_requests_do_not_share_the_last_use(server: VirtualServer, agent: AgentClient) -> None:
    await grant(server, (await agent.propose()).request_id, uses="1")
    found: list[str | None] = []

    async def one(number: int) -> None:
        found.append(await status(agent, f"b{number}.txt", "b\n"))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(one, number)
    assert sorted(found, key=str) == [None] * 7 + ["approved"]


async def test_a_grant_for_a_command_is_for_exactly_this_one(server: VirtualServer, agent: AgentClient) -> None:
    asked = await agent.ask(AskPermission(agent.call(), "client", run("pytest 'a b.py' x[1]"), "one"))
    made = await grant(server, asked.request_id)
    assert made.grant.scope.kind == "command"
    await server.decide(asked.request_id, Decision.APPROVE)
    by_person = await may(agent, run("pytest 'a b.py' x[1]"))
    assert (by_person.status, by_person.rule) == ("allowed", None)
    allowed = await may(agent, run("pytest 'a b.py' x[1]"))
    assert (allowed.status, allowed.rule) == ("allowed", made.grant.rule)
    for other in (
        "pytest 'a b.py' x1",
        "pytest 'a b.py' x[1] y",
        "pytest 'a b.py' x[1]; rm -rf .",
        "pytest 'a b.py' x[1] && rm x",
        "PYTHONPATH=/tmp pytest 'a b.py' x[1]",
        "pytest 'a b.py' $(x)",
        "pytest 'a b.py' x[1]\nrm x",
    ):
        assert await may(agent, run(other)) is None, other
    assert await may(agent, run("pytest 'a b.py' x[1]", unsandboxed=True)) is None
    assert await may(agent, run("pytest 'a b.py' x[1]", cwd="/")) is None
    assert await may(agent, run("pytest 'a b.py' x[1]", into="")) is None


async def test_a_command_that_is_more_than_one_makes_no_grant(server: VirtualServer, agent: AgentClient) -> None:
    asked = await agent.ask(AskPermission(agent.call(), "client", run("make && rm -rf /"), "one"))
    with pytest.raises(InvalidArguments, match="not a single plain command"):
        await grant(server, asked.request_id)
    with pytest.raises(InvalidState, match="would not let this card itself pass"):
        await grant(server, asked.request_id, pattern="make *")


async def test_two_hooks_of_one_turn_are_one_use(server: VirtualServer, agent: AgentClient) -> None:
    asked = await agent.ask(AskPermission(agent.call(), "client", run("make"), "one", "turn 0"))
    await grant(server, asked.request_id, uses="2")
    await server.decide(asked.request_id, Decision.APPROVE)
    assert (await may(agent, run("make"), turn="turn 0")).rule is None
    assert (await may(agent, run("make"), turn="turn 1", slot="one")).status == "allowed"
    assert (await may(agent, run("make"), turn="turn 1", slot="two")).status == "allowed"
    (line,) = await lines(server)
    assert line.used == 1
    assert (await may(agent, run("make"), turn="turn 1", slot="two", call="c")).status == "allowed"
    assert (await may(agent, run("make"), turn="turn 1", slot="two", call="c")).status == "allowed"
    (line,) = await lines(server)
    assert line.used == 2
    assert await may(agent, run("make"), turn="turn 2") is None


async def test_a_grant_for_a_tool_is_for_this_tool_of_a_client(server: VirtualServer, agent: AgentClient) -> None:
    tool = Operation(OperationKind.MCP, "github_comment", "comment of github", "x", "{}", least_risk=RiskLevel.HIGH)
    asked = await agent.ask(AskPermission(agent.call(), "client", tool, "gateway"))
    await grant(server, asked.request_id)
    other = Operation(OperationKind.MCP, "github_comment", "comment of github", "y", '{"a": 1}')
    assert (await may(agent, other, slot="gateway")).status == "allowed"
    assert await may(agent, Operation(OperationKind.MCP, "github_close", "close", "y", "{}")) is None
    # A program that is called like the tool.
    assert await may(agent, run("github_comment")) is None
    with pytest.raises(InvalidArguments, match="a pattern is for files and commands"):
        await grant(server, asked.request_id, pattern="*")


async def test_a_grant_for_reads_and_for_writes_of_a_client(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    read = Operation(OperationKind.READ, "Read", "Read", "r", path=str(root / "a.txt"))
    asked = await agent.ask(AskPermission(agent.call(), "client", read, "one"))
    await grant(server, asked.request_id)
    b = Operation(OperationKind.READ, "Read", "Read", "b", path=str(root / "b.txt"))
    assert (await may(agent, b)).status == "allowed"
    write = Operation(OperationKind.WRITE, "Edit", "Edit", "e", touches=(FileTouch("b.txt", "x"),))
    asked = await agent.ask(AskPermission(agent.call(), "client", write, "one"))
    await grant(server, asked.request_id)
    c = Operation(OperationKind.WRITE, "Edit", "Edit", "f", touches=(FileTouch("c.txt", "x"),))
    assert (await may(agent, c)).status == "allowed"
    (root / "d.txt").write_text("d")
    os.link(root / "d.txt", root / "e.txt")
    d = Operation(OperationKind.WRITE, "Edit", "Edit", "g", touches=(FileTouch("d.txt", "x"),))
    assert await may(agent, d) is None


@pytest.mark.server(Config(policy=PolicySettings(remote_mode_asks_always=True)), chat=SILENT_CHAT)
async def test_in_remote_mode_a_person_is_asked_if_the_configuration_says_so(
    server: VirtualServer, agent: AgentClient
) -> None:
    await grant(server, (await agent.propose()).request_id)
    assert await status(agent, "b.txt", "b\n") == "approved"
    await agent.ask(SwitchFreq(SessionMode.REMOTE, by="kim", channel="ctl", from_agent=False))
    assert await status(agent, "c.txt", "c\n") is None
    assert await may(agent, run("make")) is None


@pytest.mark.server(Config(policy=PolicySettings(max_risk_level=RiskLevel.LOW, require_allowlist=True)))
async def test_the_limits_of_the_server_hold_for_grants(server: VirtualServer, agent: AgentClient) -> None:
    with pytest.raises(InvalidState, match="this server lets pass up to low"):
        await grant(server, (await agent.propose(risk=RiskLevel.HIGH)).request_id)
    asked = await agent.ask(AskPermission(agent.call(), "client", run("make"), "one"))
    with pytest.raises(InvalidState, match="would not let this card itself pass"):
        await grant(server, asked.request_id)


async def test_a_grant_is_for_its_session_alone(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    await grant(server, (await agent.propose()).request_id)
    other = await server.arrive(root, "another")
    assert await status(other, "b.txt", "b\n") is None


async def test_a_grant_ends_if_another_agent_takes_its_session_over(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    await grant(server, (await agent.propose()).request_id)
    server.gone("agent", for_good=True)
    await server.later(1)
    other = await server.arrive(root, "another")
    assert await server.ask("registry", Adopt(other.identity, agent.session_id)) == agent.session_id
    heir = evolve(other, session_id=agent.session_id)
    assert await status(heir, "b.txt", "b\n") is None
    (line,) = await lines(server)
    assert line.over == "another agent has taken the session over since"


async def test_a_session_that_continues_from_a_checkpoint_has_no_grants(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    await grant(server, (await agent.propose()).request_id)
    passed = await agent.propose("b.txt", "b\n")
    assert passed.answered is not None
    taken = await checkpoints.take(server, agent)
    done = await checkpoints.succeed(server, await checkpoints.ask(server, taken))
    heir = evolve(agent, session_id=done.successor_id)
    assert await status(heir, "c.txt", "c\n") is None
    with pytest.raises(IntercomError):
        await heir.ask(CheckDiff(passed.request_id))
    assert not (root / "b.txt").exists()
    (line,) = await lines(server)
    assert line.over == "its session has ended"


async def test_a_restarted_server_counts_on(root: Path, clock: Clock) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await grant(server, (await agent.propose()).request_id, uses="2")
        opened = await agent.propose("b.txt", "b\n")
        assert opened.answered is not None
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await agent.ask(CheckDiff(opened.request_id, call="c1"))
        assert (await agent.propose("c.txt", "c\n", call="c2")).answered is not None
        assert (await agent.propose("d.txt", "d\n", call="c3")).answered is None


def sql(server: VirtualServer, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        assert db.execute(statement, values).rowcount == 1
        db.commit()


@pytest.mark.parametrize(
    "change",
    [
        "insert into grant select 'forged', session_id, scope, seconds, uses, created_at, granted_by, granted_via,"
        " request_id, title, signature, revoked_at, revoked_by from grant",
        "update grant set scope = 'nonsense'",
        "update grant set uses = 1000",
        "update grant set uses = 1000, seconds = 86400",
        "update grant set uses = 1000, seconds = 9223372036854775807",
        "update grant set uses = 1000, seconds = -9223372036854775807",
        "update grant set uses = 'many'",
        "update grant set created_at = 'now'",
        "update grant set created_at = '9999-12-31T23:59:59.999999+00:00'",
        "update grant set signature = '{'",
        "update grant set revoked_at = 'never'",
        "update grant set scope = '[]'",
        """update grant set uses = 2, scope = '{"kind":"change","patterns":["**"],"risk":"high","tool":null}'""",
    ],
)
async def test_a_row_that_another_program_wrote_lets_nothing_pass(
    server: VirtualServer, agent: AgentClient, change: str
) -> None:
    await grant(server, (await agent.propose()).request_id, uses="1")
    assert await status(agent, "b.txt", "b\n") == "approved"
    sql(server, change)
    assert await status(agent, "c.txt", "c\n") is None
    assert all(line.over is not None for line in (await lines(server))[:1])


async def test_a_revocation_that_was_taken_out_of_the_row_stays(server: VirtualServer, agent: AgentClient) -> None:
    made = await grant(server, (await agent.propose()).request_id)
    await server.app.service.grants.revoke(made.grant.id, "kim", "ctl")
    sql(server, "update grant set revoked_at = null, revoked_by = null")
    assert await status(agent, "b.txt", "b\n") is None


async def test_an_ended_session_has_no_grants(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await grant(server, id)
    await server.app.service.end(agent.session_id, "kim", "ctl", "done")
    with pytest.raises(InvalidState):
        await agent.propose("b.txt", "b\n")
    with pytest.raises(InvalidState, match="its session has ended"):
        await grant(server, id)
    (line,) = await lines(server)
    assert line.over == "its session has ended"


async def test_the_preview_says_what_would_have_passed(server: VirtualServer, agent: AgentClient) -> None:
    for name in ("a", "b", "c"):
        await agent.propose(f"{name}.txt")
    id = (await agent.propose("d.txt", risk=RiskLevel.HIGH)).request_id
    shown = await server.app.service.grants.preview(id, duration="1h", uses="5")
    assert shown.trial.startswith("would have let 3 of 3 past requests pass: change c.txt")
    assert shown.covers == """proposed changes of "*" (files of the workspace's top directory), up to risk high"""
    assert (shown.seconds, shown.uses) == (3600, 5)
    made = await grant(server, id, scope=shown.scope, session=shown.session_id)
    assert made.grant.scope.to_text() == shown.scope
    with pytest.raises(InvalidArguments, match="the card is of session"):
        await grant(server, id, session="another")
    with pytest.raises(InvalidArguments, match="cannot be read"):
        await grant(server, id, scope="{}")


async def test_what_a_preview_has_nothing_to_try_on_says_so(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose("d.txt")).request_id
    shown = await server.app.service.grants.preview(id)
    assert shown.trial == "has nothing to be tried on: this is the first request of its kind in this session"
    wait = (await agent.ask(Standby("idle"))).request_id
    with pytest.raises(InvalidState, match=f"{wait[:8]} is a standby: only a change of files"):
        await server.app.service.grants.preview(wait[:12])


async def test_one_act_makes_one_grant(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    first = await grant(server, id, act_id="act")
    assert (await grant(server, id, act_id="act")).grant == first.grant
    assert len(await lines(server)) == 1


@pytest.mark.parametrize(
    "pattern", ["", "..", "../**", "/**", "src/../**", "!b.txt", "{b,c}.txt", "B.TXT", "B.*", "b.txt\n", "link/*"]
)
async def test_a_pattern_is_matched_with_the_canonical_path_as_it_is_written(
    server: VirtualServer, agent: AgentClient, root: Path, pattern: str
) -> None:
    (root / "src").mkdir()
    (root / "link").symlink_to(".")
    with pytest.raises(InvalidState, match="would not let this card itself pass"):
        await grant(server, (await agent.propose("b.txt")).request_id, pattern=pattern)


async def test_a_link_does_not_bring_another_file_under_a_pattern(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    (root / "src").mkdir()
    await grant(server, (await agent.propose("src/a.txt")).request_id)
    (root / "other").mkdir()
    (root / "src" / "link").symlink_to("../other")
    (root / "src" / "file.txt").symlink_to("../other/file.txt")
    assert await status(agent, "src/link/a.txt", "b\n") is None
    with contextlib.suppress(PathViolation):
        assert await status(agent, "src/file.txt", "b\n") is None
    with pytest.raises(PathViolation):
        await status(agent, "src/../../a.txt", "b\n")


@pytest.mark.parametrize("risk", ["critical", "", "LOW", "none"])
async def test_a_risk_that_cannot_be_permitted_is_refused(server: VirtualServer, agent: AgentClient, risk: str) -> None:
    id = (await agent.propose()).request_id
    for call in (partial(grant, server), server.app.service.grants.preview, server.app.service.rules.preview):
        with pytest.raises(InvalidArguments, match="no risk that can be permitted in advance"):
            await call(id, risk=risk)
    scope = '{"kind":"change","patterns":["*"],"risk":"critical","tool":null}'
    with pytest.raises(InvalidArguments, match="cannot be read"):
        await grant(server, id, scope=scope)


class Killed(Exception):
    """The end of a server, as far as a test needs it."""


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit", "request.recorded", "permission.used"])
async def test_a_use_is_counted_once_if_the_server_is_killed(root: Path, clock: Clock, point: str) -> None:
    """The call is asked again, under its name, as the relay does it."""
    armed: list[str] = []
    hit: list[str] = []

    def kill(name: str) -> None:
        if armed and name == armed[0]:
            hit.append(name)
            armed.clear()
            raise Killed

    async def both(agent: AgentClient) -> tuple[str | None, str | None]:
        change = await agent.propose("b.txt", "b\n", call="the change")
        hook = await may(agent, run("make"), call="the command")
        return None if change.answered is None else str(change.answered.answer.status), hook and hook.status

    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await grant(server, (await agent.propose()).request_id, uses="2")
        asked = await agent.ask(AskPermission(agent.call(), "client", run("make"), "one"))
        await grant(server, asked.request_id, uses="2")
        await server.decide(asked.request_id, Decision.APPROVE)
        assert (await may(agent, run("make"))).rule is None
        async with server.restarting():
            with calling(kill):
                for _ in range(2):
                    armed[:] = [point]
                    with contextlib.suppress(Exception):
                        await both(agent)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert await both(agent) == ("approved", "allowed")
        assert [line.used for line in await lines(server)] == [1, 1]
    assert hit


async def test_the_preview_names_what_goes_on_waiting(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    (root / "src").mkdir()
    first, second = (await agent.propose("src/a.txt")).request_id, (await agent.propose("src/b.txt", "b\n")).request_id
    await agent.propose("elsewhere.txt", "c\n")
    grants = server.app.service.grants
    assert (await grants.preview(first)).waiting == (first, second)
    assert not (await grants.preview(first)).is_agent_gone
    await server.decide(first, Decision.REJECT)
    assert (await grants.preview(first)).waiting == (second,)


async def test_a_grant_whose_agent_has_gone_says_so_and_one_of_an_ended_session_names_what_else_does(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    server.gone(agent.identity.key)
    await server.later(60.0)
    shown = await server.app.service.grants.preview(id)
    assert shown.is_agent_gone
    await server.app.service.end(agent.session_id, "kim", "ctl", "done")
    with pytest.raises(InvalidState, match="allow makes a rule of the card"):
        await server.app.service.grants.preview(id)
