"""Where the documents disagreed or were wrong. Each test is named after what holds instead."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing

from intercom.model.card import CardKind, CardState
from intercom.model.config import Config, OnTimeout, PolicySettings, StallSettings, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import Ambiguous, InvalidState, NotFound, PatchConflict
from intercom.model.request import PromptType, RiskLevel
from intercom.model.session import SESSION_TRANSITIONS, SessionMode, SessionStatus
from intercom.sessions.messages import Adopt, Agent, AwaitDecision
from intercom.sessions.registry import GRACE_SECONDS
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext, FileAccess
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.sessions.tools.transmit import Transmit
from tests.support.server_process import Home, user_home
from tests.support.virtual_server import SILENT_CHAT, AgentClient, VirtualServer, partial_ask, virtual_server

pytestmark = pytest.mark.real_time

Clock = trio.testing.MockClock


def allow(root: Path, **policy: Any) -> None:
    """Write the workspace's policy file, which a person has then to accept."""
    (root / ".intercom").mkdir(exist_ok=True)
    (root / ".intercom/settings.json").write_text(json.dumps({"enabled": True, **policy}))


def check(tool: str, path: str | None = None, **more: Any) -> AutoCheck:
    return AutoCheck(tool, CheckContext(path, **more), call="call")


# --- tools --------------------------------------------------------------------------------------------------------


# --- the policy ---------------------------------------------------------------------------------------------------


async def test_a_fault_in_the_policy_denies_all_and_people_are_told_the_line(server: VirtualServer, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text('{\n  "enabled": true,\n  "tools": ["ping"],\n  "comands": []\n}')
    agent = await server.arrive(root)
    assert not (await agent.ask(check("ping"))).answer.auto_approved
    told = await server.operator.notice("nothing is auto-approved")
    assert ".intercom/settings.json, line 4" in told.text
    assert "comands" in told.text


async def test_read_patterns_let_nobody_write(server: VirtualServer, root: Path) -> None:
    allow(root, file_patterns={"read": ["**/*"], "write": []})
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await agent.ask(check("read", "a.txt", operation=FileAccess.READ))).answer.auto_approved
    assert not (await agent.ask(check("read", "a.txt"))).answer.auto_approved
    assert (await agent.propose()).answered is None


@pytest.mark.parametrize(
    ("command", "passes"),
    [
        ("cargo test", True),
        ("cargo test --lib", True),
        ("cargo tests", False),
        ("xcargo test", False),
        ("cargo test; rm -rf /", False),
        ("cargo test && rm x", False),
        ("cargo test | sh", False),
        ("cargo test > /etc/x", False),
        ("cargo test $(id)", False),
        ("cargo test `id`", False),
        ("cargo test\nrm x", False),
    ],
)
async def test_commands_match_as_words_and_never_with_operators(
    server: VirtualServer, root: Path, command: str, passes: bool
) -> None:
    allow(root, commands=["cargo test *", "cargo.test"])
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await agent.ask(check(command))).answer.auto_approved is passes
    tool, _, args = command.partition(" ")
    assert (await agent.ask(check(tool, args=args))).answer.auto_approved is passes


TWO = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+eins\n--- a/src/b.txt\n+++ b/src/b.txt\n@@ -1 +1 @@\n-two\n+zwei\n"


async def test_a_clearance_asks_the_policy_about_every_file_of_its_diff(server: VirtualServer, root: Path) -> None:
    (root / "src").mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "src/b.txt").write_text("two\n")
    allow(root, file_patterns={"write": ["src/**"]})
    await server.accept(root)
    agent = await server.arrive(root)
    opened = await agent.propose("src/b.txt", "new\n")
    assert opened.answered.answer.auto_approved == "file_pattern:write:src/**"
    assert "call check_diff" in opened.answered.answer.message
    # One of its files is outside the rule, whichever one file_path names.
    assert (await agent.propose("src/b.txt", TWO)).answered is None
    # Risk beyond the policy's goes to a person, too.
    assert (await agent.propose("src/c.txt", risk=RiskLevel.HIGH)).answered is None


@pytest.mark.parametrize(("listed", "passes"), [({}, False), ({"build": "make all"}, True)])
async def test_the_allowlist_gates_only_where_the_configuration_says_so(
    clock: Clock, root: Path, listed: dict[str, str], passes: bool
) -> None:
    allow(root, commands=["make *"])
    gated = Config(policy=PolicySettings(require_allowlist=True), commands=listed)
    for config, expected in ((Config(commands=listed), True), (gated, passes)):
        async with virtual_server(root.parent, clock, config, chat=SILENT_CHAT) as server:
            with contextlib.suppress(NotFound):
                # Where it was accepted in the turn before.
                await server.accept(root)
            agent = await server.arrive(root, key=f"{expected}{config.policy}")
            assert (await agent.ask(check("make all"))).answer.auto_approved is expected


