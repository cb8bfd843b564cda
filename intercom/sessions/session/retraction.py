"""What people take back before an agent has it: a decision, whose request waits again then, a message or a task.

A decision is taken back only while it is certain that the agent does not know it: no result has carried it since it was
recorded. A result that was lost counts as well: nobody knows whether it was read. What this server run has sent is in
memory (`SessionDeps.unsent`). Of an earlier run the store knows less, but for certain: that nothing waited in the
session when the decision was recorded, and that its agent has not called since (`SessionActor.has_unsent`).

The grants that were made from a request end when its approval is taken back: the next change of its kind should not
pass either. A rule of the policy stays, because it is a line of a file, and for every agent.

A decision that was taken back must never count again. Sent again under its id, it is refused (`Scope.TAKEN_BACK`). Its
signature stays genuine, so `Signatures` remembers it too, from the audit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

from attrs import evolve, frozen

from actors import System
from intercom.model import crash_points, signing
from intercom.model.card import Card
from intercom.model.decision import PAST, Decided, Decision, signature_data
from intercom.model.errors import AlreadyDecided, InvalidState, NotFound
from intercom.model.grant import Grant
from intercom.model.json_types import Json, JsonObject
from intercom.model.metrics import DecisionTakenBack
from intercom.model.session import Instruction, Kind, SessionStatus
from intercom.sessions import request_kinds
from intercom.sessions.lookups import ask_session, only
from intercom.sessions.messages import TakeBack, TakeBackDecision
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session import steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, idempotency, instructions, outbox, requests, sessions
from intercom.store.grants import all_made, record_end
from intercom.store.idempotency import Scope
from intercom.store.requests import AnyRequest
from intercom.store.store_and_reader import Reader
from intercom.store.writer_messages import Database

#: A message or a task; or the request that a decision is about.
Found: TypeAlias = Instruction | AnyRequest


async def find(reader: Reader, prefix: str) -> Found | None:
    """Return the message, task or request whose id is this, or begins with it; None if there is none. Raises
    Ambiguous."""
    return await reader.read(partial(_find, prefix=prefix))


async def take_back(system: System, deps: SessionDeps, found: Found, act: TakeBackDecision) -> Card:
    """Take back what was found. `act` is complete but for the request. Raises AlreadyDecided if it has reached an
    agent, or may be on its way, InvalidState if there is nothing to take back, and SignatureRefused."""
    if not isinstance(found, Instruction):
        return await ask_session(system, found.session_id, evolve(act, request_id=found.id))
    if found.session_id is not None and (found.kind is not Kind.TASK or found.taken_at is not None):
        return await ask_session(system, found.session_id, TakeBack(found.id, act.by, act.channel))
    kept, home = await deps.store.transact(
        partial(_cancel_task, id=found.id, by=act.by, channel=act.channel, deps=deps)
    )
    card = request_kinds.card_of_instruction(kept, home)
    deps.card_router.tell(card)
    return card


def _find(db: Database, prefix: str) -> Found | None:
    ids = {*instructions.with_prefix(db, prefix), *(id for _, id in requests.with_prefix(db, prefix))}
    try:
        id = prefix if prefix in ids else only(sorted(ids), prefix, "request or message")
    except NotFound:
        return None
    return instructions.get(db, id) or requests.find(db, id)


def _cancel_task(db: Database, id: str, by: str, channel: str, deps: SessionDeps) -> tuple[Instruction, str]:
    """Cancel a task that no agent has taken. Returns it as it is then, and the root of its session's workspace."""
    instruction = instructions.get(db, id)
    assert instruction is not None, "it was found a moment ago"
    if instruction.taken_at is not None:
        raise AlreadyDecided("an agent has taken this task; nothing was changed")
    instruction = steering.cancel(db, deps, instruction, by, channel)
    session = None if instruction.session_id is None else sessions.get(db, instruction.session_id)
    return instruction, "" if session is None else session.workspace_root


