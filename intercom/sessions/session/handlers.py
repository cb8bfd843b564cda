"""The table of messages to a session and the functions that handle them. A tool's handler is in the tool's own file."""

from __future__ import annotations

from functools import partial

from intercom.model.session import Session, SessionStatus
from intercom.sessions import chat, messages
from intercom.sessions.checkpoints import succession
from intercom.sessions.context import Context
from intercom.sessions.session import (
    decisions,
    notices,
    pausing,
    permissions,
    stall,
    steering,
    tasks,
)
from intercom.sessions.session.actor import Handlers, SessionActor
from intercom.sessions.timers import ClockChanged, Expire, LookRound, Show, WriteTouch
from intercom.sessions.tools import broadcast, check_diff
from intercom.sessions.tools.table import TOOLS
from intercom.store import agent_processes, requests


def session_actor(session_id: str, context: Context, new: Session | None = None) -> SessionActor:
    """Return a session's actor, ready to be started. `new` is the row of a session that was opened just now."""
    return SessionActor(session_id, context, HANDLERS, check_diff.recover, new)


async def _detach(session: SessionActor, left: messages.Detach) -> messages.Answered[None]:
    await _leave(session, messages.Withdraw(left.call, left.request_id, left.ticket))
    session.require_going_on()
    return session.answered(left.call, None)


async def _withdraw(session: SessionActor, left: messages.Withdraw) -> None:
    await _leave(session, left)
    await _words_are_free(session)


async def _leave(session: SessionActor, left: messages.Withdraw) -> None:
    # A decision on its way to this call has not arrived. Another result may carry it.
    session.deliveries.unload((left.call,))
    if session.leave(left.request_id, left.call, left.ticket):
        request = await session.find(left.request_id)
        if not session.is_settled(request):
            session.show(request)


async def _deliver(session: SessionActor, told: messages.Deliver) -> None:
    await steering.record(session, told.deliveries)


async def _undeliver(session: SessionActor, lost: messages.Undeliver) -> None:
    session.deliveries.unload(lost.calls)
    await _words_are_free(session)


async def _words_are_free(session: SessionActor) -> None:
    """End a standby if a lost result has freed instructions: the agent may get no other result."""
    if steering.has_words(session):
        await steering.end_standby(session, "intercom", steering.CHANNEL)


async def _agent_came(session: SessionActor, _came: messages.AgentCame) -> None:
    session.agent_here = True
    session.turn_over = False
    if session.row.status in (SessionStatus.CREATED, SessionStatus.INTERRUPTED):
        await decisions.become(session, session.row.status_when_here, "agent", "the agent is connected")
    # The agent may have got instructions while it had another session.
    await session.refuse_words()
    steering.took(session, await session.transact(session.queued))
    await tasks.present(session)
    session.brief_detector()


async def _agent_left(session: SessionActor, _left: messages.AgentLeft) -> None:
    session.agent_here = False
    session.brief_detector()
    await stall.recovered(session, messages.Recovered())
    await tasks.present(session)
    if session.row.status in (SessionStatus.ACTIVE, SessionStatus.PAUSED):
        if await session.transact(partial(agent_processes.is_going, session_id=session.id)):
            # Its process runs, or soon will: a lost connection does not prove that the agent is gone.
            return
        await decisions.become(session, SessionStatus.INTERRUPTED, "intercom", "the agent's connection is gone")
    await steering.give_back(session)


async def _brief(session: SessionActor, _started: messages.DetectorStarted) -> None:
    session.brief_detector()


async def _show(session: SessionActor, due: Show) -> None:
    request = await session.find(due.request_id)
    if not session.is_settled(request):
        session.leave_alone(request.id)
        session.show(request)


async def _look_round(session: SessionActor, _due: LookRound) -> None:
    """After a restart, mark the requests that no call waits for again as unattended, and show them so."""
    for request in await session.transact(partial(requests.pending, session_id=session.id)):
        if request.id not in session.waiters and request.id not in session.context.unattended:
            session.leave_alone(request.id)
            session.show(request)


async def _write_touch(session: SessionActor, _due: WriteTouch) -> None:
    session.write_touch()


HANDLERS: Handlers = {
    **{tool.takes: tool.handle for tool in TOOLS if tool.handle is not None},
    messages.AwaitDecision: decisions.await_decision,
    messages.AskPermission: permissions.ask,
    messages.Detach: _detach,
    messages.Withdraw: _withdraw,
    messages.Deliver: _deliver,
    messages.Undeliver: _undeliver,
    messages.Written: steering.written,
    messages.AgentCame: _agent_came,
    messages.AgentLeft: _agent_left,
    messages.Decide: decisions.decide,
    messages.Resume: decisions.resume,
    messages.End: decisions.end,
    messages.EndAbandoned: decisions.end_abandoned,
    messages.ProcessStarted: decisions.started,
    messages.ProcessEnded: decisions.ended,
    messages.HandOver: succession.hand_over,
    messages.Describe: decisions.describe,
    messages.OpenCards: decisions.open_cards,
    messages.AwaitUnpaused: pausing.await_unpaused,
    messages.TakeWords: steering.take_words,
    messages.Pause: pausing.pause,
    messages.Unpause: pausing.unpause,
    messages.Steer: steering.steer,
    messages.TakeBack: steering.take_back,
    messages.TasksLeft: steering.tasks_left,
    messages.Told: steering.told,
    messages.DetectorStarted: _brief,
    messages.Stalled: stall.stalled,
    messages.NudgeDue: stall.nudge_due,
    messages.Escalated: stall.escalated,
    messages.Recovered: stall.recovered,
    Expire: decisions.expire,
    ClockChanged: decisions.clock_changed,
    notices.Summarize: notices.summarize,
    Show: _show,
    WriteTouch: _write_touch,
    LookRound: _look_round,
    messages.OpenTask: tasks.open_task,
    messages.FindTask: tasks.find_task,
    messages.ListTasks: tasks.list_tasks,
    messages.AwaitTask: tasks.await_task,
    messages.CancelTask: tasks.cancel_task,
    chat.Posted: broadcast.posted,
    broadcast.PostOverdue: broadcast.overdue,
}
