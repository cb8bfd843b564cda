"""Copilot CLI itself, its model's end a script: it needs no account where its provider is one's own."""

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
    house: Home, root: Path, script: Script, *init: str, timeout: int | None = None, **environ: str
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Copilot CLI at work in `root`, connected by `agent-intercom init`; and a person. `timeout` (milliseconds) stands
    in for what init allows a call."""
    words = ("init", "--write", "--client", "copilot-cli", *init)
    done = await trio.to_thread.run_sync(lambda: house.command(*words))
    assert done.returncode == 0, done.stderr
    if timeout is not None:
        file = Path(house.environ["COPILOT_HOME"]) / "mcp-config.json"
        entry = json.loads(file.read_text())
        entry["mcpServers"]["agent-intercom"]["timeout"] = timeout
        file.write_text(json.dumps(entry))
    async with serving(script, prefix="agent-intercom-") as (model, url):
        with (house.root / "copilot.log").open("wb") as log, house.serving():
            async with house.person(root) as person:
                process = await trio.lowlevel.open_process(
                    [npm.program("copilot"), "-p", "greet the world", "--allow-tool", "agent-intercom"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=house.environ | environ | {"COPILOT_PROVIDER_BASE_URL": url, "PWD": str(root)},
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
                    sys.stdout.write(str([t.get("name") for r in model.requests[:1] for t in r.get("tools") or ()]))


def project(house: Home) -> Path:
    """A workspace as the shim finds it by itself."""
    root = house.workspace()
    (root / ".git").mkdir()
    return root


def said(house: Home) -> str:
    return (house.root / "copilot.log").read_text()


async def greet() -> AsyncGenerator[Step, str]:
    verdict = told((yield Call("check_clearance", CHANGE)))
    assert verdict["status"] == "approved"
    yield Call("check_diff", {"request_id": verdict["request_id"]})
    yield Say("the world is greeted")


@pytest.mark.parametrize("over", ["stdio", "http"])
@live
async def test_copilot_asks_waits_and_writes_what_was_approved(house: Home, over: str) -> None:
    root = project(house)
    way: tuple[str, ...] = ()
    environ: dict[str, str] = {}
    if over == "http":
        way, environ = ("--http",), {"INTERCOM_HTTP_TOKEN": open_door(house).token}
    async with copilot(house, root, greet(), *way, **environ) as (model, process, person):
        card = await person.card(kind="approval")
        # By this name the ladder knows it.
        assert [each["client_name"] for each in (await ctl(house, "list"))["sessions"]] == ["copilot-cli"]
        await ctl(house, "approve", card["request_id"])
        assert await process.wait() == 0, said(house)
    assert told(model.answers[1])["status"] == "applied", model.answers
    assert (root / "greeting.txt").read_text() == "hello\n"


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

    async with copilot(house, root, script(), timeout=2000) as (model, process, person):
        card = await person.card(kind="approval")
        await person.card(request_id=card["request_id"], away=True)
        await ctl(house, "approve", card["request_id"])
        decided.set()
        assert await process.wait() == 0, said(house)
    assert told(model.answers[2])["status"] == "applied", model.answers
