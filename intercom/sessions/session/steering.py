"""Steering: messages and tasks that people queue for an agent.

An agent that stands by gets no result, so a message ends its standby, and so does a decision that no call waits for.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from actors import System
from intercom.model import crash_points
from intercom.model.card import Card
from intercom.model.decision import Decided, Decision, SignedCommand
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState, NotFound, SteerQueueFull
from intercom.model.request import InstructionWait, WaitStatus
from intercom.model.session import Instruction, Kind, Session, SessionStatus
from intercom.model.visible_text import count
from intercom.sessions import request_kinds
from intercom.sessions.messages import (
    Answered,
    PersonNudged,
    Steer,
    TakeBack,
    TakeInstructions,
    TasksLeft,
)
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, instructions, sessions
from intercom.store.instructions import Load
from intercom.store.requests import waits
from intercom.store.writer_messages import Database

#: The channel of a decision by which a message, or a decision about another request, ends a standby.
CHANNEL = "steer"


async def steer(session: SessionActor, asked: Steer) -> Card:
    """Queue a message for the agent, once per action. Raises InvalidArguments, SteerQueueFull, InvalidState."""
    if session.row.status is SessionStatus.TERMINATED:
        raise InvalidState("this session was ended: no agent will get this message; start another, or leave a task")
    instruction = Instruction(asked.id, asked.kind, asked.text, asked.by, asked.channel, session.now(), session.id)
    instruction = await session.transact(queue, session.deps, instruction, asked.signed)
    crash_points.reach("instruction.recorded")
    if instruction.is_open:
        session.change(SessionState.queue, instruction)
    card = session.show_instruction(instruction)
    session.stall.tell(PersonNudged())
    await end_standby(session, asked.by, asked.channel)
    return evolve(card, note=_why_later(session) or card.note) if instruction.is_open else card


async def take_back(session: SessionActor, asked: TakeBack) -> Card:
    """Cancel a queued message. Raises NotFound, AlreadyDecided."""
    if session.state.item(asked.id).calls:
        raise AlreadyDecided("this message is on its way to the agent; nothing was changed")
    instruction = await session.transact(_cancel, session, asked)
    session.change(SessionState.drop, (instruction.id,))
    return session.show_instruction(instruction)


async def tasks_left(session: SessionActor, left: TasksLeft) -> None:
    await end_standby(session, left.by, left.channel)


def take_instructions(session: SessionActor, asked: TakeInstructions) -> Answered[None]:
    """Return the pending deliveries of an agent that is about to end its turn."""
    answered = session.answered(asked.call, None)
    session.change(SessionState.turn_ends, is_over=not (answered.late_verdicts or answered.instructions))
    return answered


async def end_standby(session: SessionActor, by: str, channel: str) -> None:
    """If the agent stands by and there is a message, a task or a decision for it, end its oldest standby."""
    if not session.waiters or session.row.is_paused:
        return
    await session.refuse_instructions()
    ended = await session.transact(_end_oldest, session, tuple(session.waiters), has_news(session), by, channel)
    if ended is not None:
        wait, queued = ended
        took(session, queued)
        session.settle(wait)


def has_news(session: SessionActor) -> bool:
    """Return whether there are decisions or instructions for the agent that no result carries."""
    return any(session.state.pending(session.now()))


async def tell_news(session: SessionActor) -> None:
    """End a standby if there is something to tell that no result carries: the agent may get no other result."""
    if has_news(session):
        await end_standby(session, "intercom", CHANNEL)


def took(session: SessionActor, queued: tuple[Instruction, ...]) -> None:
    """Note the instructions that are queued now; tasks that the agent has just taken are among them."""
    for instruction in queued:
        if not session.state.has(instruction.id):
            session.change(SessionState.queue, instruction)
            session.show_instruction(instruction)


async def give_back(session: SessionActor) -> None:
    """Give back tasks: the agent is gone, or has another session. Workspace tasks that it took and was not told are
    free again. What moved to its other session belongs to that one."""
    freed, queued = await session.transact(_give_back, session=session)
    session.change(SessionState.drop, (each.id for each in session.state.instructions))
    session.change(SessionState.queue, *queued)
    for instruction in freed:
        session.show_instruction(instruction)
    await tell_of_tasks(session, freed)


async def tell_of_tasks(session: SessionActor, tasks: Iterable[Instruction]) -> None:
    """Tell agents that stand by in the same workspace of tasks among these that are free now."""
    free = next((each for each in tasks if each.is_open and each.session_id is None), None)
    if free is not None:
        live = await session.transact(sessions.live)
        tell_of_task(session.system, free, (other for other in live if other.id != session.id))


def tell_of_task(system: System, task: Instruction, live: Iterable[Session]) -> None:
    """Tell those of these sessions' agents that stand by of the task, if they may take it. The first one takes it."""
    for session in live:
        if session.id == task.session_id or session.workspace_root == task.workspace_root:
            name = system.named(f"session/{session.id}")
            if name.ref is not None:
                name.tell(TasksLeft(task.by, task.channel))


def take(db: Database, session: SessionActor, limit: int | None = None) -> tuple[str, ...]:
    """Take tasks from the inbox, in the caller's transaction. Returns their ids."""
    left = instructions.inbox(db, session.id, session.row.workspace_root)
    trusted = session.deps.signatures.trusted_instructions(db, left)[:limit]
    taken = instructions.take(db, session.id, tuple(task.id for task in trusted), session.now())
    for id in taken:
        session.record(db, "agent", "task_taken", f"task {id}", instruction_id=id)
    return taken


