"""Decisions: what operators do to a session's requests, and to the session."""

from __future__ import annotations

from functools import partial

from attrs import evolve

from intercom.model import crash_points, text_limits
from intercom.model.approval import ApprovalRequest, ApprovalStatus
from intercom.model.card import Card, Notice
from intercom.model.config import OnTimeout
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState, NotFound
from intercom.model.outbox import Content
from intercom.model.prompt import ContinuationPrompt, Wait, WaitStatus
from intercom.model.session import Session, SessionStatus, may_become
from intercom.model.stall import StallAlert
from intercom.model.steering import Instruction, Kind
from intercom.model.verdict import Decided, Decision, Verdict, signature_data
from intercom.sessions import alerts, applying, cards, chat_rows, child_processes, given, pausing, steering
from intercom.sessions.actor import SessionActor
from intercom.sessions.messages import Decide, Describe, End, EndAbandoned, OpenCards, Resume
from intercom.sessions.outcomes import Asked, headline
from intercom.sessions.questions import on_timeout
from intercom.sessions.steering_messages import Steer, Unpause
from intercom.sessions.timers import ClockChanged, Expire
from intercom.store import approvals, instructions, prompts, requests, sessions, stalls, waits
from intercom.store.messages import Database

_APPROVAL = {Decision.APPROVE: ApprovalStatus.APPROVED, Decision.REJECT: ApprovalStatus.REJECTED}
_PROMPT = {Decision.CONTINUE, Decision.REFINE, Decision.STOP}
_STANDBY = {Decision.RESUME, Decision.CONTINUE, Decision.REFINE, Decision.STOP}


async def decide(session: SessionActor, asked: Decide) -> Card:
    """Let a verdict decide a request, if it is the first; a repeat of the winning verdict is answered as the first."""
    if (too_long := text_limits.over("the text", asked.verdict.text, text_limits.TEXT)) is not None:
        raise InvalidArguments(too_long)
    if cards.is_stuck(asked.request_id):
        return await applying.give_up(session, asked)
    won, found, is_proven = await session.transact(partial(_decide, session=session, asked=asked))
    crash_points.reach("verdict.recorded")
    if isinstance(found, StallAlert):
        card = alerts.show(session, found) if won else await alerts.answer(session, found, asked.verdict)
        if asked.verdict.decision is Decision.STOP:
            await end(session, End(asked.verdict.by, asked.verdict.channel, "stopped from a stall alert"))
        return card
    if not won:
        if _is_over(session, found):
            # Nobody may answer it any more, so it does not stay open: its timer is late, as the clock was set.
            found = await _run_out(session, found.id) or found
        raise _too_late(found)
    return session.settle(found, is_proven=is_proven)


async def resume(session: SessionActor, asked: Resume) -> Session:
    """Let a waiting agent go on: its pause is lifted, and its oldest standby answered."""
    verdict = asked.verdict
    wait, was_paused = await session.transact(partial(_waiting, session=session, verdict=verdict))
    if was_paused:
        # Words that came meanwhile would end the standby first, and this verdict come too late.
        await pausing.lift(session, Unpause(verdict.id, verdict.by, verdict.channel))
    if wait is not None:
        await decide(session, Decide(wait.id, verdict))
    elif was_paused and verdict.text:
        await steering.steer(session, Steer(verdict.id, Kind.STEER, verdict.text, verdict.by, verdict.channel))
    elif not was_paused:
        raise InvalidState("nothing to resume: the session neither stands by nor is paused")
    if was_paused:
        await steering.end_standby(session, verdict.by, verdict.channel)
    return session.row


async def end_abandoned(session: SessionActor, asked: EndAbandoned) -> bool:
    """Terminate a session whose agent did not come back; people are told of all such sessions together."""
    row = session.row
    if session.agent_here or row.status not in sessions.LEFT or row.updated_at >= asked.before:
        return False
    await _terminate(session, End("intercom", "retention", asked.why))
    return True


async def end(session: SessionActor, asked: End) -> Session:
    """Terminate: pending requests are interrupted, approvals lapse, who waits is told, and people."""
    was_over = session.row.status is SessionStatus.TERMINATED
    row = await _terminate(session, asked)
    if not was_over:
        session.notify(f"session ended by {asked.by}: {asked.why}", "warning")
    return row


async def _terminate(session: SessionActor, asked: End) -> Session:
    if session.row.status is SessionStatus.TERMINATED:
        child_processes.end(session)
        return session.row
    session.row, ended, unheard = await session.transact(partial(_end, session=session, asked=asked))
    if session.context.chat is not None:
        session.context.chat.wake()
    for request in ended:
        session.settle(request)
    # Who waits for a verdict that was held back by a pause is told it: there is nothing left to go on with.
    await pausing.release(session)
    session.riders.clear()
    for word in unheard:
        session.show_words(word)
    session.brief_detector()
    await alerts.dismiss(session, asked.by)
    child_processes.end(session)
    await steering.tell_of_tasks(session, unheard)
    return session.row


