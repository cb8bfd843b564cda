"""The Web API of the stand-in answers as Slack's does: what is right, and each refusal."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.slack_standin import CHANNEL, OTHER_CHANNEL, UNJOINED, SlackRefuses, limits, serve
from tests.slack_standin.app import app_of, button, modal, section
from tests.slack_standin.chat import metadata

ACTIONS = {"type": "actions", "elements": [button()]}


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("channel_not_found", "chat.postMessage", {"channel": "C0NOTHERE", "text": "x"}),
    ("not_in_channel", "chat.postMessage", {"channel": UNJOINED, "text": "x"}),
    ("channel_not_found", "chat.postMessage", {"channel": "C0PRIVATE", "text": "x"}),
    ("is_archived", "chat.postMessage", {"channel": "C0OLD", "text": "x"}),
    ("no_text", "chat.postMessage", {"channel": CHANNEL}),
    ("no_text", "chat.postMessage", {"channel": CHANNEL, "text": "", "blocks": []}),
    ("invalid_blocks", "chat.postMessage", {"channel": CHANNEL, "blocks": [section("x" * 3001)]}),
    ("invalid_blocks_format", "chat.postMessage", {"channel": CHANNEL, "blocks": "{"}),
    ("msg_blocks_too_long", "chat.postMessage", {"channel": CHANNEL, "blocks": [section("x" * 3000)] * 5}),
    ("invalid_metadata_schema", "chat.postMessage", {"channel": CHANNEL, "text": "x", "metadata": {"event_type": "a"}}),
    ("thread_not_found", "chat.postMessage", {"channel": CHANNEL, "text": "x", "thread_ts": "1.000001"}),
    ("message_not_found", "chat.update", {"channel": CHANNEL, "ts": "1.000001", "text": "x"}),
    ("not_in_channel", "conversations.history", {"channel": UNJOINED}),
    ("thread_not_found", "conversations.replies", {"channel": CHANNEL, "ts": "1.000001"}),
    ("invalid_cursor", "conversations.history", {"channel": CHANNEL, "cursor": "nonsense"}),
    ("invalid_limit", "conversations.history", {"channel": CHANNEL, "limit": 1001}),
    ("invalid_ts_oldest", "conversations.history", {"channel": CHANNEL, "oldest": "yesterday"}),
    ("user_not_found", "users.info", {"user": "U0NOBODY"}),
    ("invalid_trigger_id", "views.open", {"trigger_id": "1.2.3", "view": "VIEW"}),
    ("invalid_arguments", "views.open", {"trigger_id": "1.2.3", "view": {"type": "modal"}}),
    ("file_not_found", "files.info", {"file": "F0NONE"}),
    ("unknown_snippet_type", "files.getUploadURLExternal", {"filename": "a", "length": 1, "snippet_type": "patch"}),
    ("unknown_method", "chat.shout", {}),
]


async def test_each_refusal_has_slacks_word() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.add_channel("C0PRIVATE", "secret", member=False, private=True)
        slack.add_channel("C0OLD", "old", archived=True)
        await app.call("chat.postMessage", channel=CHANNEL, text="so that there is something to page through")
        for word, method, args in REFUSED:
            if args.get("view") == "VIEW":
                args = {**args, "view": modal()}
            answer = await app.call(method, **args)
            assert (answer["ok"], answer.get("error")) == (False, word), (method, args, answer)
        long = await app.call("chat.update", channel=CHANNEL, ts=slack.messages()[0]["ts"], text="x" * 4001)
        assert long["error"] == "msg_too_long"
        assert slack.count("chat.postMessage", ok=True) == 1


async def test_invalid_blocks_say_what_is_wrong_where() -> None:
    async with serve() as slack, app_of(slack) as app:
        answer = await app.call("chat.postMessage", channel=CHANNEL, blocks=[section(), section("x" * 3001)])
        assert (
            "[ERROR] must be less than 3001 characters [json-pointer:/blocks/1/text/text]"
            in (answer["response_metadata"]["messages"])
        )


async def test_tokens_and_scopes_are_looked_at() -> None:
    async with serve() as slack, app_of(slack) as app:
        test = await app.post("auth.test")
        assert "chat:write" in test.headers["x-oauth-scopes"]
        assert (await app.call("auth.test", "xoxb-other"))["error"] == "invalid_auth"
        assert (await app.http.post(slack.api_url + "auth.test")).json()["error"] == "not_authed"
        assert (await app.call("apps.connections.open"))["error"] == "not_allowed_token_type"
        assert (await app.call("chat.postMessage", slack.app_token))["error"] == "not_allowed_token_type"
        slack.team.bot_scopes = frozenset({"users:read"})
        refused = await app.call("chat.postMessage", channel=CHANNEL, text="x")
        assert (refused["error"], refused["needed"], refused["provided"]) == (
            "missing_scope",
            "chat:write",
            "users:read",
        )
        slack.team.revoked[slack.bot_token] = "account_inactive"
        assert (await app.call("auth.test"))["error"] == "account_inactive"


async def test_history_and_replies_come_page_by_page() -> None:
    async with serve() as slack, app_of(slack) as app:
        posted = [(await app.call("chat.postMessage", channel=CHANNEL, text=str(n)))["ts"] for n in range(5)]
        for n in range(5):
            await app.call("chat.postMessage", channel=CHANNEL, text=f"r{n}", thread_ts=posted[0])
        loud = {"thread_ts": posted[0], "reply_broadcast": True}
        await app.call("chat.postMessage", channel=CHANNEL, text="loud", **loud)
        first = await app.call("conversations.history", channel=CHANNEL, limit=4)
        assert [one["text"] for one in first["messages"]] == ["loud", "4", "3", "2"]
        assert first["has_more"]
        cursor = first["response_metadata"]["next_cursor"]
        last = await app.call("conversations.history", channel=CHANNEL, limit=4, cursor=cursor)
        assert [one["text"] for one in last["messages"]] == ["1", "0"]
        assert not last["has_more"]
        assert last["messages"][1]["reply_count"] == 6
        since = await app.call("conversations.history", channel=CHANNEL, oldest=posted[3])
        assert [one["text"] for one in since["messages"]] == ["loud", "4"]
        since = await app.call("conversations.history", channel=CHANNEL, oldest=posted[3], inclusive=True)
        assert [one["text"] for one in since["messages"]] == ["loud", "4", "3"]
        some = await app.call("conversations.replies", channel=CHANNEL, ts=posted[0], limit=3)
        assert [one["text"] for one in some["messages"]] == ["0", "r0", "r1", "r2"]
        cursor = some["response_metadata"]["next_cursor"]
        rest = await app.call("conversations.replies", channel=CHANNEL, ts=posted[0], limit=3, cursor=cursor)
        assert [one["text"] for one in rest["messages"]] == ["0", "r3", "r4", "loud"]
        reply = some["messages"][1]["ts"]
        nested = await app.call("chat.postMessage", channel=CHANNEL, text="x", thread_ts=reply)
        assert nested["error"] == "cannot_reply_to_message"


async def test_too_long_a_text_is_cut_and_said_so() -> None:
    async with serve() as slack, app_of(slack) as app:
        answer = await app.call("chat.postMessage", channel=CHANNEL, text="x" * 40_001)
        assert answer["response_metadata"]["warnings"] == ["message_truncated"]
        assert len(slack.messages()[0]["text"]) == 40_000


async def test_posting_is_limited_by_channel_and_says_how_long_to_wait() -> None:
    async with serve(rates=limits.RATES) as slack, app_of(slack) as app:
        statuses = [(await app.post("chat.postMessage", channel=CHANNEL, text="x")).status_code for _ in range(6)]
        assert statuses == [200] * 4 + [429] * 2
        assert (await app.post("chat.postMessage", channel=OTHER_CHANNEL, text="x")).status_code == 200
        limited = await app.post("chat.postMessage", channel=CHANNEL, text="x")
        assert (limited.headers["retry-after"], limited.json()) == ("1", {"ok": False, "error": "ratelimited"})
        await trio.sleep(1)
        assert (await app.post("chat.postMessage", channel=CHANNEL, text="x")).status_code == 200
        assert len(slack.messages()) == 5


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("{", "invalid_metadata_format"),
        ({"event_type": "a b", "event_payload": {}}, "invalid_metadata_schema"),
        ({"event_type": "a", "event_payload": {"x": "y" * 8000}}, "metadata_too_large"),
        ({"event_type": "a", "event_payload": {}, "more": 1}, "invalid_metadata_format"),
    ],
)
def test_metadata_has_a_form_and_a_size(value: Any, word: str) -> None:
    with pytest.raises(SlackRefuses, match=word):
        metadata(value)
