"""Codex itself, its model's end a script: the real program starts our shim by init's own entry, asks, waits, writes."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from intercom.cli.init_instructions import TEXT
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
    told_why,
)
from tests.clients.model import Model, Script, serving
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = pytest.mark.real_time

PROVIDER = """
model = "stand-in"
model_provider = "stand-in"

[model_providers.stand-in]
name = "stand-in"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STAND_IN_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with user_home(TRUSTING) as made:
        made.environ["CODEX_HOME"] = str(made.root / "codex")
        made.environ["STAND_IN_KEY"] = "none"
        yield made


@asynccontextmanager
async def codex(
    home: Home,
    root: Path,
    script: Script,
    *init: str,
    timeout: str = "tool_timeout_sec = 86400",
    flags: Sequence[str] = (),
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Codex at work in `root`, connected by `agent-intercom init`, with `timeout` for its tools and these further
    `flags`; and a person."""
    await connect(home, "codex", "--instructions", *init)
    command = [npm.program("codex"), "exec", "--skip-git-repo-check", *flags, "greet the world"]
    async with serving(script) as (model, url):
        config = Path(home.environ["CODEX_HOME"]) / "config.toml"
        entry = config.read_text()
        config.write_text(PROVIDER.format(url=url) + entry.replace("tool_timeout_sec = 86400", timeout))
        assert tomllib.loads(config.read_text())["mcp_servers"]["agent-intercom"]["required"] is True
        async with at_work(home, root, model, command, environ) as (process, person):
            yield model, process, person


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_codex_asks_waits_and_writes_what_was_approved(home: Home, over: str) -> None:
    root = project(home)
    way, environ = by_way(home, over)
    async with codex(home, root, greet(), *way, **environ) as (model, process, person):
        await approve(home, person, "codex-mcp-client")
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 1)
    assert "the world is greeted" in said(home)
    assert in_json(TEXT.strip()) in first_seen(model)


async def test_a_verdict_after_codex_has_cut_the_call_reaches_it_with_the_next_tools_result(home: Home) -> None:
    root = project(home)
    decided = trio.Event()
    async with codex(home, root, greet_late(decided), timeout="tool_timeout_sec = 2") as (model, process, person):
        await approve_late(home, person, decided)
        assert await process.wait() == 0, said(home)
    assert "timed out" in model.answers[0]
    assert is_greeted(root, model, 2)


async def test_a_server_killed_while_codex_waits_is_invisible_to_it(home: Home) -> None:
    async with codex(home, project(home), told_why()) as (_model, process, person):
        await kill_and_reject(home, person)
        assert await process.wait() == 0, said(home)
    assert "not today" in said(home)


def test_doctor_proves_how_long_codex_lets_a_call_wait(home: Home) -> None:
    assert home.command("init", "--write", "--client", "codex").returncode == 0
    config = Path(home.environ["CODEX_HOME"]) / "config.toml"
    config.write_text(config.read_text().replace("tool_timeout_sec = 86400", "tool_timeout_sec = 3"))
    path = f"{Path(npm.program('codex')).parent}{os.pathsep}{home.environ['PATH']}"
    words = ("doctor", "--json", "--client", "codex", "--probe", "30")
    done = home.command(*words, environ=home.environ | {"PATH": path})
    found = {finding["subject"]: finding["text"] for finding in json.loads(done.stdout)["findings"]}
    assert re.match(r"after 3\.\d s with reports the client ended it by cancelling", found["probe"]), found