async def describe(session: SessionActor, _asked: Describe) -> Session:
    return session.row


async def open_cards(session: SessionActor, _asked: OpenCards) -> tuple[Card, ...]:
    pending, alert = await session.transact(
        lambda db: (requests.pending(db, session.id), stalls.active(db, session.id))
    )
    shown = [session.show(request) for request in pending]
    if alert is not None:
        shown.append(alerts.show(session, alert))
    return tuple(shown)


async def expire(session: SessionActor, due: Expire) -> None:
    """Time is up: the request ends as its kind says, and who waits is told. By the wall clock: one that has time left
    by that, as the clock was set back, is waited for again. What an agent is told in a person's place is news to
    people: it comes as a message of its own."""
    request = await _run_out(session, due.request_id)
    if request is not None and not session.is_settled(request):
        session.watch_expiry(request)


async def clock_changed(session: SessionActor, _changed: ClockChanged) -> None:
    """Judge the deadlines again: what is over by now ends at once, and the others' timers are set anew."""
    session.riders.clock_changed(session.now())
    for request in await session.transact(partial(requests.pending, session_id=session.id)):
        session.watch_expiry(request)


async def _run_out(session: SessionActor, id: str) -> Asked | None:
    """End a request whose time is up by now; as it stands after, None where there is no such request."""
    line, content = await _unanswered(session, id)
    request = await session.transact(partial(_expire, session=session, id=id, line=line, content=content))
    crash_points.reach("expiry.recorded")
    if request is None or not session.is_settled(request):
        return request
    session.settle(request)
    if line is not None and isinstance(request, ContinuationPrompt) and request.status is WaitStatus.EXPIRED:
        session.notify(line.text, line.level, key=None if content is None else line.key)
        if content is not None and session.context.chat is not None:
            session.context.chat.wake()
    return request


async def _unanswered(session: SessionActor, id: str) -> tuple[Notice | None, Content | None]:
    """What people are told of a question that nobody answered, and how the chat shows it; None for anything else."""
    request = await session.transact(partial(requests.find, id=id))
    if not isinstance(request, ContinuationPrompt) or session.is_settled(request):
        return None, None
    choice = on_timeout(session, request.prompt_type)
    asked = headline(request.prompt_text)
    told = f"told to {choice.value}" + (", and that nobody consented" if choice is OnTimeout.CONTINUE else "")
    text = f'nobody answered "{asked}" in time: the agent is {told}'
    line = Notice(text, "warning", session.now(), session.id, None, f"unanswered/{id}")
    return line, await chat_rows.drawn(session, line)


async def become(session: SessionActor, to: SessionStatus, who: str, why: str) -> None:
    """Move the session's status, where its table allows it from where it stands; elsewhere nothing happens."""
    if not may_become(session.row.status, to):
        return
    moved = await session.transact(partial(_become, session=session, to=to, who=who, why=why))
    if moved is not None:
        session.row = moved
        session.brief_detector()


def _become(db: Database, session: SessionActor, to: SessionStatus, who: str, why: str) -> Session | None:
    moved = sessions.set_status(db, session.id, {session.row.status}, to, session.now())
    if moved is None:
        # Moved before, when the writer fell between its commit and its answer; or by nobody, and then it stays.
        return sessions.get(db, session.id)
    session.record(db, who, f"session_{to.value}", why)
    return moved


def _find(db: Database, session_id: str, id: str) -> Asked | StallAlert:
    found: Asked | StallAlert | None = requests.find(db, id) or stalls.get(db, id)
    if found is None or found.session_id != session_id:
        raise NotFound(f"nothing with the id {id} waits in session {session_id}", code="request_not_found")
    return found


def _check_choice(request: Asked, verdict: Verdict) -> None:
    allowed: set[Decision] = {
        ApprovalRequest: set(_APPROVAL),
        ContinuationPrompt: _PROMPT,
        Wait: _STANDBY,
    }[type(request)]
    if verdict.decision not in allowed:
        names = ", ".join(sorted(choice.value for choice in allowed))
        raise InvalidArguments(f"{verdict.decision.value} is no answer to this request; answer one of: {names}")
    if verdict.decision is Decision.REFINE and not (verdict.text or "").strip():
        raise InvalidArguments("refine needs an instruction: say what the agent should do instead")


