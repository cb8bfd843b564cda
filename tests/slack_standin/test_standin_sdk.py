"""Slack's own SDK, unchanged, drives the stand-in: its WebClient and its Socket Mode client, in threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler
from slack_sdk.models import blocks, views
from slack_sdk.socket_mode.builtin import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from tests.slack_standin import ALICE, CHANNEL, serve

pytestmark = pytest.mark.real_time

CARD = [
    blocks.HeaderBlock(text="Approval"),
    blocks.SectionBlock(text="*Change* `a.py`", fields=["*Risk*\nhigh", "*Files*\n1"]),
    blocks.ContextBlock(elements=[blocks.MarkdownTextObject(text="from a test")]),
    blocks.DividerBlock(),
    blocks.ActionsBlock(elements=[blocks.ButtonElement(text="Reject", action_id="reject", value="1", style="danger")]),
]
MODAL = views.View(
    type="modal",
    callback_id="why",
    title="Reject",
    submit="Send",
    blocks=[
        blocks.InputBlock(
            block_id="reason", label="Reason", element=blocks.PlainTextInputElement(action_id="text", multiline=True)
        )
    ],
)


async def in_thread(call: Callable[..., Any], **args: Any) -> Any:
    return await trio.to_thread.run_sync(partial(call, **args))


async def test_the_sdks_web_client_gets_what_it_expects() -> None:
    async with serve() as slack:
        web = WebClient(slack.bot_token, base_url=slack.api_url)
        test = await in_thread(web.auth_test)
        assert test["user_id"] == slack.team.bot_user
        assert "chat:write" in test.headers["x-oauth-scopes"]
        mine = {"event_type": "a", "event_payload": {"id": "1"}}
        posted = await in_thread(web.chat_postMessage, channel=CHANNEL, text="card", blocks=CARD, metadata=mine)
        await in_thread(web.chat_update, channel=CHANNEL, ts=posted["ts"], text="done", blocks=[])
        replies = await in_thread(
            web.conversations_replies, channel=CHANNEL, ts=posted["ts"], include_all_metadata=True
        )
        assert (replies["messages"][0]["text"], replies["messages"][0]["metadata"]) == ("done", mine)
        uploaded = await in_thread(
            web.files_upload_v2, channel=CHANNEL, content="+x\n", filename="a.diff", snippet_type="diff"
        )
        info = await in_thread(web.files_info, file=uploaded["file"]["id"])
        assert CHANNEL in info["file"]["shares"]["public"]
        pages = await in_thread(lambda: list(web.conversations_history(channel=CHANNEL, limit=1)))
        assert len(pages) == 2
        with pytest.raises(SlackApiError) as refused:
            await in_thread(web.chat_postMessage, channel=CHANNEL, text="x", blocks=[{"type": "nonsense"}])
        assert refused.value.response["error"] == "invalid_blocks"


async def test_the_sdks_retry_handler_understands_the_limit() -> None:
    async with serve() as slack:
        handler = RateLimitErrorRetryHandler(max_retry_count=1)
        web = WebClient(slack.bot_token, base_url=slack.api_url, retry_handlers=[handler])
        slack.plan("chat.postMessage", "limit", seconds=0)
        assert (await in_thread(web.chat_postMessage, channel=CHANNEL, text="x"))["ok"]
        assert slack.count("chat.postMessage") == 2


async def test_the_sdks_socket_mode_client_hears_a_person_and_answers() -> None:
    async with serve(echo=False) as slack:
        web = WebClient(slack.bot_token, base_url=slack.api_url)
        heard: list[SocketModeRequest] = []

        def handle(client: SocketModeClient, request: SocketModeRequest) -> None:
            heard.append(request)
            payload = None
            if request.payload.get("type") == "block_actions":
                web.views_open(trigger_id=request.payload["trigger_id"], view=MODAL)
            elif request.payload.get("type") == "view_submission":
                said = request.payload["view"]["state"]["values"]["reason"]["text"]["value"]
                payload = {"response_action": "errors", "errors": {"reason": "longer"}} if len(said) < 5 else None
            elif request.type == "slash_commands":
                payload = {"text": f"you said {request.payload['text']}"}
            client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))

        app_web = WebClient(slack.app_token, base_url=slack.api_url)
        client = SocketModeClient(slack.app_token, web_client=app_web)
        client.socket_mode_request_listeners.append(handle)  # type: ignore[arg-type]
        await in_thread(client.connect)
        try:
            await slack.connected()
            posted = await in_thread(web.chat_postMessage, channel=CHANNEL, text="card", blocks=CARD)
            await slack.tap(ALICE, posted["ts"], "reject").answer()
            await slack.submit(ALICE, "why", {"text": "no"}).answer()
            assert slack.view_errors(ALICE) == {"reason": "longer"}
            await slack.submit(ALICE, "why", {"text": "too risky"}).answer()
            assert slack.views(ALICE) == []
            assert await slack.command(ALICE, CHANNEL, "help").answer() == {"text": "you said help"}
            slack.say(ALICE, CHANNEL, "hello")
            await slack.acted_on()
            assert [one.type for one in heard] == ["interactive"] * 3 + ["slash_commands", "events_api"]
            assert not slack.unanswered
            assert not slack.socket_mode.strange
        finally:
            await in_thread(_closed, client=client)


def _closed(client: SocketModeClient) -> None:
    client.closed = True  # before the drop, or it connects anew
    client.disconnect()
    client.close()
