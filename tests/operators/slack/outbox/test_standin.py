"""The sender over the real wire: our Web API client against the stand-in for Slack, with its rules and its faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from intercom.operators.slack import outbox
from intercom.operators.slack.web_api import SlackTokens, WebApi
from intercom.store.outbox import RowKind, Urgency
from tests.operators.desk import START
from tests.operators.slack.server import SlackServer, crashing, sender_server
from tests.slack import CHANNEL, UNJOINED, Standin, serve
from tests.support.trio_case import trio_test

DIFF = {"filename": "a.diff", "title": "a.diff", "snippet_type": "diff", "text": "+x\n"}


@asynccontextmanager
async def server_and_slack() -> AsyncIterator[tuple[SlackServer, Standin]]:
    async with serve(epoch=START.timestamp()) as slack:
        tokens = SlackTokens(app=slack.app_token, bot=slack.bot_token)
        async with (
            WebApi(tokens, base_url=slack.api_url) as web,
            sender_server(web=web, channel=CHANNEL, poll=0.02) as server,
        ):
            yield server, slack


def texts(slack: Standin) -> list[Any]:
    return [message["text"] for message in slack.messages() if message.get("subtype") != "channel_join"]


@trio_test(real_time=True)
async def test_a_session_is_shown() -> None:
    async with server_and_slack() as (server, slack):
        await server.put_all(
            [
                ("thread/s1", "root", {}),
                ("card/1", "pending", {"thread": "thread/s1", "open": True}),
                ("diff/1", DIFF, {"thread": "card/1", "kind": RowKind.FILE}),
                *((f"log/{n}", f"log {n}", {"thread": "thread/s1", "urgency": Urgency.LOG}) for n in range(3)),
            ]
        )
        await server.settled()
        await server.interim("card/1", "processing", 60)
        await slack.wait_for(lambda: "processing" in texts(slack))
        await server.put("card/1", "approved")
        await server.settled()
        root, card, file, logs = slack.messages()
        assert (root["text"], card["text"], logs["text"]) == ("root", "approved", "log 0\nlog 1\nlog 2")
        assert {card["thread_ts"], file["thread_ts"], logs["thread_ts"]} == {root["ts"]}
        assert [upload.data for upload in slack.files] == [b"+x\n"]
        assert card["metadata"]["event_payload"] == {"client_id": (await server.row("card/1")).client_id, "version": 2}


@trio_test(real_time=True)
@pytest.mark.parametrize(("fault", "how"), [("lose", {}), ("status", {"status": 502}), ("cut", {}), ("limit", {})])
@pytest.mark.parametrize("thread", [None, "thread/s1"])
async def test_faults_post_nothing_twice(
    fault: str, how: dict[str, Any], thread: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time is real here, and what is cut may come for so long.
    monkeypatch.setattr(outbox, "SETTLING", 1.0)
    async with server_and_slack() as (server, slack):
        await server.put("thread/s1", "root")
        await server.settled()
        slack.plan("chat.postMessage", fault, **how)
        await server.put("card/1", "card", thread=thread)
        await server.settled()
        assert texts(slack) == ["root", "card"]


@trio_test(real_time=True)
@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_file_whose_answer_was_lost_is_shared_once(method: str) -> None:
    async with server_and_slack() as (server, slack):
        slack.plan(method, "lose")
        await server.put("diff/1", DIFF, kind=RowKind.FILE)
        await server.settled()
        assert len(slack.messages()) == 1


@trio_test(real_time=True)
async def test_a_sender_that_fell_after_the_post_finds_it() -> None:
    async with server_and_slack() as (server, slack):
        with crashing("outbox.after_post") as passed:
            await server.put("card/1", "card")
            await server.settled()
        assert len(passed) == 2
        assert texts(slack) == ["card"]
        assert slack.count("chat.postMessage") == 1


@trio_test(real_time=True)
async def test_a_message_people_deleted_is_posted_again_while_it_is_open() -> None:
    async with server_and_slack() as (server, slack):
        await server.put("card/1", "card", open=True)
        await server.settled()
        slack.remove(slack.messages()[0]["ts"])
        await server.put("card/1", "card again", open=True)
        await server.settled()
        assert texts(slack)[-1] == "card again"


@trio_test(real_time=True)
async def test_a_channel_the_app_is_not_in_is_told_of() -> None:
    async with server_and_slack() as (server, slack):
        await server.put("card/1", "card", channel=UNJOINED)
        await slack.wait_for(lambda: slack.count("chat.postMessage", ok=False) == 1)
        await server.put("card/2", "card 2")
        await slack.wait_for(lambda: texts(slack) == ["card 2"])
        assert "not_in_channel" in (await server.health()).troubles[UNJOINED]
