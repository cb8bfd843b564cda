"""The walks: each from one event to another, with real processes."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import frozen
from mcp import Client

from tests.operators.slack.live.server import CONFIG, Work, server_in_slack
from tests.support.person_shell import the_person
from tests.support.server_process import Home, Later, Person, begin, call, user_home
from tests.walks.walk import ROUNDS, Walk

#: Seconds that a walk may take, all times together: the machine may be busy.
SECONDS = 120

#: An agent that a person starts: it says that it runs, and stays until its workspace is gone or it is ended.
AGENT = """
import pathlib, sys, time
runs = pathlib.Path(f"{sys.argv[-1]}.runs").absolute()
runs.touch()
while runs.exists():
    time.sleep(0.1)
"""


@frozen
class AtWork:
    """A server without Slack, an agent that has called it before, and an operator's watch."""

    home: Home
    workspace: Path
    agent: Client
    person: Person
    nursery: trio.Nursery
    ctl: list[str]

    def ask(self, title: str) -> Later:
        """The agent asks whether it may add a line to a file that is there."""
        return begin(self.nursery, self.agent, "check_clearance", title=title, **proposal(self.workspace, title))

    async def card(self, **wanted: str) -> dict[str, Any]:
        return await self.person.card(kind="approval", **wanted)

    async def approved(self, title: str) -> str:
        """A request that is approved and delivered; its id."""
        asked = self.ask(title)
        id = str((await self.card(title=title))["request_id"])
        await self.approve(id)
        await asked()
        await self.card(request_id=id, status="delivered")
        return id

    async def approve(self, id: str) -> None:
        await typed(self.home, [*self.ctl, "approve", id])


@asynccontextmanager
async def at_work(walk: Walk) -> AsyncIterator[AtWork]:
    with user_home("") as home:
        ctl = walk.through(home)
        workspace = home.workspace()
        with home.serving():
            async with home.agent(workspace) as agent, home.person() as person, trio.open_nursery() as nursery:
                await call(agent, "ping")
                yield AtWork(home, workspace, agent, person, nursery, ctl)
                nursery.cancel_scope.cancel()


async def clearance(walk: Walk) -> None:
    """check_clearance over stdio, until an operator's watch has the card"""
    async with at_work(walk) as work:
        for round in range(ROUNDS):
            async with walk.counted():
                work.ask(f"change {round}")
                await work.card(title=f"change {round}")


async def approve(walk: Walk) -> None:
    """ctl approve, until the agent has its answer and the delivery is on record"""
    async with at_work(walk) as work:
        for round in range(ROUNDS):
            asked = work.ask(f"change {round}")
            id = (await work.card(title=f"change {round}"))["request_id"]
            async with walk.counted():
                await work.approve(id)
                assert (await asked())["status"] == "approved"
                await work.card(request_id=id, status="delivered")


async def tap(walk: Walk) -> None:
    """a tap on a Slack button, until the card shows the decision and its delivery"""
    async with server_in_slack(CONFIG) as server, trio.open_nursery() as nursery:
        walk.through(server.home)
        workspace = server.home.workspace()
        with server.serving():
            async with server.home.agent(workspace) as agent:
                await server.slack.connected()
                work = Work(server, agent, workspace, nursery)
                for round in range(ROUNDS):
                    title = f"change {round}"
                    asked, card = await work.propose(title, **proposal(workspace, title))
                    async with walk.counted():
                        await work.tap(card, "approve_accept")
                        assert (await asked())["status"] == "approved"
                        await work.slack.shows(card["ts"], "*Delivered*")
                nursery.cancel_scope.cancel()


async def diff(walk: Walk) -> None:
    """check_diff of an approved request, until the agent has its answer and the card says that it is applied"""
    async with at_work(walk) as work:
        for round in range(ROUNDS):
            id = await work.approved(f"change {round}")
            async with walk.counted():
                assert (await call(work.agent, "check_diff", request_id=id))["status"] == "applied"
                await work.card(request_id=id, status="applied")


async def start(walk: Walk) -> None:
    """ctl start, until it has its reply and the agent's program runs"""
    with user_home("") as home:
        ctl = walk.through(home)
        workspace = home.workspace()
        script = home.root / "agent.py"
        script.write_text(AGENT)
        home.configure(f'host_cli = "{sys.executable}"\nhost_cli_args = {json.dumps([str(script)])}\n')
        with home.serving():
            for round in range(ROUNDS):
                async with walk.counted():
                    started = await typed(home, [*ctl, "start", f"task-{round}", "--workspace", str(workspace)])
                    while not (workspace / f"task-{round}.runs").exists():  # noqa: ASYNC110 - it tells nobody
                        await trio.sleep(0.01)
                await typed(home, [*ctl, "clear", started["session_id"]])


WALKS: dict[str, Callable[[Walk], Awaitable[None]]] = {
    each.__name__: each for each in (clearance, approve, tap, diff, start)
}


def made(name: str) -> Walk:
    """Make this walk, as often as it takes."""

    async def within() -> None:
        with trio.fail_after(SECONDS):
            await WALKS[name](walk)

    with tempfile.TemporaryDirectory(prefix="walks-", dir="/tmp") as directory:
        walk = Walk(Path(directory))
        trio.run(within)
    return walk


def proposal(workspace: Path, title: str) -> dict[str, str]:
    """A change to a file of its own that is there, as agents send it."""
    file = workspace / f"{title.replace(' ', '-')}.txt"
    file.write_text("one\n")
    return {"diff": f"--- a/{file.name}\n+++ b/{file.name}\n@@ -1 +1,2 @@\n one\n+two\n", "file_path": file.name}


async def typed(home: Home, command: list[str]) -> dict[str, Any]:
    """What ctl answers to a person at a terminal, who is none of an agent's processes."""
    done = await the_person().run_async(command, home.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
