"""Every command as a person types it: a real agent, a real server, real files and processes, and the stand-in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.operators.slack.live.server import CONFIG, ServerInSlack, server_in_slack
from tests.slack_standin import ALICE, CHANNEL, MALLORY, text_of
from tests.support.server_process import begin

COMMANDS = """
[commands]
where = "pwd"
secret = "echo token ghp_0123456789abcdefghijABCDEFGHIJ012345 && seq 600"
"""


async def typed(server: ServerInSlack, text: str) -> str:
    """What Alice alone reads in answer to a command."""
    answer = await server.slack.command(ALICE, CHANNEL, text).answer()
    return "" if not answer else "\n".join([answer.get("text", ""), text_of(answer)])


async def shown(server: ServerInSlack, *words: str) -> dict[str, Any]:
    """The message in the channel in which all of this stands."""
    return await server.slack.first(lambda one: all(word in text_of(one) for word in words))


@pytest.mark.real_time
async def test_every_command_does_what_help_says_of_it() -> None:
    async with server_in_slack(CONFIG + COMMANDS) as server, trio.open_nursery() as nursery:
        with server.serving():
            workspace = server.home.workspace()
            (workspace / "src").mkdir()
            (workspace / "src" / "app.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
            (workspace / "long.txt").write_text("line\n" * 200)
            async with server.home.agent(workspace) as agent:
                await server.slack.connected()
                waiting: Callable[[], Awaitable[Any]] = begin(nursery, agent, "standby", message="Done; what next?")
                await server.slack.card("what next?")

                told = await typed(server, "help")
                assert all(f"/intercom {name}" in told for name in ("sessions", "show-file", "where", "secret"))
                assert "show-file src/main.py --lines 10:50" in await typed(server, "help files")
                assert "did you mean /intercom sessions" in await typed(server, "sesions")
                listed = await typed(server, "sessions")
                assert "active" in listed
                assert str(workspace) in listed

                assert await typed(server, "list-files") == ""
                await shown(server, "└── src/\n    └── app.py", "1 directory, 2 files", "/intercom list-files")
                assert await typed(server, "show-file src/app.py --lines 2:3") == ""
                await shown(server, "two = 2\nthree = 3", "3 lines")
                await typed(server, "show-file long.txt")
                await server.slack.wait_for(lambda: [one for one in server.slack.files if one.completed])
                assert "leads outside the workspace" in await typed(server, "show-file ../server.log")

                assert await typed(server, "where") == ""
                await shown(server, str(workspace), "exit code 0")
                await typed(server, "secret")
                await shown(server, "secret", "599\n600", "exit code 0")
                files = await server.slack.wait_for(lambda: [one for one in server.slack.files if one.completed][1:])
                data = files[0].data or b""
                assert b"ghp_0123" not in data
                assert b"masked" in data

                assert "with your instruction" in await typed(server, "session-resume don’t stop")
                answer = await waiting()
                assert (answer["status"], answer["instruction"]) == ("resumed", "don’t stop")

                silent = server.slack.command(MALLORY, CHANNEL, "session-clear")
                assert not await silent.answer()
                assert "active" in await typed(server, "sessions")
                assert "ended session" in await typed(server, "session-clear")
                assert str(workspace) not in await typed(server, "sessions")
                assert server.slack.ephemerals(MALLORY) == []
            nursery.cancel_scope.cancel()
