"""A person in Slack holds an agent up, tells it something, leaves it a task, and reads how far that has come."""

from __future__ import annotations

import pytest

from tests.operators.slack.live.server import at_work
from tests.operators.slack.live.test_commands import typed
from tests.slack import buttons, text_of


@pytest.mark.real_time
async def test_words_in_slack_are_shown_as_queued_and_then_as_delivered() -> None:
    async with at_work() as work:
        session = (await work.call("ping"))["session_id"]
        told = await typed(work, "steer mind the gap xoxb-1234567890-abcdefghij")
        assert f"queued for session {session[:8]}" in told
        queued = await work.slack.first(lambda one: "mind the gap" in text_of(one) and "Queued" in text_of(one))
        assert buttons(queued) == []
        assert "reply_broadcast" not in queued
        answer = await work.call("auto_check", tool_name="make")
        assert answer["instructions"][0]["text"].startswith("mind the gap")
        delivered = await work.slack.shows(queued["ts"], "the agent has it since")
        assert "✅ Delivered" in text_of(delivered)
        assert "xoxb" not in text_of(delivered)

        assert "waits until an agent of this workspace" in await typed(work, "task write the tests")
        left = await work.slack.first(lambda one: "write the tests" in text_of(one) and "Queued" in text_of(one))
        assert (await work.call("reboot"))["tasks"][0]["text"] == "write the tests"
        await work.slack.shows(left["ts"], "the agent has it since")

        assert f"paused session {session[:8]}" in await typed(work, "session-pause")
        assert (await work.call("ping"))["status"] == "paused"
        assert f"resumed session {session[:8]}" in await typed(work, "session-resume")
        assert "status" not in await work.call("ping")
