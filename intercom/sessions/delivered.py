"""Records which results have reached the agent, and updates their cards."""

from __future__ import annotations

from functools import partial

from intercom.model import crash_points
from intercom.model.steering import Instruction
from intercom.sessions import measures, outcomes
from intercom.sessions.actor import SessionActor
from intercom.sessions.messages import Delivery
from intercom.sessions.outcomes import Asked
from intercom.sessions.steering_messages import Told
from intercom.store import instructions, requests
from intercom.store.messages import Database


async def record(session: SessionActor, deliveries: tuple[Delivery, ...]) -> None:
    """Record that these results reached the agent, with everything attached to them. All is persisted on return."""
    riders = session.riders
    told = [id for each in deliveries for id in each.requests if id in riders.verdicts]
    # Includes instructions that moved to another session since: they have reached the agent.
    words = [id for each in deliveries for id in each.instructions]
    riders.unload(each.call for each in deliveries)
    if not told and not words:
        return
    crash_points.reach("delivery.told")
    done, heard = await session.transact(partial(_mark, session=session, told=told, words=words))
    crash_points.reach("delivery.recorded")
    for id in words:
        riders.words.pop(id, None)
    for word in heard:
        session.context.signatures.note_use(word.id, session.now())
        session.show_words(word)
        if word.session_id not in (None, session.id):
            session.system.named(f"session/{word.session_id}").tell(Told((word,)))
    for request in done:
        riders.verdicts.pop(request.id, None)
        if (arrived := measures.delivered(request)) is not None:
            session.context.measured(arrived)
        riders.tasked.pop(request.id, None)
        session.show(request)


def _mark(
    db: Database, session: SessionActor, told: list[str], words: list[str]
) -> tuple[list[Asked], tuple[Instruction, ...]]:
    at = session.now()
    for request_id in told:
        requests.mark_delivered(db, request_id, at)
    heard = instructions.mark_delivered(db, words, at)
    for word in heard:
        summary = outcomes.headline(word.text)
        session.record(db, "agent", f"{word.kind.value}_delivered", summary, instruction_id=word.id, given_by=word.by)
    found = (requests.find(db, request_id) for request_id in told)
    return [request for request in found if request is not None], heard
