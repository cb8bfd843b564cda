"""session-start, session-logs, session-pause, steer and task, as a person meets them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from intercom.model.session import SessionStatus
from intercom.store.outbox import RowKind
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


@pytest.mark.real_time
async def test_start_gives_the_task_word_for_word_and_the_session_to_who_asked(tmp_path: Path) -> None:
    async with command_server(tmp_path) as server:
        told = await server.told('session-start it\'s "broken": fix   tests --now; rm -rf $HOME && `id`')
        assert "started session s-new" in told
        ((act, prompt, more),) = server.service.acts
        assert (act, prompt) == ("start", 'it\'s "broken": fix   tests --now; rm -rf $HOME && `id`')
        assert more == {
            "by": f"anna ({ANNA})",
            "channel": "slack",
            "workspace": str(tmp_path / "work"),
            "owner": ANNA,
            "mode": "remote",
            "chat_channel": CHANNEL,
            "act": "slack/1.2.3",
        }
        # Delivered again, it is answered as the first time, and nothing is started.
        assert await server.told("session-start anything") == told
        assert len(server.service.acts) == 1


@pytest.mark.real_time
async def test_it_works_where_it_is_told_and_is_shown_where_the_app_is(tmp_path: Path) -> None:
    async with command_server(tmp_path, session("s-1", workspace_root=str(tmp_path))) as server:
        await server.told("session-start --workspace /some/where go", channel=ELSEWHERE)
        await server.told("session-start --session s-1 go", act="slack/2")
        # After the prompt it was text, and the agent was started in another project.
        await server.told("session-start fix the tests --workspace /some/where", channel=ELSEWHERE, act="slack/3")
        first, second, third = server.service.acts
        assert (third[1], third[2]["workspace"]) == ("fix the tests", "/some/where")
        assert (first[2]["workspace"], first[2]["chat_channel"]) == ("/some/where", CHANNEL)
        assert second[2]["workspace"] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("session-start", "say what the agent is to do"),
        ("session-start --force go", "there is no option --force"),
        ("session-logs nope", "no session has an id"),
        ("session-logs s-new --stream stdin", "--stream takes one of stdout, stderr"),
        ("session-logs s-new --lines many", "--lines is a number"),
        ("session-logs s-new --lines 99999999999999999999", "--lines is a number"),
        ("session-logs", "no agent was started here"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_started(tmp_path: Path, text: str, says: str) -> None:
    sessions = () if text == "session-logs" else (session("s-new"),)
    async with command_server(tmp_path, *sessions) as server:
        assert says in await server.told(text)
        assert server.service.acts == []


@pytest.mark.real_time
async def test_logs_stand_in_the_channel_masked_and_long_ones_as_a_file_too(tmp_path: Path) -> None:
    async with command_server(tmp_path, session("s-new", workspace_root="/ws")) as server:
        server.service.agent_processes.text = "the key is hush-123\n" + "line\n" * 2000
        assert await server.type("session-logs --stream stderr --lines 9") is None
        shown = await server.shown()
        assert "stderr of session s-new" in shown
        assert "of session s-new in /ws" in shown
        beside = await server.find("command/slack/1.2.3/file")
        assert beside is not None
        assert beside.kind is RowKind.FILE
        assert "the key is [masked: test secret]" in str(beside.content)
        assert "hush" not in str(beside.content) + shown
        assert server.service.acts == [("output", "s-new", "stderr", 9, None)]
