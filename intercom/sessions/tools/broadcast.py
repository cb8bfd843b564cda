"""broadcast: the agent tells people one line.

The line's outbox row is written with the call's answer, so it is posted once however often the call is repeated.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum

from attrs import field, frozen

from intercom.model import limits
from intercom.model.card import Notice
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.field_docs import doc
from intercom.sessions.chat_messages import notice_key
from intercom.sessions.messages import Answered, Posted, ToolRequest
from intercom.sessions.request_kinds import from_json
from intercom.sessions.session.actor import SessionActor, Waiter
from intercom.sessions.tools.tool import Hints, Tool
from intercom.store import audit, outbox
from intercom.store.outbox import Content, RowState
from intercom.store.writer_messages import Database

DESCRIPTION = """\
Tell the operator one line without waiting: progress, a result, a warning. It asks for no answer; to ask, use \
transmit.
Every operator is told. "posted" says whether the line is also in the chat (with its ts, to continue the same \
thread), and "queued" that it will be."""

#: How long a broadcast waits for its message to be posted before it reports it as queued, in seconds.
POST_SECONDS = 2.0
#: How many lines one session may send in a minute. A flood from one agent would hide other agents' requests.
MOST_A_MINUTE = 60
_TS = re.compile(r"\d{1,12}\.\d{1,9}")


class Level(StrEnum):
    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Broadcast(ToolRequest[Answered["BroadcastAnswer"]]):
    """Tell people one line. Refused with `invalid_arguments` for an invalid `thread_ts` if there is a chat, and with
    `busy` if this session sent too many lines within a minute."""

    message: str = field(metadata=doc("The line to tell.", min_length=1, most=limits.TEXT))
    level: Level = field(default=Level.INFO, metadata=doc("How serious it is."))
    thread_ts: str | None = field(
        default=None, metadata=doc("The thread to post it in, as the ts of an earlier broadcast.", most=limits.NAME)
    )


@frozen
class BroadcastAnswer:
    posted: bool = field(metadata=doc("Whether the line is in the chat."))
    ts: str | None = field(
        default=None, metadata=doc("The line's place in the chat: give it as thread_ts to continue its thread.")
    )
    queued: bool | None = field(default=None, metadata=doc("true: the line will be in the chat soon."))


@frozen
class PostOverdue:
    """A timer: the row of this key has not been posted in time."""

    key: str


async def handle(session: SessionActor, asked: Broadcast) -> Answered[BroadcastAnswer] | None:
    """Tell the line once per call. The session handles other messages while it is posted."""
    key = notice_key(f"{session.id}/{asked.call}")
    answer = await session.transact(_found, session, asked.call, key)
    if answer is None:
        line = Notice(asked.message, asked.level, session.now(), session.id, asked.thread_ts, key)
        content = await session.drawn(line)
        if line.thread is not None and content is not None and _TS.fullmatch(line.thread) is None:
            raise InvalidArguments(
                "thread_ts is not the ts of a message; give the ts that an earlier broadcast returned"
            )
        answer = await session.transact(_record, session=session, asked=asked, key=key, content=content)
        session.notify(asked.message, asked.level, asked.thread_ts, key if answer.queued else None)
    session.touch("broadcast")
    if not answer.queued:
        return session.answered(asked.call, answer)
    if session.deps.chat is not None:
        session.deps.chat.wake()
    # A post reported after the check above finds the waiting call here.
    session.posts.add(key, Waiter(asked.call, "", session.defer()))
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
    for waiter in session.posts.pop(key, ()):
        if not waiter.reply.abandoned:
            waiter.reply.set(session.answered(waiter.call, answer))


def _found(db: Database, session: SessionActor, call: str, key: str) -> BroadcastAnswer | None:
    """Return the call's answer with the row's current status; None for a new call."""
    recorded = session.recorded_answer(db, call)
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
    if not session.record_answer(db, asked.call, "broadcast", answer):
        return answer
    if audit.broadcasts(db, session.id, session.now() - timedelta(minutes=1)) >= MOST_A_MINUTE:
        raise IntercomError(
            f"this session has sent people {MOST_A_MINUTE} lines in the last minute, which is the limit: wait a minute,"
            " and say in one line what you would say in several; nothing was sent",
            code="busy",
        )
    session.record(db, "agent", "broadcast", asked.message, level=asked.level)
    if content is not None:
        line = Notice(asked.message, asked.level, session.now(), session.id, asked.thread_ts, key)
        assert session.deps.chat is not None, "it was drawn for the chat"
        session.deps.chat.put(db, session.id, line, content)
    return answer


TOOL = Tool(
    name="broadcast",
    legacy_name="remote_log",
    title="Tell the operator",
    description=DESCRIPTION,
    takes=Broadcast,
    result=BroadcastAnswer,
    hints=Hints(open_world=True),
    handle=handle,
)