# --- a decision, in its session ---------------------------------------------------------------------------------------

#: The channels on which people decide. Other decisions are those of policies, grants, messages and timers.
PEOPLES = frozenset({"ctl", "web", request_kinds.ELICITED, *signing.SIGNED_HERE})


@frozen
class TakenBack:
    """A request after a decision about it was taken back. `used` are the ids whose signatures count no more: of the
    decision and of the act. `grants` are the ids of the grants that are over with it. `note` says to people what was.
    `is_new` says that this was not on record before. `measured` is None for an act of a program that did not record
    it."""

    request: Asked
    used: tuple[str, ...]
    grants: tuple[str, ...]
    note: str
    measured: DecisionTakenBack | None
    is_new: bool = False


async def take_back_decision(session: SessionActor, asked: TakeBackDecision) -> Card:
    """Take back a decision, and end the grants that were made from its request. The same act again changes nothing,
    also if the request was decided again meanwhile. Raises NotFound, InvalidState, AlreadyDecided and SignatureRefused;
    then nothing was changed."""
    done = await session.transact(_reopen, session=session, asked=asked)
    crash_points.reach("verdict.taken_back")
    session.deps.signatures.note_taken_back(*done.used)
    for id in done.grants:
        session.deps.signatures.note_grant_end(id)
    if done.measured is not None:
        session.deps.measured(done.measured)
    request = done.request
    if session.is_settled(request):
        return session.show(request)
    session.note_known(request.id)
    session.change(SessionState.reopen, request.id)
    session.watch_expiry(request)
    if request.id not in session.waiters:
        session.change(SessionState.leave_alone, request.id)
    if done.is_new:
        # A chat notifies nobody of a message that changes.
        title = request_kinds.headline(request_kinds.of(request).title(request))
        session.notify(f'{done.note}; "{title}" waits for an answer again', "warning")
    return session.show(request, note=done.note)


def _reopen(db: Database, session: SessionActor, asked: TakeBackDecision) -> TakenBack:
    request = requests.find(db, asked.request_id)
    if request is None or request.session_id != session.id:
        raise NotFound(f"no request of this session has the id {asked.request_id[:100]!r}", code="request_not_found")
    before = idempotency.answer(db, Scope.TAKE_BACK, asked.id)
    if before is not None:
        # The act is repeated, or the writer crashed between its commit and its answer.
        if before.get("request_id") != request.id or asked.decision_id not in (None, before.get("verdict_id")):
            raise AlreadyDecided("this act belongs to another decision; give each action its own")
        used, ended = _ids(before.get("used")), _ids(before.get("grants"))
        return TakenBack(request, used, ended, str(before.get("note")), _measured(request, before))
    decided = _takeable(db, session, request)
    if asked.decision_id not in (None, decided.verdict_id):
        raise AlreadyDecided(
            f"request {request.id} has another decision now: {_decision_of(decided)}; nothing was changed; to take"
            " that back, look at the request again"
        )
    now = session.now()
    card = request_kinds.card_of(request, session.row.workspace_root)
    signature = session.deps.signatures.admit_taking_back(card, decided, asked.signed, asked.channel, asked.id, now)
    if not request_kinds.of(request).table.reopen(db, request.id, decided.verdict_id, now):
        raise AlreadyDecided(f"the decision about request {request.id} is being carried out; nothing was changed")
    requests.forget_unsent(db, request.id)
    origin = None if asked.origin is None else asked.origin.to_data()
    # A rejection gave nothing, so a grant of the same card has nothing to do with it.
    is_approval = decided.decision == Decision.APPROVE
    from_it = [each for each in all_made(db, session.id) if each.request_id == request.id] if is_approval else []
    over = [each for each in from_it if record_end(db, each, asked.by, asked.channel, origin, now)]
    ended = tuple(each.id for each in from_it)
    note = f"{asked.by} took back a decision: {_decision_of(decided)}{_with_grants(over, now)}"
    about: JsonObject = {"request_id": request.id, "verdict_id": decided.verdict_id}
    used = (decided.verdict_id, *(() if signature is None else (signature.decision_id,)))
    decision: JsonObject = {"decision": decided.decision, "channel": decided.channel}
    answer: JsonObject = {**about, **decision, "note": note, "used": list(used), "grants": list(ended)}
    idempotency.record(db, Scope.TAKE_BACK, asked.id, answer, now, session_id=session.id)
    idempotency.record(db, Scope.TAKEN_BACK, decided.verdict_id, about, now, session_id=session.id)
    session.record(
        db,
        asked.by,
        audit.DECISION_TAKEN_BACK,
        decided.decision,
        **about,
        channel=asked.channel,
        decided_by=decided.by,
        origin=origin,
        signature=signature_data(signature),
    )
    # A chat that is not told now, or that a kill keeps from being told, must not show the old decision for good.
    outbox.reopen(db, f"card/{request.id}")
    after = requests.find(db, request.id)
    assert after is not None, "it was found in this transaction"
    return TakenBack(after, used, ended, note, _measured(after, answer), is_new=True)


