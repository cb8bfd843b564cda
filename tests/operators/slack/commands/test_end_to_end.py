"""Every command as a person types it: a real agent, a real server, real files and processes, and the stand-in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from tests.agents.live import begin, live
from tests.operators.slack.live.house import CONFIG, SlackHouse, slack_house, text_of
from tests.slack import ALICE, CHANNEL, MALLORY

COMMANDS = """
[commands]
where = "pwd"
secret = "echo token ghp_0123456789abcdefghijABCDEFGHIJ012345 && seq 600"
"""


async def typed(house: SlackHouse, text: str) -> str:
    """What Alice alone reads in answer to a command."""
    answer = await house.slack.command(ALICE, CHANNEL, text).answer()
    return "" if not answer else "\n".join([answer.get("text", ""), text_of(answer)])


async def shown(house: SlackHouse, *words: str) -> dict[str, Any]:
    """The message in the channel in which all of this stands."""
    return await house.message(lambda one: all(word in text_of(one) for word in words))


@live
async def test_every_command_does_what_help_says_of_it() -> None:
    async with slack_house(CONFIG + COMMANDS) as house, trio.open_nursery() as nursery:
        with house.serving():
            workspace = house.home.workspace()
            (workspace / "src").mkdir()
            (workspace / "src" / "app.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
            (workspace / "long.txt").write_text("line\n" * 200)
            async with house.home.agent(workspace) as agent:
                await house.slack.connected()
                waiting: Callable[[], Awaitable[Any]] = begin(nursery, agent, "standby", message="Done; what next?")
                await house.card("what next?")

                told = await typed(house, "help")
                assert all(f"/intercom {name}" in told for name in ("sessions", "show-file", "where", "secret"))
                assert "show-file src/main.py --lines 10:50" in await typed(house, "help files")
                assert "did you mean /intercom sessions" in await typed(house, "sesions")
                listed = await typed(house, "sessions")
                assert "active" in listed
                assert str(workspace) in listed

                assert await typed(house, "list-files") == ""
                await shown(house, "└── src/\n    └── app.py", "1 directory, 2 files", "/intercom list-files")
                assert await typed(house, "show-file src/app.py --lines 2:3") == ""
                await shown(house, "two = 2\nthree = 3", "3 lines")
                await typed(house, "show-file long.txt")
                await house.slack.wait_for(lambda: [one for one in house.slack.files if one.completed])
                assert "leads outside the workspace" in await typed(house, "show-file ../server.log")

                assert await typed(house, "where") == ""
                await shown(house, str(workspace), "exit code 0")
                await typed(house, "secret")
                await shown(house, "secret", "599\n600", "exit code 0")
                files = await house.slack.wait_for(lambda: [one for one in house.slack.files if one.completed][1:])
                data = files[0].data or b""
                assert b"ghp_0123" not in data
                assert b"masked" in data

                assert "with your instruction" in await typed(house, "session-resume don’t stop")
                answer = await waiting()
                assert (answer["status"], answer["instruction"]) == ("resumed", "don’t stop")

                silent = house.slack.command(MALLORY, CHANNEL, "session-clear")
                assert not await silent.answer()
                assert "active" in await typed(house, "sessions")
                assert "ended session" in await typed(house, "session-clear")
                assert str(workspace) not in await typed(house, "sessions")
                assert house.slack.ephemerals(MALLORY) == []
            nursery.cancel_scope.cancel()
