"""Claude Code itself, its model's end a script: over stdio by init's own entry, and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.agents.live import TRUSTING, Home, Person, home, live
from tests.clients import npm
from tests.clients.ctl import ctl
from tests.clients.model import Call, Model, Say, Script, Step, serving
from tests.clients.over_http import open_door
from tests.clients.wires import told

CHANGE = {"title": "Greet", "diff": "hello\n", "file_path": "greeting.txt"}


@pytest.fixture
def house() -> Iterator[Home]:
    with home(TRUSTING) as made:
        made.environ |= {
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CONFIG_DIR": str(made.root / "claude"),
        }
        yield made


@asynccontextmanager
async def claude(
    house: Home,
    root: Path,
    script: Script,
    *init: str,
    timeout: int | None = None,
    wait: int | None = None,
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Claude Code at work in `root`, connected by `agent-intercom init`; and a person. `timeout` (milliseconds) stands
    in for what init allows a call, and `wait` (seconds) for what its hooks allow a person."""
    words = ("init", "--write", "--client", "claude-code", "--workspace", str(root), *init)
    done = await trio.to_thread.run_sync(lambda: house.command(*words))
    assert done.returncode == 0, done.stderr
    if timeout is not None:
        file = root / ".mcp.json"
        entry = json.loads(file.read_text())
        entry["mcpServers"]["agent-intercom"]["timeout"] = timeout
        file.write_text(json.dumps(entry))
    if wait is not None:
        file = root / ".claude/settings.local.json"
        file.write_text(file.read_text().replace("--wait 3570", f"--wait {wait}"))
    async with serving(script) as (model, url):
        with (house.root / "claude.log").open("wb") as log, house.serving():
            async with house.person(root) as person:
                process = await trio.lowlevel.open_process(
                    [
                        npm.program("claude"),
                        *("-p", "greet the world", "--mcp-config", ".mcp.json", "--strict-mcp-config"),
                        *("--allowedTools", "mcp__agent-intercom"),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=house.environ | environ | {"ANTHROPIC_BASE_URL": url, "PWD": str(root)},
                    cwd=root,
                )
                try:
                    yield model, process, person
                finally:
                    process.kill()
                    with trio.CancelScope(shield=True):
                        await process.wait()
                    # Shown where the test fails.
                    sys.stdout.write(f"{said(house)}\n{sorted(model.tools)}\n{model.answers}\n{len(model.requests)}\n")


def project(house: Home) -> Path:
    """A workspace as the shim finds it by itself."""
    root = house.workspace()
    (root / ".git").mkdir()
    return root


def said(house: Home) -> str:
    return (house.root / "claude.log").read_text()


async def greet() -> AsyncGenerator[Step, str]:
    verdict = told((yield Call("check_clearance", CHANGE)))
    assert verdict["status"] == "approved"
    yield Call("check_diff", {"request_id": verdict["request_id"]})
    yield Say("the world is greeted")


@live
async def test_claude_code_asks_waits_and_writes_what_was_approved(house: Home) -> None:
    root = project(house)
    async with claude(house, root, greet()) as (model, process, person):
        card = await person.card(kind="approval")
        # By this name the ladder knows it.
        assert [each["client_name"] for each in (await ctl(house, "list"))["sessions"]] == ["claude-code"]
        await ctl(house, "approve", card["request_id"])
        assert await process.wait() == 0, said(house)
    assert told(model.answers[1])["status"] == "applied", model.answers
    assert (root / "greeting.txt").read_text() == "hello\n"
    assert "the world is greeted" in said(house)


@live
async def test_over_http_it_is_the_same(house: Home) -> None:
    root = project(house)
    door = open_door(house)
    async with claude(house, root, greet(), "--http", INTERCOM_HTTP_TOKEN=door.token) as (model, process, person):
        card = await person.card(kind="approval")
        await ctl(house, "approve", card["request_id"])
        assert await process.wait() == 0, said(house)
    assert told(model.answers[1])["status"] == "applied", model.answers
    assert (root / "greeting.txt").read_text() == "hello\n"


@live
async def test_a_server_killed_while_it_waits_is_invisible_to_it(house: Home) -> None:
    root = project(house)

    async def script() -> AsyncGenerator[Step, str]:
        verdict = told((yield Call("check_clearance", CHANGE)))
        assert verdict["status"] == "rejected"
        yield Say(verdict["reason"])

    async with claude(house, root, script()) as (_model, process, person):
        card = await person.card(kind="approval")
        house.kill()
        await ctl(house, "reject", card["request_id"], "--reason", "not today")
        assert await process.wait() == 0, said(house)
    assert "not today" in said(house)


@live
async def test_a_verdict_after_it_has_cut_the_call_reaches_it_with_the_next_tools_result(house: Home) -> None:
    root = project(house)
    decided = trio.Event()

    async def script() -> AsyncGenerator[Step, str]:
        cut = yield Call("check_clearance", CHANGE)
        assert "approved" not in cut
        await decided.wait()
        (late,) = told((yield Call("ping")))["late_verdicts"]
        yield Call("check_diff", {"request_id": late["request_id"]})
        yield Say("late, but greeted")

    async with claude(house, root, script(), timeout=2000) as (model, process, person):
        card = await person.card(kind="approval")
        await person.card(request_id=card["request_id"], away=True)
        await ctl(house, "approve", card["request_id"])
        decided.set()
        assert await process.wait() == 0, said(house)
    assert told(model.answers[2])["status"] == "applied", model.answers
    assert (root / "greeting.txt").read_text() == "hello\n"
