"""The inspector's command line, over stdio and over HTTP: its lists, its judgement of our schemas, and calls."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio

from tests.clients import npm
from tests.clients.ctl import ctl
from tests.clients.over_http import configure_http
from tests.support.server_process import TRUSTING, Home, user_home

Inspect = Callable[..., Any]


@pytest.fixture(params=["stdio", "http"])
def inspect(request: pytest.FixtureRequest) -> Iterator[tuple[Home, Inspect]]:
    """Run the inspector once at a server that runs; what it prints, as JSON."""
    with user_home(TRUSTING) as home:
        root = home.workspace()
        if request.param == "http":
            told = configure_http(home).address(root)
            heads = [word for name, value in told["headers"].items() for word in ("--header", f"{name}: {value}")]
            target = ["--transport", "http", "--server-url", told["url"], *heads]
        else:
            start = home.parameters("--workspace", str(root))
            given = [word for name, value in (start.env or {}).items() for word in ("-e", f"{name}={value}")]
            target = [*given, start.command, *start.args]
        with home.serving():
            yield home, partial(_run, target if request.param == "http" else ["--", *target], home)


def _run(target: list[str], home: Home, *words: str) -> Any:
    # Its own options stand before the server's command line, whose options are not its own.
    command = [npm.program("node"), npm.program("mcp-inspector"), "--cli", *words]
    front, behind = (target, []) if target[0] != "--" else ([], target[1:])
    done = subprocess.run(
        [*command, *front, *behind], env=home.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_it_lists_our_tools_and_finds_no_fault_in_their_schemas(inspect: tuple[Home, Inspect]) -> None:
    _, run = inspect
    listed = run("--method", "tools/list", "--strict")
    assert len(listed["tools"]) == 9


def test_it_lists_the_resource(inspect: tuple[Home, Inspect]) -> None:
    _, run = inspect
    (template,) = run("--method", "resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "slack://channel/{id}/recent{?limit}"


def test_it_calls_a_tool(inspect: tuple[Home, Inspect]) -> None:
    _, run = inspect
    told = run("--method", "tools/call", "--tool-name", "ping", "--tool-arg", "status_message=inspected")
    assert json.dumps("acknowledged") in json.dumps(told)


@pytest.mark.real_time
async def test_it_waits_for_a_person(inspect: tuple[Home, Inspect]) -> None:
    home, run = inspect
    async with home.person() as person, trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def ask() -> None:
            words = ["--method", "tools/call", "--tool-name", "transmit", "--tool-arg", "prompt_text=Well?"]
            answers.append(await trio.to_thread.run_sync(lambda: run(*words)))

        nursery.start_soon(ask)
        card = await person.card(kind="prompt")
        await ctl(home, "answer", card["request_id"], "refine", "smaller", "steps")
    assert "smaller steps" in json.dumps(answers)
