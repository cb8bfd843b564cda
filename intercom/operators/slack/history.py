"""Recent messages of a channel, for agents."""

from __future__ import annotations

from typing import Any

from intercom.operators.slack.web import WebApi
from intercom.operators.slack.words import unescape
from intercom.sessions.chat import History, Message


async def recent(web: WebApi, channel: str, limit: int) -> History:
    """Return the latest `limit` messages of a channel, newest first. Raises SlackError if Slack does not answer."""
    answer = await web.call("conversations.history", channel=channel, limit=limit)
    messages = [_message(message) for message in answer.get("messages") or () if isinstance(message, dict)]
    return History(tuple(messages[:limit]), bool(answer.get("has_more")))


def _message(message: dict[str, Any]) -> Message:
    """Convert a message to its text as typed; a file becomes its title."""
    text = unescape(str(message.get("text") or ""))
    files = [str(file.get("title") or file.get("name") or "file") for file in message.get("files") or ()]
    told = "\n".join((*([text] if text else ()), *(f"[file: {title}]" for title in files)))
    author = str(message.get("user") or message.get("bot_id") or "")
    return Message(str(message.get("ts") or ""), author, told, message.get("thread_ts"))
