"""Codex itself, its model's end a script: the real program starts our shim by init's own entry, asks, waits, writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
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
def house() -> Iterator[Home]:
    with home(TRUSTING) as made:
        made.environ["CODEX_HOME"] = str(made.root / "codex")
        made.environ["STAND_IN_KEY"] = "none"
        yield made


@asynccontextmanager
async def codex(
    house: Home,
    root: Path,
    script: Script,
    *init: str,
    timeout: str = "tool_timeout_sec = 86400",
    flags: Sequence[str] = (),
    **environ: str,
) -> AsyncIterator[tuple[Model, trio.Process, Person]]:
    """Codex at work in `root`, connected by `agent-intercom init`, with `timeout` for its tools and these further
    `flags`; and a person."""
    done = await trio.to_thread.run_sync(lambda: house.command("init", "--write", "--client", "codex", *init))
    assert done.returncode == 0, done.stderr
    async with serving(script) as (model, url):
        config = Path(house.environ["CODEX_HOME"]) / "config.toml"
        entry = config.read_text()
        config.write_text(PROVIDER.format(url=url) + entry.replace("tool_timeout_sec = 86400", timeout))
        assert tomllib.loads(config.read_text())["mcp_servers"]["agent-intercom"]["required"] is True
        with (house.root / "codex.log").open("wb") as log, house.serving():
            async with house.person(root) as person:
                process = await trio.lowlevel.open_process(
                    [npm.program("codex"), "exec", "--skip-git-repo-check", *flags, "greet the world"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=house.environ | environ | {"PWD": str(root)},
                    cwd=root,
                )
                try:
                    yield model, process, person
                finally:
                    process.kill()
                    with trio.CancelScope(shield=True):
                        await process.wait()
                    # Shown where the test fails.
                    sys.stdout.write(f"{said(house)}\n{sorted(model.tools)}\n{model.answers}\n")


def project(house: Home) -> Path:
    """A workspace as the shim finds it by itself: the entry names none, and Codex has no roots to tell."""
    root = house.workspace()
    (root / ".git").mkdir()
    return root


def said(house: Home) -> str:
    return (house.root / "codex.log").read_text()


async def greet() -> AsyncGenerator[Step, str]:
    verdict = told((yield Call("check_clearance", CHANGE)))
    assert verdict["status"] == "approved"
    yield Call("check_diff", {"request_id": verdict["request_id"]})
    yield Say("the world is greeted")


@pytest.mark.parametrize("over", ["stdio", "http"])
@live
async def test_codex_asks_waits_and_writes_what_was_approved(house: Home, over: str) -> None:
    root = project(house)
    way: tuple[str, ...] = ()
    environ: dict[str, str] = {}
    if over == "http":
        way, environ = ("--http",), {"INTERCOM_HTTP_TOKEN": open_door(house).token}
    async with codex(house, root, greet(), *way, **environ) as (model, process, person):
        card = await person.card(kind="approval")
        # By this name the ladder knows it.
        assert [each["client_name"] for each in (await ctl(house, "list"))["sessions"]] == ["codex-mcp-client"]
        await ctl(house, "approve", card["request_id"])
        assert await process.wait() == 0, said(house)
    assert told(model.answers[1])["status"] == "applied", model.answers
    assert (root / "greeting.txt").read_text() == "hello\n"
    assert "the world is greeted" in said(house)


@live
async def test_a_verdict_after_codex_has_cut_the_call_reaches_it_with_the_next_tools_result(house: Home) -> None:
    root = project(house)
    decided = trio.Event()

    async def script() -> AsyncGenerator[Step, str]:
        assert "timed out" in (yield Call("check_clearance", CHANGE))
        await decided.wait()
        (late,) = told((yield Call("ping")))["late_verdicts"]
        assert late["answer"]["status"] == "approved"
        yield Call("check_diff", {"request_id": late["request_id"]})
        yield Say("late, but greeted")

    async with codex(house, root, script(), timeout="tool_timeout_sec = 2") as (model, process, person):
        card = await person.card(kind="approval")
        # Codex has given the call up: nobody waits for the answer.
        await person.card(request_id=card["request_id"], away=True)
        await ctl(house, "approve", card["request_id"])
        decided.set()
        assert await process.wait() == 0, said(house)
    assert told(model.answers[2])["status"] == "applied", model.answers
    assert (root / "greeting.txt").read_text() == "hello\n"


@live
async def test_a_server_killed_while_codex_waits_is_invisible_to_it(house: Home) -> None:
    root = project(house)

    async def script() -> AsyncGenerator[Step, str]:
        verdict = told((yield Call("check_clearance", CHANGE)))
        assert verdict["status"] == "rejected"
        yield Say(verdict["reason"])

    async with codex(house, root, script()) as (_model, process, person):
        card = await person.card(kind="approval")
        house.kill()
        await ctl(house, "reject", card["request_id"], "--reason", "not today")
        assert await process.wait() == 0, said(house)
    assert "not today" in said(house)


def test_doctor_proves_how_long_codex_lets_a_call_wait(house: Home) -> None:
    assert house.command("init", "--write", "--client", "codex").returncode == 0
    config = Path(house.environ["CODEX_HOME"]) / "config.toml"
    config.write_text(config.read_text().replace("tool_timeout_sec = 86400", "tool_timeout_sec = 3"))
    path = f"{Path(npm.program('codex')).parent}{os.pathsep}{house.environ['PATH']}"
    words = ("doctor", "--json", "--client", "codex", "--probe", "30")
    done = house.command(*words, environ=house.environ | {"PATH": path})
    found = {finding["subject"]: finding["text"] for finding in json.loads(done.stdout)["findings"]}
    assert re.match(r"after 3\.\d s with reports the client ended it by cancelling", found["probe"]), found
