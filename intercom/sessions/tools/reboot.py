"""reboot: an agent that starts again is told what it left in this workspace."""

from __future__ import annotations

from attrs import evolve, field, frozen

from intercom.model import clock, limits
from intercom.model.checkpoint import CheckpointLine
from intercom.model.field_docs import INTERNAL, doc
from intercom.model.session import Instruction, Kind, ProgressItem
from intercom.sessions import request_kinds
from intercom.sessions.messages import Answered, ToolRequest
from intercom.sessions.session import steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.tools.tool import Hints, Tool
from intercom.store import checkpoints, requests
from intercom.store.checkpoints import restores
from intercom.store.writer_messages import Database

DESCRIPTION = """\
Call this first when you start, and after a crash or restart: it finds what you left in this workspace, and work that \
waits for you.
On "recovered" continue from there: wait for each of pending_requests with its request_id (check_clearance for \
"approval", transmit for "prompt", standby for "standby"). On "clean" there is nothing to continue. Do what tasks \
says: a person left it for you, and it is told once."""


@frozen
class Reboot(ToolRequest[Answered["RebootAnswer"]]):
    """Tell the agent of this session what it left. `adopted` says that the session was taken over for this call: the
    agent connection has chosen the session before it asks."""

    session_id: str | None = field(
        default=None,
        metadata=doc(
            "The session to continue. Default: the last session of the same client in this workspace.", most=limits.NAME
        ),
    )
    adopted: bool = field(default=False, kw_only=True, metadata=INTERNAL)


@frozen
class PendingRequest:
    request_id: str = field(metadata=doc("The id to wait for."))
    type: str = field(metadata=doc('"approval", "prompt", "standby" or "permission".'))
    title: str = field(metadata=doc("What was asked, in one line."))
    created_at: str = field(metadata=doc("When it was asked."))


@frozen
class CheckpointSummary:
    checkpoint_id: str = field(metadata=doc("The id of the checkpoint."))
    label: str | None = field(metadata=doc("Its name, if a person gave one.", keep=True))
    created_at: str = field(metadata=doc("When it was taken."))


@frozen
class Task:
    task_id: str = field(metadata=doc("The id of the task."))
    text: str = field(metadata=doc("What to do."))
    by: str = field(metadata=doc("Who left it."))
    created_at: str = field(metadata=doc("When it was left."))


@frozen
class RebootAnswer:
    """The answer of reboot. `status` is clean or recovered. `tasks` are what a person left for this agent."""

    status: str = field(metadata=doc('"recovered" or "clean".'))
    session_id: str | None = field(default=None, metadata=doc("The session that you continue."))
    pending_requests: tuple[PendingRequest, ...] = field(
        default=(), metadata=doc("Your requests that still wait for a person; wait for each again.")
    )
    last_checkpoint: CheckpointSummary | None = field(
        default=None, metadata=doc("The newest checkpoint of the session.")
    )
    progress_snapshot: tuple[ProgressItem, ...] = field(
        default=(), metadata=doc("Your task list, as you reported it last.")
    )
    tasks: tuple[Task, ...] = field(default=(), metadata=doc("What a person left for you to do; each is told once."))


async def handle(session: SessionActor, asked: Reboot) -> Answered[RebootAnswer]:
    """Return what this session left: pending requests, the last checkpoint, the last progress. Takes the tasks that
    were left for its agent, and attaches them to the answer like instructions."""
    await session.refuse_instructions()
    pending, last, queued = await session.transact(_left, session=session)
    steering.took(session, queued)
    progress = session.row.progress_snapshot or ()
    session.touch("reboot")
    if not (asked.adopted or pending or last or progress):
        return session.answered(asked.call, RebootAnswer("clean"))
    answer = RebootAnswer(
        "recovered",
        session.id,
        tuple(_pending(request) for request in pending),
        CheckpointSummary(last.id, last.label, clock.to_text(last.created_at)) if last else None,
        progress,
    )
    return session.answered(asked.call, answer)


def with_tasks(answered: Answered[RebootAnswer]) -> Answered[RebootAnswer]:
    """Move the tasks among the attached instructions into the answer."""
    attached = answered.instructions
    tasks = tuple(Task(each.id, each.text, each.by, each.at) for each in attached if each.kind == Kind.TASK)
    others = tuple(each for each in attached if each.kind != Kind.TASK)
    return evolve(answered, answer=evolve(answered.answer, tasks=tasks), instructions=others)


def _left(
    db: Database, session: SessionActor
) -> tuple[tuple[request_kinds.Asked, ...], CheckpointLine | None, tuple[Instruction, ...]]:
    steering.take(db, session)
    return (requests.pending(db, session.id), _last_checkpoint(db, session.id), session.queued(db))


def _last_checkpoint(db: Database, session_id: str) -> CheckpointLine | None:
    """Return the session's own checkpoint, else the one that it was restored from."""
    last = checkpoints.last(db, session_id)
    if last is not None or (restore := restores.by_successor(db, session_id)) is None:
        return last
    return checkpoints.line(db, restore.checkpoint_id)


def _pending(request: request_kinds.Asked) -> PendingRequest:
    kind = request_kinds.of(request)
    return PendingRequest(request.id, kind.name, kind.title(request), clock.to_text(request.created_at))


TOOL = Tool(
    name="reboot",
    legacy_name="recover_state",
    title="Take up where you left off",
    description=DESCRIPTION,
    takes=Reboot,
    result=RebootAnswer,
    hints=Hints(idempotent=True),
    handle=handle,
    complete=with_tasks,
)
