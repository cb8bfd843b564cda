"""ping: the agent reports that it is alive, and optionally its progress."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from attrs import evolve, field, frozen

from intercom.model import limits
from intercom.model.field_docs import doc
from intercom.model.session import ProgressItem, Session
from intercom.sessions.messages import Answered, ToolRequest
from intercom.sessions.request_kinds import MESSAGE
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools.tool import Hints, Tool
from intercom.store import sessions
from intercom.store.writer_messages import Database

DESCRIPTION = """\
Report that you are alive during long work without other calls. Follow "instructions" that come with the answer; on \
"paused" do nothing but call again.
You may say what you are doing: a status line, and your task list. An agent that is silent for long counts as \
stalled. On status "paused" an operator has paused you: do nothing until another call is answered."""

_PAUSED = (
    "this session was paused by an operator: change nothing and start nothing new; your next call of any other tool"
    " waits until the operator resumes the session"
)


def _as_tuple(items: Iterable[ProgressItem] | None) -> tuple[ProgressItem, ...] | None:
    return None if items is None else tuple(items)


@frozen
class Ping(ToolRequest[Answered["PingAnswer"]]):
    """Report that the agent is alive. A progress snapshot is on disk when this is answered."""

    status_message: str | None = field(
        default=None, metadata=doc("One line that the operator is told.", most=limits.STATUS)
    )
    progress_snapshot: tuple[ProgressItem, ...] | None = field(
        default=None,
        converter=_as_tuple,
        metadata=doc("Your task list as it is now; it replaces the previous one.", items=ProgressItem),
    )

    @property
    def waits_while_paused(self) -> bool:
        return False


@frozen
class PingAnswer:
    acknowledged: bool = field(metadata=doc("Always true."))
    session_id: str = field(metadata=doc("The id of your session."))
    stall_detection_enabled: bool = field(
        metadata=doc("Whether the operator is alerted if you are silent for too long.")
    )
    status: str | None = field(default=None, metadata=doc("Absent, unless the session is paused."))
    message: str | None = field(default=None, metadata=MESSAGE)


def handle(session: SessionActor, asked: Ping) -> Answered[PingAnswer] | Awaitable[Answered[PingAnswer]]:
    """Only a progress snapshot waits for the disk. Raises InvalidState once the session has ended: an agent that only
    pings would not notice it otherwise."""
    session.require_open()
    if asked.progress_snapshot is not None:
        return _with_progress(session, asked, asked.progress_snapshot)
    return _alive(session, asked)


async def _with_progress(session: SessionActor, asked: Ping, items: tuple[ProgressItem, ...]) -> Answered[PingAnswer]:
    session.change(SessionState.moved, await session.transact(_record, session=session, items=items))
    return _alive(session, asked)


def _alive(session: SessionActor, asked: Ping) -> Answered[PingAnswer]:
    if asked.status_message:
        session.notify(asked.status_message)
    session.touch("ping")
    answer = PingAnswer(True, session.id, session.deps.config.stall.enabled)
    if session.row.is_paused:
        # A ping does not wait like other calls: it reports that the agent is alive.
        answer = evolve(answer, status="paused", message=_PAUSED)
    return session.answered(asked.call, answer)


def _record(db: Database, session: SessionActor, items: tuple[ProgressItem, ...]) -> Session:
    sessions.set_progress(db, session.id, items, session.now())
    row = sessions.get(db, session.id)
    assert row is not None
    return row


TOOL = Tool(
    name="ping",
    legacy_name="heartbeat",
    title="Say that you are alive",
    description=DESCRIPTION,
    takes=Ping,
    result=PingAnswer,
    hints=Hints(idempotent=True),
    handle=handle,
)
