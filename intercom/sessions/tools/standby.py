"""standby: the agent has nothing left to do and waits for an instruction."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import ClassVar

from attrs import field, frozen

from intercom.model import crash_points, limits
from intercom.model.field_docs import doc
from intercom.model.request import InstructionWait, WaitStatus
from intercom.model.session import Instruction
from intercom.sessions import request_kinds
from intercom.sessions.messages import RecordedRequest, ToolRequest
from intercom.sessions.request_kinds import StandbyAnswer
from intercom.sessions.session import steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.new_requests import find_or_record
from intercom.sessions.tools.tool import WAIT_AGAIN, Hints, Tool
from intercom.store import requests
from intercom.store.requests import waits
from intercom.store.writer_messages import Database

DESCRIPTION = """\
Call this when you have nothing left to do: it waits until the operator gives you work. On "resumed" do what it says; \
on "pending" call again.
- "resumed" with an instruction: do what it says ("stop" means end your session). With instructions (steering, a \
task): follow those. With neither: continue your task.
- "timeout": no instruction came; end your turn.
- "pending": still waiting; call again with only this request_id."""

_STILL_WAITING = "no work yet: call standby again with this request_id to continue waiting"
#: The longest timeout of a standby, in seconds. Longer ones are cut to it.
LONGEST_STANDBY = 7 * 86400
#: Larger numbers are refused.
_MOST_SECONDS = 10**12


@frozen
class Standby(ToolRequest[RecordedRequest[StandbyAnswer]]):
    """Ask for work. With `request_id`, only re-attach to that wait."""

    nothing_required: ClassVar[bool] = True

    message: str = field(
        default="Agent is idle and awaiting instructions.",
        metadata=doc("What the operator reads while you wait.", most=limits.TEXT),
    )
    timeout_seconds: int = field(
        default=0,
        metadata=doc(
            "The longest time to wait, in seconds; 0 means the configured time. More than a week counts as a week.",
            minimum=0,
            maximum=_MOST_SECONDS,
        ),
    )
    request_id: str | None = field(default=None, metadata=doc(WAIT_AGAIN, min_length=1, most=limits.NAME))

    @property
    def waits_while_paused(self) -> bool:
        return self.request_id is None


async def handle(session: SessionActor, asked: Standby) -> RecordedRequest[StandbyAnswer]:
    """Record a standby, once per call. It ends at once if decisions, instructions or a task wait for the agent."""
    session.require_open()
    session.touch("standby")
    await session.refuse_instructions()
    found = None if asked.request_id is None else await session.find_of(InstructionWait, asked.request_id)
    work = partial(
        _stand_by, session=session, wait=found or _new(session, asked), is_new=found is None, call=asked.call
    )
    wait, is_new, ended, queued = await session.transact(work, has_news=steering.has_news(session))
    crash_points.reach("request.recorded")
    steering.took(session, queued)
    if ended:
        session.settle(wait)
    elif is_new:
        session.follow(wait)
    return session.reply_to_call(wait, asked.call)


def _new(session: SessionActor, asked: Standby) -> InstructionWait:
    now = session.now()
    seconds = min(asked.timeout_seconds or session.deps.config.timeouts.wait_seconds, LONGEST_STANDBY)
    return InstructionWait(
        id=session.deps.new_id(),
        session_id=session.id,
        message=asked.message,
        status=WaitStatus.PENDING,
        created_at=now,
        expires_at=now + timedelta(seconds=seconds) if seconds > 0 else None,
        call=asked.call,
    )


def _stand_by(
    db: Database, session: SessionActor, wait: InstructionWait, is_new: bool, call: str, has_news: bool
) -> tuple[InstructionWait, bool, bool, tuple[Instruction, ...]]:
    """Record a new standby once per call, and end it if there are news or a task. Returns it, whether it is new,
    whether it ended, and the queued instructions."""
    if is_new:
        wait, is_new = find_or_record(db, session, wait, partial(requests.by_call, session_id=session.id, call=call))
    found = waits.get(db, wait.id) or wait
    # A new one that has ended is this one, if the writer crashed between its commit and its answer.
    if session.row.is_paused or not (is_new or wait.status is WaitStatus.PENDING):
        return found, is_new, False, ()
    channel = request_kinds.INBOX if is_new else steering.CHANNEL
    ended = steering.end_wait(db, session, found, has_news, "intercom", channel)
    return waits.get(db, wait.id) or wait, is_new, ended, session.queued(db)


TOOL = Tool(
    name="standby",
    legacy_name="wait_for_instruction",
    title="Wait for work",
    description=DESCRIPTION,
    takes=Standby,
    result=StandbyAnswer,
    hints=Hints(open_world=True),
    handle=handle,
    pending=lambda id: StandbyAnswer("pending", request_id=id, message=_STILL_WAITING),
    offers_tasks=True,
)
