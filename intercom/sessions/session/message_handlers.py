"""What a session does with each message: the table, and the handlers of connections and of what is due."""

from __future__ import annotations

from intercom.model.card import Card
from intercom.model.session import Session, SessionStatus
from intercom.sessions import messages
from intercom.sessions.checkpoints import restored_session
from intercom.sessions.messages import (
    Answered,
    ClockChanged,
    Expire,
    LookRound,
    OpenCards,
    Show,
    WriteTouch,
)
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session import (
    decisions,
    deliveries,
    hook_permissions,
    lifecycle,
    mcp_tasks,
    retraction,
    stall,
    steering,
)
from intercom.sessions.session.actor import Handlers, SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.session_deps import SessionDeps
from intercom.sessions.tools import broadcast, check_diff
from intercom.sessions.tools.tool_table import TOOLS
from intercom.store import requests
from intercom.store.processes import agent_processes
from intercom.store.sessions import stalls


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


async def update_away_marks(session: SessionActor) -> None:
    """Update the "agent away" marks on the cards of polled requests: the agent, and so its polling client, came or
    left."""
    for request_id in session.state.mismarked:
        session.mark(await session.find(request_id))


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
    messages.AwaitDecision: decisions.await_decision,
    messages.UseDownstream: _use_downstream,
    messages.AskPermission: hook_permissions.ask,
    messages.Detach: _detach,
    messages.Withdraw: _withdraw,
    messages.Deliver: lambda session, told: deliveries.record_deliveries(session, told.deliveries),
    messages.Undeliver: _undeliver,
    messages.Written: deliveries.written,
    messages.AgentCame: _agent_came,
    messages.AgentLeft: _agent_left,
    messages.Decide: decisions.decide,
    messages.Resume: decisions.resume,
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
    messages.TakeBackDecision: retraction.take_back_decision,
    messages.TasksLeft: steering.tasks_left,
    messages.FetchOver: lambda session, _due: steering.tell_news(session),
    messages.DeliveredElsewhere: deliveries.delivered_elsewhere,
    messages.DetectorStarted: lambda session, _started: session.brief_detector(),
    messages.Stalled: stall.stalled,
    messages.NudgeDue: stall.nudge_due,
    messages.Escalated: stall.escalated,
    messages.Recovered: stall.recovered,
    Expire: decisions.expire,
    ClockChanged: decisions.clock_changed,
    messages.Summarize: lambda session, _due: session.summarize(),
    Show: _show,
    WriteTouch: lambda session, _due: session.write_touch(),
    LookRound: _look_round,
    messages.OpenTask: mcp_tasks.open_task,
    messages.FindTask: mcp_tasks.find_task,
    messages.ListTasks: mcp_tasks.list_tasks,
    messages.AwaitTask: mcp_tasks.await_task,
    messages.CancelTask: mcp_tasks.cancel_task,
    messages.Posted: broadcast.posted,
    broadcast.PostOverdue: broadcast.overdue,
}
