"""A real server with three real agents, for the test of the page in a browser: one proposes changes, one asks, and one
waits for work. Prints a JSON object a line: the link to the page, and what each agent was answered. Each line on its
standard input asks for another link, with these fields of `web` as JSON. Ends when that input does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio
from mcp import ClientSession as Client

from tests.support.server_process import call, user_home

LINES = "".join(f"x{number} = {number}\n" for number in range(60))


def say(**data: object) -> None:
    sys.stdout.write(f"{json.dumps(data)}\n")
    sys.stdout.flush()


async def propose(agent: Client, workspace: Path) -> None:
    """Propose a change with two hunks, write what is approved of it, and propose two more."""
    change = {"file_path": "shop.py", "description": "<b>because</b> of \u202e it"}
    text = LINES.replace("x3 = 3\n", "x3 = 33\n").replace("x50 = 50\n", "x50 = 5050\n")
    answer = await call(
        agent, "check_clearance", **change, title="Change two numbers", risk_level="critical", content=text
    )
    say(answer="change", data=answer)
    await call(agent, "check_diff", request_id=answer["request_id"])
    text = (workspace / "shop.py").read_text()
    say(answer="written", data=text)
    answer = await call(
        agent, "check_clearance", **change, title="Add a number", risk_level="low", content=f"{text}y = 1\n"
    )
    say(answer="second change", data=answer)
    answer = await call(
        agent,
        "check_clearance",
        file_path="dos.txt",
        title="Shout",
        risk_level="low",
        content="one\r\nTWO\r\n" + "more\r\n" * 20 + "end",
    )
    await call(agent, "check_diff", request_id=answer["request_id"])
    say(answer="edited", data=(workspace / "dos.txt").read_bytes().decode())


async def ask(agent: Client) -> None:
    say(answer="question", data=await call(agent, "transmit", prompt_text="Which <b>way</b>?"))


async def wait(agent: Client) -> None:
    say(answer="standby", data=await call(agent, "standby"))


async def main() -> None:
    with user_home() as home, home.serving():
        workspace = home.workspace()
        (workspace / "shop.py").write_text(LINES)
        (workspace / "dos.txt").write_bytes(b"one\r\ntwo\r\n" + b"more\r\n" * 20 + b"end")
        async with (
            home.agent(workspace) as proposing,
            home.agent(home.workspace()) as asking,
            home.agent(home.workspace()) as waiting,
            home.person() as person,
            trio.open_nursery() as nursery,
        ):
            progress = [{"label": "find it", "status": "done"}, {"label": "mend it", "status": "in_progress"}]
            await call(proposing, "ping", progress_snapshot=progress)
            nursery.start_soon(propose, proposing, workspace)
            nursery.start_soon(ask, asking)
            nursery.start_soon(wait, waiting)
            for kind in ("approval", "prompt", "standby"):
                await person.card(kind=kind)
            say(**await person.do("web"))
            async for line in trio.wrap_file(sys.stdin):
                say(another=(await person.do("web", **json.loads(line)))["url"])
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
