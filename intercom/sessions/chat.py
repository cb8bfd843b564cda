"""The protocol between sessions and the doors on one side and a chat channel on the other, and which channel is whose.

A chat channel is one of several: where none is set up, `Context.chat` is None and everything goes on without.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import PurePath

from attrs import frozen

from actors import Request
from intercom.model.card import Notice
from intercom.model.config import Config
from intercom.model.outbox import Content
from intercom.model.session import Session, SessionMode

#: Under this name the chat channel answers `ReadRecent`.
CHANNEL_ACTOR = "slack/channel"
_CALLS = uuid.UUID("6f1d4a52-8f0e-4d43-9a55-2d1b8d2f6a37")


@frozen
class Posted:
    """Told `session/<id>`: the row `key`, a notice of this session, stands in the channel as message `ts`."""

    key: str
    ts: str


@frozen
class Message:
    """A message of a channel as people wrote it; `thread_ts` names its thread when it is a reply."""

    ts: str
    user: str
    text: str
    thread_ts: str | None = None


@frozen
class History:
    """The latest messages of a channel, newest first; `has_more` says that there are older ones."""

    messages: tuple[Message, ...]
    has_more: bool


@frozen
class ReadRecent(Request[History]):
    """Asked `slack/channel`: the latest messages of a channel, `limit` (1 to 100) at most. Refused with the code
    `slack` when the chat can not be read now; the sentence says why and what to do."""

    channel_id: str
    limit: int


@frozen
class Chat:
    """What sessions know of the chat channel that is set up.

    `channel_for` gives the channel a session is shown in, None when it is shown in none. `draw_notice` and `draw_root`
    give the content of a row (masked already) for a line, and for the message that a session's thread hangs from; they
    are pure, and called in threads. `wake`, called on the loop, says that there is something new to send.
    """

    channel_for: Callable[[Session], str | None]
    draw_notice: Callable[[Notice], Content]
    draw_root: Callable[[Session], Content]
    wake: Callable[[], None]


def channel_of(config: Config, session: Session) -> str | None:
    """The channel a session is shown in: the one its connection named, else its directory's (the nearest that has
    one), else the common one."""
    if session.channel_id is not None:
        return session.channel_id
    root = PurePath(session.workspace_root)
    above = [each for each in config.slack.workspace_channels if root.is_relative_to(each)]
    if above:
        return config.slack.workspace_channels[max(above, key=lambda each: len(each.parts))]
    return config.slack.channel_id


def is_notified(mode: SessionMode) -> bool:
    """Whether sessions in this mode are shown in the chat."""
    return mode is not SessionMode.LOCAL


def notice_key(call: str) -> str:
    """The key of the row that a broadcast makes: the same for the same call, so that it is found again."""
    return f"notice/{uuid.uuid5(_CALLS, call)}"


def thread_key(session_id: str) -> str:
    """The key of the message that a session's thread hangs from."""
    return f"thread/{session_id}"
