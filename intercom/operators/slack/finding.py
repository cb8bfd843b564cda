"""The search for a message that may have been posted, by the client id in its metadata."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import frozen

from intercom.model.outbox import Row
from intercom.operators.slack.errors import SlackRefused
from intercom.operators.slack.wire import EVENT_TYPE, Web

#: How far before the first attempt the search begins, because our clock and Slack's may differ.
MARGIN = timedelta(minutes=5)

#: Messages per page, and the maximum number of pages.
PAGE = 200
PAGES = 100


@frozen
class Sent:
    """A message in Slack. `version` is the version of its row that it shows (0: not known). `ts` is None for a file if
    Slack did not report its message."""

    ts: str | None
    version: int


async def find(web: Web, row: Row, thread_ts: str | None) -> Sent | None:
    """Return the message of `row`, perhaps with an older version; None if there is none. Raises as `Web.call` does."""
    if row.first_at is None:
        return None
    place: dict[str, Any] = {"channel": row.channel}
    if thread_ts is not None:
        place["ts"] = thread_ts
    method = "conversations.history" if thread_ts is None else "conversations.replies"
    oldest = f"{(row.first_at - MARGIN).timestamp():.6f}"
    cursor = None
    for _ in range(PAGES):
        try:
            answer = await web.call(
                method, **place, oldest=oldest, limit=PAGE, include_all_metadata=True, cursor=cursor
            )
        except SlackRefused as refused:
            if thread_ts is not None and refused.error in {"thread_not_found", "message_not_found"}:
                return None
            raise
        for message in answer.get("messages") or ():
            told = _payload(message)
            if told.get("client_id") == row.client_id:
                version = told.get("version")
                return Sent(str(message["ts"]), version if isinstance(version, int) and version <= row.version else 0)
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
        if cursor is None:
            break
    return None


def _payload(message: dict[str, Any]) -> dict[str, Any]:
    metadata = message.get("metadata") or {}
    return (metadata.get("event_payload") or {}) if metadata.get("event_type") == EVENT_TYPE else {}
