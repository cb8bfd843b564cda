"""Decisions about a session's requests: by people, or because nobody answered in time.

A decision is recorded once, before anybody hears of it. Then the calls that wait are answered.
"""

from __future__ import annotations

from typing import Any

import trio
from attrs import evolve

from intercom.model import crash_points, limits
from intercom.model.card import Card, Notice, end_of
from intercom.model.config import OnTimeout
from intercom.model.decision import Decided, Decision, Verdict, signature_data
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState, NotFound, RecordMismatch
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ContinuationPrompt,
    InstructionWait,
    WaitStatus,
)
from intercom.model.session import Kind, Session, StallAlert
from intercom.sessions import amendments, request_kinds
from intercom.sessions.amendments import PreparedDecision
from intercom.sessions.messages import (
    Answered,
    AwaitDecision,
    ClockChanged,
    Decide,
    End,
    Expire,
    Resume,
    Steer,
    Unpause,
)
from intercom.sessions.request_kinds import Asked, headline
from intercom.sessions.session import lifecycle, stall, steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools import check_diff
from intercom.sessions.tools.transmit import ask_policy_again, on_timeout
from intercom.store import idempotency, requests
from intercom.store.idempotency import Scope
from intercom.store.outbox import Content
from intercom.store.requests import prompts, waits
from intercom.store.sessions import stalls
from intercom.store.writer_messages import Database


async def await_decision(session: SessionActor, asked: AwaitDecision) -> Answered[Any] | None:
    """Wait for the decision about a request. The answer to a permission hook carries nothing else: its client could not
    pass it on."""
    request = await session.find(asked.request_id)
    if session.is_for_policy(request):
        await ask_policy_again(session, request)
    alone = isinstance(request, ApprovalRequest) and request.tool is not None
    return session.answer_or_wait(request, asked.call, asked.ticket, alone=alone)


async def decide(session: SessionActor, asked: Decide) -> Card:
    """Apply an operator's verdict to a request. The first one wins; its repeat is answered like the first time."""
    if (too_long := limits.over("the text", asked.verdict.text, limits.TEXT)) is not None:
        raise InvalidArguments(too_long)
    if request_kinds.is_stuck(asked.request_id):
        return await check_diff.give_up(session, asked)
    prepared = await _prepared(session, asked)
    # Before the transaction: its answer may be lost.
    session.has_unsent = session.has_unsent or not session.is_waited_in
    won, found, is_first = await session.transact(_decide, session=session, asked=asked, prepared=prepared)
    crash_points.reach("verdict.recorded")
    if isinstance(found, StallAlert):
        card = stall.show(session, found) if won else await stall.answer(session, found, asked.verdict)
        if asked.verdict.decision is Decision.STOP:
            await lifecycle.end(session, End(asked.verdict.by, asked.verdict.channel, "stopped from a stall alert"))
        return card
    if not won:
        if _is_over(session, found):
            # Nobody may answer it any more, so it is closed now. Its timer is late because the clock was set.
            found = await _run_out(session, found.id) or found
        raise _too_late(found)
    if is_first:
        # Before the calls that wait are answered.
        session.deps.unsent[found.id] = asked.verdict.id
    # It was checked in this transaction.
    card = session.settle(found, is_proven=is_first and isinstance(found, ApprovalRequest))
    await steering.tell_news(session)
    return card


async def _prepared(session: SessionActor, asked: Decide) -> PreparedDecision | None:
    """Return a decision that changes a proposal, notes something for its agent, or comments on it; None for any other,
    and for a request that is not open any more."""
    verdict = asked.verdict
    is_note = verdict.decision is Decision.APPROVE and verdict.text is not None
    if verdict.amendment is None and not verdict.comments and not is_note:
        return None
    request = await session.transact(_find, session_id=session.id, id=asked.request_id)
    if not isinstance(request, ApprovalRequest):
        if verdict.amendment is not None or verdict.comments:
            raise InvalidState("this card has no change of files, so no part of it can be chosen or commented on")
        return None
    if session.is_settled(request):
        return None
    return await trio.to_thread.run_sync(amendments.prepare, request, session.row.workspace_root, verdict)


