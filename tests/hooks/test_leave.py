"""Leave in a session: the policy first, then a person; each yes is used once, whatever falls in between."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.agents.call import Call
from intercom.agents.clients import client_tools
from intercom.agents.hook_server import PERMISSION_PROMPT, operation_of
from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, PolicySettings, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState
from intercom.model.request import FileTouch, Operation, OperationKind, Replacement, RiskLevel
from intercom.sessions.messages import AskPermission, Deliver, Delivery, Undeliver
from intercom.sessions.request_kinds import PermissionAnswer
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from tests.sessions.house import Guest, House, Pending, house
from tests.sessions.test_lost_answers import the_store_falls_after_its_next_commit

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
    at: House,
    guest: Guest,
    operation: Operation = RUN,
    call: str = "h1",
    slot: str = "claude-code/PreToolUse",
    turn: str = "",
) -> Pending[PermissionAnswer]:
    """A hook asks, as the gate does for it."""

    session = at.app.system.named(f"session/{guest.session_id}")
    asked = AskPermission(call, "claude-code", operation, slot, turn)
    return at.begin(lambda: Call(call, PERMISSION_PROMPT, guest.session_id, session, None).permission(asked))


async def waiting(at: House, *besides: Card, **wanted: object) -> Card:
    """The card that is open now (besides these), once its hook waits."""

    def is_open(card: Card) -> bool:
        newest = [each for each in at.people.cards if each.id == card.id][-1]
        if card.id in {each.id for each in besides}:
            return False
        return newest is card and card.state is CardState.PENDING and not card.away

    card = await at.people.card(is_open, **wanted)
    await trio.testing.wait_all_tasks_blocked()
    return card


async def test_yes_is_used_by_the_answer_that_tells_it(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hook = asking(at, guest)
    card = await waiting(at, title="Run: make")
    assert (card.body, card.detail, card.risk) == ("make", str(root), RiskLevel.LOW)
    await at.decide(card.id, Decision.APPROVE, "be quick")
    assert await hook() == PermissionAnswer("allowed", card.id, reason="be quick")
    await at.people.card(id=card.id, state=CardState.DELIVERED)
    # The same question, asked again because its answer was lost, is answered alike and uses nothing.
    assert await asking(at, guest)() == PermissionAnswer("allowed", card.id, reason="be quick")
    # Another use of the same is another question.
    again = asking(at, guest, call="h2")
    other = await waiting(at)
    assert other.id != card.id
    await at.decide(other.id, Decision.REJECT, "enough")
    assert await again() == PermissionAnswer("denied", other.id, reason="enough")


@pytest.mark.parametrize("last", ["why: to list", "WHY : to list", "  \uff37hy: to list"])
async def test_no_line_of_a_command_reads_like_the_agents_reason(clock: Clock, root: Path, last: str) -> None:
    """The shell would run what is in the last line: `why: $(...)`."""
    two = evolve(RUN, text=f"make\n{last}", identity="two", why="to build")
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        hook = asking(at, guest, two)
        card = await waiting(at)
        assert card.body == f"| make\n| {last}\nwhy: to build"
        await at.decide(card.id, Decision.APPROVE)
        assert (await hook()).status == "allowed"


async def test_what_is_typed_into_a_running_command_is_no_command_to_the_policy(at: House, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % "{}")
    await at.accept(root)
    guest = await at.arrive(root)
    assert (await asking(at, guest)()).rule == "command:make"
    hook = asking(at, guest, evolve(RUN, into="1", identity="typed", title="Type"), call="h2")
    card = await waiting(at, title="Type")
    await at.decide(card.id, Decision.REJECT)
    assert (await hook()).status == "denied"


async def test_a_command_outside_of_its_sandbox_needs_a_person_whatever_the_policy_grants(
    clock: Clock, root: Path
) -> None:
    given = {"command": "make", "dangerouslyDisableSandbox": True}
    free = operation_of(client_tools.operation("Bash", given, str(root)))
    async with house(root.parent, clock) as at:
        (root / ".intercom").mkdir()
        (root / ".intercom" / "settings.json").write_text(POLICY % "{}")
        await at.accept(root)
        guest = await at.arrive(root)
        sandboxed = operation_of(
            client_tools.operation("Bash", {**given, "dangerouslyDisableSandbox": False}, str(root))
        )
        assert (await asking(at, guest, sandboxed)()).rule == "command:make"
        hook = asking(at, guest, free, call="h2")
        card = await waiting(at, title="Run outside of the sandbox: make")
        await at.decide(card.id, Decision.APPROVE)
        assert await hook() == PermissionAnswer("allowed", card.id)


async def test_a_policy_that_nobody_accepted_allows_a_hook_nothing(clock: Clock, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % '{"write": ["**"], "read": ["**"]}')
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        hook = asking(at, guest)
        card = await waiting(at, title=RUN.title)
        await at.decide(card.id, Decision.REJECT)
        assert (await hook()).status == "denied"


async def test_an_option_that_writes_is_asked_although_a_rule_ends_in_a_wildcard(at: House, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text('{"enabled": true, "commands": ["git diff *"]}')
    await at.accept(root)
    guest = await at.arrive(root)
    harmless = evolve(RUN, text="git diff --stat", identity="1")
    assert (await asking(at, guest, harmless)()).rule == "command:git diff *"
    for number, line in enumerate(("git diff --output=a.txt", "git diff -oa.txt", "GIT_PAGER=x git diff")):
        hook = asking(at, guest, evolve(RUN, text=line, identity=line, title=line), call=f"h{number + 2}")
        card = await waiting(at, title=line)
        await at.decide(card.id, Decision.REJECT)
        assert (await hook()).status == "denied"


async def test_what_the_policy_lets_pass_is_on_record_in_its_own_words(at: House, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text(POLICY % "{}")
    await at.accept(root)
    guest = await at.arrive(root)
    await asking(at, guest, evolve(RUN, why="List files"))()
    entries = [each for each in await at.app.service.audit(50) if each.kind == "auto_approved"]
    assert [(each.data or {})["text"] for each in entries] == ["make"]


async def test_no_place_an_agent_names_holds_up_or_fells_its_session(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []
    real = os.path.realpath

    def look(given: str) -> str:
        where.append(threading.current_thread())
        return real(given)

    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        with monkeypatch.context() as patch:
            patch.setattr(os.path, "realpath", look)
            hook = asking(at, guest, evolve(RUN, cwd="a\0b", path="c", kind=OperationKind.READ))
            card = await waiting(at)
        assert card.risk is RiskLevel.HIGH
        assert where
        assert threading.main_thread() not in where
        await at.decide(card.id, Decision.REJECT)
        assert (await hook()).status == "denied"


async def test_a_yes_for_a_file_elsewhere_is_for_no_other_of_that_name(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    away = evolve(EDIT, touches=(FileTouch("../x", ""),))
    hooks = [asking(at, guest, evolve(away, cwd=cwd), call=f"h{cwd}") for cwd in ("/a/b", "/c/d")]
    first = await waiting(at)
    await waiting(at, first)
    assert "as seen from /" in first.remarks[0].text
    for hook in hooks:
        hook.scope.cancel()


async def test_of_two_uses_at_once_each_needs_a_yes_of_its_own(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hooks = [asking(at, guest, call=f"h{number}") for number in range(2)]
    first = await waiting(at)
    await at.decide(first.id, Decision.APPROVE)
    second = await waiting(at, first)
    assert sum(hook.outcome is not None for hook in hooks) == 1
    await at.decide(second.id, Decision.APPROVE)
    assert {(await hook()).request_id for hook in hooks} == {first.id, second.id}


async def test_another_event_about_the_same_use_is_covered_and_a_second_one_is_not(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hook = asking(at, guest, slot="codex/PreToolUse", turn="t1")
    card = await waiting(at)
    await at.decide(card.id, Decision.APPROVE)
    await hook()
    permission = {"slot": "codex/PermissionRequest", "turn": "t1"}
    assert (await asking(at, guest, call="p1", **permission)()).request_id == card.id
    for call, slot, turn in (("p2", "codex/PermissionRequest", "t1"), ("p3", "codex/other", "t2")):
        again = asking(at, guest, call=call, slot=slot, turn=turn)
        other = await waiting(at)
        assert other.id != card.id
        await at.decide(other.id, Decision.REJECT)
        await again()
        guest.tell(Undeliver((call,)))
        await guest.ask(Deliver((Delivery(call, (other.id,)),)))
    # Nor is one that comes long after.
    await at.later(301)
    late = asking(at, guest, call="p4", slot="codex/late", turn="t1")
    assert (await waiting(at)).id != card.id
    late.scope.cancel()


async def test_a_yes_that_nobody_waited_for_is_there_for_the_next_use(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hook = asking(at, guest)
    card = await waiting(at)
    hook.scope.cancel()
    assert (await at.people.card(id=card.id, away=True)).state is CardState.PENDING
    await at.decide(card.id, Decision.APPROVE)
    answered = await guest.ask(Ping())
    (late,) = answered.late_verdicts
    assert (late.kind, late.answer["status"]) == ("permission", "approved")
    assert "exactly the same again" in late.answer["message"]
    assert (await asking(at, guest, call="h2")()).status == "allowed"


async def test_a_no_that_nobody_waited_for_answers_the_next_use_and_no_more(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hook = asking(at, guest)
    card = await waiting(at)
    hook.scope.cancel()
    await at.people.card(id=card.id, away=True)
    await at.decide(card.id, Decision.REJECT, "no")
    assert await asking(at, guest, call="h2")() == PermissionAnswer("denied", card.id, reason="no")
    await guest.ask(Deliver((Delivery("h2", (card.id,)),)))
    third = asking(at, guest, call="h3")
    assert (await waiting(at)).id != card.id
    third.scope.cancel()


async def test_leave_is_for_the_file_as_it_was(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hook = asking(at, guest, EDIT)
    card = await waiting(at, title="Change a.txt")
    assert card.diff == "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    hook.scope.cancel()
    await at.people.card(id=card.id, away=True)
    await at.decide(card.id, Decision.APPROVE)
    (root / "a.txt").write_text("one\nand more\n")
    again = asking(at, guest, EDIT, call="h2")
    other = await waiting(at)
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

    async with house(tmp_path, clock) as at:
        guest = await at.arrive(tmp_path / "ws")
        hook = asking(at, guest, first)
        card = await waiting(at)
        hook.scope.cancel()
        await at.people.card(id=card.id, away=True)
        await at.decide(card.id, Decision.APPROVE)
        again = asking(at, guest, second, call="h2")
        assert (await waiting(at)).id != card.id
        again.scope.cancel()


async def test_nobody_answers_in_time(clock: Clock, root: Path) -> None:
    config = Config(timeouts=TimeoutSettings(approval_seconds=60))
    async with house(root.parent, clock, config) as at:
        guest = await at.arrive(root)
        hook = asking(at, guest)
        card = await waiting(at)
        await at.later(61)
        assert await hook() == PermissionAnswer("timeout", card.id)


async def test_what_the_client_does_itself_is_not_applied_from_here(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    hook = asking(at, guest, EDIT)
    card = await waiting(at)
    hook.scope.cancel()
    await at.decide(card.id, Decision.APPROVE)
    with pytest.raises(InvalidState, match="use that, there is nothing to apply"):
        await guest.ask(CheckDiff(card.id))
    assert (root / "a.txt").read_text() == "one\n"


async def test_a_session_that_was_ended_lets_nothing_pass(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    await at.app.service.end(guest.session_id, "kim", "ctl", "over")
    with pytest.raises(InvalidState, match="ended by an operator"):
        await asking(at, guest)()


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

    async with house(tmp_path, clock) as at:
        await at.accept(made)
        guest = await at.arrive(made)
        hook = asking(at, guest, operation)
        if rule is None:
            assert (await waiting(at)).title == operation.title
            hook.scope.cancel()
        else:
            assert await hook() == PermissionAnswer("allowed", rule=rule)
            assert all(card.kind is CardKind.POLICY for card in at.people.cards)


async def test_what_the_policy_allows_is_asked_all_the_same_where_it_is_told_to(clock: Clock, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text(POLICY % "{}")
    config = Config(policy=PolicySettings(max_risk_level=RiskLevel.LOW))
    async with house(root.parent, clock, config) as at:
        await at.accept(root)
        guest = await at.arrive(root)
        assert (await asking(at, guest)()).rule == "command:make"
        hook = asking(at, guest, evolve(RUN, text="rm x"), call="h2")
        assert (await waiting(at)).risk is RiskLevel.HIGH
        hook.scope.cancel()


Falls = Callable[[House, Guest], Awaitable[None]]


@pytest.mark.parametrize("yes", [True, False])
async def test_a_store_that_falls_between_commit_and_answer_spends_a_yes_once(
    clock: Clock, tmp_path: Path, yes: bool
) -> None:
    made = tmp_path / "ws"
    made.mkdir()

    async with house(tmp_path, clock) as at:
        guest = await at.arrive(made)
        async with at.restarting():
            if yes:
                hook = asking(at, guest)
                card = await waiting(at)
                hook.scope.cancel()
                await at.people.card(id=card.id, away=True)
                await at.decide(card.id, Decision.APPROVE)
                with the_store_falls_after_its_next_commit():
                    assert (await asking(at, guest, call="h2")()).request_id == card.id
            else:
                with the_store_falls_after_its_next_commit():
                    hook = asking(at, guest, call="h2")
                    card = await waiting(at)
                await at.decide(card.id, Decision.APPROVE)
                assert (await hook()).request_id == card.id
            assert len({card.id for card in at.people.cards}) == 1
            third = asking(at, guest, call="h3")
            assert (await waiting(at)).id != card.id
            third.scope.cancel()


async def test_a_server_that_fell_knows_what_was_asked_and_what_was_used(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        asking(at, guest, call="h1")
        asked = await waiting(at)
        used = asking(at, guest, evolve(RUN, identity="2", text="ls"), call="h2")
        other = await waiting(at, asked)
        await at.decide(other.id, Decision.APPROVE)
        await used()
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert (await asking(at, guest, evolve(RUN, identity="2", text="ls"), call="h2")()).request_id == other.id
        hook = asking(at, guest, call="h1")
        card = await waiting(at)
        assert card.id == asked.id
        await at.decide(card.id, Decision.APPROVE)
        assert (await hook()).status == "allowed"
