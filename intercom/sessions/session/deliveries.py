"""The record of what has reached the agent: decisions and instructions, with the results that carried them."""

from __future__ import annotations

from intercom.model import crash_points
from intercom.model.session import Instruction
from intercom.sessions import request_kinds
from intercom.sessions.messages import (
    DeliveredElsewhere,
    Delivery,
    Written,
)
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.store import instructions, requests
from intercom.store.writer_messages import Database


async def record_deliveries(session: SessionActor, deliveries: tuple[Delivery, ...]) -> None:
    """Record that these results reached the agent, with everything attached to them. All is persisted on return."""
    told = [id for each in deliveries for id in each.requests if session.state.has(id)]
    # Includes instructions that moved to another session since: they have reached the agent.
    said = [id for each in deliveries for id in each.instructions]
    # Before the store is asked: if it fails, what these results carried is pending again.
    session.change(SessionState.detach, (each.call for each in deliveries))
    if not told and not said:
        return
    done, heard = await session.transact(_mark, session=session, told=told, said=said)
    crash_points.reach("delivery.recorded")
    session.change(SessionState.delivered, (*said, *(request.id for request in done)))
    for instruction in heard:
        session.deps.signatures.note_use(instruction.id, session.now())
        session.show_instruction(instruction)
        if instruction.session_id not in (None, session.id):
            session.system.named(f"session/{instruction.session_id}").tell(DeliveredElsewhere((instruction,)))
    for request in done:
        if (arrived := request_kinds.delivered(request)) is not None:
            session.deps.measured(arrived)
        session.show(request)


def _mark(
    db: Database, session: SessionActor, told: list[str], said: list[str]
) -> tuple[list[Asked], tuple[Instruction, ...]]:
    at = session.now()
    for request_id in told:
        requests.mark_delivered(db, request_id, at)
    heard = instructions.mark_delivered(db, said, at)
    for instruction in heard:
        summary = request_kinds.headline(instruction.text)
        session.record(
            db,
            "agent",
            f"{instruction.kind.value}_delivered",
            summary,
            instruction_id=instruction.id,
            given_by=instruction.by,
        )
    found = (requests.find(db, request_id) for request_id in told)
    return [request for request in found if request is not None], heard


def delivered_elsewhere(session: SessionActor, told: DeliveredElsewhere) -> None:
    session.change(SessionState.drop, (each.id for each in told.instructions))


async def written(session: SessionActor, told: Written) -> None:
    """Record that the agent may have read these: its tasks stay its own even if it never comes back."""
    await session.transact(instructions.mark_written, ids=told.instructions, at=session.now())


async def all_read(session: SessionActor) -> None:
    """Record that the agent has read all that was written to it."""
    queued = await session.transact(instructions.queued, session_id=session.id)
    read = tuple(each.id for each in queued if each.written_at is not None)
    await record_deliveries(session, (Delivery("", (), read),))
