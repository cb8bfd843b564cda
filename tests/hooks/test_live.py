"""Real hook processes at a real server, and a person at the local socket."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.crash_points import HOOK_NAMES
from tests.support.server_process import COMMAND, CTL, Home, call, user_home

pytestmark = pytest.mark.real_time

ALLOW_STATUS = '{"enabled": true, "commands": ["git status"], "file_patterns": {"write": ["docs/**"]}}'


def event(tool: str, given: dict[str, Any], cwd: Path, **more: Any) -> bytes:
    """What Claude Code writes to its hook."""
    data = {
        "session_id": "conv-1",
        "transcript_path": "/nowhere.jsonl",
        "cwd": str(cwd),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": given,
        "tool_use_id": "toolu_1",
    }
    return json.dumps(data | more).encode()


class Hook:
    """A hook on its way."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.output = b""
        self.errors = b""
        self.code = -1
        self.ended = trio.Event()

    def decision(self) -> tuple[str, str]:
        said = json.loads(self.output)["hookSpecificOutput"]
        return said["permissionDecision"], said["permissionDecisionReason"]


@asynccontextmanager
async def hook(home: Home, given: bytes, *arguments: str, client: str = "claude-code") -> AsyncIterator[Hook]:
    """A hook that runs while this is entered, and ends within it."""
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            [*COMMAND, "hook", client, *arguments],
            env=home.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        running = Hook(process)

        async def follow() -> None:
            async def drain(stream: Any, name: str) -> None:
                async for part in stream:
                    setattr(running, name, getattr(running, name) + part)

            async with trio.open_nursery() as both:
                both.start_soon(drain, process.stdout, "output")
                both.start_soon(drain, process.stderr, "errors")
            running.code = await process.wait()
            running.ended.set()

        nursery.start_soon(follow)
        async with process.stdin:
            await process.stdin.send_all(given)
        try:
            yield running
            await running.ended.wait()
        finally:
            if process.returncode is None:
                process.kill()


async def test_a_command_waits_for_a_person_and_runs_once() -> None:
    with user_home() as home, home.serving():
        workspace = home.workspace()
        (workspace / ".git").mkdir()
        async with home.person() as person:
            given = event("Bash", {"command": "npm publish", "description": "Publish it"}, workspace)
            async with hook(home, given) as asked:
                card = await person.card(title="Run: npm publish")
                assert card["description"] == "npm publish\nwhy: Publish it"
                assert (card["kind"], card["risk_level"], card["workspace_root"]) == ("approval", "low", str(workspace))
                await person.do("approve", id=card["request_id"])
            assert (asked.code, asked.decision()[0]) == (0, "allow")
            await person.card(request_id=card["request_id"], status="delivered")
            given = event("Bash", {"command": "npm publish"}, workspace, tool_use_id="toolu_2")
            async with hook(home, given) as again:
                other = await person.card(lambda each: each["request_id"] != card["request_id"], status="pending")
                await person.do("reject", id=other["request_id"], reason="once is enough")
            assert (again.code, again.decision()[0]) == (0, "deny")
            assert "once is enough" in again.decision()[1]
            # A change to a file is shown as a diff.
            (workspace / "a.py").write_text("one\ntwo\nthree\n")
            edit = {"file_path": str(workspace / "a.py"), "old_string": "two", "new_string": "2"}
            async with hook(home, event("Edit", edit, workspace)) as asked:
                card = await person.card(title="Change a.py")
                assert card["diff"].startswith(
                    "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
                )
                assert [(each["path"], each["added"], each["removed"]) for each in card["files"]] == [("a.py", 1, 1)]
                await person.do("approve", id=card["request_id"])
            assert asked.decision()[0] == "allow"
            # A hook that is ended from outside denies.
            async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
                await person.card(title="Run: make")
                asked.process.send_signal(signal.SIGTERM)
            assert (asked.code, asked.decision()[0]) == (0, "deny")