def _decide(db: Database, session: SessionActor, asked: Decide) -> tuple[bool, Asked | StallAlert, bool]:
    """Whether this verdict won; what it was about as it stands after; and whether that is what was admitted just now,
    and not what was read of it again. A stall alert is left to its own rules, unless this verdict has had its effect on
    it before."""
    verdict = asked.verdict
    request = _find(db, session.id, asked.request_id)
    if isinstance(request, StallAlert):
        if verdict.decision is not Decision.NUDGE or verdict.command is None:
            # A nudge from ctl is a command, whose signature is checked with its words.
            card = cards.of_stall(request, session.row.workspace_root)
            session.context.signatures.admit(verdict, card, session.now())
        return given.was(db, verdict), request, False
    _check_choice(request, verdict)
    if not session.is_settled(request):
        card = cards.of_request(request, session.row.workspace_root)
        signature = session.context.signatures.admit(verdict, card, session.now())
    else:
        signature = verdict.signature
    # What counts is when the act is put on record: a late tap is late whatever its sender's clock says.
    decided = Decided.of(verdict, session.now(), signature)
    match request:
        case ApprovalRequest():
            won = approvals.decide(db, request.id, _APPROVAL[verdict.decision], decided)
        case ContinuationPrompt():
            won = prompts.decide(db, request.id, WaitStatus.DECIDED, decided)
        case Wait():
            won = waits.decide(db, request.id, WaitStatus.DECIDED, decided)
    first = won and not session.is_settled(request)
    is_proven = first and isinstance(request, ApprovalRequest)
    if isinstance(request, ApprovalRequest) and is_proven:
        # What it became is known, and its files need not be read again.
        after: Asked | None = evolve(request, status=_APPROVAL[verdict.decision], decided=decided)
    else:
        after = requests.find(db, request.id)
    assert after is not None, "requests are not deleted while their session lives"
    if first:
        # A repeat of the verdict that won is no second act.
        session.record(
            db,
            verdict.by,
            "decided",
            verdict.decision.value,
            request_id=request.id,
            channel=verdict.channel,
            origin=verdict.origin_data,
            signature=signature_data(decided.signature),
            proposal_hash=request.proposal_hash if isinstance(request, ApprovalRequest) else None,
        )
    return won, after, is_proven


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


def _waiting(db: Database, session: SessionActor, verdict: Verdict) -> tuple[Wait | None, bool]:
    """The standby that this act answers (or has answered), and whether the session is paused, or was until this act."""
    was_paused = session.row.is_paused or pausing.was_lifted(db, verdict.id)
    pending = waits.pending(db, session.id)
    return waits.by_verdict(db, session.id, verdict.id) or next(iter(pending), None), was_paused


def _end(db: Database, session: SessionActor, asked: End) -> tuple[Session, tuple[Asked, ...], tuple[Instruction, ...]]:
    """The session as it is then, what ended with it, and the words that its agent never got; the same when the writer
    fell before it could say so."""
    now = session.now()
    moved = sessions.set_status(db, session.id, {session.row.status}, SessionStatus.TERMINATED, now)
    row = moved or sessions.get(db, session.id)
    if row is None or row.status is not SessionStatus.TERMINATED:
        raise InvalidState(f"a session that is {session.row.status.value} can not be ended")
    closed: tuple[str, ...] = ()
    if moved is not None:
        approvals.interrupt(db, session.id, now)
        prompts.interrupt(db, session.id, now)
        waits.interrupt(db, session.id, now)
        # A task that was left for the workspace is another agent's to take.
        freed = instructions.give_back(db, session.id, written=True)
        closed = (*freed, *instructions.close_session(db, session.id, now))
        session.record(db, asked.by, "session_terminated", asked.why, channel=asked.channel)
        # Nothing else may be told of this session, which would redraw it.
        chat_rows.redraw_top(db, session, row)
    unheard = (instructions.get(db, id) for id in {*session.riders.words, *closed})
    return row, requests.interrupted(db, session.id), tuple(word for word in unheard if word is not None)


def _is_over(session: SessionActor, request: Asked) -> bool:
    """Whether a request is open although its time is up by the wall clock."""
    at = request.expires_at
    return not session.is_settled(request) and at is not None and at <= session.now()


def _expire(db: Database, session: SessionActor, id: str, line: Notice | None, content: Content | None) -> Asked | None:
    request = requests.find(db, id)
    if request is None or session.is_settled(request):
        # Ended before: by a verdict, or by us when the writer fell between its commit and its answer.
        return request
    if not _is_over(session, request):
        return request
    now = session.now()
    match request:
        case ApprovalRequest():
            approvals.expire(db, id, now)
        case ContinuationPrompt():
            choice = on_timeout(session, request.prompt_type)
            if choice is OnTimeout.HOLD:
                # It was asked when the configuration said otherwise; without a deadline it can be answered again.
                prompts.hold(db, id)
                return requests.find(db, id)
            decided = Decided(f"timeout/{id}", choice.value, "timeout", "timeout", now)
            if prompts.decide(db, id, WaitStatus.EXPIRED, decided) and line is not None and content is not None:
                chat_rows.put(db, session, line, content)
        case Wait():
            waits.expire(db, id, now)
    session.record(db, "timeout", "expired", f"nobody answered in time: {id}", request_id=id)
    return requests.find(db, id)
