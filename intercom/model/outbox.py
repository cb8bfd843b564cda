"""The outbox for Slack: one row for each message or file, stored before it is sent and updated afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

from attrs import frozen

Content = dict[str, Any]


class Urgency(IntEnum):
    """The order of sending: lower values first."""

    CARD = 0
    ALERT = 1
    LINE = 2
    LOG = 3

    @property
    def is_line(self) -> bool:
        """Whether rows of this kind may share one message."""
        return self >= Urgency.LINE


class RowKind(StrEnum):
    MESSAGE = "message"
    FILE = "file"


class RowState(StrEnum):
    """The state of a row. `POSTING`: it may have been posted, so it is searched for before the next attempt. `MERGED`:
    its lines are in the message of another row."""

    QUEUED = "queued"
    POSTING = "posting"
    POSTED = "posted"
    MERGED = "merged"
    REFUSED = "refused"


@frozen
class Row:
    """A row of `outbox`.

    `key` is unique and stable ("card/<card id>"). `thread` is the key of the row it replies to, or a Slack ts.
    `client_id` is in the message's metadata, so a search can find the message. `version` is what Slack should show, and
    `shown` what it shows (0: unknown). `interim` is a line that replaces the buttons until `interim_until`. `open`
    marks a card with active buttons. `content` is rendered and masked. A message has `text`, `blocks` and perhaps
    `reply_broadcast`. A file has `filename`, `title`, `snippet_type` and `text`, and nothing after it was posted.
    `first_at` is the time of the first attempt, `file_id` the upload to share.
    """

    id: int
    key: str
    kind: RowKind
    state: RowState
    channel: str
    client_id: str
    urgency: Urgency
    content: Content
    version: int
    shown: int
    open: bool
    created_at: datetime
    session_id: str | None = None
    thread: str | None = None
    interim: str | None = None
    interim_until: datetime | None = None
    ts: str | None = None
    file_id: str | None = None
    attempts: int = 0
    first_at: datetime | None = None
    not_before: datetime | None = None
    last_error: str | None = None
    merged_into: int | None = None
    posted_at: datetime | None = None


@frozen
class Waiting:
    """The data of a row that the send schedule uses. `root_id` and `root_not_before` describe the row it replies to,
    while that one waits too. `chars` and `lines` measure its text."""

    id: int
    kind: RowKind
    state: RowState
    urgency: Urgency
    thread: str | None
    attempts: int
    not_before: datetime | None
    chars: int
    lines: int
    root_id: int | None = None
    root_not_before: datetime | None = None


@frozen
class Counts:
    """The backlog: posts by urgency, updates, the time of the oldest post, and the newest error of a waiting row."""

    posts: Mapping[Urgency, int]
    updates: int
    oldest: datetime | None
    last_error: str | None


def measure(content: Content) -> tuple[int, int]:
    """Return the characters and lines of a message's text, or of its blocks if they are longer."""
    blocks = [text for block in content.get("blocks") or () for text in _texts(block)]
    told = max(str(content.get("text", "")), "\n".join(blocks), key=len)
    return len(told), told.count("\n") + 1


def _texts(block: Any) -> list[str]:
    if not isinstance(block, dict):
        return []
    text = block.get("text")
    parts = [text] if isinstance(text, dict) else []
    parts += [part for part in (*block.get("fields", ()), *block.get("elements", ())) if isinstance(part, dict)]
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]
