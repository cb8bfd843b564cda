"""Notices: lines of a session in the chat, and what the policy let pass.

Each approval is recorded at once. A crash may lose a summary, but no record.
"""

from __future__ import annotations

import trio
from attrs import frozen

from intercom.model.card import Notice
from intercom.model.outbox import Content, Urgency
from intercom.model.session import Session, SessionStatus
from intercom.sessions import chat
from intercom.sessions.answers import headline
from intercom.sessions.session.actor import SessionActor
from intercom.store import outbox, sessions
from intercom.store.messages import Database

_SERIOUS = frozenset({"warning", "error"})


def is_shown(session: SessionActor) -> bool:
    """Return whether the chat shows this session."""
    there = session.context.chat
    return there is not None and chat.is_notified(session.row.mode) and there.channel_for(session.row) is not None


async def drawn(session: SessionActor, line: Notice) -> Content | None:
    """Return the line as the chat shows it; None if the chat does not show this session."""
    there = session.context.chat
    if there is None or not is_shown(session):
        return None
    return await trio.to_thread.run_sync(there.draw_notice, line)


def put(db: Database, session: SessionActor, line: Notice, content: Content) -> None:
    """Queue this line for the chat, once under its key, in the session's thread or in the thread that it names."""
    there = session.context.chat
    row = sessions.get(db, session.id)
    assert there is not None, "it was drawn for the chat"
    assert row is not None, "the session's row outlives its actor"
    assert line.key is not None, "a row has a key"
    top = chat.thread_key(session.id)
    root = outbox.by_key(db, top)
    # A session stays in the channel of its thread, even if the configuration changes.
    channel = root.channel if root is not None else there.channel_for(row)
    assert channel is not None, "it was drawn for a channel"
    if root is None:
        outbox.put(
            db,
            top,
            there.draw_root(row),
            line.at,
            channel=channel,
            urgency=Urgency.LOG,
            session_id=session.id,
            open=True,
        )
    outbox.put(
        db,
        line.key,
        content,
        line.at,
        channel=channel,
        urgency=Urgency.LINE if line.level in _SERIOUS else Urgency.LOG,
        session_id=session.id,
        thread=line.thread or top,
    )


def redraw_top(db: Database, session: SessionActor, row: Session) -> None:
    """Redraw the first message of the session's thread with the session's current status, if it has a thread."""
    there, root = session.context.chat, outbox.by_key(db, chat.thread_key(row.id))
    if there is None or root is None:
        return
    outbox.put(
        db,
        root.key,
        there.draw_root(row),
        session.now(),
        channel=root.channel,
        urgency=Urgency.LOG,
        session_id=row.id,
        open=row.status is not SessionStatus.TERMINATED,
    )


#: How many actions a summary names.
_NAMED = 10


@frozen
class Summarize:
    """A timer: the interval is over."""


def let_pass(session: SessionActor, what: str, rule: str) -> None:
    """Note what the policy approved, for the next summary. The first such action starts the interval."""
    policy = session.context.policy(session.row.workspace_root)
    if not policy.log_auto_approved:
        return
    session.let_pass.append(f"{headline(what)} ({rule})")
    if len(session.let_pass) == 1:
        session.set_timer(Summarize(), policy.summary_interval_seconds, Summarize())


async def summarize(session: SessionActor, _due: Summarize) -> None:
    """Tell people what was approved since the interval began."""
    passed, session.let_pass = session.let_pass, []
    if passed:
        more = f"; and {len(passed) - _NAMED} more" if len(passed) > _NAMED else ""
        session.notify(f"the policy let pass: {'; '.join(passed[:_NAMED])}{more}")
