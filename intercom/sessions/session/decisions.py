"""Decisions: what operators do to a session's requests, and what the end of its process does.

Each event is recorded with its effect under the run's name: it may be repeated after a crash.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from attrs import evolve

from intercom.model import crash_points, limits
from intercom.model.approval import ApprovalRequest, ApprovalStatus
from intercom.model.card import Card, Notice
from intercom.model.config import OnTimeout
from intercom.model.decision import Decided, Decision, Verdict, signature_data
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState, NotFound
from intercom.model.instruction import Instruction, Kind
from intercom.model.outbox import Content
from intercom.model.process import Why
from intercom.model.prompt import ContinuationPrompt, Wait, WaitStatus
from intercom.model.session import Session, SessionStatus, may_become
from intercom.model.stall import StallAlert
from intercom.sessions import cards
from intercom.sessions.answers import Asked, headline
from intercom.sessions.messages import (
    Answered,
    AwaitDecision,
    Decide,
    Describe,
    End,
    EndAbandoned,
    OpenCards,
    ProcessEnded,
    ProcessStarted,
    Resume,
    Steer,
    Unpause,
)
from intercom.sessions.session import actor, notices, pausing, stall, steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.timers import ClockChanged, Expire
from intercom.sessions.tools import check_diff
from intercom.sessions.tools.transmit import ask_policy_again, on_timeout
from intercom.store import idempotency, instructions, requests, sessions, stalls
from intercom.store.idempotency import Scope
from intercom.store.messages import Database
from intercom.store.requests import approvals, prompts, waits

_APPROVAL = {Decision.APPROVE: ApprovalStatus.APPROVED, Decision.REJECT: ApprovalStatus.REJECTED}
_PROMPT = {Decision.CONTINUE, Decision.REFINE, Decision.STOP}
_STANDBY = {Decision.RESUME, Decision.CONTINUE, Decision.REFINE, Decision.STOP}


async def await_decision(session: SessionActor, asked: AwaitDecision) -> Answered[Any] | None:
    """Wait for the decision about a request. The answer to a permission hook carries nothing else: its client could not
    pass it on."""
    request = await session.find(asked.request_id)
    if session.is_for_policy(request):
        await ask_policy_again(session, request)
    alone = isinstance(request, ApprovalRequest) and request.tool is not None
    return session.answered_or_waits(request, asked.call, asked.ticket, alone=alone)


async def decide(session: SessionActor, asked: Decide) -> Card:
    """Apply an operator's verdict to a request. The first one wins; its repeat is answered like the first time."""
    if (too_long := limits.over("the text", asked.verdict.text, limits.TEXT)) is not None:
        raise InvalidArguments(too_long)
    if cards.is_stuck(asked.request_id):
        return await check_diff.give_up(session, asked)
    won, found, is_proven = await session.transact(partial(_decide, session=session, asked=asked))
    crash_points.reach("verdict.recorded")
    if isinstance(found, StallAlert):
        card = stall.show(session, found) if won else await stall.answer(session, found, asked.verdict)
        if asked.verdict.decision is Decision.STOP:
            await end(session, End(asked.verdict.by, asked.verdict.channel, "stopped from a stall alert"))
        return card
    if not won:
        if _is_over(session, found):
            # Nobody may answer it any more, so it is closed now. Its timer is late because the clock was set.
            found = await _run_out(session, found.id) or found
        raise _too_late(found)
    return session.settle(found, is_proven=is_proven)


async def resume(session: SessionActor, asked: Resume) -> Session:
    """Resume a waiting agent: lift its pause, and answer its oldest standby. Raises InvalidState if it does neither."""
    verdict = asked.verdict
    wait, was_paused = await session.transact(partial(_waiting, session=session, verdict=verdict))
    if was_paused:
        # Queued messages must not end the standby before this verdict does.
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
    """End a session whose agent did not come back. The caller tells people of all such sessions together."""
    row = session.row
    if session.agent_here or row.status not in sessions.WITHOUT_AGENT or row.updated_at >= asked.before:
        return False
    await _terminate(session, End("intercom", "retention", asked.why))
    return True


