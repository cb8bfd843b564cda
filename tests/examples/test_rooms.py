"""The conveners and teams among the examples work together in a room, over MCP and with curl, until it is concluded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rooms.node import Caller, Node, nodes

HERE = Path(__file__).parents[2] / "examples/rooms"

#: Runs a program with another protocol version: the examples leave the choice to the SDK.
WITH_MODE = """\
import functools, mcp, runpy, sys
mcp.Client = functools.partial(mcp.Client, mode=sys.argv.pop(1))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PYTHON = [sys.executable, str(HERE / "{}.py")]
CURL = ["sh", str(HERE / "{}.sh")]
LEGACY = [sys.executable, "-c", WITH_MODE, "legacy", str(HERE / "{}.py")]
MODERN = [sys.executable, "-c", WITH_MODE, "2026-07-28", str(HERE / "{}.py")]

#: The time limit of a program, in seconds.
SECONDS = 90

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes() as (served,):
        yield served


def start(kind: list[str], role: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*(word.format(role) for word in kind), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TIMEOUT": "20", **environ},
    )


def finish(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        said, complained = program.communicate(timeout=SECONDS)
    finally:
        program.kill()
    return program.returncode, said, complained


def first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@asynccontextmanager
async def calling(node: Node) -> AsyncIterator[Caller]:
    caller = Caller(node)
    try:
        yield caller
    finally:
        await caller.close()


async def read_room(node: Node, room: str) -> tuple[str, list[dict[str, Any]]]:
    """The document and the feed of a concluded room."""
    async with calling(node) as reader:
        await reader.join(room, "Reader")
        return (await reader.document(room))["content"], await reader.feed(room)


@pytest.mark.real_time(seconds=SECONDS * 2)
@pytest.mark.parametrize(
    ("convener", "teams"),
    [
        pytest.param(PYTHON, [PYTHON], id="MCP with MCP"),
        pytest.param(PYTHON, [CURL], id="MCP with curl"),
        pytest.param(CURL, [PYTHON], id="curl with MCP"),
        pytest.param(CURL, [CURL], id="curl with curl"),
        pytest.param(MODERN, [LEGACY, CURL], id="MCP 2026-07-28 with older MCP and curl"),
        pytest.param(LEGACY, [MODERN, CURL], id="older MCP with MCP 2026-07-28 and curl"),
    ],
)
async def test_a_convener_divides_the_work_and_concludes(
    node: Node, convener: list[str], teams: list[list[str]]
) -> None:
    parts = ["the lexer", r"the \n grammar's $1"][: len(teams)]
    leading = start(convener, "convener", node.url, "Port the parser", *parts)
    room = first_line(leading)
    names = ["Kim's Team", "Alex's Team"][: len(teams)]
    running = [start(team, "team", node.url, room, name) for team, name in zip(teams, names, strict=True)]
    ended = [finish(each) for each in (leading, *running)]

    document, feed = await read_room(node, room)
    assert [(code, complained) for code, _, complained in ended] == [(0, "")] * len(ended)
    assert ended[0][1] == f"concluded with version {2 + 2 * len(teams)} of the document\n"
    for _, said, _ in ended[1:]:
        assert said.startswith("joined as ")
        assert said.rstrip().endswith(document.rstrip())
    assert [each["cursor"] for each in feed] == list(range(1, len(feed) + 1))
    assert sorted(each["team"] for each in feed if each.get("event") == "team_joined") == sorted(names)
    assert feed[-1]["event"] == "session_concluded"
    chat = [each["content"]["text"] for each in feed if each["type"] == "chat"]
    doers = dict(text.split(": ", 1)[::-1] for text in chat if not text.startswith("done: "))
    assert sorted(doers) == sorted(parts)
    assert sorted(doers.values()) == sorted(names)
    assert sorted(text for text in chat if text.startswith("done: ")) == sorted(f"done: {part}" for part in parts)
    notes, _, conclusion = document.partition("## Conclusion")
    for part, name in doers.items():
        assert notes.count(f"- {name} is here\n") == 1
        assert notes.count(f"- {part} has {len(part)} letters ({name})\n") == 1
        assert conclusion.count(f"- {part}: {name}\n") == 1


@pytest.mark.real_time(seconds=SECONDS)
@pytest.mark.parametrize("kind", [PYTHON, CURL], ids=["MCP", "curl"])
async def test_programs_that_nobody_answers_say_so_and_leave(node: Node, kind: list[str]) -> None:
    soon = {"TIMEOUT": "0.3", "IDLE_LIMIT": "2"}
    convener = start(kind, "convener", node.url, "Nobody comes", "the lexer", **soon)
    room = first_line(convener)
    assert finish(convener)[::2] == (1, "session idle: 0 of 1 parts are done, and it stays open\n")

    code, _, complained = finish(start(kind, "team", node.url, room, "Kim's Team", **soon))
    assert (code, complained) == (1, "session idle: nobody has written for a while, so this team leaves\n")
    async with calling(node) as watcher:
        await watcher.join(room, "Watcher")
        left = [each["team"] for each in await watcher.feed(room) if each.get("event") == "team_left"]
    assert left == ["Convener", "Kim's Team"]


@pytest.mark.real_time(seconds=SECONDS)
@pytest.mark.parametrize("kind", [PYTHON, CURL], ids=["MCP", "curl"])
def test_a_refusal_ends_a_program_with_the_words_of_the_server(node: Node, kind: list[str]) -> None:
    code, said, complained = finish(start(kind, "team", node.url, "none", "Kim's Team"))
    assert (code != 0, said) == (True, "")
    assert "not_found" in complained


def test_every_program_among_the_examples_of_rooms_is_run_here() -> None:
    assert {file.name for file in HERE.iterdir()} == {
        f"{role}.{kind}" for role in ("convener", "team") for kind in ("py", "sh")
    }
    for file in HERE.glob("*.sh"):
        assert re.match(r"#!/bin/sh\n", file.read_text())
        assert os.access(file, os.X_OK)
