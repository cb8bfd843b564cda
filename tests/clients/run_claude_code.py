"""Claude Code itself, its model's end a script: over stdio by init's own entry, and over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from intercom.sessions.request_kinds import APPROVED
from tests.clients import npm
from tests.clients.at_work import (
    CHANGE,
    approve,
    approve_late,
    at_work,
    by_way,
    connect,
    greet,
    greet_late,
    in_json,
    is_greeted,
    kill_and_reject,
    project,
    said,
    set_timeout,
    told_why,
)
from tests.clients.model import Call, Model, Say, Script, Step, serving
from tests.clients.wires import told
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = pytest.mark.real_time

#: After how many milliseconds its window moves a call to the background; and what lets `claude -p` do so, too.
MOVES = "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"
AS_IN_ITS_WINDOW = {"CLAUDE_AUTO_BACKGROUND_TASKS": "1", MOVES: "1000"}


@pytest.fixture
def home() -> Iterator[Home]:
    with user_home(TRUSTING) as made:
        made.environ |= {
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CONFIG_DIR": str(made.root / "claude"),
        }
        yield made


@asynccontextmanager
async def claude(
    home: Home,
    root: Path,
    script: Script,
    *init: str,
    timeout: int | None = None,
    wait: int | None = None,
    background: int | None = None,
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Claude Code at work in `root`, connected by `agent-intercom init`; and a person. `timeout` (milliseconds) stands
    in for what init allows a call, `wait` (seconds) for what its hooks allow a person, and `background` (milliseconds)
    for what init says of moving calls there."""
    await connect(home, "claude-code", "--workspace", str(root), *init)
    set_timeout(root / ".mcp.json", timeout)
    if wait is not None:
        file = root / ".claude/settings.local.json"
        file.write_text(file.read_text().replace("--wait 3570", f"--wait {wait}"))
    if background is not None:
        file = root / ".claude/settings.local.json"
        written = f'"{MOVES}": "0"'
        assert written in file.read_text()
        file.write_text(file.read_text().replace(written, f'"{MOVES}": "{background}"'))
    command = [
        npm.program("claude"),
        *("-p", "greet the world", "--mcp-config", ".mcp.json", "--strict-mcp-config"),
        *("--allowedTools", "mcp__agent-intercom"),
    ]
    async with serving(script) as (model, url):
        there = environ | {"ANTHROPIC_BASE_URL": url}
        async with at_work(home, root, model, command, there) as (process, person):
            yield model, process, person


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_claude_code_asks_waits_and_writes_what_was_approved(home: Home, over: str) -> None:
    root = project(home)
    way, environ = by_way(home, over)
    async with claude(home, root, greet(), *way, **environ) as (model, process, person):
        await approve(home, person, "claude-code")
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 1)
    assert "the world is greeted" in said(home)


async def test_a_call_waits_in_the_foreground_as_init_has_set_it(home: Home) -> None:
    root = project(home)
    async with claude(home, root, greet(), **AS_IN_ITS_WINDOW) as (model, process, person):
        await person.card(kind="approval")
        # Longer than the variable of its environment lets it wait.
        await trio.sleep(3)
        await approve(home, person, "claude-code")
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 1)


async def test_an_approval_of_a_call_that_was_moved_to_the_background_reaches_it_once(home: Home) -> None:
    root, moved, ids = project(home), trio.Event(), list[str]()

    async def greet_later() -> AsyncGenerator[Step, str]:
        assert "moved to the background" in (yield Call("check_clearance", CHANGE))
        moved.set()
        yield Say("I wait")
        # Called by the notification.
        assert "late_verdicts" not in told((yield Call("ping")))
        yield Call("check_diff", {"request_id": ids[0]})
        yield Say("greeted")

    async with claude(home, root, greet_later(), background=1000, **AS_IN_ITS_WINDOW) as (model, process, person):
        ids.append((await person.card(kind="approval"))["request_id"])
        await moved.wait()
        await approve(home, person, "claude-code")
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 2)
    assert json.dumps(model.requests[-1]).count(in_json(in_json(APPROVED))) == 1


async def test_a_server_killed_while_it_waits_is_invisible_to_it(home: Home) -> None:
    async with claude(home, project(home), told_why()) as (_model, process, person):
        await kill_and_reject(home, person)
        assert await process.wait() == 0, said(home)
    assert "not today" in said(home)


async def test_a_verdict_after_it_has_cut_the_call_reaches_it_with_the_next_tools_result(home: Home) -> None:
    root = project(home)
    decided = trio.Event()
    async with claude(home, root, greet_late(decided), timeout=2000) as (model, process, person):
        await approve_late(home, person, decided)
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 2)
