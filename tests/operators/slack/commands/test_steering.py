"""session-pause, steer and task, as a person meets them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from intercom.model.session import SessionStatus
from tests.operators.slack.payloads import ANNA, BERT, CHANNEL
from tests.operators.slack.server import ELSEWHERE, command_server
from tests.operators.stand_in_service import START, session

BY = f"anna ({ANNA})"


async def test_pause_holds_up_the_only_session_that_runs_and_resume_lets_it_go_on(tmp_path: Path) -> None:
    older, newer = session("s-old"), session("s-new", updated_at=START + timedelta(minutes=1))
    gone = session("s-gone", updated_at=START + timedelta(minutes=2), status=SessionStatus.INTERRUPTED)
    async with command_server(tmp_path, newer, older, gone) as server:
        assert "2 sessions could be paused; give the id" in await server.told("session-pause", act="slack/0")
        assert "paused session s-new" in await server.told("session-pause s-new", act="slack/1")
        assert "paused session s-new" in await server.told("session-pause s-new", act="slack/1")
        assert server.service.acts == [("pause", "s-new", BY, "slack", "slack/1")]
        assert "is paused already" in await server.told("session-pause s-new", act="slack/2")
        assert "paused session s-old" in await server.told("session-pause", act="slack/3")
        assert "no session of yours that runs" in await server.told("session-pause", act="slack/4")
        assert "resumed session s-" in await server.told("session-resume", act="slack/5")


async def test_only_the_owner_holds_up_a_session_that_somebody_started_and_anybody_steers_it(tmp_path: Path) -> None:
    async with command_server(tmp_path, session("s-owned", owner_user_id=BERT)) as server:
        assert f"belongs to {BERT}" in await server.told("session-pause s-owned", act="slack/1")
        assert "no session of yours" in await server.told("session-pause", act="slack/2")
        assert server.service.acts == []
        assert "paused" in await server.told("session-pause", by=BERT, act="slack/3")
        assert "queued for session s-owned" in await server.told("steer mind the gap", act="slack/4")


async def test_words_go_to_the_session_that_is_named_or_the_only_one_there_is(tmp_path: Path) -> None:
    here, there = session("1a2b3c4d", channel_id=CHANNEL), session("5e6f7a8b", channel_id=ELSEWHERE)
    async with command_server(tmp_path, here, there) as server:
        assert "goes with the agent" in await server.told("steer mind the gap", act="slack/1")
        await server.told("steer 5e6f mind the step", act="slack/2")
        await server.told("steer --session 5e6f 1a2b is a number", act="slack/3")
        assert [act[:3] for act in server.service.acts] == [
            ("steer", "1a2b3c4d", "mind the gap"),
            ("steer", "5e6f7a8b", "mind the step"),
            ("steer", "5e6f7a8b", "1a2b is a number"),
        ]
        assert server.service.acts[0][3:] == (BY, "slack", "slack/1")
        assert "no session has an id" in await server.told("steer 99999999 hello", act="slack/4")
        assert "say what the agent is to be told" in await server.told("steer", act="slack/5")
        assert "say what the agent is to be told" in await server.told("steer 1a2b", act="slack/6")
    (tmp_path / "two").mkdir()
    both = (session("1a2b3c4d", channel_id=CHANNEL), session("5e6f7a8b", channel_id=CHANNEL))
    async with command_server(tmp_path / "two", *both) as server:
        assert "2 sessions run here; give the id of the one you mean" in await server.told("steer mind the gap")
        assert server.service.acts == []


@pytest.mark.real_time
async def test_a_task_is_left_for_the_channels_workspace_or_where_it_is_said(tmp_path: Path) -> None:
    root = tmp_path / "work"
    async with command_server(tmp_path, session("1a2b3c4d", channel_id=CHANNEL, workspace_root=str(root))) as server:
        assert f"left for {root}: it waits until an agent" in await server.told("task do it, please", act="slack/1")
        assert "left for session 1a2b3c4d" in await server.told("task --session 1a2b do it", act="slack/2")
        await server.told("task --workspace /else do it", act="slack/3")
        assert server.service.acts == [
            ("task", "do it, please", BY, "slack", None, str(root), "slack/1"),
            ("task", "do it", BY, "slack", "1a2b3c4d", None, "slack/2"),
            ("task", "do it", BY, "slack", None, "/else", "slack/3"),
        ]
        both = "task --workspace /else --session 1a2b do it"
        assert "give one of --session and --workspace" in await server.told(both, act="slack/4")
        assert "say what is to be done" in await server.told("task", act="slack/5")
