"""What a session does with each message: the table, and the handlers of requests, tasks and connections."""

from __future__ import annotations

import math
from functools import partial
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
    Task,
    TaskState,
    TaskStatus,
    Wait,
    WaitStatus,
)
from intercom.model.session import Kind, Session, SessionStatus, StallAlert
from intercom.sessions import amendments, messages, request_kinds
from intercom.sessions.amendments import PreparedDecision
from intercom.sessions.checkpoints import restored_session
from intercom.sessions.messages import (
    Answered,
    AwaitDecision,
    AwaitTask,
    CancelTask,
    ClockChanged,
    Decide,
    End,
    Expire,
    FindTask,
    ListTasks,
    LookRound,
    OpenCards,
    OpenTask,
    Resume,
    Show,
    Steer,
    Unpause,
    WriteTouch,
)
from intercom.sessions.request_kinds import Asked, headline
from intercom.sessions.session import hook_permissions, lifecycle, stall, steering, taking_back
from intercom.sessions.session.actor import Handlers, SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.session_deps import SessionDeps
from intercom.sessions.tools import broadcast, check_diff
from intercom.sessions.tools.tool_table import TOOLS
from intercom.sessions.tools.transmit import ask_policy_again, on_timeout
from intercom.store import idempotency, requests
from intercom.store.idempotency import Scope
from intercom.store.outbox import Content
from intercom.store.processes import agent_processes
from intercom.store.requests import prompts, tasks, waits
from intercom.store.sessions import stalls
from intercom.store.writer_messages import Database


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


async def open_cards(session: SessionActor, _asked: OpenCards) -> tuple[Card, ...]:
    pending, alert = await session.transact(
        lambda db: (requests.pending(db, session.id), stalls.active(db, session.id))
    )
    shown = [session.show(request) for request in pending]
    if alert is not None:
        shown.append(stall.show(session, alert))
    return tuple(shown)


async def read_requests(session: SessionActor, asked: messages.ReadRequests) -> tuple[Asked, ...]:
    if asked.pending:
        return await session.transact(requests.pending, session_id=session.id)
    return await session.transact(requests.latest, session_id=session.id, limit=asked.limit)


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
        case Wait():
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


def _waiting(db: Database, session: SessionActor, verdict: Verdict) -> tuple[Wait | None, bool]:
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


async def open_task(session: SessionActor, asked: OpenTask) -> TaskState:
    await session.find(asked.request_id)
    task = Task(session.deps.new_id(), session.id, asked.request_id, asked.tool, asked.call, session.now())
    kept, request = await session.transact(_open, task=task)
    if kept.cancelled_at is None and session.is_settled(request):
        session.leave_to_task(request.id)
    elif kept.cancelled_at is None:
        session.change(SessionState.reserve, (request.id,))
        session.mark(request)
    return _shown(session, kept, request)


async def find_task(session: SessionActor, asked: FindTask) -> TaskState:
    return _shown(session, *await _find_task(session, asked.task_id))


async def list_tasks(session: SessionActor, asked: ListTasks) -> tuple[TaskState, ...]:
    if asked.after is not None:
        await _find_task(session, asked.after)
    page = partial(_page, session_id=session.id, after=asked.after, limit=asked.limit)
    return tuple(_shown(session, *each) for each in await session.transact(page))


async def await_task(session: SessionActor, asked: AwaitTask) -> Answered[Any] | None:
    task, request = await _find_task(session, asked.task_id)
    if task.cancelled_at is not None:
        raise _task_cancelled(task.id)
    await ask_policy_again(session, request)
    return session.answered_or_waits(request, asked.call, asked.ticket, task.id)


async def cancel_task(session: SessionActor, asked: CancelTask) -> TaskState:
    await _find_task(session, asked.task_id)
    done = await session.transact(tasks.cancel, id=asked.task_id, by=asked.call, at=session.now())
    task, request = await _find_task(session, asked.task_id)
    if not done:
        over = _told(session, state(task, request))
        raise InvalidState(f"task {task.id} is over ({over.status}); there is nothing to cancel")
    if request.id not in await session.transact(tasks.asked_after, session_id=session.id):
        session.change(SessionState.reserve, (request.id,), until=-math.inf)
    session.dismiss(request, task.id, _task_cancelled(task.id))
    return state(task, request)


