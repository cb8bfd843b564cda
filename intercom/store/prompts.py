"""Queries on continuation prompts."""

from __future__ import annotations

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import InvalidArguments
from intercom.model.prompt import ContinuationPrompt, PromptDecision, PromptType, WaitStatus
from intercom.model.verdict import Decided
from intercom.store import rows
from intercom.store.lifecycle import Lifecycle, decided_columns, decided_value
from intercom.store.rows import Row


def _to_row(prompt: ContinuationPrompt) -> Row:
    return {
        "id": prompt.id,
        "session_id": prompt.session_id,
        "prompt_text": prompt.prompt_text,
        "prompt_type": prompt.prompt_type.value,
        "status": prompt.status.value,
        "elapsed_seconds": prompt.elapsed_seconds,
        "actions_taken": prompt.actions_taken,
        "decision": None if prompt.decision is None else prompt.decision.value,
        "instruction": prompt.instruction,
        "slack_ts": prompt.slack_ts,
        "created_at": clock.to_text(prompt.created_at),
        "expires_at": rows.time_text(prompt.expires_at),
        "call": prompt.call,
        "delivered_at": rows.time_text(prompt.delivered_at),
        **decided_columns(prompt.decided),
    }


def _from_row(db: Database, row: Row) -> ContinuationPrompt:
    return ContinuationPrompt(
        id=row["id"],
        session_id=row["session_id"],
        prompt_text=row["prompt_text"],
        prompt_type=PromptType(row["prompt_type"]),
        status=WaitStatus(row["status"]),
        elapsed_seconds=row["elapsed_seconds"],
        actions_taken=row["actions_taken"],
        decision=None if row["decision"] is None else PromptDecision(row["decision"]),
        instruction=row["instruction"],
        slack_ts=row["slack_ts"],
        created_at=clock.from_text(row["created_at"]),
        expires_at=rows.time_value(row["expires_at"]),
        call=row["call"],
        delivered_at=rows.time_value(row["delivered_at"]),
        decided=decided_value(row),
    )


def _told(decided: Decided) -> Row:
    if decided.decision not in set(PromptDecision):
        raise InvalidArguments(f"a prompt is answered continue, refine or stop, not {decided.decision}")
    return {"decision": str(decided.decision), "instruction": decided.text}


_life: Lifecycle[ContinuationPrompt, WaitStatus] = Lifecycle(
    table="continuation_prompt",
    to_row=_to_row,
    from_row=_from_row,
    undelivered=("decided", "expired"),
    told=_told,
)

insert = _life.insert
get = _life.get
pending = _life.pending
owed = _life.owed
interrupted = _life.interrupted
due = _life.due
decide = _life.decide
expire = _life.expire
mark_delivered = _life.mark_delivered
annul = _life.annul
interrupt = _life.interrupt


def hold(db: Database, id: str) -> bool:
    """Remove the deadline of a pending prompt, so it waits for an answer. Returns False if it is not pending."""
    return rows.changed(
        db, "update continuation_prompt set expires_at = null where id = ? and status = 'pending'", (id,)
    )
