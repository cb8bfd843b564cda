"""The session that follows a restored one, and how its agent's requests get there.

So each pending request is always in exactly one of them. A pending request moves, and keeps its id, its card and its
deadline. A request that was pending at the checkpoint and is settled now is asked again under a new id. The old answer
was about files and plans that are being undone. Later requests end with the old session. So do permission hooks'
requests, whose answer only the asking client can use.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import evolve, frozen

from actors import Down, NotRunning, Request, System, ask
from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.checkpoint import Files, Restore, RestoreState
from intercom.model.config import OnTimeout, TimeoutSettings
from intercom.model.errors import IntercomError, InvalidState
from intercom.model.process import AgentProcessState
from intercom.model.request import ApprovalRequest, ApprovalStatus, ContinuationPrompt, InstructionWait, WaitStatus
from intercom.model.session import Instruction, Session, SessionMode, SessionStatus
from intercom.sessions.checkpoints.archive import Archive
from intercom.sessions.messages import Expire, HandOver, OpenCards, Show, Wanted
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session import lifecycle
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools.check_clearance import proposal_key
from intercom.store import audit, checkpoints, instructions, requests, rows, sessions
from intercom.store.checkpoints import restores
from intercom.store.processes import agent_processes
from intercom.store.requests import approvals, prompts, waits
from intercom.store.writer_messages import Database

_TABLES: dict[type[Any], str] = {
    ContinuationPrompt: "continuation_prompt",
    InstructionWait: "wait",
}


@frozen
class HandedOver:
    """The result of a handover. `before` is the old session as it is now, `ended` the requests that ended with it,
    `unheard` its undelivered instructions. `moved` are the ids of the requests that wait in the successor."""

    before: Session | None
    successor: Session
    ended: tuple[Asked, ...]
    moved: tuple[str, ...]
    unheard: tuple[Instruction, ...] = ()


def transfer(db: Database, restore_id: str, timeouts: TimeoutSettings, at: datetime) -> HandedOver:
    """End the session of a committed restore, unless it has ended, and record its successor with the pending requests.
    A repetition returns the same. Raises InvalidState for a restore that is not committed, or whose checkpoint is
    gone."""
    restore = restores.known(db, restore_id)
    made = sessions.get(db, restore.successor_id)
    if made is not None:
        waiting = tuple(request.id for request in requests.pending(db, made.id))
        return HandedOver(
            sessions.get(db, restore.session_id), made, requests.interrupted(db, restore.session_id), waiting
        )
    found = checkpoints.state_of(db, restore.checkpoint_id)
    if restore.state is not RestoreState.COMMITTED or found is None:
        raise InvalidState(f"restore {restore.id} cannot be carried through: it is {restore.state.value}")
    _, state = found
    successor = _successor(restore, state, at)
    sessions.insert(db, successor)
    waiting = tuple(
        id
        for each in state.get("pending", ())
        if (id := _bring(db, restore, each["request_id"], timeouts, at)) is not None
    )
    before, unheard = _end(db, restore, at)
    restores.advance(db, restore.id, RestoreState.COMMITTED, RestoreState.HANDED_OVER, updated_at=at)
    data = {"restore_id": restore.id, "checkpoint_id": restore.checkpoint_id, "was": restore.session_id}
    who = restore.decided.by if restore.decided is not None else "intercom"
    audit.record(db, at, "session_restored", successor.id, who, restore.label or "(no label)", data)
    return HandedOver(before, successor, requests.interrupted(db, restore.session_id), waiting, unheard)


def _successor(restore: Restore, state: Mapping[str, Any], at: datetime) -> Session:
    """Return the session as in the checkpoint, without an agent. A paused one stays paused."""
    paused_by = state.get("paused_by")
    return Session(
        id=restore.successor_id,
        owner_user_id=state.get("owner_user_id") or "",
        workspace_root=restore.workspace_root,
        status=SessionStatus.INTERRUPTED,
        mode=SessionMode(state.get("mode") or SessionMode.LOCAL),
        created_at=at,
        updated_at=at,
        prompt=state.get("prompt"),
        last_tool=state.get("last_tool"),
        progress_snapshot=state.get("progress"),
        client_name=state.get("client_name"),
        channel_id=state.get("channel_id"),
        paused_by=paused_by,
        paused_at=at if paused_by is not None else None,
    )


def _end(db: Database, restore: Restore, at: datetime) -> tuple[Session | None, tuple[Instruction, ...]]:
    before = sessions.get(db, restore.session_id)
    if before is None or before.status is SessionStatus.TERMINATED:
        return before, ()
    ended = sessions.set_status(db, before.id, before.status, SessionStatus.TERMINATED, at)
    for interrupt in (approvals.interrupt, prompts.interrupt, waits.interrupt):
        interrupt(db, before.id, at)
    # Another agent may take a task that was left for the workspace.
    freed = instructions.give_back(db, before.id, written=True)
    unheard = (instructions.get(db, id) for id in (*freed, *instructions.close_session(db, before.id, at)))
    who = restore.decided.by if restore.decided is not None else "intercom"
    summary = f"a checkpoint was restored: {restore.label or restore.checkpoint_id}"
    audit.record(db, at, "session_terminated", before.id, who, summary, {"successor": restore.successor_id})
    return ended, tuple(each for each in unheard if each is not None)


def _bring(db: Database, restore: Restore, id: str, timeouts: TimeoutSettings, at: datetime) -> str | None:
    """Bring a request of the checkpoint into the new session. Returns its id there, None if it does not wait."""
    request = requests.find(db, id)
    if request is None:
        return None
    if isinstance(request, ApprovalRequest) and request.tool is not None:
        # A client's hook asked about that client's next operation. It ends with its session; a new client asks about
        # its own.
        return None
    if request.status.value == "pending":
        if request.session_id != restore.session_id:
            return None
        _move(db, request, restore)
        return id
    new_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{restore.id}/{id}"))
    _ask_again(db, request, new_id, restore, timeouts, at)
    return new_id


def _move(db: Database, request: Asked, restore: Restore) -> None:
    if isinstance(request, ApprovalRequest):
        # The next agent asks under the new session: the same proposal must find this request.
        moved = _in_session(request, restore)
        approvals.move(db, request, moved.session_id, moved.key, moved.proposal_hash)
        return
    table = _TABLES[type(request)]
    rows.changed(
        db,
        f"update {table} set session_id = ? where id = ? and session_id = ? and status = 'pending'",
        (restore.successor_id, request.id, request.session_id),
    )


def _in_session(request: ApprovalRequest, restore: Restore) -> ApprovalRequest:
    """Return the same proposal as a request of the new session, with its key and hash there."""
    session_id = restore.successor_id
    key = proposal_key(session_id, request.files, request.risk_level, request.diff_content, request.form)
    moved = evolve(request, session_id=session_id, key=key)
    return evolve(moved, proposal_hash=moved.hash_of_record(restore.workspace_root))


def _ask_again(
    db: Database, request: Asked, id: str, restore: Restore, timeouts: TimeoutSettings, at: datetime
) -> None:
    def until(seconds: float) -> datetime | None:
        return at + timedelta(seconds=seconds) if seconds > 0 else None

    fresh: dict[str, Any] = {
        "id": id,
        "session_id": restore.successor_id,
        "created_at": at,
        "call": None,
        "decided": None,
        "delivered_at": None,
        "slack_ts": None,
    }
    match request:
        case ApprovalRequest():
            approvals.insert(
                db,
                evolve(
                    # What was amended is asked again as the agent proposed it.
                    _in_session(approvals.proposed(db, request), restore),
                    **fresh,
                    status=ApprovalStatus.PENDING,
                    consumed_at=None,
                    auto_rule=None,
                    expires_at=until(timeouts.approval_seconds),
                ),
            )
        case ContinuationPrompt():
            held = timeouts.prompt_by_type.get(request.prompt_type, timeouts.prompt_on_timeout) is OnTimeout.HOLD
            seconds = 0 if held else timeouts.prompt_seconds
            nothing: dict[str, Any] = {"decision": None, "instruction": None, "expires_at": until(seconds)}
            prompts.insert(db, evolve(request, **fresh, **nothing, status=WaitStatus.PENDING))
        case InstructionWait():
            waits.insert(
                db,
                evolve(
                    request,
                    **fresh,
                    status=WaitStatus.PENDING,
                    instruction=None,
                    expires_at=until(timeouts.wait_seconds),
                ),
            )


R = TypeVar("R")

#: Time limit for a session to hand over, or to show its cards, in seconds.
SESSION_SECONDS = 60.0

#: Starts an agent for a session without one, with a prompt that says where it continues. A repetition starts nothing
#: twice. Raises IntercomError if none can be started.
StartAgent = Callable[[Session, str], Awaitable[object]]

#: How long the processes of an ended session may take to end, in seconds, and the poll interval.
GONE_SECONDS = 15.0
_LOOK_SECONDS = 0.1


@frozen
class Successors:
    system: System
    archive: Archive
    start_agent: StartAgent | None = None

    async def hand_over(self, restore: Restore) -> None:
        """End the session of a committed restore, and create its successor. Idempotent."""
        before = await self.archive.read(partial(sessions.get, id=restore.session_id))
        if before is None or before.status is SessionStatus.TERMINATED:
            await self.archive.transact(
                partial(
                    transfer,
                    restore_id=restore.id,
                    timeouts=self.archive.deps.config.timeouts,
                    at=self.archive.deps.now(),
                )
            )
            crash_points.reach("restore.handed_over")
            return
        # Inside the session's actor, so that its agent can ask nothing in between.
        by = restore.decided.by if restore.decided is not None else restore.asked_by
        await self._ask(restore.session_id, HandOver(restore.id, by))

    async def welcome(self, restore: Restore) -> None:
        """Run the new session's actors, show its cards, and start its agent, if agents can be started."""
        made = await self.archive.read(partial(sessions.get, id=restore.successor_id))
        if made is None or made.status is SessionStatus.TERMINATED:
            # An operator has ended it already.
            return
        deps = self.archive.deps
        await self._ask(made.id, OpenCards())
        how = await self._begin(restore, made)
        told = f"session restored from checkpoint {restore.label or restore.checkpoint_id}: {how}"
        deps.card_router.tell(Notice(told, "success", deps.now(), made.id))

    async def _begin(self, restore: Restore, made: Session) -> str:
        """Start an agent if possible, unless one has taken the session already. Returns what happened, for people."""
        why = ""
        if self.start_agent is not None:
            try:
                await self.start_agent(made, self._prompt(restore, made))
            except IntercomError as refused:
                why = f" (none could be started: {refused})"
            else:
                return "its agent was started"
        now = await self.archive.read(partial(sessions.get, id=made.id))
        if now is not None and now.agent_key is not None and self.archive.deps.present(now.agent_key):
            return "an agent has resumed it"
        return f"it waits for an agent that calls reboot with its id, {made.id}{why}"

    async def until_quiet(self, restore: Restore) -> None:
        """Wait up to `GONE_SECONDS` for the processes of the ended session: they could still write files."""
        with trio.move_on_after(GONE_SECONDS):
            while True:
                agent_process = await self.archive.read(partial(agent_processes.get, id=restore.session_id))
                if agent_process is None or agent_process.state is AgentProcessState.OVER:
                    return
                await trio.sleep(_LOOK_SECONDS)

    def _prompt(self, restore: Restore, made: Session) -> str:
        when = f"{restore.created_at:%Y-%m-%d %H:%M} UTC"
        kept = restore.files is Files.LEAVE or restore.state is RestoreState.GIVEN_UP
        files = f"Files {'may differ from' if kept else 'are put back to'} what they were then."
        return (
            f"You take over a session that was restored at {when} from the checkpoint"
            f" {restore.label or restore.checkpoint_id!r}. {files} Call reboot first: it says what is pending and how"
            " far the work was. Read files again before you change them."
            + (f" The task is: {made.prompt}" if made.prompt else "")
        )

    async def _ask(self, session_id: str, message: Request[R]) -> R:
        session = self.system.named(f"session/{session_id}")
        try:
            return await ask(session, message, timeout=SESSION_SECONDS)
        except (Down, NotRunning):
            # It restarts, or is idle.
            await ask(self.system.named("registry"), Wanted(session_id), timeout=SESSION_SECONDS, retry=True)
            return await ask(session, message, timeout=SESSION_SECONDS, retry=True)


async def hand_over(session: SessionActor, asked: HandOver) -> Session:
    """End this session, unless it has ended, and give its pending requests to the successor. The session's actor does
    this, so that the agent can ask nothing in between."""
    timeouts = session.deps.config.timeouts
    done = await session.transact(transfer, restore_id=asked.restore_id, timeouts=timeouts, at=session.now())
    crash_points.reach("restore.handed_over")
    assert done.before is not None, "its row outlives its actor"
    session.change(SessionState.moved, done.before, done.successor.id)
    for id in done.moved:
        for waiter in session.waiters.pop(id, ()):
            if not waiter.reply.abandoned:
                waiter.reply.fail(InvalidState(session.why_ended(), request_id=id))
        session.cancel_timer(Expire(id))
        session.cancel_timer(Show(id))
    for request in done.ended:
        if request.id in session.waiters:
            session.settle(request)
        else:
            session.cancel_timer(Expire(request.id))
            session.show(request)
    await lifecycle.wind_up(session, asked.by, tuple(done.unheard))
    session.notify(f"session ended by {asked.by}: a checkpoint of it was restored as session {done.successor.id}")
    return done.successor
