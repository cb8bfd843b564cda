"""Claude Code itself, its model's end a script: over stdio by init's own entry, and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.clients import npm
from tests.clients.at_work import (
    approve,
    approve_late,
    at_work,
    by_way,
    connect,
    first_seen,
    greet,
    greet_late,
    in_json,
    is_greeted,
    kill_and_reject,
    project,
    said,
    say,
    set_timeout,
    told_why,
)
from tests.clients.model import Model, Script, serving
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = pytest.mark.real_time


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
    prompt: str = "greet the world",
    timeout: int | None = None,
    wait: int | None = None,
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Claude Code at work in `root`, connected by `agent-intercom init`; and a person. `timeout` (milliseconds) stands
    in for what init allows a call, and `wait` (seconds) for what its hooks allow a person."""
    await connect(home, "claude-code", "--workspace", str(root), *init)
    set_timeout(root / ".mcp.json", timeout)
    if wait is not None:
        file = root / ".claude/settings.local.json"
        file.write_text(file.read_text().replace("--wait 3570", f"--wait {wait}"))
    command = [
        npm.program("claude"),
        *("-p", prompt, "--mcp-config", ".mcp.json", "--strict-mcp-config"),
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


async def test_a_prompt_used_as_a_slash_command_reaches_the_model(home: Home) -> None:
    root = project(home)
    command = "/mcp__agent-intercom__status"
    async with claude(home, root, say("understood"), prompt=command) as (model, process, _person):
        assert await process.wait() == 0, said(home)
    assert "understood" in said(home)
    assert "which of your requests wait for me" in first_seen(model)


async def test_only_the_first_word_of_an_argument_reaches_a_prompt_and_the_model_sees_the_others(home: Home) -> None:
    root = project(home)
    command = '/mcp__agent-intercom__ask "which way is up?"'
    async with claude(home, root, say("understood"), prompt=command) as (model, process, _person):
        assert await process.wait() == 0, said(home)
    seen = first_seen(model)
    assert in_json('Do not answer it yourself:\n\n"which') + '"' in seen
    assert "the question is all of them" in seen
    assert in_json('<command-args>"which way is up?"</command-args>') in seen