def state(task: Task, request: Asked) -> TaskState:
    """Return a task's state, from its request. A cancelled task stays cancelled, whatever happens to the request."""
    at = request.decided.at if request.decided is not None else request.expires_at
    if task.cancelled_at is not None:
        status, at = TaskStatus.CANCELLED, task.cancelled_at
    elif request.status.value == "pending":
        status, at = TaskStatus.WORKING, task.created_at
    elif request.status.value == "interrupted":
        status, at = TaskStatus.FAILED, at
    else:
        status = TaskStatus.COMPLETED
    return TaskState(
        task.id, task.tool, request.id, status, task.created_at, max(at or task.created_at, task.created_at)
    )


def _shown(session: SessionActor, task: Task, request: Asked) -> TaskState:
    """Return the state of a task as its client may see it: a decision is hidden until a pause is over."""
    found = state(task, request)
    if session.row.is_paused and found.status is TaskStatus.COMPLETED:
        return evolve(found, status=TaskStatus.WORKING)
    return _told(session, found)


def _told(session: SessionActor, found: TaskState) -> TaskState:
    """Return the state of a task, which its client is told now: it takes an end for final."""
    if found.status is TaskStatus.COMPLETED:
        session.note_known(found.request_id)
    return found


async def update_away_marks(session: SessionActor) -> None:
    """Update the "agent away" marks on the cards of polled requests: the agent, and so its polling client, came or
    left."""
    for request_id in session.state.mismarked:
        session.mark(await session.find(request_id))


def _task_cancelled(task_id: str) -> InvalidState:
    return InvalidState(f"task {task_id} was cancelled by its client", code="task_cancelled")


async def _find_task(session: SessionActor, task_id: str) -> tuple[Task, Asked]:
    found = await session.transact(_with_request, id=task_id)
    if found is None or found[0].session_id != session.id:
        raise NotFound(f"no task of this session has the id {task_id[:80]!r}", code="task_not_found")
    task, request = found
    return task, await session.find(request.id)


def _open(db: Database, task: Task) -> tuple[Task, Asked]:
    kept = tasks.insert_or_get(db, task)
    request = requests.find(db, kept.request_id)
    assert request is not None, "looked for a moment ago"
    return kept, request


def _with_request(db: Database, id: str) -> tuple[Task, Asked] | None:
    task = tasks.get(db, id)
    request = None if task is None else requests.find(db, task.request_id)
    return None if task is None or request is None else (task, request)


def _page(db: Database, session_id: str, after: str | None, limit: int) -> tuple[tuple[Task, Asked], ...]:
    found = (_with_request(db, task.id) for task in tasks.page(db, session_id, after, limit))
    return tuple(each for each in found if each is not None)


def session_actor(session_id: str, deps: SessionDeps, new: Session | None = None) -> SessionActor:
    """Return a session's actor, ready to be started. `new` is the row of a session that was opened just now."""
    return SessionActor(session_id, deps, HANDLERS, check_diff.recover, new)


async def _detach(session: SessionActor, left: messages.Detach) -> messages.Answered[None]:
    await _leave(session, messages.Withdraw(left.call, left.request_id, left.ticket))
    session.require_going_on()
    return session.answered(left.call, None)


async def _withdraw(session: SessionActor, left: messages.Withdraw) -> None:
    await _leave(session, left)
    await steering.tell_news(session)


async def _leave(session: SessionActor, left: messages.Withdraw) -> None:
    # A decision on its way to this call has not arrived. Another result may carry it.
    session.change(SessionState.detach, (left.call,))
    if session.waiters.forget(left.request_id, left.call, left.ticket):
        session.brief_detector()
        session.mark(await session.find(left.request_id))


async def _undeliver(session: SessionActor, lost: messages.Undeliver) -> None:
    session.change(SessionState.detach, lost.calls)
    await steering.tell_news(session)


async def _agent_came(session: SessionActor, _came: messages.AgentCame) -> None:
    session.change(SessionState.agent_came)
    if session.row.status in (SessionStatus.CREATED, SessionStatus.INTERRUPTED):
        await lifecycle.become(session, session.row.status_when_here, "agent", "the agent is connected")
    # The agent may have got instructions while it had another session.
    await session.refuse_instructions()
    steering.took(session, await session.transact(session.queued))
    await update_away_marks(session)