async def resume(session: SessionActor, asked: Resume) -> Session:
    """Resume a waiting agent: lift its pause, and answer its oldest standby. Raises InvalidState if it does neither."""
    verdict = asked.verdict
    wait, was_paused = await session.transact(_waiting, session=session, verdict=verdict)
    if was_paused:
        # Queued messages must not end the standby before this verdict does.
        await lifecycle.lift(session, Unpause(verdict.id, verdict.by, verdict.channel))
    if wait is not None:
        await decide(session, Decide(wait.id, verdict))
    elif was_paused and verdict.text:
        await steering.steer(session, Steer(verdict.id, Kind.STEER, verdict.text, verdict.by, verdict.channel))
    elif not was_paused:
        raise InvalidState("nothing to resume: the session neither stands by nor is paused")
    if was_paused:
        await steering.end_standby(session, verdict.by, verdict.channel)
    return session.row


async def expire(session: SessionActor, due: Expire) -> None:
    """A request's timer fired: end the request as its kind requires, and answer the waiting calls. If the wall clock
    was set back and time is left, set the timer again. People get a message of their own: an edited card notifies
    nobody."""
    request = await _run_out(session, due.request_id)
    if request is not None and not session.is_settled(request):
        session.watch_expiry(request)


async def clock_changed(session: SessionActor, _changed: ClockChanged) -> None:
    """Check the deadlines again: overdue requests end at once, and the other timers are set again."""
    session.change(SessionState.clock_changed, session.now())
    for request in await session.transact(requests.pending, session_id=session.id):
        session.watch_expiry(request)


async def _run_out(session: SessionActor, id: str) -> Asked | None:
    """End a request if its time is over. Returns it as it is then; None if there is no such request."""
    request = await session.transact(requests.find, id)
    line = content = None
    if request is not None and not session.is_settled(request):
        asked = headline(request_kinds.of(request).title(request))
        text = f'nobody answered "{asked}" in time: {_follows(session, request)}'
        line = Notice(text, "warning", session.now(), session.id, None, f"unanswered/{id}")
        content = await session.drawn(line)
    request = await session.transact(_expire, session, id, line, content)
    if request is None or not session.is_settled(request):
        return request
    session.settle(request)
    if line is not None and request.status.value == "expired":
        session.notify(line.text, line.level, key=None if content is None else line.key)
        if content is not None and session.deps.chat is not None:
            session.deps.chat.wake()
    await steering.tell_news(session)
    return request


def _follows(session: SessionActor, request: Asked) -> str:
    """Return what follows if nobody answers this request in time."""
    match request:
        case ContinuationPrompt():
            choice = on_timeout(session, request.prompt_type)
            consent = ", and that nobody consented" if choice is OnTimeout.CONTINUE else ""
            return f"the agent is told to {choice.value}{consent}"
        case InstructionWait():
            return "the agent is told that no instruction came"
        case _:
            return "it is not approved, and the agent is told so"


def _find(db: Database, session_id: str, id: str) -> Asked | StallAlert:
    found: Asked | StallAlert | None = requests.find(db, id) or stalls.get(db, id)
    if found is None or found.session_id != session_id:
        raise NotFound(f"nothing with the id {id} waits in session {session_id}", code="request_not_found")
    return found


