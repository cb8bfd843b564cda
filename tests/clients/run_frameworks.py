"""Agents of three frameworks, with scripted models, do what a person allows and nothing else."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.clients import pypi
from tests.clients.ctl import ctl
from tests.support.server_process import TRUSTING, Home, Person

pytestmark = pytest.mark.real_time

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples/frameworks"
FRAMEWORKS: dict[str, Callable[[], str]] = {
    "pydantic_ai": pypi.frameworks_python,
    "openai_agents": pypi.frameworks_python,
    "langgraph": pypi.langgraph_python,
}


async def run(python: str, home: Home, script: str, *arguments: str) -> str:
    """What a program of this Python prints, until it ends."""
    work = partial(trio.run_process, [python, str(HERE / script), *arguments], env=home.environ, cwd=home.root)
    ended = await work(capture_stdout=True, capture_stderr=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return str(ended.stdout.decode().strip())


def start(home: Home, root: Path, *arguments: str) -> str:
    """How a client starts Intercom for this workspace."""
    found = home.parameters("--workspace", str(root), *arguments)
    return json.dumps({"command": found.command, "args": found.args, "env": found.env, "cwd": str(found.cwd)})


async def answers(person: Person, decision: str) -> None:
    """A person answers the question, once it has been pending to its agent for a moment."""
    card = await person.card(kind="prompt")
    await person.card(request_id=card["request_id"], away=True)
    await person.do("answer", id=card["request_id"], decision=decision)


@pytest.mark.parametrize("decision", ["continue", "stop"])
@pytest.mark.parametrize("key", [("--agent", "gate"), ()], ids=["with a key", "without a key"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_gated_tool_does_what_a_person_allows(
    home: Home, framework: str, key: tuple[str, ...], decision: str
) -> None:
    # Each call is answered "pending" soon, so that several are needed: of LangGraph's adapter, several processes.
    home.configure(TRUSTING + "[clients.mcp]\ncall_wait_seconds = 0.5\n[clients.fastmcp]\ncall_wait_seconds = 0.5\n")
    root, board = home.workspace(), home.root / "board.txt"
    python = FRAMEWORKS[framework]()
    said: list[str] = []

    async def work() -> None:
        said.append(
            await run(python, home, "scripted_gate.py", framework, str(EXAMPLES), start(home, root, *key), str(board))
        )

    with home.serving():
        async with home.person(root) as person, trio.open_nursery() as nursery:
            nursery.start_soon(work)
            nursery.start_soon(answers, person, decision)
    assert board.exists() is (decision == "continue")
    assert said == ["Published." if decision == "continue" else "A person did not allow it. Do not try again."]


async def test_each_call_of_langchain_is_a_process_and_all_are_one_agent(home: Home) -> None:
    root = home.workspace()
    with home.serving():
        async with home.person(root) as person:
            said = await proposing(home, root, "langgraph", partial(approve, person))
    approved, applied = said
    assert (approved["status"], applied["status"]) == ("approved", "applied")
    assert (root / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_it_goes_on_after_its_own_time_limit_and_a_server_that_was_killed(home: Home, framework: str) -> None:
    root = home.workspace()
    with home.serving():
        async with home.person(root) as person:
            answer = kill_and_approve_soon if framework == "langgraph" else kill_and_approve
            said = await proposing(home, root, f"{framework}_limited", partial(answer, home, person))
    cut, ping, *polls, approved, applied = said
    assert cut == {"cut": True}
    if framework == "langgraph":
        # Its older SDK tells nobody that it cut a call off: it asks for the same, and finds the same request.
        assert "cut_off" not in ping
        assert {"cut": True} in polls
    else:
        assert [each["tool"] for each in ping["cut_off"]] == ["check_clearance"]
        # What was learnt is shorter than its time limit. A server that starts may take longer.
        assert [each.get("status") for each in polls[:2]] == ["pending", "pending"]
    assert (approved["status"], applied["status"]) == ("approved", "applied")
    assert (root / "a.txt").read_text() == "a\n"


async def proposing(home: Home, root: Path, how: str, answer: Callable[[], Awaitable[None]]) -> list[Any]:
    """The answers that a framework's own client gets to a change that it proposes, while a person answers."""
    python = FRAMEWORKS[how.removesuffix("_limited")]()
    said: list[str] = []

    async def work() -> None:
        said.append(await run(python, home, "framework_calls.py", how, start(home, root)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        nursery.start_soon(answer)
    return [json.loads(line) for line in said[0].splitlines()]


async def approve(person: Person) -> None:
    card = await person.card(kind="approval", away=False)
    await person.do("approve", id=card["request_id"])


async def kill_and_approve(home: Home, person: Person) -> None:
    card = await person.card(kind="approval", away=True)
    # It polls again by now, and once more while nobody has answered.
    for away in (False, True):
        await person.card(lambda one, away=away: one["away"] is away and len(person.cards) > 2, kind="approval")
        person.cards.clear()
    home.kill()
    await ctl(home, "approve", card["request_id"])


async def kill_and_approve_soon(home: Home, person: Person) -> None:
    """The same for a client that does not tell that it cut calls off: its card never says that it is away."""
    card = await person.card(kind="approval")
    # Longer than two calls of it.
    await trio.sleep(12)
    home.kill()
    await ctl(home, "approve", card["request_id"])


def test_every_example_is_run_here() -> None:
    assert {f"{name}_gate.py" for name in FRAMEWORKS} == {each.name for each in EXAMPLES.glob("*.py")}
