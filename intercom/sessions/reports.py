"""Reports: agents' calls that no person answers (ping, switch_freq, auto_check, reboot)."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import trio
from attrs import evolve

from intercom.model import clock, crash_points
from intercom.model.approval import ApprovalRequest
from intercom.model.checkpoint import CheckpointLine
from intercom.model.errors import InvalidState, SlackError
from intercom.model.prompt import ContinuationPrompt
from intercom.model.session import ProgressItem, Session, SessionMode
from intercom.model.steering import Instruction
from intercom.sessions import outcomes, steering, summary
from intercom.sessions.actor import SessionActor
from intercom.sessions.answers import (
    PAUSED_PING,
    CheckAnswer,
    CheckpointSummary,
    ModeAnswer,
    PendingRequest,
    PingAnswer,
    RebootAnswer,
    from_json,
)
from intercom.sessions.messages import Answered, Beat, CheckPolicy, Recall, SwitchMode
from intercom.store import calls, checkpoints, requests, restores, sessions
from intercom.store.messages import Database
from intercom.workspace import paths
from intercom.workspace.messages import Evaluate
from intercom.workspace.policy import Query


def beat(session: SessionActor, asked: Beat) -> Answered[PingAnswer] | Awaitable[Answered[PingAnswer]]:
    """Handle a ping. Only a progress snapshot waits for the disk. Raises InvalidState once the session has ended: an
    agent that only pings would not notice it otherwise."""
    session.require_open()
    if asked.progress_snapshot is not None:
        return _kept_progress(session, asked, asked.progress_snapshot)
    return _alive(session, asked)


async def _kept_progress(session: SessionActor, asked: Beat, items: tuple[ProgressItem, ...]) -> Answered[PingAnswer]:
    session.row = await session.transact(partial(_progress, session=session, items=items))
    return _alive(session, asked)


def _alive(session: SessionActor, asked: Beat) -> Answered[PingAnswer]:
    if asked.status_message:
        session.notify(asked.status_message)
    session.touch("ping")
    answer = PingAnswer(True, session.id, session.context.config.stall.enabled)
    if session.row.is_paused:
        # A ping does not wait like other calls: it reports that the agent is alive.
        answer = evolve(answer, status="paused", message=PAUSED_PING)
    return session.answered(asked.call, answer)


async def switch_mode(session: SessionActor, asked: SwitchMode) -> Answered[ModeAnswer]:
    """Change who is notified of this session's cards, not who may answer them.

    Raises SlackError for `remote` if no Slack is set up: nobody would be notified. Raises InvalidState.
    """
    session.require_open()
    if asked.mode is SessionMode.REMOTE and session.context.chat is None:
        raise SlackError(
            "slack is not set up, so nobody would be told in mode remote: stay in local or hybrid, or have a person run"
            " agent-intercom slack login"
        )
    session.row, answer = await session.transact(partial(_switch, session=session, asked=asked))
    session.notify(f"mode is {answer.current_mode} (was {answer.previous_mode}), set by {asked.by}")
    return session.answered(asked.call, answer)


async def check_policy(session: SessionActor, asked: CheckPolicy) -> Answered[CheckAnswer]:
    """Ask the policy in force about an operation. A grant is recorded, because the agent will act on it."""
    config = session.context.config
    if config.policy.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE:
        return session.answered(asked.call, CheckAnswer(False, None))
    path = asked.file_path
    if path is not None:
        path = await trio.to_thread.run_sync(paths.relative, Path(session.row.workspace_root), path)
    command, args = (
        (f"{asked.tool_name} {asked.args}", ()) if isinstance(asked.args, str) else (asked.tool_name, asked.args)
    )
    query = Query(command, args or (), path, asked.risk_level, asked.operation)
    found = await session.judge(Evaluate(query))
    if found.auto_approved:
        await session.transact(partial(_granted, session=session, asked=asked, rule=found.matched_rule or ""))
        summary.let_pass(session, asked.tool_name, found.matched_rule or "")
    session.touch("auto_check")
    return session.answered(asked.call, CheckAnswer(found.auto_approved, found.matched_rule))


async def recall(session: SessionActor, asked: Recall) -> Answered[RebootAnswer]:
    """Return what this session left: pending requests, the last checkpoint, the last progress. Takes the tasks that
    were left for its agent, and attaches them to the answer like instructions."""
    await session.refuse_words()
    pending, last, queued = await session.transact(partial(_left, session=session))
    crash_points.reach("instruction.taken")
    steering.took(session, queued)
    progress = session.row.progress_snapshot or ()
    session.touch("reboot")
    if not (asked.adopted or pending or last or progress):
        return session.answered(asked.call, RebootAnswer("clean"))
    answer = RebootAnswer(
        "recovered",
        session.id,
        tuple(_pending(request) for request in pending),
        CheckpointSummary(last.id, last.label, clock.to_text(last.created_at)) if last else None,
        progress,
    )
    return session.answered(asked.call, answer)


def _left(
    db: Database, session: SessionActor
) -> tuple[tuple[outcomes.Asked, ...], CheckpointLine | None, tuple[Instruction, ...]]:
    steering.take(db, session)
    return (
        requests.pending(db, session.id),
        _last_checkpoint(db, session.id),
        session.queued(db),
    )


def _last_checkpoint(db: Database, session_id: str) -> CheckpointLine | None:
    """Return the session's own checkpoint, else the one that it was restored from."""
    last = checkpoints.last(db, session_id)
    if last is not None or (restore := restores.by_successor(db, session_id)) is None:
        return last
    return checkpoints.line(db, restore.checkpoint_id)


def _pending(request: outcomes.Asked) -> PendingRequest:
    match request:
        case ApprovalRequest():
            kind, title = "approval" if request.tool is None else "permission", request.title
        case ContinuationPrompt():
            kind, title = "prompt", outcomes.headline(request.prompt_text)
        case _:
            kind, title = "standby", outcomes.headline(request.message)
    return PendingRequest(request.id, kind, title, clock.to_text(request.created_at))


def _progress(db: Database, session: SessionActor, items: tuple[ProgressItem, ...]) -> Session:
    sessions.set_progress(db, session.id, items, session.now())
    row = sessions.get(db, session.id)
    assert row is not None
    return row


def _switch(db: Database, session: SessionActor, asked: SwitchMode) -> tuple[Session, ModeAnswer]:
    done = calls.answer(db, asked.call)
    previous = None if done is not None else sessions.set_mode(db, session.id, asked.mode, session.now())
    row = sessions.get(db, session.id)
    assert row is not None, "the session's row outlives its actor"
    if done is not None:
        return row, from_json(ModeAnswer, done)
    if previous is None:
        raise InvalidState("the session has ended; its mode can not be changed")
    answer = ModeAnswer(previous.value, asked.mode.value)
    session.record(db, asked.by, "mode", f"{previous.value} to {asked.mode.value}", channel=asked.channel)
    session.answered_and_recorded(asked.call, "switch_freq", answer)(db)
    return row, answer


def _granted(db: Database, session: SessionActor, asked: CheckPolicy, rule: str) -> None:
    session.record(db, "policy", "auto_approved", asked.tool_name, matched_rule=rule, file_path=asked.file_path)
