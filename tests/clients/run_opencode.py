"""opencode itself, its model's end a script: connected by init's own entry and instructions, asks, waits, writes."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from intercom.agents.mcp_server import INSTRUCTIONS
from intercom.agents.prompts import Prompt
from intercom.cli.init_instructions import TEXT
from tests.clients import npm
from tests.clients.at_work import (
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
from tests.clients.model import Model, Script, serving
from tests.clients.wires import told
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = pytest.mark.real_time

#: The client's name over MCP.
NAME = "opencode"
ENVIRON = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}


@pytest.fixture
def home() -> Iterator[Home]:
    with user_home(TRUSTING) as made:
        made.environ |= ENVIRON
        yield made


@asynccontextmanager
async def opencode(
    home: Home,
    root: Path,
    script: Script,
    *init: str,
    words: Sequence[str] = ("run", "greet the world"),
    timeout: int | None = None,
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """opencode with these words at work in `root`, connected by `agent-intercom init`; and a person. `timeout`
    (milliseconds) stands in for how long a call may be silent."""
    await connect(home, "opencode", "--instructions", *init)
    file = Path(home.environ["XDG_CONFIG_HOME"]) / "opencode/opencode.json"
    set_timeout(file, timeout, "mcp")
    async with serving(script) as (model, url):
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
            "models": {"stand-in": {"name": "stand-in", "limit": {"context": 100_000, "output": 10_000}}},
        }
        add_settings(file, {"provider": {"stand-in": provider}, "model": "stand-in/stand-in"})
        command = [npm.program("opencode"), *words]
        async with at_work(home, root, model, command, environ) as (process, person):
            yield model, process, person


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_opencode_asks_waits_and_writes_what_was_approved(home: Home, over: str) -> None:
    root = project(home)
    way, environ = by_way(home, over)
    async with opencode(home, root, greet(), *way, **environ) as (model, process, person):
        await approve(home, person, NAME)
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 1)
    assert "the world is greeted" in said(home)
    seen = first_seen(model)
    assert in_json(TEXT.strip()) in seen
    assert in_json(INSTRUCTIONS) in seen
    assert "nobody is asked twice" in seen, "the description of check_clearance is cut"


async def test_a_person_s_comments_reach_it(home: Home) -> None:
    root = project(home)
    async with opencode(home, root, told_comments()) as (_model, process, person):
        await request_changes(home, person)
        assert await process.wait() == 0, said(home)
    assert "line 1: greet by name" in said(home)
    assert not (root / "greeting.txt").exists()


async def test_a_server_killed_while_it_waits_is_invisible_to_it(home: Home) -> None:
    root = project(home)
    async with opencode(home, root, greet()) as (model, process, person):
        asked = await kill_and_approve(home, person)
        assert await process.wait() == 0, said(home)
    assert [told(each).get("request_id") for each in model.answers] == [asked, None]
    assert is_greeted(root, model, 1)


async def test_a_verdict_after_it_has_cut_the_call_reaches_it_with_the_next_tools_result(home: Home) -> None:
    root = project(home)
    decided = trio.Event()
    async with opencode(home, root, greet_late(decided), timeout=5000) as (model, process, person):
        await approve_late(home, person, decided)
        assert await process.wait() == 0, said(home)
    assert "Request timed out" in model.answers[0]
    assert is_greeted(root, model, 2)


async def listed_commands(home: Home) -> dict[str, str]:
    """The commands of `opencode serve` and where each is from, once it has said where it listens."""
    while (found := re.search(r"http://[\w.:]+", said(home))) is None:  # noqa: ASYNC110 - another process writes it
        await trio.sleep(0.05)
    address = f"{found[0]}/command"
    listed = await trio.to_thread.run_sync(lambda: json.loads(urllib.request.urlopen(address).read()))
    return {each["name"]: each["source"] for each in listed}


async def test_each_prompt_is_one_of_its_slash_commands(home: Home) -> None:
    root = project(home)
    async with opencode(home, root, greet(), words=("serve", "--port", "0")):
        listed = await listed_commands(home)
    ours = [name for name, source in listed.items() if source == "mcp"]
    assert ours == [f"agent-intercom:{prompt}" for prompt in Prompt]


@pytest.mark.parametrize(
    ("prompt", "words", "text"),
    [
        (Prompt.STATUS, (), "which of your requests wait for me"),
        (Prompt.ASK, ("which way", "is up?"), "Do not answer it yourself:\n\nwhich way is up?"),
    ],
)
async def test_a_prompt_used_as_a_slash_command_reaches_the_model(
    home: Home, prompt: Prompt, words: Sequence[str], text: str
) -> None:
    root = project(home)
    command = ("run", "--command", f"agent-intercom:{prompt}", *words)
    async with opencode(home, root, say("understood"), words=command) as (model, process, _person):
        assert await process.wait() == 0, said(home)
    assert "understood" in said(home)
    assert in_json(text) in first_seen(model)
