"""Commands of the configuration that last, fail, hang and flood, and what is refused before anything runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.operators.slack.live.server import CONFIG, Work, at_work
from tests.slack import ALICE, CHANNEL, OTHER_CHANNEL, text_of

pytestmark = pytest.mark.real_time

# Top-level settings come before any table.
COMMANDS = f"""
command_output_limit_bytes = 4096
{CONFIG}
[timeouts]
command_timeout_seconds = 3
[commands]
quick = "echo quick & echo done"
fails = "sh -c 'echo no such luck >&2; exit 3'"
slow = "sh -c 'echo begun; read line < go; echo ended'"
hangs = "sh -c 'echo waiting; sleep 600'"
floods = "yes"
"""


async def typed(work: Work, text: str, user: str = ALICE, channel: str = CHANNEL) -> str:
    """What one person alone reads in answer to a command."""
    answer = await work.slack.command(user, channel, text).answer()
    return "" if not answer else "\n".join([answer.get("text", ""), text_of(answer)])


async def shown(work: Work, *words: str) -> dict[str, Any]:
    """The message in which all of this stands."""
    return await work.slack.first(lambda one: all(word in text_of(one) for word in words))


async def test_commands_that_end_well_badly_late_and_never() -> None:
    async with at_work(COMMANDS) as work:
        await work.call("ping")
        assert await typed(work, "hangs") == ""
        assert await typed(work, "floods") == ""
        assert await typed(work, "fails") == ""
        await shown(work, "fails", "no such luck", "❌ failed", "exit code 3")
        # One that lasts is shown while it runs, in the message that tells its end.
        fifo = work.workspace / "go"
        os.mkfifo(fifo)
        assert await typed(work, "slow") == ""
        running = await shown(work, "slow", "begun", "⏳ running")
        with fifo.open("w") as go:
            go.write("on\n")
        ended = await shown(work, "slow", "begun\nended", "✅ done", "exit code 0")
        assert ended["ts"] == running["ts"]
        hung = await shown(work, "hangs", "waiting", "⌛ timed out")
        assert "killed: it ran longer than 3 s" in text_of(hung)
        flood = await shown(work, "floods", "✂️ the output limit was reached")
        assert "timed out" in text_of(flood) or "stopped" in text_of(flood)


async def test_what_is_refused_and_what_help_knows() -> None:
    async with at_work(COMMANDS) as work:
        await work.call("ping")
        for category, words in {
            "session": ("sessions", "session-resume", "session-clear"),
            "files": ("list-files", "show-file"),
            "custom": ("quick", "fails"),
            "help": ("help",),
        }.items():
            told = await typed(work, f"help {category}")
            assert all(f"/intercom {word}" in told for word in words), category
        assert "/intercom list-files" in await typed(work, "help list-files")
        assert "/intercom help lists the commands" in await typed(work, "xyzzy")
        assert "there is no command 'quick;'" in await typed(work, "quick; rm -rf .")
        assert "takes no arguments" in await typed(work, "quick & rm -rf .")
        assert "there is no option --force" in await typed(work, "quick --force")
        assert "no session has an id" in await typed(work, "list-files --session ffffffff")
        assert "no session of yours" in await typed(work, "session-resume")
        assert "not closed" in await typed(work, 'show-file "new')
        assert len(work.slack.messages(OTHER_CHANNEL)) == 0
