"""chat.*: messages posted, changed, taken away; and what posting one does to its channel."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from tests.slack_standin import blocks, limits
from tests.slack_standin.team import Channel, Json, SlackRefuses, Team


def post_message(team: Team, args: Json) -> Json:
    channel = team.channel(args.get("channel"), member=True, writable=True)
    content, warning = _content(args)
    thread_ts = args.get("thread_ts")
    if thread_ts:
        _root(channel, str(thread_ts))
        content["thread_ts"] = str(thread_ts)
        if _true(args.get("reply_broadcast")):
            content["subtype"] = "thread_broadcast"
    if args.get("metadata"):
        content["metadata"] = metadata(args["metadata"])
    message = put(team, channel, {**by_bot(team), **content})
    answer = {"ok": True, "channel": channel.id, "ts": message["ts"], "message": shown(message, with_metadata=True)}
    if warning:
        answer |= warning
    return answer


def update(team: Team, args: Json) -> Json:
    channel = team.channel(args.get("channel"), writable=True)
    message = _mine(team, channel, args.get("ts"), "cant_update_message")
    if len(str(args.get("text") or "")) > limits.TEXT_OF_UPDATE:
        raise SlackRefuses("msg_too_long")
    content, _ = _content(args)
    before = copy.deepcopy(message)
    # What is not said stays as it was.
    message.update(content)
    if args.get("metadata"):
        message["metadata"] = metadata(args["metadata"])
    message["edited"] = {"user": team.bot_id, "ts": team.stamp()}
    team.change()
    shows = shown(message)
    answer = {"ok": True, "channel": channel.id, "ts": message["ts"], "text": message["text"], "message": shows}
    event = {"subtype": "message_changed", "hidden": True, "message": shows, "previous_message": shown(before)}
    return {**answer, "_event": {**event, "channel": channel.id, "ts": team.stamp()}}


def post_ephemeral(team: Team, args: Json) -> Json:
    channel = team.channel(args.get("channel"), member=True, writable=True)
    if str(args.get("user")) not in team.users:
        raise SlackRefuses("user_not_in_channel")
    content, _ = _content(args)
    if args.get("thread_ts"):
        content["thread_ts"] = str(args["thread_ts"])
    return {"ok": True, "message_ts": add_ephemeral(team, channel.id, str(args["user"]), content)}


def add_ephemeral(team: Team, channel: str, user: str, content: Json) -> str:
    """Show something to one person only."""
    ts = team.stamp()
    team.ephemerals.append({**by_bot(team), **content, "ts": ts, "channel": channel, "to": user})
    team.change()
    return ts


def put(team: Team, channel: Channel, message: Json) -> Json:
    """Into the channel; its thread, if it is a reply, counts it. Returns the message as kept."""
    ts = message.setdefault("ts", team.stamp())
    channel.messages[ts] = message
    root = channel.messages.get(message.get("thread_ts", ""))
    if root is not None and root is not message:
        message["parent_user_id"] = root["user"]
        users = root.setdefault("reply_users", [])
        if message["user"] not in users:
            users.append(message["user"])
        root["thread_ts"] = root["ts"]
        root["reply_count"] = root.get("reply_count", 0) + 1
        root |= {"reply_users_count": len(users), "latest_reply": ts, "is_locked": False, "subscribed": False}
    team.change()
    return message


def shown(message: Json, *, with_metadata: bool = False) -> Json:
    """A copy as Slack hands it out: metadata only to those who ask for it."""
    return copy.deepcopy({name: value for name, value in message.items() if with_metadata or name != "metadata"})


def by_bot(team: Team) -> Json:
    """What every message of the app says of its author."""
    profile = {"id": team.bot_id, "app_id": team.app_id, "name": team.bot_name, "team_id": team.id, "deleted": False}
    author = {"user": team.bot_user, "bot_id": team.bot_id, "app_id": team.app_id, "team": team.id}
    return {"type": "message", **author, "bot_profile": profile}


def checked_blocks(team_blocks: Any) -> list[Json]:
    """Blocks as sent, JSON text or array, checked and with a block_id each.

    Raises:
        SlackRefuses: invalid_blocks_format, invalid_blocks with Slack's complaints, msg_blocks_too_long.
    """
    if isinstance(team_blocks, str):
        try:
            team_blocks = json.loads(team_blocks)
        except ValueError:
            raise SlackRefuses("invalid_blocks_format") from None
    if not isinstance(team_blocks, list):
        raise SlackRefuses("invalid_blocks_format")
    if complaints := blocks.faults_of_message(team_blocks):
        metadata = {"messages": [f"[ERROR] {one}" for one in complaints]}
        raise SlackRefuses("invalid_blocks", errors=complaints, response_metadata=metadata)
    if blocks.weight(team_blocks) > limits.BLOCKS_TOGETHER:
        raise SlackRefuses("msg_blocks_too_long")
    return with_ids(team_blocks)


def with_ids(team_blocks: list[Json]) -> list[Json]:
    """The blocks, those without a block_id given one, as Slack does."""
    named = copy.deepcopy(team_blocks)
    for index, block in enumerate(named):
        block["block_id"] = block.get("block_id") or f"b{index:03d}"
        for number, element in enumerate(block.get("elements", [])):
            if isinstance(element, dict) and element.get("type") not in (None, "mrkdwn", "plain_text", "image"):
                element.setdefault("action_id", f"a{index:03d}{number:02d}")
    return named


def metadata(value: Any) -> Json:
    """A message's metadata, checked.

    Raises:
        SlackRefuses: invalid_metadata_format, invalid_metadata_schema, metadata_too_large.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise SlackRefuses("invalid_metadata_format") from None
    if not isinstance(value, dict) or set(value) - {"event_type", "event_payload"}:
        raise SlackRefuses("invalid_metadata_format")
    named = isinstance(value.get("event_type"), str) and re.fullmatch(r"\w{1,255}", value["event_type"], re.ASCII)
    if not named or not isinstance(value.get("event_payload"), dict):
        raise SlackRefuses("invalid_metadata_schema")
    if len(json.dumps(value, ensure_ascii=False).encode()) > limits.METADATA_BYTES:
        raise SlackRefuses("metadata_too_large")
    return value