async def test_the_policy_comes_first_and_what_it_allows_is_on_record() -> None:
    with user_home() as home:
        workspace = home.workspace()
        (workspace / ".git").mkdir()
        (workspace / ".intercom").mkdir()
        (workspace / ".intercom" / "settings.json").write_text(ALLOW_STATUS)
        with home.serving():
            async with home.person() as person:
                await person.do("policy-accept", workspace=str(workspace))
                async with hook(home, event("Bash", {"command": "git status"}, workspace)) as asked:
                    pass
                assert (asked.code, asked.decision()) == (0, ("allow", "allowed by the policy: command:git status"))
                given = {"file_path": str(workspace / "docs/new.md"), "content": "hello\n"}
                async with hook(home, event("Write", given, workspace)) as asked:
                    pass
                assert asked.decision()[0] == "allow"
                kinds = [entry["kind"] for entry in (await person.do("log"))["entries"]]
                assert kinds.count("auto_approved") == 2
                assert all(card["kind"] == "policy" for card in person.cards)


async def test_a_hook_asks_in_the_session_of_its_own_agent() -> None:
    """The same client started the shim and the hook: here, the test's own process."""
    with user_home() as home, home.serving():
        workspace = home.workspace()
        async with home.agent(workspace) as agent, home.person() as person:
            session = (await call(agent, "ping"))["session_id"]
            async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
                card = await person.card(title="Run: make")
                assert card["session_id"] == session
                await person.do("approve", id=card["request_id"])
            assert asked.decision()[0] == "allow"


async def test_a_verdict_after_the_hook_is_gone_counts_for_the_next_try_once() -> None:
    with user_home() as home, home.serving():
        workspace = home.workspace()
        async with home.agent(workspace) as agent, home.person() as person:
            await call(agent, "ping")
            async with hook(home, event("Bash", {"command": "make"}, workspace), "--wait", "4") as asked:
                card = await person.card(title="Run: make")
            assert (asked.code, asked.decision()[0]) == (0, "deny")
            assert card["request_id"] in asked.decision()[1]
            await person.card(request_id=card["request_id"], away=True)
            await person.do("approve", id=card["request_id"])
            late = (await call(agent, "ping"))["late_verdicts"]
            assert [(each["kind"], each["answer"]["status"]) for each in late] == [("permission", "approved")]
            again = event("Bash", {"command": "make"}, workspace, tool_use_id="toolu_2")
            async with hook(home, again) as asked:
                pass
            assert asked.decision()[0] == "allow"
            third = event("Bash", {"command": "make"}, workspace, tool_use_id="toolu_3")
            async with hook(home, third) as asked:
                await person.card(lambda each: each["request_id"] != card["request_id"], status="pending")
                asked.process.send_signal(signal.SIGTERM)
            assert asked.decision()[0] == "deny"


async def test_a_server_killed_while_a_hook_waits_is_asked_again_about_the_same() -> None:
    with user_home() as home:
        workspace = home.workspace()
        (workspace / ".git").mkdir()
        async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
            await ready(home)
            async with home.person() as person:
                card = await person.card(title="Run: make")
            home.kill()
            await ready(home)
            async with home.person() as person:
                (waiting,) = await until_waiting(person)
                assert waiting["request_id"] == card["request_id"]
                await person.do("approve", id=card["request_id"])
        assert asked.decision()[0] == "allow"


async def ready(home: Home) -> None:
    """A server answers."""
    while True:
        try:
            async with home.person():
                return
        except (OSError, AssertionError, BaseExceptionGroup):
            await trio.sleep(0.05)


async def until_waiting(person: Any) -> list[dict[str, Any]]:
    """What is pending, once its hook is back."""
    while True:
        pending = await person.do("pending")
        if pending and not any(each["away"] for each in pending):
            return list(pending)
        await trio.sleep(0.05)