async def end(session: SessionActor, asked: End) -> Session:
    """End a session: interrupt its requests, let approvals lapse, answer the waiting calls, and tell people."""
    was_over = session.row.status is SessionStatus.TERMINATED
    row = await _terminate(session, asked)
    if not was_over:
        session.notify(f"session ended by {asked.by}: {asked.why}", "warning")
    return row


async def _terminate(session: SessionActor, asked: End) -> Session:
    if session.row.status is SessionStatus.TERMINATED:
        actor.end(session)
        return session.row
    session.row, ended, unheard = await session.transact(partial(_end, session=session, asked=asked))
    if session.context.chat is not None:
        session.context.chat.wake()
    for request in ended:
        session.settle(request)
    # Calls whose answer the pause held back are answered now: the session does not continue.
    await pausing.release(session)
    session.deliveries.clear()
    for word in unheard:
        session.show_words(word)
    session.brief_detector()
    await stall.dismiss(session, asked.by)
    actor.end(session)
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
        shown.append(stall.show(session, alert))
    return tuple(shown)


async def expire(session: SessionActor, due: Expire) -> None:
    """A request's timer fired: end the request as its kind requires, and answer the waiting calls. If the wall clock
    was set back and time is left, set the timer again. People get a message of their own about a default answer."""
    request = await _run_out(session, due.request_id)
    if request is not None and not session.is_settled(request):
        session.watch_expiry(request)


async def clock_changed(session: SessionActor, _changed: ClockChanged) -> None:
    """Check the deadlines again: overdue requests end at once, and the other timers are set again."""
    session.deliveries.clock_changed(session.now())
    for request in await session.transact(partial(requests.pending, session_id=session.id)):
        session.watch_expiry(request)


async def _run_out(session: SessionActor, id: str) -> Asked | None:
    """End a request if its time is over. Returns it as it is then; None if there is no such request."""
    line, content = await _unanswered(session, id)
    request = await session.transact(partial(_expire, session=session, id=id, line=line, content=content))
    if request is None or not session.is_settled(request):
        return request
    session.settle(request)
    if line is not None and isinstance(request, ContinuationPrompt) and request.status is WaitStatus.EXPIRED:
        session.notify(line.text, line.level, key=None if content is None else line.key)
        if content is not None and session.context.chat is not None:
            session.context.chat.wake()
    return request


async def _unanswered(session: SessionActor, id: str) -> tuple[Notice | None, Content | None]:
    """Return the line for people about an unanswered question, and its chat content; None for other requests."""
    request = await session.transact(partial(requests.find, id=id))
    if not isinstance(request, ContinuationPrompt) or session.is_settled(request):
        return None, None
    choice = on_timeout(session, request.prompt_type)
    asked = headline(request.prompt_text)
    told = f"told to {choice.value}" + (", and that nobody consented" if choice is OnTimeout.CONTINUE else "")
    text = f'nobody answered "{asked}" in time: the agent is {told}'
    line = Notice(text, "warning", session.now(), session.id, None, f"unanswered/{id}")
    return line, await notices.drawn(session, line)


async def become(session: SessionActor, to: SessionStatus, who: str, why: str) -> None:
    """Change the session's status if the status table allows it. Otherwise nothing happens."""
    if not may_become(session.row.status, to):
        return
    moved = await session.transact(partial(_become, session=session, to=to, who=who, why=why))
    if moved is not None:
        session.row = moved
        session.brief_detector()


