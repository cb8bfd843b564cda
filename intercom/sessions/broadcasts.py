"""Broadcasts: one line for people, once per call. The call waits briefly until the chat has posted the line.

The line's outbox row is written with the call's answer, so it is posted once however often the call is repeated.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

from attrs import frozen

from actors import Reply
from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.outbox import Content, RowState
from intercom.sessions import chat, chat_rows
from intercom.sessions.actor import SessionActor
from intercom.sessions.answers import BroadcastAnswer, from_json
from intercom.sessions.chat import Posted
from intercom.sessions.messages import Answered, Broadcast
from intercom.store import audit, calls, outbox
from intercom.store.messages import Database

#: How long a broadcast waits for its message to be posted before it reports it as queued, in seconds.
POST_SECONDS = 2.0
#: How many lines one session may send in a minute. A flood from one agent would hide other agents' requests.
MOST_A_MINUTE = 60
_TS = re.compile(r"\d{1,12}\.\d{1,9}")


@frozen
class PostOverdue:
    """A timer: the row of this key has not been posted in time."""

    key: str


async def broadcast(session: SessionActor, asked: Broadcast) -> Answered[BroadcastAnswer] | None:
    """Tell people one line, once per call. `posted` says that it is in the chat, `queued` that it will be. The session
    handles other messages meanwhile. Raises InvalidArguments for an invalid `thread_ts` if there is a chat, and
    IntercomError (`busy`) if this session sent too many lines within a minute."""
    key = chat.notice_key(asked.call)
    answer = await session.transact(partial(_found, call=asked.call, key=key))
    if answer is None:
        line = Notice(asked.message, asked.level, session.now(), session.id, asked.thread_ts, key)
        if line.thread is not None and chat_rows.is_shown(session) and _TS.fullmatch(line.thread) is None:
            raise InvalidArguments("thread_ts is no message's ts; give one that an earlier broadcast answered with")
        content = await chat_rows.drawn(session, line)
        answer = await session.transact(partial(_record, session=session, asked=asked, key=key, content=content))
        crash_points.reach("broadcast.recorded")
        session.notify(asked.message, asked.level, asked.thread_ts, key if answer.queued else None)
    session.touch("broadcast")
    if not answer.queued:
        return session.answered(asked.call, answer)
    if session.context.chat is not None:
        session.context.chat.wake()
    # A post reported after the check above finds the waiting call here.
    session.posts.setdefault(key, []).append((asked.call, session.defer()))
    session.set_timer(PostOverdue(key), POST_SECONDS, PostOverdue(key))
    return None


async def posted(session: SessionActor, told: Posted) -> None:
    """Answer the calls that wait for a line: it is posted in the chat."""
    session.cancel_timer(PostOverdue(told.key))
    _answer(session, told.key, BroadcastAnswer(posted=True, ts=told.ts))


async def overdue(session: SessionActor, due: PostOverdue) -> None:
    """Answer the calls that have waited long enough for a line that is still queued."""
    _answer(session, due.key, BroadcastAnswer(posted=False, queued=True))


def _answer(session: SessionActor, key: str, answer: BroadcastAnswer) -> None:
    waiting: list[tuple[str, Reply[Answered[BroadcastAnswer]]]] = session.posts.pop(key, [])
    for call, reply in waiting:
        if not reply.abandoned:
            reply.set(session.answered(call, answer))


def _found(db: Database, call: str, key: str) -> BroadcastAnswer | None:
    """Return the call's answer with the row's current status; None for a new call."""
    recorded = calls.answer(db, call)
    if recorded is None:
        return None
    answer = from_json(BroadcastAnswer, recorded)
    row = outbox.by_key(db, key)
    if row is not None and row.ts is not None:
        return BroadcastAnswer(posted=True, ts=row.ts)
    if row is not None and row.state is RowState.REFUSED:
        return BroadcastAnswer(posted=False)
    return answer


def _record(
    db: Database, session: SessionActor, asked: Broadcast, key: str, content: Content | None
) -> BroadcastAnswer:
    """Record the answer, and the chat row with it. Idempotent. Raises IntercomError (`busy`)."""
    answer = BroadcastAnswer(posted=False, queued=True if content is not None else None)
    if not session.answered_and_recorded(asked.call, "broadcast", answer)(db):
        return answer
    if audit.broadcasts(db, session.id, session.now() - timedelta(minutes=1)) >= MOST_A_MINUTE:
        raise IntercomError(
            f"this session has told people {MOST_A_MINUTE} lines in the last minute, and no more may be: wait a minute,"
            " and say in one line what several would; nothing was told",
            code="busy",
        )
    session.record(db, "agent", "broadcast", asked.message, level=asked.level)
    if content is not None:
        chat_rows.put(
            db, session, Notice(asked.message, asked.level, session.now(), session.id, asked.thread_ts, key), content
        )
    return answer
