"""Leave in a session: the policy first, then a person; each yes is used once, whatever falls in between."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.agents.clients import builtin_tools
from intercom.agents.hook_server import PERMISSION_PROMPT, operation_of
from intercom.agents.tool_call import ToolCall
from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, PolicySettings, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState
from intercom.model.request import FileTouch, Operation, OperationKind, Replacement, RiskLevel
from intercom.sessions.messages import AskPermission, Deliver, Delivery, Undeliver
from intercom.sessions.request_kinds import PermissionAnswer
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from tests.sessions.test_lost_answers import the_store_falls_after_its_next_commit
from tests.support.virtual_server import AgentClient, Pending, VirtualServer, virtual_server

Clock = trio.testing.MockClock
RUN = Operation(OperationKind.COMMAND, "Bash", "Run: make", '["command","make"]', "make")
EDIT = Operation(
    OperationKind.WRITE,
    "Edit",
    "Change a.txt",
    '["write",[{"replacements":["one","two"]}]]',
    touches=(FileTouch("a.txt", replacements=(Replacement("one", "two"),)),),
)
POLICY = '{"enabled": true, "commands": ["make", "rm *"], "tools": ["WebFetch", "make"], "file_patterns": %s}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "a.txt").write_text("one\n")
    return made


def asking(
    server: VirtualServer,
    agent: AgentClient,
    operation: Operation = RUN,
    call: str = "h1",
    slot: str = "claude-code/PreToolUse",
    turn: str = "",
) -> Pending[PermissionAnswer]:
    """A hook asks, as the gate does for it."""

    session = server.app.system.named(f"session/{agent.session_id}")
    asked = AskPermission(call, "claude-code", operation, slot, turn)
    return server.begin(lambda: ToolCall(call, PERMISSION_PROMPT, agent.session_id, session, None).permission(asked))


async def waiting(server: VirtualServer, *besides: Card, **wanted: object) -> Card:
    """The card that is open now (besides these), once its hook waits."""

    def is_open(card: Card) -> bool:
        newest = [each for each in server.operator.cards if each.id == card.id][-1]
        if card.id in {each.id for each in besides}:
            return False
        return newest is card and card.state is CardState.PENDING and not card.away

    card = await server.operator.card(is_open, **wanted)
    await trio.testing.wait_all_tasks_blocked()
    return card


async def test_yes_is_used_by_the_answer_that_tells_it(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    hook = asking(server, agent)
    card = await waiting(server, title="Run: make")
    assert (card.body, card.detail, card.risk) == ("make", str(root), RiskLevel.LOW)
    await server.decide(card.id, Decision.APPROVE, "be quick")
    assert await hook() == PermissionAnswer("allowed", card.id, reason="be quick")
    await server.operator.card(id=card.id, state=CardState.DELIVERED)
    # The same question, asked again because its answer was lost, is answered alike and uses nothing.
    assert await asking(server, agent)() == PermissionAnswer("allowed", card.id, reason="be quick")
    # Another use of the same is another question.
    again = asking(server, agent, call="h2")
    other = await waiting(server)
    assert other.id != card.id
    await server.decide(other.id, Decision.REJECT, "enough")
    assert await again() == PermissionAnswer("denied", other.id, reason="enough")


@pytest.mark.parametrize("last", ["why: to list", "WHY : to list", "  \uff37hy: to list"])
async def test_no_line_of_a_command_reads_like_the_agents_reason(server: VirtualServer, root: Path, last: str) -> None:
    """The shell would run what is in the last line: `why: $(...)`."""
    two = evolve(RUN, text=f"make\n{last}", identity="two", why="to build")
    agent = await server.arrive(root)
    hook = asking(server, agent, two)
    card = await waiting(server)
    assert card.body == f"| make\n| {last}\nwhy: to build"
    await server.decide(card.id, Decision.APPROVE)
    assert (await hook()).status == "allowed"


async def test_what_is_typed_into_a_running_command_is_no_command_to_the_policy(
    server: VirtualServer, root: Path
) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % "{}")
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await asking(server, agent)()).rule == "command:make"
    hook = asking(server, agent, evolve(RUN, into="1", identity="typed", title="Type"), call="h2")
    card = await waiting(server, title="Type")
    await server.decide(card.id, Decision.REJECT)
    assert (await hook()).status == "denied"


async def test_a_command_outside_of_its_sandbox_needs_a_person_whatever_the_policy_grants(
    server: VirtualServer, root: Path
) -> None:
    given = {"command": "make", "dangerouslyDisableSandbox": True}
    free = operation_of(builtin_tools.operation("Bash", given, str(root)))
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % "{}")
    await server.accept(root)
    agent = await server.arrive(root)
    sandboxed = operation_of(builtin_tools.operation("Bash", {**given, "dangerouslyDisableSandbox": False}, str(root)))
    assert (await asking(server, agent, sandboxed)()).rule == "command:make"
    hook = asking(server, agent, free, call="h2")
    card = await waiting(server, title="Run outside of the sandbox: make")
    await server.decide(card.id, Decision.APPROVE)
    assert await hook() == PermissionAnswer("allowed", card.id)


async def test_a_policy_that_nobody_accepted_allows_a_hook_nothing(server: VirtualServer, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % '{"write": ["**"], "read": ["**"]}')
    agent = await server.arrive(root)
    hook = asking(server, agent)
    card = await waiting(server, title=RUN.title)
    await server.decide(card.id, Decision.REJECT)
    assert (await hook()).status == "denied"


async def test_an_option_that_writes_is_asked_although_a_rule_ends_in_a_wildcard(
    server: VirtualServer, root: Path
) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text('{"enabled": true, "commands": ["git diff *"]}')
    await server.accept(root)
    agent = await server.arrive(root)
    harmless = evolve(RUN, text="git diff --stat", identity="1")
    assert (await asking(server, agent, harmless)()).rule == "command:git diff *"
    for number, line in enumerate(("git diff --output=a.txt", "git diff -oa.txt", "GIT_PAGER=x git diff")):
        hook = asking(server, agent, evolve(RUN, text=line, identity=line, title=line), call=f"h{number + 2}")
        card = await waiting(server, title=line)
        await server.decide(card.id, Decision.REJECT)
        assert (await hook()).status == "denied"


async def test_what_the_policy_lets_pass_is_on_record_in_its_own_words(server: VirtualServer, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % "{}")
    await server.accept(root)
    agent = await server.arrive(root)
    await asking(server, agent, evolve(RUN, why="List files"))()
    entries = [each for each in await server.app.service.audit(50) if each.kind == "auto_approved"]
    assert [(each.data or {})["text"] for each in entries] == ["make"]


async def test_no_place_an_agent_names_holds_up_or_fells_its_session(
    server: VirtualServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []
    real = os.path.realpath

    def look(given: str) -> str:
        where.append(threading.current_thread())
        return real(given)

    agent = await server.arrive(root)
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "realpath", look)
        hook = asking(server, agent, evolve(RUN, cwd="a\0b", path="c", kind=OperationKind.READ))
        card = await waiting(server)
    assert card.risk is RiskLevel.HIGH
    assert where
    assert threading.main_thread() not in where
    await server.decide(card.id, Decision.REJECT)
    assert (await hook()).status == "denied"


async def test_a_yes_for_a_file_elsewhere_is_for_no_other_of_that_name(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    away = evolve(EDIT, touches=(FileTouch("../x", ""),))
    hooks = [asking(server, agent, evolve(away, cwd=cwd), call=f"h{cwd}") for cwd in ("/a/b", "/c/d")]
    first = await waiting(server)
    await waiting(server, first)
    assert "as seen from /" in first.remarks[0].text
    for hook in hooks:
        hook.scope.cancel()


async def test_of_two_uses_at_once_each_needs_a_yes_of_its_own(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    hooks = [asking(server, agent, call=f"h{number}") for number in range(2)]
    first = await waiting(server)
    await server.decide(first.id, Decision.APPROVE)
    second = await waiting(server, first)
    assert sum(hook.outcome is not None for hook in hooks) == 1
    await server.decide(second.id, Decision.APPROVE)
    assert {(await hook()).request_id for hook in hooks} == {first.id, second.id}


async def test_another_event_about_the_same_use_is_covered_and_a_second_one_is_not(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    hook = asking(server, agent, slot="codex/PreToolUse", turn="t1")
    card = await waiting(server)
    await server.decide(card.id, Decision.APPROVE)
    await hook()
    permission = {"slot": "codex/PermissionRequest", "turn": "t1"}
    assert (await asking(server, agent, call="p1", **permission)()).request_id == card.id
    for call, slot, turn in (("p2", "codex/PermissionRequest", "t1"), ("p3", "codex/other", "t2")):
        again = asking(server, agent, call=call, slot=slot, turn=turn)
        other = await waiting(server)
        assert other.id != card.id
        await server.decide(other.id, Decision.REJECT)
        await again()
        agent.tell(Undeliver((call,)))
        await agent.ask(Deliver((Delivery(call, (other.id,)),)))
    # Nor is one that comes long after.
    await server.later(301)
    late = asking(server, agent, call="p4", slot="codex/late", turn="t1")
    assert (await waiting(server)).id != card.id
    late.scope.cancel()


async def test_a_yes_that_nobody_waited_for_is_there_for_the_next_use(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    hook = asking(server, agent)
    card = await waiting(server)
    hook.scope.cancel()
    assert (await server.operator.card(id=card.id, away=True)).state is CardState.PENDING
    await server.decide(card.id, Decision.APPROVE)
    answered = await agent.ask(Ping())
    (late,) = answered.late_verdicts
    assert (late.kind, late.answer["status"]) == ("permission", "approved")
    assert "exactly the same again" in late.answer["message"]
    assert (await asking(server, agent, call="h2")()).status == "allowed"


async def test_a_no_that_nobody_waited_for_answers_the_next_use_and_no_more(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    hook = asking(server, agent)
    card = await waiting(server)
    hook.scope.cancel()
    await server.operator.card(id=card.id, away=True)
    await server.decide(card.id, Decision.REJECT, "no")
    assert await asking(server, agent, call="h2")() == PermissionAnswer("denied", card.id, reason="no")
    await agent.ask(Deliver((Delivery("h2", (card.id,)),)))
    third = asking(server, agent, call="h3")
    assert (await waiting(server)).id != card.id
    third.scope.cancel()


async def test_leave_is_for_the_file_as_it_was(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    hook = asking(server, agent, EDIT)
    card = await waiting(server, title="Change a.txt")
    assert card.diff == "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    hook.scope.cancel()
    await server.operator.card(id=card.id, away=True)
    await server.decide(card.id, Decision.APPROVE)
    (root / "a.txt").write_text("one\nand more\n")
    again = asking(server, agent, EDIT, call="h2")
    other = await waiting(server)
    assert other.id != card.id
    again.scope.cancel()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            evolve(EDIT, touches=(FileTouch("a.txt", "x"), FileTouch("/elsewhere/b", "y"))),
            evolve(EDIT, touches=(FileTouch("/elsewhere/b", "x"), FileTouch("a.txt", "y"))),
        ),
        (
            evolve(RUN, kind=OperationKind.READ, path="shadow", cwd="/srv"),
            evolve(RUN, kind=OperationKind.READ, path="shadow", cwd="/etc"),
        ),
    ],
)
async def test_leave_is_for_what_was_named_where_it_was(
    clock: Clock, tmp_path: Path, first: Operation, second: Operation
) -> None:
    (tmp_path / "ws").mkdir()

    async with virtual_server(tmp_path, clock) as server:
        agent = await server.arrive(tmp_path / "ws")
        hook = asking(server, agent, first)
        card = await waiting(server)
        hook.scope.cancel()
        await server.operator.card(id=card.id, away=True)
        await server.decide(card.id, Decision.APPROVE)
        again = asking(server, agent, second, call="h2")
        assert (await waiting(server)).id != card.id
        again.scope.cancel()


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=60)))
async def test_nobody_answers_in_time(server: VirtualServer, agent: AgentClient) -> None:
    hook = asking(server, agent)
    card = await waiting(server)
    await server.later(61)
    assert await hook() == PermissionAnswer("timeout", card.id)


async def test_what_the_client_does_itself_is_not_applied_from_here(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    hook = asking(server, agent, EDIT)
    card = await waiting(server)
    hook.scope.cancel()
    await server.decide(card.id, Decision.APPROVE)
    with pytest.raises(InvalidState, match="use that, there is nothing to apply"):
        await agent.ask(CheckDiff(card.id))
    assert (root / "a.txt").read_text() == "one\n"


async def test_a_session_that_was_ended_lets_nothing_pass(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    await server.app.service.end(agent.session_id, "kim", "ctl", "over")
    with pytest.raises(InvalidState, match="ended by an operator"):
        await asking(server, agent)()


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        (RUN, "command:make"),
        (evolve(RUN, text="make && make"), None),
        (evolve(RUN, text="rm -rf x"), None),
        (evolve(RUN, cwd="/"), None),
        (evolve(RUN, kind=OperationKind.OTHER, tool="make"), "tool:make"),
        # A rule for a tool is none for a program, and the other way round.
        (evolve(RUN, text="WebFetch"), None),
        (evolve(RUN, kind=OperationKind.MCP, tool="rm"), None),
        (evolve(RUN, kind=OperationKind.FETCH, tool="WebFetch"), "tool:WebFetch"),
        (EDIT, "file_pattern:write:*.txt"),
        (evolve(EDIT, touches=(FileTouch("../x.txt", "x"),)), None),
        (evolve(EDIT, touches=(FileTouch("a.txt", move_to="b.md", diff="+x\n"),)), None),
        (evolve(EDIT, touches=(FileTouch(".claude/settings.json", "{}"),)), None),
        (evolve(EDIT, touches=()), None),
        (evolve(RUN, kind=OperationKind.READ, tool="Read", path="src/a.py"), "file_pattern:read:src/*"),
        (evolve(RUN, kind=OperationKind.READ, tool="Read", path="/etc/passwd"), None),
    ],
)
async def test_what_the_policy_lets_pass(clock: Clock, tmp_path: Path, operation: Operation, rule: str | None) -> None:
    made = tmp_path / "ws"
    (made / ".intercom").mkdir(parents=True)
    (made / "a.txt").write_text("one\n")
    (made / ".intercom/settings.json").write_text(POLICY % '{"write": ["*.txt", "**/*.json"], "read": ["src/*"]}')

    async with virtual_server(tmp_path, clock) as server:
        await server.accept(made)
        agent = await server.arrive(made)
        hook = asking(server, agent, operation)
        if rule is None:
            assert (await waiting(server)).title == operation.title
            hook.scope.cancel()
        else:
            assert await hook() == PermissionAnswer("allowed", rule=rule)
            assert all(card.kind is CardKind.POLICY for card in server.operator.cards)


@pytest.mark.server(Config(policy=PolicySettings(max_risk_level=RiskLevel.LOW)))
async def test_what_the_policy_allows_is_asked_all_the_same_where_it_is_told_to(
    server: VirtualServer, root: Path
) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text(POLICY % "{}")
    await server.accept(root)
    agent = await server.arrive(root)
    assert (await asking(server, agent)()).rule == "command:make"
    hook = asking(server, agent, evolve(RUN, text="rm x"), call="h2")
    assert (await waiting(server)).risk is RiskLevel.HIGH
    hook.scope.cancel()


Falls = Callable[[VirtualServer, AgentClient], Awaitable[None]]


@pytest.mark.parametrize("yes", [True, False])
async def test_a_store_that_falls_between_commit_and_answer_spends_a_yes_once(
    clock: Clock, tmp_path: Path, yes: bool
) -> None:
    made = tmp_path / "ws"
    made.mkdir()

    async with virtual_server(tmp_path, clock) as server:
        agent = await server.arrive(made)
        async with server.restarting():
            if yes:
                hook = asking(server, agent)
                card = await waiting(server)
                hook.scope.cancel()
                await server.operator.card(id=card.id, away=True)
                await server.decide(card.id, Decision.APPROVE)
                with the_store_falls_after_its_next_commit():
                    assert (await asking(server, agent, call="h2")()).request_id == card.id
            else:
                with the_store_falls_after_its_next_commit():
                    hook = asking(server, agent, call="h2")
                    card = await waiting(server)
                await server.decide(card.id, Decision.APPROVE)
                assert (await hook()).request_id == card.id
            assert len({card.id for card in server.operator.cards}) == 1
            third = asking(server, agent, call="h3")
            assert (await waiting(server)).id != card.id
            third.scope.cancel()


async def test_a_server_that_fell_knows_what_was_asked_and_what_was_used(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        asking(server, agent, call="h1")
        asked = await waiting(server)
        used = asking(server, agent, evolve(RUN, identity="2", text="ls"), call="h2")
        other = await waiting(server, asked)
        await server.decide(other.id, Decision.APPROVE)
        await used()
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert (await asking(server, agent, evolve(RUN, identity="2", text="ls"), call="h2")()).request_id == other.id
        hook = asking(server, agent, call="h1")
        card = await waiting(server)
        assert card.id == asked.id
        await server.decide(card.id, Decision.APPROVE)
        assert (await hook()).status == "allowed"