@pytest.mark.parametrize("mode", SessionMode)
async def test_the_policy_applies_in_every_mode_unless_remote_mode_asks_always(
    clock: Clock, root: Path, mode: SessionMode
) -> None:
    allow(root, file_patterns={"write": ["**/*"]}, tools=["transmit"])
    for config in (Config(), Config(policy=PolicySettings(remote_mode_asks_always=True))):
        expected = not (config.policy.remote_mode_asks_always and mode is SessionMode.REMOTE)
        async with virtual_server(root.parent, clock, config, chat=SILENT_CHAT) as server:
            with contextlib.suppress(NotFound):
                # Where it was accepted in the turn before.
                await server.accept(root)
            agent = await server.arrive(root, key=f"{expected}{config.policy}")
            await agent.ask(SwitchFreq(mode, by="agent", channel="mcp", from_agent=False))
            assert ((await agent.propose(diff=str(config))).answered is not None) is expected
            assert ((await agent.ask(Transmit("go on?"))).answered is not None) is expected
            assert (await agent.ask(check("write", "a.txt"))).answer.auto_approved is expected


@pytest.mark.parametrize("logged", [True, False])
async def test_what_the_policy_lets_pass_is_always_on_record_and_told_in_batches_where_it_says_so(
    server: VirtualServer, root: Path, logged: bool
) -> None:
    allow(
        root,
        file_patterns={"write": ["**/*"]},
        commands=["make"],
        log_auto_approved=logged,
        summary_interval_seconds=300,
    )
    await server.accept(root)
    agent = await server.arrive(root)
    opened = await agent.propose()
    await agent.ask(CheckDiff(opened.request_id))
    await agent.ask(check("make"))
    assert [e.kind for e in await server.app.service.audit(20) if e.kind == "auto_approved"] == ["auto_approved"] * 2
    await server.later(299)
    await agent.settled()
    assert not [notice for notice in server.operator.notices if "let pass" in notice.text]
    await server.later(1)
    if logged:
        told = await server.operator.notice("the policy let pass")
        assert told.text == "the policy let pass: change a.txt (file_pattern:write:**/*); make (command:make)"
        assert (told.event, told.grant_id, told.by) == ("auto_approved", None, None)
    await agent.settled()
    assert len([notice for notice in server.operator.notices if "let pass" in notice.text]) == logged
    assert [card for card in server.operator.cards if card.kind is CardKind.APPROVAL] == []


async def test_a_policy_that_lists_transmit_continues_at_once_except_after_errors(
    server: VirtualServer, root: Path
) -> None:
    allow(root, tools=["transmit"])
    await server.accept(root)
    agent = await server.arrive(root)
    for kind in PromptType:
        opened = await agent.ask(Transmit("go on?", kind))
        if kind is PromptType.ERROR_RECOVERY:
            assert opened.answered is None
        else:
            assert opened.answered.answer.decision == "continue"
    assert sum(entry.kind == "auto_approved" for entry in await server.app.service.audit(50)) == 3


# --- waiting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", OnTimeout)
async def test_an_unanswered_question_goes_on_stops_or_holds_as_its_type_says(
    clock: Clock, root: Path, choice: OnTimeout
) -> None:
    config = Config(timeouts=TimeoutSettings(prompt_seconds=60, prompt_on_timeout=choice))
    async with virtual_server(root.parent, clock, config) as server:
        agent = await server.arrive(root)
        for kind in PromptType:
            held = choice is OnTimeout.HOLD or kind in (PromptType.ERROR_RECOVERY, PromptType.RESOURCE_WARNING)
            id = (await agent.ask(Transmit("well?", kind))).request_id
            waiting = server.begin(partial_ask(agent, AwaitDecision(agent.call(), id)))
            await server.later(59)
            await agent.settled()
            assert waiting.outcome is None
            await server.later(1)
            await agent.settled()
            if not held:
                assert (await waiting()).answer.decision == choice.value
                shown = await server.operator.card(id=id, state=CardState.EXPIRED)
                assert shown.decided.by == "timeout"
                continue
            await server.later(86400 * 30)
            await agent.settled()
            assert waiting.outcome is None
            await server.decide(id, Decision.STOP)
            assert (await waiting()).answer.decision == "stop"


@pytest.mark.server(
    Config(stall=StallSettings(inactivity_threshold_seconds=60, escalation_threshold_seconds=10, max_retries=1))
)
async def test_several_requests_of_a_session_wait_and_one_stall_alert(
    server: VirtualServer, agent: AgentClient
) -> None:
    ids = [(await agent.propose(f"{n}.txt")).request_id for n in range(3)]
    ids.append((await agent.ask(Transmit("and?"))).request_id)
    assert {card.id for card in await server.app.service.pending()} == set(ids)
    for _ in range(20):
        await server.later(60)
        await agent.settled()
    alerts = {card.id for card in await server.app.service.pending() if card.kind is CardKind.STALL}
    assert len(alerts) == 1


# --- sessions -----------------------------------------------------------------------------------------------------


