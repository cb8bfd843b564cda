"""Claude Code and Codex themselves, held by the hooks that init writes: their own tools run when a person says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import trio

from tests.clients import run_claude_code, run_codex
from tests.clients.at_work import project, said
from tests.clients.ctl import ctl
from tests.clients.model import Say, Step, Use
from tests.clients.run_claude_code import home
from tests.support.server_process import Home

pytestmark = pytest.mark.real_time

__all__ = ["home"]


def writes(root: Path) -> Use:
    return Use("Write", {"file_path": str(root / "greeting.txt"), "content": "hello\n"})


async def test_claude_code_writes_only_what_was_allowed(home: Home) -> None:
    root = project(home)

    async def script() -> AsyncGenerator[Step, str]:
        refused = yield Use("Bash", {"command": "touch refused.txt", "description": "Touch"})
        assert "not like this" in refused
        yield writes(root)
        yield Say("done")

    async with run_claude_code.claude(home, root, script()) as (model, process, person):
        card = await person.card(title="Run: touch refused.txt")
        assert card["description"].startswith("touch refused.txt")
        await ctl(home, "reject", card["request_id"], "--reason", "not like this")
        card = await person.card(title="Change greeting.txt")
        assert card["diff"].endswith("+hello\n")
        assert not (root / "greeting.txt").exists()
        await ctl(home, "approve", card["request_id"])
        assert await process.wait() == 0, said(home)
    assert (root / "greeting.txt").read_text() == "hello\n", model.answers
    assert not (root / "refused.txt").exists()


async def test_claude_code_does_not_stop_before_it_has_heard_what_people_have_for_it(home: Home) -> None:
    root = project(home)

    async def script() -> AsyncGenerator[Step, str]:
        # Asked, and answered by nobody in time; the yes comes when the turn is about to end.
        answered = yield Use("Bash", {"command": "touch a.txt", "description": "Touch"})
        assert "not decided yet" in answered
        await decided.wait()
        yield Say("I stop")
        yield Use("Bash", {"command": "touch a.txt", "description": "Touch"})
        yield Say("done")

    decided = trio.Event()
    async with run_claude_code.claude(home, root, script(), wait=3) as (model, process, person):
        card = await person.card(title="Run: touch a.txt")
        await person.card(request_id=card["request_id"], away=True)
        await ctl(home, "approve", card["request_id"])
        decided.set()
        assert await process.wait() == 0, said(home)
    assert (root / "a.txt").exists(), model.answers


async def test_codex_runs_only_what_was_allowed(home: Home) -> None:
    home.environ |= {"CODEX_HOME": str(home.root / "codex"), "STAND_IN_KEY": "none"}
    root = project(home)

    async def script() -> AsyncGenerator[Step, str]:
        refused = yield Use("exec_command", {"cmd": "touch refused.txt"})
        assert "not like this" in refused
        yield Use("exec_command", {"cmd": "touch allowed.txt"})
        yield Say("done")

    # Where nobody has opened Codex to trust its hooks, it would run none of them.
    flags = ("--dangerously-bypass-hook-trust", "--sandbox", "workspace-write")
    async with run_codex.codex(home, root, script(), flags=flags) as (model, process, person):
        card = await person.card(title="Run: touch refused.txt")
        await ctl(home, "reject", card["request_id"], "--reason", "not like this")
        card = await person.card(title="Run: touch allowed.txt")
        await ctl(home, "approve", card["request_id"])
        assert await process.wait() == 0, said(home)
    assert (root / "allowed.txt").exists(), model.answers
    assert not (root / "refused.txt").exists()
