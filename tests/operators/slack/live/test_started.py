"""Agents that people start from Slack: started, read and ended there, with all that Slack shows of it."""

from __future__ import annotations

import json
import sys

import pytest
import trio

from intercom.operators.commands.command_handlers import SHORTEST_ID
from tests.operators.slack.live.server import server_in_slack
from tests.slack_standin import ALICE, BOB, CHANNEL, text_of
from tests.support.server_process import TRUSTING, Person

#: Says what it was told, a secret, and then nothing more; its argument is its task.
AGENT = """
import sys, time
print("on it:", sys.argv[-1])
print("key AKIAIOSFODNN7EXAMPLE and password = 'hunter2hunter2'", flush=True)
time.sleep(1000)
"""


@pytest.mark.real_time
async def test_an_agent_is_started_read_and_ended_from_slack() -> None:
    async with server_in_slack("") as server:
        script = server.home.root / "agent.py"
        script.write_text(AGENT)
        workspace = server.home.workspace()
        server.home.configure(
            f'host_cli = "{sys.executable}"\nhost_cli_args = {json.dumps([str(script)])}\n'
            f'default_workspace_root = "{workspace}"\n{TRUSTING}\n[slack]\nchannel_id = "{CHANNEL}"\n'
        )

        async def typed(text: str, user: str = ALICE) -> str:
            answer = await server.slack.command(user, CHANNEL, text).answer()
            return "" if not answer else "\n".join([answer.get("text", ""), text_of(answer)])

        with server.serving():
            await server.slack.connected()
            told = await typed("session-start fix it; `touch pwned` && $(touch pwned)")
            assert "started session" in told
            assert str(workspace) in told
            async with server.home.person() as person:
                (entry,) = (await person.do("list"))["sessions"]
            id = entry["session_id"]
            assert id[:8] in told
            assert (entry["mode"], entry["process"]["state"]) == ("remote", "running")
            # The thread says which session it is, and what it is at.
            top = await server.slack.first(lambda one: id[:8] in text_of(one) and "fix it" in text_of(one))
            await server.slack.first(lambda one: one.get("thread_ts") == top["ts"] and "agent started by" in str(one))
            # What it writes is masked; what it was told was no command to anybody.
            async with server.home.person() as person:
                while "key" not in (written := (await person.do("logs", id=id))["text"]):  # noqa: ASYNC110 - nor what is written
                    await trio.sleep(0.05)
            assert written.startswith("on it: fix it; `touch pwned` && $(touch pwned)\n")
            assert await typed(f"session-logs {id[:8]}", BOB) == ""
            shown = await server.slack.first(lambda one: "on it: fix it" in text_of(one))
            assert "AKIAIOSFODNN7EXAMPLE" not in str(shown)
            assert [*workspace.iterdir()] == []
            # It is whose it is.
            assert "belongs to" in await typed(f"session-clear {id[:SHORTEST_ID]}", BOB)
            assert "ended session" in await typed("session-clear")
            async with server.home.person() as person:
                while (await state(person)) != "over":  # noqa: ASYNC110 - nothing tells when all is settled
                    await trio.sleep(0.05)


async def state(person: Person) -> str:
    """How the only agent's process fares."""
    (entry,) = (await person.do("list", everything=True))["sessions"]
    return str(entry["process"]["state"])
