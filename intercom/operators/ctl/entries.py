"""The JSON forms of ctl's output: plain dicts with the field names of the reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Any

import attrs

from intercom.model.card import CHOICES, Card, CardKind, CardState, Notice
from intercom.model.clock import to_text
from intercom.model.session import Session
from intercom.model.steering import Instruction

#: How many characters of diffs one listing carries; further diffs are omitted and marked as such.
LISTED_DIFFS = 4 * 1024 * 1024

_MAX_DEPTH = 32


def session_entry(session: Session) -> dict[str, Any]:
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


def card_entry(card: Card, *, diff: bool = True) -> dict[str, Any]:
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


def card_entries(cards: Iterable[Card], budget: int = LISTED_DIFFS) -> list[dict[str, Any]]:
    """Return entries in the given order; diffs are included while they fit `budget` characters together."""
    entries = []
    for card in cards:
        size = len(card.diff or "")
        fits = size <= budget
        entries.append(card_entry(card, diff=fits))
        budget -= size if fits else 0
    return entries


def words_entry(word: Instruction) -> dict[str, Any]:
    """Return one entry of `steering` and `tasks`."""
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


def notice_entry(notice: Notice) -> dict[str, Any]:
    return {
        "text": notice.text,
        "level": notice.level,
        "at": to_text(notice.at),
        "session_id": notice.session_id,
    }


def how_to_answer(kind: CardKind, request_id: str) -> str:
    """Return the command that answers a card of this kind, as part of a sentence."""
    match kind:
        case CardKind.APPROVAL:
            return f"approve {request_id} or reject {request_id}"
        case CardKind.PROMPT | CardKind.STANDBY:
            return f"answer {request_id} continue, refine TEXT or stop"
        case CardKind.STALL:
            return f"nudge {request_id}, or answer {request_id} stop or dismiss"
        case CardKind.POLICY:
            return f"policy accept {request_id} or reject {request_id}"
        case CardKind.APPLY:
            return "an editor to put the files right: the agent's next check_diff settles it"
        case CardKind.STEER | CardKind.TASK:
            return f"take-back {request_id} while it is queued: it goes to the agent by itself"
        case CardKind.RESTORE:
            return f"answer {request_id} proceed or cancel"


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
        return _words(value)
    if depth >= _MAX_DEPTH:
        return "..."
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return _words(value)


def _words(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)