async def test_mode_and_resume_without_a_session_refuse_and_list_when_it_is_ambiguous(
    server: VirtualServer, root: Path
) -> None:
    service = server.app.service
    with pytest.raises(NotFound):
        await service.switch_mode(None, SessionMode.HYBRID, "kim", "ctl")
    one = await server.arrive(root, "one")
    assert await service.switch_mode(None, SessionMode.HYBRID, "kim", "ctl") == (SessionMode.LOCAL, SessionMode.HYBRID)
    other = await server.arrive(root, "other")
    with pytest.raises(Ambiguous) as refused:
        await service.switch_mode(None, SessionMode.REMOTE, "kim", "ctl")
    assert one.session_id in refused.value.message
    assert other.session_id in refused.value.message
    for agent in (one, other):
        await agent.ask(Standby("idle"))
    with pytest.raises(Ambiguous, match="--session"):
        await service.resume(None, "go", server.verdict(Decision.RESUME))


async def test_resume_answers_the_standby_of_the_only_agent_that_waits(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root, "one")
    await server.arrive(root, "other")
    id = (await agent.ask(Standby("idle"))).request_id
    session = await server.app.service.resume(None, "now the docs", server.verdict(Decision.RESUME))
    assert session.id == agent.session_id
    (late,) = (await agent.ask(Ping())).late_verdicts
    assert (late.request_id, late.answer) == (id, {"status": "resumed", "instruction": "now the docs"})


async def leave(server: VirtualServer, key: str) -> None:
    """The agent's connection goes, and does not come back."""
    server.gone(key)
    await server.later(GRACE_SECONDS)


async def test_reboot_adopts_only_what_its_like_left_in_this_workspace(server: VirtualServer, root: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    gone = await server.arrive(root, "gone")
    id = (await gone.propose()).request_id
    newcomer = (await server.arrive(root, "new")).identity
    # While it lives it keeps its session.
    assert await server.ask("registry", Adopt(newcomer)) != gone.session_id
    with pytest.raises(InvalidState, match="live agent"):
        await server.ask("registry", Adopt(newcomer, gone.session_id))
    await leave(server, "gone")
    assert await server.ask("registry", Adopt(Agent("a", "another", str(root)))) != gone.session_id
    assert await server.ask("registry", Adopt(Agent("b", "client", str(elsewhere)))) != gone.session_id
    with pytest.raises(NotFound):
        await server.ask("registry", Adopt(Agent("b", "client", str(elsewhere)), gone.session_id))
    assert await server.ask("registry", Adopt(newcomer)) == gone.session_id
    # The old id is good: for waiting, deciding and applying.
    recalled = (await gone.ask(Reboot(adopted=True))).answer
    assert [left.request_id for left in recalled.pending_requests] == [id]
    await server.decide(id, Decision.APPROVE)
    assert (await gone.ask(CheckDiff(id))).answered.answer.status == "applied"


@pytest.mark.server(Config(max_concurrent_sessions=1))
async def test_agents_that_connect_by_themselves_are_not_counted_and_belong_to_every_operator(
    server: VirtualServer, root: Path
) -> None:
    agents = [await server.arrive(root, f"agent {n}") for n in range(5)]
    assert {session.owner_user_id for session in await server.app.service.sessions()} == {""}
    for n, agent in enumerate(agents):
        id = (await agent.propose(f"{n}.txt")).request_id
        verdict = server.verdict(Decision.APPROVE)
        decided = (await server.app.service.decide(id, verdict)).decided
        assert decided is not None


def test_sessions_that_never_started_or_never_came_back_can_be_cleared_away() -> None:
    for status in SessionStatus:
        if status is not SessionStatus.TERMINATED:
            assert SessionStatus.TERMINATED in SESSION_TRANSITIONS[status]
    assert SESSION_TRANSITIONS[SessionStatus.TERMINATED] == frozenset()


# --- files --------------------------------------------------------------------------------------------------------


async def test_a_diff_of_several_files_is_applied_whole_or_not_at_all(server: VirtualServer, root: Path) -> None:
    (root / "src").mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "src/b.txt").write_text("two\n")
    agent = await server.arrive(root)
    id = (await agent.propose("a.txt", TWO)).request_id
    await server.decide(id, Decision.APPROVE)
    (root / "src/b.txt").write_text("changed meanwhile\n")
    with pytest.raises(PatchConflict, match=r"src/b\.txt"):
        await agent.ask(CheckDiff(id))
    with pytest.raises(PatchConflict):
        await agent.ask(CheckDiff(id, force=True))
    assert (root / "a.txt").read_text() == "one\n"
    assert sorted(os.listdir(root)) == ["a.txt", "src"]
    (root / "src/b.txt").write_text("two\n")
    assert (await agent.ask(CheckDiff(id))).answered.answer.status == "applied"
    assert ((root / "a.txt").read_text(), (root / "src/b.txt").read_text()) == ("eins\n", "zwei\n")


# --- the server ---------------------------------------------------------------------------------------------------


async def test_nothing_listens_on_the_network_unless_a_port_is_set(served: Home) -> None:
    pid = served.server()
    assert pid is not None
    process = psutil.Process(pid)
    assert [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN] == []


async def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    with user_home("[stall]\ninactivity_threshold = 3\n") as at:
        done = await trio.to_thread.run_sync(at.command, "serve")
    assert done.returncode == 2
    assert "inactivity_threshold_seconds" in done.stderr
    assert "Traceback" not in done.stderr
