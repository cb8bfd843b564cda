"""Creates the session that follows a restore, in the transaction that ends the old session.

So each pending request is always in exactly one of them. A pending request moves, and keeps its id, its card and its
deadline. A request that was pending at the checkpoint and is settled now is asked again under a new id. The old answer
was about files and plans that are being undone. Later requests end with the old session. So do permission hooks'
requests, whose answer only the asking client can use.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve, frozen

from intercom.model.approval import ApprovalRequest, ApprovalStatus
from intercom.model.config import OnTimeout, TimeoutSettings
from intercom.model.errors import InvalidState
from intercom.model.prompt import ContinuationPrompt, Wait, WaitStatus
from intercom.model.restore import Restore, RestoreState
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.model.steering import Instruction
from intercom.sessions.clearance import proposal_key
from intercom.sessions.outcomes import Asked
from intercom.store import (
    approvals,
    audit,
    checkpoints,
    instructions,
    prompts,
    requests,
    restores,
    rows,
    sessions,
    waits,
)
from intercom.store.messages import Database

_TABLES: dict[type[Any], str] = {
    ContinuationPrompt: "continuation_prompt",
    Wait: "wait",
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


def hand_over(db: Database, restore_id: str, timeouts: TimeoutSettings, at: datetime) -> HandedOver:
    """End the session of a committed restore, unless it has ended, and record its successor with the pending requests.
    A repetition returns the same. Raises InvalidState for a restore that is not committed, or whose checkpoint is
    gone."""
    restore = restores.get(db, restore_id)
    assert restore is not None, "restores outlive those who carry them out"
    made = sessions.get(db, restore.successor_id)
    if made is not None:
        waiting = tuple(request.id for request in requests.pending(db, made.id))
        return HandedOver(
            sessions.get(db, restore.session_id), made, requests.interrupted(db, restore.session_id), waiting
        )
    found = checkpoints.state_of(db, restore.checkpoint_id)
    if restore.state is not RestoreState.COMMITTED or found is None:
        raise InvalidState(f"restore {restore.id} can not be carried through: it is {restore.state.value}")
    _, state = found
    successor = _successor(restore, state, at)
    sessions.insert(db, successor)
    waiting = tuple(
        id
        for each in state.get("pending", ())
        if (id := _bring(db, restore, each["request_id"], timeouts, at)) is not None
    )
    before, unheard = _end(db, restore, at)
    restores.advance(db, restore.id, RestoreState.COMMITTED, RestoreState.HANDED_OVER, at)
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
    return ended, tuple(word for word in unheard if word is not None)


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
    anew = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{restore.id}/{id}"))
    _ask_anew(db, request, anew, restore, timeouts, at)
    return anew


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


def _ask_anew(db: Database, request: Asked, id: str, restore: Restore, timeouts: TimeoutSettings, at: datetime) -> None:
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
                    _in_session(request, restore),
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
        case Wait():
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