def _decide(
    db: Database, session: SessionActor, asked: Decide, prepared: PreparedDecision | None = None
) -> tuple[bool, Asked | StallAlert, bool]:
    """Record a verdict about a request. Returns whether it is the one that counts, the request after it, and whether
    the verdict was recorded just now, and not before. Raises AlreadyDecided for a verdict that was taken back.

    For a stall alert nothing is recorded here, as its decisions have rules of their own (`stall.answer`). The first
    value then says whether this verdict was carried out before. `prepared` is the decision with the record that it is
    about, which replaces the request's; it counts only for the request that it was made from.
    """
    verdict = asked.verdict
    request = _find(db, session.id, asked.request_id)
    _require_standing(db, verdict)
    if isinstance(request, StallAlert):
        if verdict.decision is not Decision.NUDGE or verdict.command is None:
            # A nudge from ctl is a command, whose signature is checked with its message.
            card = request_kinds.card_of_alert(request, session.row.workspace_root)
            session.deps.signatures.admit(verdict, card, session.now())
        return idempotency.was_done(db, Scope.DECISION, verdict.id), request, False
    kind = request_kinds.of(request)
    to = end_of(kind.card, verdict.decision)
    if verdict.decision is Decision.REFINE and not (verdict.text or "").strip():
        raise InvalidArguments("refine needs an instruction: say what the agent should do instead")
    decides: Asked = request
    if not session.is_settled(request):
        if prepared is not None:
            if not prepared.is_about(request):
                raise RecordMismatch("the request changed while it was decided; look at it again")
            verdict, decides = prepared.verdict, prepared.request
        card = request_kinds.card_of(decides, session.row.workspace_root)
        signature = session.deps.signatures.admit(verdict, card, session.now())
    else:
        signature = verdict.signature
    # The server's time counts: a late answer is late, whatever its sender's clock says.
    decided = Decided.of(verdict, session.now(), signature)
    won = kind.table.decide(db, request.id, to, decided)
    first = won and not session.is_settled(request)
    amended = prepared.record(db, session.now()) if prepared is not None and first else {}
    if isinstance(decides, ApprovalRequest) and isinstance(to, ApprovalStatus) and first:
        # The result is known, so the files need not be read again.
        details = None if prepared is None else prepared.details
        after: Asked | None = evolve(decides, status=to, decided=decided, details=details)
    else:
        after = requests.find(db, request.id)
    assert after is not None, "requests are not deleted while their session lives"
    if first:
        if not session.is_waited_in:
            # Otherwise a result carries it in a moment.
            requests.note_unsent(db, request, verdict.id)
        # A repeat of the winning verdict is not recorded twice.
        session.record(
            db,
            verdict.by,
            "decided",
            verdict.decision.value,
            request_id=request.id,
            channel=verdict.channel,
            origin=verdict.origin_data,
            signature=signature_data(decided.signature),
            proposal_hash=decides.proposal_hash if isinstance(decides, ApprovalRequest) else None,
            **amended,
        )
    return won, after, first


def _require_standing(db: Database, verdict: Verdict) -> None:
    """Raise AlreadyDecided for a verdict that was taken back: sent again, nothing of it counts."""
    if idempotency.was_done(db, Scope.TAKEN_BACK, verdict.id):
        raise AlreadyDecided("this decision was taken back; nothing was changed")


def _too_late(request: Asked) -> AlreadyDecided:
    decided = request.decided
    if decided is None:
        return AlreadyDecided(
            f"request {request.id} is no longer open: it is {request.status.value}; nothing was changed",
            request_id=request.id,
            status=request.status.value,
        )
    return AlreadyDecided(
        f"request {request.id} was answered before: {decided.decision} by {decided.by}"
        f" ({decided.channel}, {decided.at:%Y-%m-%d %H:%M:%S} UTC); nothing was changed",
        request_id=request.id,
        status=request.status.value,
        decided_by=decided.by,
    )


def _waiting(db: Database, session: SessionActor, verdict: Verdict) -> tuple[InstructionWait | None, bool]:
    """Return the standby that this verdict answers, and whether the session is paused, or was until this verdict.
    Raises AlreadyDecided for a verdict that was taken back: its words must not reach the agent by another way."""
    _require_standing(db, verdict)
    was_paused = session.row.is_paused or idempotency.was_done(db, Scope.UNPAUSE, verdict.id)
    pending = waits.pending(db, session.id)
    return waits.by_verdict(db, session.id, verdict.id) or next(iter(pending), None), was_paused


def _is_over(session: SessionActor, request: Asked) -> bool:
    """Return whether an open request's time is over by the wall clock."""
    at = request.expires_at
    return not session.is_settled(request) and at is not None and at <= session.now()


def _expire(db: Database, session: SessionActor, id: str, line: Notice | None, content: Content | None) -> Asked | None:
    request = requests.find(db, id)
    if request is None or not _is_over(session, request):
        # Or ended before by a verdict, or by this handler if the writer crashed before it answered.
        return request
    now = session.now()
    if isinstance(request, ContinuationPrompt):
        choice = on_timeout(session, request.prompt_type)
        if choice is OnTimeout.HOLD:
            # Asked under another configuration. Without a deadline it can be answered again.
            prompts.hold(db, id)
            return requests.find(db, id)
        decided = Decided(f"timeout/{id}", choice.value, "timeout", "timeout", now)
        is_over = prompts.decide(db, id, WaitStatus.EXPIRED, decided)
    else:
        is_over = request_kinds.of(request).table.expire(db, id, now)
    if is_over and line is not None and content is not None:
        assert session.deps.chat is not None, "it was drawn for the chat"
        session.deps.chat.put(db, session.id, line, content)
    session.record(db, "timeout", "expired", f"nobody answered in time: {id}", request_id=id)
    return requests.find(db, id)