async def test_without_a_server_it_is_denied() -> None:
    with user_home("this is not toml\n") as home:
        workspace = home.workspace()
        async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
            pass
        assert (asked.code, asked.decision()[0]) == (0, "deny")
        assert b"Traceback" not in asked.errors


async def test_an_agent_can_not_answer_its_own_hook() -> None:
    """What descends from the client that started a hook may not answer, as with its shim."""
    with user_home("") as home, home.serving():
        workspace = home.workspace()
        (workspace / ".git").mkdir()
        async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
            waiting = []
            while not waiting:
                waiting = _ctl(home, "pending")
                await trio.lowlevel.checkpoint()
            refused = _ctl(home, "approve", waiting[0]["request_id"])
            assert refused["error_code"] == "unauthorized", refused
            asked.process.send_signal(signal.SIGTERM)
        refused = _ctl(home, "approve", waiting[0]["request_id"])
        assert refused["error_code"] == "unauthorized", refused


def _ctl(home: Home, *words: str) -> Any:
    done = subprocess.run([*CTL, *words], env=home.environ, capture_output=True, text=True, timeout=30, check=False)
    return json.loads(done.stdout or done.stderr)


async def test_an_agent_that_wants_to_stop_is_told_what_people_have_for_it_once() -> None:
    with user_home() as home, home.serving():
        workspace = home.workspace()
        stopping = event("", {}, workspace, hook_event_name="Stop", stop_hook_active=False)
        async with home.agent(workspace) as agent, home.person() as person:
            await call(agent, "ping")
            async with hook(home, stopping) as asked:
                pass
            assert json.loads(asked.output) == {}
            async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
                card = await person.card(title="Run: make")
                asked.process.send_signal(signal.SIGTERM)
            await person.card(request_id=card["request_id"], away=True)
            await person.do("approve", id=card["request_id"])
            async with hook(home, stopping) as asked:
                pass
            said = json.loads(asked.output)
            assert said["decision"] == "block"
            assert f'the decision on "Run: make" (request {card["request_id"]}):' in said["reason"]
            async with hook(home, stopping) as asked:
                pass
            assert json.loads(asked.output) == {}
            answer = await call(agent, "ping")
            assert (answer["session_id"], "late_verdicts" in answer) == (card["session_id"], False)


async def test_an_agent_that_nobody_knows_may_stop() -> None:
    with user_home() as home:
        stopping = event("", {}, home.workspace(), hook_event_name="Stop")
        async with hook(home, stopping) as asked:
            pass
        assert (asked.code, json.loads(asked.output)) == (0, {})
        assert home.server() is None
        with home.serving():
            async with hook(home, stopping) as asked:
                pass
            async with home.person() as person:
                assert (await person.do("list"))["sessions"] == []


async def test_a_server_killed_at_every_step_neither_asks_twice_nor_uses_a_yes_twice() -> None:
    with user_home() as home:
        workspace = home.workspace()
        (workspace / ".git").mkdir()
        points = ["verdict.recorded", *HOOK_NAMES]
        queue = home.root / "faults"
        queue.write_text("".join(f"kill:{point}:1\n" for point in points))
        home.environ["INTERCOM_FAULT"] = f"queue:{queue}"
        async with hook(home, event("Bash", {"command": "make"}, workspace)) as asked:
            while not asked.ended.is_set():
                try:
                    async with home.person() as person:
                        for waiting in await person.do("pending"):
                            await person.say("approve", id=waiting["request_id"])
                except (OSError, AssertionError, BaseExceptionGroup):
                    pass
                await trio.sleep(0.05)
        assert asked.decision()[0] == "allow"
        assert queue.read_text() == ""
        home.environ.pop("INTERCOM_FAULT")
        with sqlite3.connect(home.places.database) as database:
            told = database.execute("select status, delivered_at is not null from approval_request").fetchall()
            assert told == [("consumed", 1)]
            assert database.execute("select count(*) from permission_use").fetchone() == (1,)