async def _agent_left(session: SessionActor, _left: messages.AgentLeft) -> None:
    # Before the store is asked: the stall detector must rest meanwhile.
    session.change(SessionState.agent_left)
    await stall.recovered(session, messages.Recovered())
    await update_away_marks(session)
    if session.row.status in (SessionStatus.ACTIVE, SessionStatus.PAUSED):
        if await session.transact(agent_processes.is_going, session_id=session.id):
            # Its process runs, or soon will: a lost connection does not prove that the agent is gone.
            return
        await lifecycle.become(session, SessionStatus.INTERRUPTED, "intercom", "the agent's connection is gone")
    await steering.give_back(session)


async def _show(session: SessionActor, due: Show) -> None:
    request = await session.find(due.request_id)
    if not session.is_settled(request):
        session.change(SessionState.leave_alone, request.id)
        session.show(request)


async def _look_round(session: SessionActor, _due: LookRound) -> None:
    """After a restart, mark the requests that no call waits for again as unattended, and show them so."""
    for request in await session.transact(requests.pending, session_id=session.id):
        session.mark(request)


async def _command_runs(session: SessionActor, news: messages.CommandRuns) -> None:
    """Pause the stall detector while a person's command runs. Its time limit ends the pause if its end is not told."""
    over = messages.CommandRuns(news.command, 0.0)
    if news.seconds > 0:
        session.commands.add(news.command)
        session.set_timer(over, news.seconds, over)
    else:
        session.commands.discard(news.command)
        session.cancel_timer(over)
    session.brief_detector()
    await session.record_stall_pause()


def _use_downstream(session: SessionActor, asked: messages.UseDownstream) -> Answered[None]:
    session.require_open()
    session.touch(asked.tool)
    return session.answered(asked.call, None)


HANDLERS: Handlers = {
    **{tool.takes: tool.handle for tool in TOOLS if tool.handle is not None},
    messages.AwaitDecision: await_decision,
    messages.UseDownstream: _use_downstream,
    messages.AskPermission: hook_permissions.ask,
    messages.Detach: _detach,
    messages.Withdraw: _withdraw,
    messages.Deliver: lambda session, told: steering.record_deliveries(session, told.deliveries),
    messages.Undeliver: _undeliver,
    messages.Written: steering.written,
    messages.AgentCame: _agent_came,
    messages.AgentLeft: _agent_left,
    messages.Decide: decide,
    messages.Resume: resume,
    messages.End: lifecycle.end,
    messages.EndAbandoned: lifecycle.end_abandoned,
    messages.CommandRuns: _command_runs,
    messages.ProcessStarted: lifecycle.started,
    messages.ProcessEnded: lifecycle.ended,
    messages.HandOver: restored_session.hand_over,
    messages.Describe: lambda session, _asked: session.row,
    messages.ReadRequests: read_requests,
    messages.OpenCards: open_cards,
    messages.Unattended: lambda session, _asked: session.state.unattended,
    messages.AwaitUnpaused: lifecycle.await_unpaused,
    messages.TakeInstructions: steering.take_instructions,
    messages.Pause: lifecycle.pause,
    messages.Unpause: lifecycle.unpause,
    messages.Steer: steering.steer,
    messages.TakeBack: steering.take_back,
    messages.TakeBackDecision: taking_back.take_back_decision,
    messages.TasksLeft: steering.tasks_left,
    messages.FetchOver: lambda session, _due: steering.tell_news(session),
    messages.DeliveredElsewhere: steering.delivered_elsewhere,
    messages.DetectorStarted: lambda session, _started: session.brief_detector(),
    messages.Stalled: stall.stalled,
    messages.NudgeDue: stall.nudge_due,
    messages.Escalated: stall.escalated,
    messages.Recovered: stall.recovered,
    Expire: expire,
    ClockChanged: clock_changed,
    messages.Summarize: lambda session, _due: session.summarize(),
    Show: _show,
    WriteTouch: lambda session, _due: session.write_touch(),
    LookRound: _look_round,
    messages.OpenTask: open_task,
    messages.FindTask: find_task,
    messages.ListTasks: list_tasks,
    messages.AwaitTask: await_task,
    messages.CancelTask: cancel_task,
    messages.Posted: broadcast.posted,
    broadcast.PostOverdue: broadcast.overdue,
}
