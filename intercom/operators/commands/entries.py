"""The JSON form of what commands return: what ctl prints with `--json`, and what a watch sends. Names never change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Any

import attrs

from intercom.model.card import CHOICES, Card, CardState, Notice
from intercom.model.checkpoint import CheckpointLine, Restore
from intercom.model.clock import to_text
from intercom.model.process import AgentProcess
from intercom.model.session import Instruction, Session

Json = dict[str, Any]

#: How many characters of diffs one listing carries; further diffs are omitted and marked as such.
LISTED_DIFFS = 4 * 1024 * 1024

_MAX_DEPTH = 32


def session_entry(session: Session) -> Json:
    return {
        "session_id": session.id,
        "status": session.status.value,
        "mode": session.mode.value,
        "workspace_root": session.workspace_root,
        "last_tool": session.last_tool,
        "created_at": to_text(session.created_at),
        "updated_at": to_text(session.updated_at),
        "client_name": session.client_name,
        "prompt": session.prompt,
        "paused_by": session.paused_by,
        "paused_at": None if session.paused_at is None else to_text(session.paused_at),
    }


def session_done(status: str) -> Callable[[Session], Json]:
    """Return the form of a session to which something was done."""
    return lambda session: {"session_id": session.id, "status": status}


def process_entry(process: AgentProcess) -> Json:
    """Return the state of an agent process, for `list`."""
    return {
        "state": process.state.value,
        "pid": None if process.process is None else process.process.pid,
        "label": process.label,
        "started_by": process.started_by,
        "run": process.run,
        "exit": None if process.exit is None else str(process.exit),
    }


def card_entry(card: Card, *, diff: bool = True) -> Json:
    """Return the entry of a card in `pending`, `show` and `watch`."""
    return {
        "request_id": card.id,
        "kind": card.kind.value,
        "status": card.state.value,
        "title": card.title,
        "session_id": card.session_id,
        "workspace_root": card.workspace_root,
        "created_at": to_text(card.created_at),
        "expires_at": None if card.expires_at is None else to_text(card.expires_at),
        "description": card.body,
        "detail": card.detail,
        "risk_level": None if card.risk is None else card.risk.value,
        "file_path": card.files[0].path if card.files else None,
        "files": [plain(change) for change in card.files],
        "diff": card.diff if diff else None,
        "diff_omitted": card.diff is not None and not diff,
        "diff_from_agent": card.diff_from_agent,
        "remarks": [plain(remark) for remark in card.remarks],
        "choices": [choice.value for choice in CHOICES[card.kind]] if card.state is CardState.PENDING else [],
        "decided": None if card.decided is None else plain(card.decided),
        "away": card.away,
        "note": card.note,
        "proposal_hash": card.proposal_hash,
    }


def card_entries(cards: Iterable[Card], budget: int = LISTED_DIFFS) -> list[Json]:
    """Return entries in the given order; diffs are included while they fit `budget` characters together."""
    entries = []
    for card in cards:
        size = len(card.diff or "")
        fits = size <= budget
        entries.append(card_entry(card, diff=fits))
        budget -= size if fits else 0
    return entries


def queued_entry(card: Card) -> Json:
    """Return the form of a message or a task that was queued."""
    return {
        "request_id": card.id,
        "session_id": card.session_id or None,
        "workspace_root": card.workspace_root,
        "status": card.state.value,
        "note": card.note,
    }


def instruction_entries(found: Sequence[Instruction]) -> Json:
    """Return the answer of `steering` and `tasks`."""
    return {"words": [_instruction_entry(each) for each in found]}


def _instruction_entry(word: Instruction) -> Json:
    status = "queued" if word.is_open else "closed" if word.delivered_at is None else "delivered"
    return {
        "request_id": word.id,
        "kind": word.kind.value,
        "status": status,
        "text": word.text,
        "by": word.by,
        "channel": word.channel,
        "session_id": word.session_id,
        "workspace_root": word.workspace_root,
        "created_at": to_text(word.at),
        "taken_at": None if word.taken_at is None else to_text(word.taken_at),
        "delivered_at": None if word.delivered_at is None else to_text(word.delivered_at),
    }


def checkpoint_entry(line: CheckpointLine) -> Json:
    return {
        "checkpoint_id": line.id,
        "session_id": line.session_id,
        "label": line.label,
        "workspace_root": line.workspace_root,
        "created_at": to_text(line.created_at),
        "files": line.files,
        "bytes": line.size,
        "kept": line.kept,
    }


def restore_entry(restore: Restore) -> Json:
    """Return the form of a restore. `successor_id` is the session that follows, set from `handed_over` on."""
    found = restore.divergence
    return {
        "restore_id": restore.id,
        "state": restore.state.value,
        "checkpoint_id": restore.checkpoint_id,
        "label": restore.label,
        "session_id": restore.session_id,
        "successor_id": restore.successor_id,
        "safety_checkpoint_id": restore.safety_id,
        "workspace_root": restore.workspace_root,
        "files": restore.files.value,
        "asked_by": restore.asked_by,
        "asked_via": restore.asked_via,
        "modified": found.modified,
        "deleted": found.deleted,
        "added": found.added,
        "diverged": [{"path": each.path, "kind": each.kind.value} for each in found.first],
        "remarks": list(found.remarks),
        "note": restore.note,
        "expires_at": None if restore.expires_at is None else to_text(restore.expires_at),
        "decided": None if restore.decided is None else plain(restore.decided),
    }


def notice_entry(notice: Notice) -> Json:
    return {
        "text": notice.text,
        "level": notice.level,
        "at": to_text(notice.at),
        "session_id": notice.session_id,
    }


def under(name: str) -> Callable[[Any], Json]:
    """Return the form of an answer that is one value under this name."""
    return lambda value: {name: plain(value)}


def plain(value: Any, depth: int = 0) -> Any:
    """Turn a value of attrs classes, enums, instants and containers into what JSON can hold. A value without a JSON
    form becomes its text. A value nested too deep becomes three dots."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or (isinstance(value, bool | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return to_text(value) if value.tzinfo is not None else value.isoformat()
    if isinstance(value, PurePath | type | BaseException):
        return _text(value)
    if depth >= _MAX_DEPTH:
        return "..."
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return _text(value)


def _text(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)
