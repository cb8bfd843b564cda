"""A real server with rooms, and with as many open requests as its argument says, each of an agent of its own, for the
measurement of many tabs. Prints a JSON object: where teams reach the rooms, and the link to the page. Each line on its
standard input is a number, under which one more agent asks at once; its title has the time. Ends when that input does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import trio

from intercom.local.places import Places
from tests.bench.held_bench import Agent
from tests.rooms.node import free_port
from tests.support.server_process import TRUSTING, user_home


def ask(where: Places, workspace: Path, count: int) -> list[Agent]:
    """Let agents ask for a clearance each. Returns them: a request ends with its agent."""
    agents = [Agent(number, str(workspace), where) for number in range(1, count + 1)]
    for number, agent in enumerate(agents):
        file = f"f{number}.py"
        (workspace / file).write_text(f"x = {number}\n")
        diff = f"--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-x = {number}\n+x = {number + 1}\n"
        agent.call(1, "check_clearance", {"title": f"change {number}", "diff": diff, "file_path": file})
    return agents


def ask_now(agent: Agent, number: str) -> None:
    """Ask, with the time in the title, so urgently that it is on top of the list."""
    change = {"diff": "a\n", "file_path": f"now{number}.txt", "risk_level": "critical"}
    agent.call(1, "check_clearance", {"title": f"ask {number} at {round(time.time() * 1000)}", **change})


async def main() -> None:
    port = free_port()
    config = f"http_port = {port}\n{TRUSTING}[rooms]\nenabled = true\nloop_budget = 0\n"
    with user_home(config) as home, home.serving():
        async with home.person() as person:
            workspace = home.workspace()
            agents = await trio.to_thread.run_sync(ask, home.places, workspace, int(sys.argv[1]))
            for number in range(len(agents)):
                await person.card(title=f"change {number}")
            opened = await person.do("web")
        sys.stdout.write(f"{json.dumps({'api': f'http://127.0.0.1:{port}', **opened})}\n")
        sys.stdout.flush()
        async for line in trio.wrap_file(sys.stdin):
            # A request ends with its agent. The connection is not part of what is measured.
            agents.append(await trio.to_thread.run_sync(Agent, len(agents) + 1, str(workspace), home.places))
            ask_now(agents[-1], line.strip())
        agents.clear()


if __name__ == "__main__":
    trio.run(main)
