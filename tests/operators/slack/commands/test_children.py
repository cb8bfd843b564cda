"""session-start and session-logs, as a person meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from intercom.store.outbox import RowKind
from tests.operators.slack.payloads import ANNA, CHANNEL
from tests.operators.slack.server import ELSEWHERE, command_server
from tests.operators.stand_in_service import session


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
        server.service.children.text = "the key is hush-123\n" + "line\n" * 2000
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