def _decision_of(decided: Decided) -> str:
    return f"{PAST.get(decided.decision, decided.decision)} by {decided.by}"


#: How much of a grant's id is said.
_ID_CHARS = 8


def _with_grants(over: Sequence[Grant], now: datetime) -> str:
    """Say that these grants ended too. Those that were over before are not named."""
    named = [each.id[:_ID_CHARS] for each in over if now < each.until]
    if not named:
        return ""
    return f"; that ended the grant{'s' if len(named) > 1 else ''} {', '.join(named)} too"


def _measured(request: Asked, answer: JsonObject) -> DecisionTakenBack | None:
    verdict_id, decision, channel = (answer.get(name) for name in ("verdict_id", "decision", "channel"))
    if not (isinstance(verdict_id, str) and isinstance(decision, str) and isinstance(channel, str)):
        return None
    return DecisionTakenBack(request.id, verdict_id, request_kinds.of(request).card, decision, channel)


def _ids(kept: Json) -> tuple[str, ...]:
    return tuple(map(str, kept)) if isinstance(kept, list) else ()


def _takeable(db: Database, session: SessionActor, request: Asked) -> Decided:
    """Return the decision about a request, if it can be taken back. Raises InvalidState and AlreadyDecided, which say
    why it cannot."""
    decided, status, named = request.decided, request.status.value, f"request {request.id}"
    if status == "pending":
        raise InvalidState(f"{named} is not decided, so there is nothing to take back; nothing was changed")
    if session.row.status is SessionStatus.TERMINATED or status == "interrupted":
        raise InvalidState(f"the session of {named} has ended, so it could not be decided again; nothing was changed")
    if status == "consumed":
        raise AlreadyDecided(f"the agent has used the approval of {named}; nothing was changed")
    if decided is None or decided.channel not in PEOPLES:
        by = "nobody" if decided is None else "no person"
        raise InvalidState(f"{by} decided {named} ({status}), so there is nothing to take back; nothing was changed")
    if request.delivered_at is not None:
        raise AlreadyDecided(f"the agent has the answer to {named} already; nothing was changed")
    if session.state.item(request.id).calls:
        raise AlreadyDecided(f"the answer to {named} is on its way to the agent; nothing was changed")
    here = session.deps.unsent.get(request.id) == decided.verdict_id
    if not here and not requests.is_unsent(db, request, decided.verdict_id):
        raise AlreadyDecided(
            f"the agent may know the answer to {named}: it was sent, or may have been before the server started again;"
            " nothing was changed; to change what the agent does, send it a message (steer SESSION TEXT) or pause it"
        )
    if request.expires_at is not None and request.expires_at <= session.now():
        raise InvalidState(f"the time of {named} is over, so it could not be decided again; nothing was changed")
    return decided
