"""Copilot CLI itself, its model's end a script: it needs no account where its provider is one's own."""

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
    greet,
    greet_late,
    is_greeted,
    project,
    said,
    set_timeout,
)
from tests.clients.model import Model, Script, serving
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = pytest.mark.real_time


@pytest.fixture
def home() -> Iterator[Home]:
    with user_home(TRUSTING) as made:
        made.environ |= {
            "COPILOT_HOME": str(made.root / "copilot"),
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_MODEL": "stand-in",
        }
        yield made


@asynccontextmanager
async def copilot(
    home: Home, root: Path, script: Script, *init: str, timeout: int | None = None, **environ: str
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Copilot CLI at work in `root`, connected by `agent-intercom init`; and a person. `timeout` (milliseconds) stands
    in for what init allows a call."""
    await connect(home, "copilot-cli", *init)
    set_timeout(Path(home.environ["COPILOT_HOME"]) / "mcp-config.json", timeout)
    command = [npm.program("copilot"), "-p", "greet the world", "--allow-tool", "agent-intercom"]
    async with serving(script, prefix="agent-intercom-") as (model, url):
        there = environ | {"COPILOT_PROVIDER_BASE_URL": url}
        async with at_work(home, root, model, command, there) as (process, person):
            yield model, process, person


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_copilot_asks_waits_and_writes_what_was_approved(home: Home, over: str) -> None:
    root = project(home)
    way, environ = by_way(home, over)
    async with copilot(home, root, greet(), *way, **environ) as (model, process, person):
        await approve(home, person, "copilot-cli")
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 1)


async def test_a_verdict_after_it_has_cut_the_call_reaches_it_with_the_next_tools_result(home: Home) -> None:
    root = project(home)
    decided = trio.Event()
    async with copilot(home, root, greet_late(decided), timeout=2000) as (model, process, person):
        await approve_late(home, person, decided)
        assert await process.wait() == 0, said(home)
    assert is_greeted(root, model, 2)
