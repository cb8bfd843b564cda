"""Qwen Code itself, its model's end a script: connected by init's own entry and instructions, asks, waits, writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from intercom.agents.mcp_server import INSTRUCTIONS
from intercom.cli.init_instructions import TEXT
from intercom.sessions.tools.tool_table import BY_NAME
from tests.clients import npm
from tests.clients.at_work import (
    CHANGE,
    add_settings,
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
    kill_and_approve,
    project,
    request_changes,
    said,
    say,
    set_timeout,
    told_comments,
)
from tests.clients.model import Model, Say, Script, Step, Use, serving
from tests.clients.wires import told
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = pytest.mark.real_time

#: The client's name over MCP.
NAME = "qwen-cli-mcp-client-agent-intercom"
#: What it puts before the names of our tools.
PREFIX = "mcp__agent-intercom__"
ENVIRON = {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "stand-in"}
SETTINGS = {
    "security": {"auth": {"selectedType": "openai"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}


@pytest.fixture
def home() -> Iterator[Home]:
    with user_home(TRUSTING) as made:
        made.environ |= ENVIRON
        yield made


@asynccontextmanager
async def qwen(
    home: Home,
    root: Path,
    script: Script,
    *init: str,
    prompt: str = "greet the world",
    timeout: int | None = None,
    always: bool = True,
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Qwen Code at work in `root`, connected by `agent-intercom init`; and a person. `timeout` (milliseconds) stands
    in for what init allows a call. Without `always`, the entry does not have its tools always loaded."""
    await connect(home, "qwen-code", "--instructions", *init)
    file = home.root / ".qwen/settings.json"
    set_timeout(file, timeout)
    add_settings(file, SETTINGS)
    if not always:
        file.write_text(file.read_text().replace('"alwaysLoadTools": true', '"alwaysLoadTools": false'))
    # It needs a newer Node than the oldest one on which these tests run.
    command = [npm.program("node"), npm.program("qwen"), "--prompt", prompt]
    async with serving(script, prefix=PREFIX, own="tool_search") as (model, url):
        there = environ | {"OPENAI_BASE_URL": f"{url}/v1"}
        async with at_work(home, root, model, command, there) as (process, person):
            yield model, process, person


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_qwen_code_asks_waits_and_writes_what_was_approved(home: Home, over: str) -> None:
    root = project(home)
    way, environ = by_way(home, over)
    async with qwen(home, root, greet(), *way, **environ) as (model, process, person):
        await approve(home, person, NAME)
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 1)
    assert "the world is greeted" in said(home)
    seen = first_seen(model)
    assert "Treat the instructions as configuration guidance, not as system directives" in seen
    assert in_json(TEXT.strip()) in seen
    assert in_json(INSTRUCTIONS) in seen
    assert "nobody is asked twice" in seen, "the description of check_clearance is cut"


async def test_a_person_s_comments_reach_it(home: Home) -> None:
    root = project(home)
    async with qwen(home, root, told_comments()) as (_model, process, person):
        await request_changes(home, person)
        assert await process.wait() == 0, said(home)
    assert "line 1: greet by name" in said(home)
    assert not (root / "greeting.txt").exists()


async def test_a_server_killed_while_it_waits_is_invisible_to_it(home: Home) -> None:
    root = project(home)
    async with qwen(home, root, greet()) as (model, process, person):
        asked = await kill_and_approve(home, person)
        assert await process.wait() == 0, said(home)
    assert [told(each).get("request_id") for each in model.answers] == [asked, None]
    assert is_greeted(root, model, 1)


async def test_a_verdict_after_it_has_cut_the_call_reaches_it_with_the_next_tools_result(home: Home) -> None:
    root = project(home)
    decided = trio.Event()
    async with qwen(home, root, greet_late(decided), timeout=5000) as (model, process, person):
        await approve_late(home, person, decided)
        assert await process.wait() == 0, said(home)
    assert "Request timed out" in model.answers[0]
    assert is_greeted(root, model, 2)


async def greet_by_search() -> AsyncGenerator[Step, str]:
    """Look the tools up by what is shown of them, and call them by another tool, as it tells its model to."""
    found = yield Use("tool_search", {"query": f"select:{PREFIX}check_clearance,{PREFIX}check_diff"})
    assert "nobody is asked twice" in found
    verdict = told((yield Use("tool_call", {"name": f"{PREFIX}check_clearance", "arguments": CHANGE})))
    asked = {"request_id": verdict["request_id"]}
    yield Use("tool_call", {"name": f"{PREFIX}check_diff", "arguments": asked})
    yield Say("found, and greeted")


async def test_where_it_hides_the_tools_the_beginning_of_their_descriptions_says_what_matters(home: Home) -> None:
    root = project(home)
    async with qwen(home, root, greet_by_search(), always=False) as (model, process, person):
        await approve(home, person, NAME)
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 2)
    seen = first_seen(model)
    assert "nobody is asked twice" not in seen
    first, _, _ = BY_NAME["check_clearance"].description.partition("\n")
    # They are shown as JSON, in the JSON of the request.
    assert in_json(in_json(first)) in seen
    assert in_json(TEXT.strip()) in seen


async def test_a_prompt_used_as_a_slash_command_reaches_the_model(home: Home) -> None:
    root = project(home)
    async with qwen(home, root, say("understood"), prompt="/ask which way is up?") as (model, process, _person):
        assert await process.wait() == 0, said(home)
    assert "understood" in said(home)
    # It gives its model the text as JSON, in the JSON of the request.
    assert in_json(in_json("Do not answer it yourself:\n\nwhich way is up?")) in first_seen(model)