def _become(db: Database, session: SessionActor, to: SessionStatus, who: str, why: str) -> Session | None:
    moved = sessions.set_status(db, session.id, {session.row.status}, to, session.now())
    if moved is None:
        # Moved already: the writer crashed between its commit and its answer. Or not moved at all, and it stays so.
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
    """Return whether this verdict won, its object as it is then, and whether that object was admitted just now and not
    read again. A stall alert follows its own rules, unless this verdict was applied to it before."""
    verdict = asked.verdict
    request = _find(db, session.id, asked.request_id)
    if isinstance(request, StallAlert):
        if verdict.decision is not Decision.NUDGE or verdict.command is None:
            # A nudge from ctl is a command, whose signature is checked with its message.
            card = cards.of_stall(request, session.row.workspace_root)
            session.context.signatures.admit(verdict, card, session.now())
        return idempotency.was_done(db, Scope.DECISION, verdict.id), request, False
    _check_choice(request, verdict)
    if not session.is_settled(request):
        card = cards.of_request(request, session.row.workspace_root)
        signature = session.context.signatures.admit(verdict, card, session.now())
    else:
        signature = verdict.signature
    # The server's time counts: a late answer is late, whatever its sender's clock says.
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
        # The result is known, so the files need not be read again.
        after: Asked | None = evolve(request, status=_APPROVAL[verdict.decision], decided=decided)
    else:
        after = requests.find(db, request.id)
    assert after is not None, "requests are not deleted while their session lives"
    if first:
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
    """Return the standby that this verdict answers, and whether the session is paused, or was until this verdict."""
    was_paused = session.row.is_paused or idempotency.was_done(db, Scope.UNPAUSE, verdict.id)
    pending = waits.pending(db, session.id)
    return waits.by_verdict(db, session.id, verdict.id) or next(iter(pending), None), was_paused


def _end(db: Database, session: SessionActor, asked: End) -> tuple[Session, tuple[Asked, ...], tuple[Instruction, ...]]:
    """Return the session, the requests that ended with it, and the instructions that its agent never got. The same
    after a crash of the writer."""
    now = session.now()
    moved = sessions.set_status(db, session.id, {session.row.status}, SessionStatus.TERMINATED, now)
    row = moved or sessions.get(db, session.id)
    if row is None or row.status is not SessionStatus.TERMINATED:
        raise InvalidState(f"a session that is {session.row.status.value} cannot be ended")
    closed: tuple[str, ...] = ()
    if moved is not None:
        approvals.interrupt(db, session.id, now)
        prompts.interrupt(db, session.id, now)
        waits.interrupt(db, session.id, now)
        # Another agent may take a task that was left for the workspace.
        freed = instructions.give_back(db, session.id, written=True)
        closed = (*freed, *instructions.close_session(db, session.id, now))
        session.record(db, asked.by, "session_terminated", asked.why, channel=asked.channel)
        # A later notice that would redraw it may never come.
        notices.redraw_top(db, session, row)
    unheard = (instructions.get(db, id) for id in {*session.deliveries.words, *closed})
    return row, requests.interrupted(db, session.id), tuple(word for word in unheard if word is not None)


def _is_over(session: SessionActor, request: Asked) -> bool:
    """Return whether an open request's time is over by the wall clock."""
    at = request.expires_at
    return not session.is_settled(request) and at is not None and at <= session.now()


def _expire(db: Database, session: SessionActor, id: str, line: Notice | None, content: Content | None) -> Asked | None:
    request = requests.find(db, id)
    if request is None or session.is_settled(request):
        # Ended before by a verdict, or by this handler if the writer crashed before it answered.
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
                # Asked under another configuration. Without a deadline it can be answered again.
                prompts.hold(db, id)
                return requests.find(db, id)
            decided = Decided(f"timeout/{id}", choice.value, "timeout", "timeout", now)
            if prompts.decide(db, id, WaitStatus.EXPIRED, decided) and line is not None and content is not None:
                notices.put(db, session, line, content)
        case Wait():
            waits.expire(db, id, now)
    session.record(db, "timeout", "expired", f"nobody answered in time: {id}", request_id=id)
    return requests.find(db, id)


_WHO = "intercom"