def _content(args: Json) -> tuple[Json, Json | None]:
    content: Json = {}
    if args.get("blocks") is not None:
        content["blocks"] = checked_blocks(args["blocks"])
    text = args.get("text")
    if text is not None and not isinstance(text, str):
        raise SlackRefuses("invalid_arguments", response_metadata={"messages": ["[ERROR] text must be a string"]})
    if not text and not content.get("blocks"):
        raise SlackRefuses("no_text")
    warning = None
    if text is not None or "blocks" in content:
        content["text"] = text or ""
    if len(content["text"]) > limits.TEXT_OF_POST:
        content["text"] = content["text"][: limits.TEXT_OF_POST]
        told = "[WARN] Your message was truncated but still posted. The `text` field accepts up to 40,000 characters."
        told_as = {"messages": [told], "warnings": ["message_truncated"]}
        warning = {"warning": "message_truncated", "response_metadata": told_as}
    return content, warning


def _root(channel: Channel, thread_ts: str) -> Json:
    root = channel.messages.get(thread_ts)
    if root is None:
        raise SlackRefuses("thread_not_found")
    if root.get("thread_ts", thread_ts) != thread_ts:
        raise SlackRefuses("cannot_reply_to_message")
    return root


def _mine(team: Team, channel: Channel, ts: Any, error: str) -> Json:
    message = channel.messages.get(str(ts))
    if message is None:
        raise SlackRefuses("message_not_found")
    if message.get("bot_id") != team.bot_id:
        raise SlackRefuses(error)
    return message


def _true(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1")