def end_wait(db: Database, session: SessionActor, wait: InstructionWait, has_news: bool, by: str, channel: str) -> bool:
    """End this standby in the caller's transaction, if there are news for the agent, or else the oldest task it may
    take. False if there is neither: then it waits."""
    decided = Decided(request_kinds.ended_by_instructions(wait.id), Decision.RESUME.value, by, channel, session.now())
    if wait.decided is not None and wait.decided.verdict_id == decided.verdict_id:
        # Ended already: the writer crashed between its commit and its answer.
        return True
    if wait.status is not WaitStatus.PENDING or not (has_news or take(db, session, 1)):
        return False
    if not waits.decide(db, wait.id, WaitStatus.DECIDED, decided):
        return False
    queued = [each.id for each in session.queued(db)]
    late = [each.request_id for each in session.state.pending(session.now())[0]]
    session.record(
        db,
        by,
        "standby_ended",
        "by a message for the agent" if queued else "by a decision for the agent",
        request_id=wait.id,
        channel=channel,
        instruction_ids=queued,
        decided_ids=late,
    )
    session.deps.signatures.note_ended(db, evolve(wait, decided=decided))
    return True


def _end_oldest(
    db: Database, session: SessionActor, ids: tuple[str, ...], has_news: bool, by: str, channel: str
) -> tuple[InstructionWait, tuple[Instruction, ...]] | None:
    found = (waits.get(db, request_id) for request_id in ids)
    for wait in sorted((wait for wait in found if wait is not None), key=lambda each: each.created_at):
        if end_wait(db, session, wait, has_news, by, channel):
            after = waits.get(db, wait.id)
            assert after is not None, "it was there a moment ago"
            return after, session.queued(db)
    return None


def _why_later(session: SessionActor) -> str | None:
    """Return why these instructions do not reach the agent soon; None if they do."""
    if session.row.is_paused:
        return "the session is paused: the agent is told when it is resumed"
    if session.can_be_woken and not session.state.is_reachable:
        return "the agent is woken for it once its program has ended"
    if not session.state.agent_here:
        return "the agent is away: it is told when it is back"
    return None if session.state.is_reachable else "the agent has ended its turn: it is told with its next call"


def cancel(db: Database, deps: SessionDeps, instruction: Instruction, by: str, channel: str) -> Instruction:
    """Cancel an instruction, as it is in this transaction. Returns it as it is then. Raises AlreadyDecided for one that
    has reached its agent, or that was written to it and may have."""
    if instruction.is_open and instruction.written_at is not None:
        raise AlreadyDecided("this message was sent to the agent, which may have it; nothing was changed")
    if not instructions.close(db, (instruction.id,), deps.now()) and instruction.closed_at is None:
        raise AlreadyDecided("the agent has this message already; nothing was changed")
    if instruction.closed_at is None:
        data = {"instruction_id": instruction.id, "channel": channel}
        kind, summary = f"{instruction.kind.value}_taken_back", request_kinds.headline(instruction.text)
        audit.record(db, deps.now(), kind, instruction.session_id, by, summary, data)
    return instructions.get(db, instruction.id) or instruction


def _cancel(db: Database, session: SessionActor, asked: TakeBack) -> Instruction:
    instruction = instructions.get(db, asked.id)
    if instruction is None or instruction.session_id != session.id:
        raise NotFound(f"no message for this session has the id {asked.id!r}")
    return cancel(db, session.deps, instruction, asked.by, asked.channel)


def check_room(text: str, load: Load, most: int, most_bytes: int) -> None:
    """Raise InvalidArguments for a message that is empty or too long, SteerQueueFull if the queue is full."""
    size = len(text.encode("utf-8", "replace"))
    if not text.strip():
        raise InvalidArguments("the message is empty: say what the agent should do")
    if size > most_bytes:
        raise InvalidArguments(
            f"that is {size} bytes and at most {most_bytes} can wait for one agent; say it shorter, or name a file"
        )
    if load.count >= most or load.bytes + size > most_bytes:
        raise SteerQueueFull(
            f"{count(load.count, 'message')} ({count(load.bytes, 'byte')}) {'waits' if load.count == 1 else 'wait'} for"
            f" this agent already, of {most} ({most_bytes} bytes); wait until it has them, or cancel some"
        )


def queue(
    db: Database, deps: SessionDeps, instruction: Instruction, signed: SignedCommand | None, home: str = ""
) -> Instruction:
    """Record a message or a task, once per action, in the caller's transaction. Returns it as it is recorded. `home` is
    a task's workspace. Raises AlreadyDecided, InvalidArguments, SteerQueueFull, SignatureRefused."""
    found = instructions.get(db, instruction.id)
    if found is not None:
        # A repeated request whose answer was lost, or another action under the same name.
        is_same = instruction.kind is Kind.TASK or found.session_id == instruction.session_id
        if not is_same or (found.kind, found.text) != (instruction.kind, instruction.text):
            raise AlreadyDecided("this id belongs to another message; give each action its own")
        return found
    limits = deps.config.steering
    load = instructions.load(db, instruction.session_id, instruction.workspace_root)
    check_room(instruction.text, load, limits.max_queued, limits.max_queued_bytes)
    instruction = evolve(instruction, signed=deps.signatures.admit_instruction(db, instruction, signed, instruction.at))
    instructions.insert(db, instruction)
    about = {"instruction_id": instruction.id, "channel": instruction.channel} | (
        {"workspace_root": home} if home else {}
    )
    audit.record(
        db, instruction.at, instruction.kind.value, instruction.session_id, instruction.by, instruction.text, about
    )
    return instruction


def _give_back(db: Database, session: SessionActor) -> tuple[tuple[Instruction, ...], tuple[Instruction, ...]]:
    instructions.give_back(db, session.id)
    now = (instructions.get(db, each.id) for each in session.state.instructions)
    freed = tuple(each for each in now if each is not None and each.session_id is None)
    return freed, session.queued(db)
