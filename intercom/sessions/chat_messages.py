"""What sessions post in chat: which sessions it shows, where, and the outbox rows that they queue for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import PurePath

import trio
from attrs import frozen

from intercom.model.card import Notice
from intercom.model.config import Config
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.store import outbox, sessions
from intercom.store.outbox import Content, Urgency
from intercom.store.writer_messages import Database

_CALLS = uuid.UUID("6f1d4a52-8f0e-4d43-9a55-2d1b8d2f6a37")
_SERIOUS = frozenset({"warning", "error"})


@frozen
class ChatOutbox:
    """What sessions need of the chat channel.

    `channel_for` returns the channel that shows a session, None if no channel does. `draw_notice` and `draw_root`
    return a row's content (masked already) for a line, and for the first message of a session's thread. Both are pure
    and run in threads. `wake` runs on the event loop and says that there is something new to send.
    """

    channel_for: Callable[[Session], str | None]
    draw_notice: Callable[[Notice], Content]
    draw_root: Callable[[Session], Content]
    wake: Callable[[], None]

    def shows(self, session: Session) -> bool:
        """Return whether the chat shows this session."""
        return is_notified(session.mode) and self.channel_for(session) is not None

    async def drawn(self, session: Session, line: Notice) -> Content | None:
        """Return the line as the chat shows it; None if the chat does not show this session."""
        return await trio.to_thread.run_sync(self.draw_notice, line) if self.shows(session) else None

    def put(self, db: Database, session_id: str, line: Notice, content: Content) -> None:
        """Queue this line for the chat, once under its key, in the session's thread or in the thread that it names."""
        row = sessions.get(db, session_id)
        assert row is not None, "the session's row outlives its actor"
        assert line.key is not None, "a row has a key"
        top = thread_key(session_id)
        root = outbox.by_key(db, top)
        # A session stays in the channel of its thread, even if the configuration changes.
        channel = root.channel if root is not None else self.channel_for(row)
        assert channel is not None, "it was drawn for a channel"
        put = partial(outbox.put, db, at=line.at, channel=channel, session_id=session_id)
        if root is None:
            put(key=top, content=self.draw_root(row), urgency=Urgency.LOG, open=True)
        urgency = Urgency.LINE if line.level in _SERIOUS else Urgency.LOG
        put(key=line.key, content=content, urgency=urgency, thread=line.thread or top)

    def redraw_root(self, db: Database, session: Session, at: datetime) -> None:
        """Redraw the first message of the session's thread with the session's current status, if it has a thread."""
        root = outbox.by_key(db, thread_key(session.id))
        if root is not None:
            outbox.put(
                db,
                root.key,
                self.draw_root(session),
                at,
                channel=root.channel,
                urgency=Urgency.LOG,
                session_id=session.id,
                open=session.status is not SessionStatus.TERMINATED,
            )


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
