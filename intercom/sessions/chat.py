"""The protocol between sessions, agent connections and a chat channel, and which chat channel shows which session.

The chat channel is optional: if none is set up, `Context.chat` is None.
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

#: The name of the chat channel's actor, which answers `ReadRecent`.
CHANNEL_ACTOR = "slack/channel"
_CALLS = uuid.UUID("6f1d4a52-8f0e-4d43-9a55-2d1b8d2f6a37")


@frozen
class Posted:
    """Told to `session/<id>`: the row `key`, a notice of this session, is in the channel as message `ts`."""

    key: str
    ts: str


@frozen
class Message:
    """A message of a channel as a person wrote it. `thread_ts` names its thread if it is a reply."""

    ts: str
    user: str
    text: str
    thread_ts: str | None = None


@frozen
class History:
    """The latest messages of a channel, newest first. `has_more` says that there are older ones."""

    messages: tuple[Message, ...]
    has_more: bool


@frozen
class ReadRecent(Request[History]):
    """Asked of `slack/channel`: the latest messages of a channel, at most `limit` (1 to 100). Refused with the code
    `slack` if the chat cannot be read now; the message says why and what to do."""

    channel_id: str
    limit: int


@frozen
class Chat:
    """What sessions need of the chat channel.

    `channel_for` returns the channel that shows a session, None if no channel does. `draw_notice` and `draw_root`
    return a row's content (masked already) for a line, and for the first message of a session's thread. Both are pure
    and run in threads. `wake` runs on the event loop and says that there is something new to send.
    """

    channel_for: Callable[[Session], str | None]
    draw_notice: Callable[[Notice], Content]
    draw_root: Callable[[Session], Content]
    wake: Callable[[], None]


def channel_of(config: Config, session: Session) -> str | None:
    """Return the channel that shows a session: the one its connection named, else that of the nearest configured
    directory, else the default."""
    if session.channel_id is not None:
        return session.channel_id
    root = PurePath(session.workspace_root)
    above = [each for each in config.slack.workspace_channels if root.is_relative_to(each)]
    if above:
        return config.slack.workspace_channels[max(above, key=lambda each: len(each.parts))]
    return config.slack.channel_id


def is_notified(mode: SessionMode) -> bool:
    """Return whether sessions in this mode are shown in the chat."""
    return mode is not SessionMode.LOCAL


def notice_key(call: str) -> str:
    """Return the key of the row that a broadcast makes: always the same for the same call."""
    return f"notice/{uuid.uuid5(_CALLS, call)}"


def thread_key(session_id: str) -> str:
    """Return the key of the first message of a session's thread."""
    return f"thread/{session_id}"
