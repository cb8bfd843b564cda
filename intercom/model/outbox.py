"""What Slack is to show: one row a message or file, written before it is sent and updated in place afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

from attrs import frozen

Content = dict[str, Any]


class Urgency(IntEnum):
    """What goes first: the lower."""

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
    """`POSTING`: it may be out there, so it is looked for before it is posted (again). `MERGED`: its lines stand in the
    message of another row."""

    QUEUED = "queued"
    POSTING = "posting"
    POSTED = "posted"
    MERGED = "merged"
    REFUSED = "refused"


@frozen
class Row:
    """A row of `outbox`.

    `key` is unique and stable ("card/<card id>"). `thread` is the key of the row it replies to, or a Slack ts.
    `client_id` travels in the message's metadata, so that it can be found again. `version` is what Slack should show
    and `shown` what it does (0: nothing sure). `interim` is a line that stands in place of the buttons until
    `interim_until`. `open`: a card whose buttons are live. `content` is drawn and masked already: for a message `text`,
    `blocks` and maybe `reply_broadcast`; for a file `filename`, `title`, `snippet_type` and `text`, and nothing once it
    is posted. `first_at` is when it was first tried, `file_id` the upload to be shared.
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
    """What the schedule needs to know of a row that is to be posted. `root_id` and `root_not_before` tell of the row it
    replies to while that waits too; `chars` and `lines` measure its text."""

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
    """How much waits: posts by urgency, updates, the instant the oldest post was asked for, and the newest fault of a
    row that waits."""

    posts: Mapping[Urgency, int]
    updates: int
    oldest: datetime | None
    last_error: str | None


def measure(content: Content) -> tuple[int, int]:
    """Characters and lines of a message's text: that of its blocks where they hold more."""
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