async def started(session: SessionActor, news: ProcessStarted) -> Session:
    """Handle the start of the process: activate the session and tell people, unless the session has ended."""
    if session.row.status is SessionStatus.TERMINATED:
        return session.row
    first = await session.transact(partial(_note, session=session, what=f"{news.run}/started"))
    if session.row.status is SessionStatus.CREATED:
        await become(session, SessionStatus.ACTIVE, _WHO, "its agent runs")
    if first:
        task = headline(session.row.prompt or "", 300)
        again = "" if news.run == 1 else f", for the {_ordinal(news.run)} time"
        session.notify(f"agent started by {news.by}{again}, as process {news.pid}: {task}")
    return session.row


async def ended(session: SessionActor, news: ProcessEnded) -> Session:
    """Handle the end of the process, depending on how it ended."""
    if session.row.status is SessionStatus.TERMINATED:
        return session.row
    if session.row.status is SessionStatus.CREATED and news.why is not Why.NOT_STARTED:
        await become(session, SessionStatus.ACTIVE, _WHO, "its agent ran")
    last = f"; its last words: {news.words}" if news.words else ""
    if news.again_at is not None:
        if await session.transact(partial(_note, session=session, what=f"{news.run}/ended")):
            pause = max(0.0, (news.again_at - session.now()).total_seconds())
            session.notify(
                f"the agent's process ended ({news.exit}); it starts again in {pause:.0f} s{last}", "warning"
            )
    elif news.why is Why.NOT_STARTED and session.row.status is SessionStatus.INTERRUPTED:
        # The session existed before, like a restored one. Its requests wait for an agent that connects by itself.
        if await session.transact(partial(_note, session=session, what=f"{news.run}/ended")):
            session.notify(f"its agent could not be started, so the session waits for another: {news.said}", "error")
    elif news.why is Why.NOT_STARTED:
        await end(session, End(_WHO, "spawn", f"its agent could not be started: {news.said}"))
    elif news.why is Why.SHUTDOWN:
        await become(session, SessionStatus.INTERRUPTED, _WHO, "its agent ended with the server")
        if await session.transact(partial(_note, session=session, what=f"{news.run}/ended")):
            session.notify("the agent's process was ended, as the server stops; what waits stays pending", "warning")
        await steering.give_back(session)
    elif news.exit is not None and news.exit.is_success:
        # The agent finished its work: the instructions written to it are not given to another agent.
        await steering.all_read(session)
        await end(session, End(_WHO, "spawn", f"its agent is done{last}"))
    else:
        await _fail(session, f"the agent's process ended ({news.exit}){last}", news.run)
    return session.row


async def _fail(session: SessionActor, text: str, run: int) -> None:
    moved, cut_off, first = await session.transact(partial(_interrupt, session=session, text=text, run=run))
    session.row = moved
    for request in cut_off:
        session.settle(request)
    session.brief_detector()
    if first:
        session.notify(text, "error")
    await steering.give_back(session)


def _interrupt(db: Database, session: SessionActor, text: str, run: int) -> tuple[Session, tuple[Asked, ...], bool]:
    """Return the session, the requests that were interrupted, and whether the event is new."""
    now: datetime = session.now()
    first = _note(db, session, f"{run}/ended")
    if first:
        to = SessionStatus.INTERRUPTED
        if may_become(session.row.status, to):
            sessions.set_status(db, session.id, {session.row.status}, to, now)
        approvals.interrupt(db, session.id, now)
        prompts.interrupt(db, session.id, now)
        waits.interrupt(db, session.id, now)
        session.record(db, _WHO, "process_failed", text)
    row = sessions.get(db, session.id)
    assert row is not None, "it is not purged before it is over"
    return row, requests.interrupted(db, session.id), first


def _note(db: Database, session: SessionActor, what: str) -> bool:
    """Record that this was told. False if it was recorded before."""
    return idempotency.record(db, Scope.PROCESS, f"{session.id}/{what}", {}, session.now(), session_id=session.id)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
