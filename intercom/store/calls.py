"""Answered calls by name: what a call with an effect was answered, so that asking again never acts twice.

The answer is recorded in the transaction of the effect.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


def record(db: Database, name: str, session_id: str | None, tool: str, answer: dict[str, Any], at: datetime) -> bool:
    """Keep the answer of the call `name`; False, keeping the first, when it has one already."""
    row = {
        "name": name,
        "session_id": session_id,
        "tool": tool,
        "answer": rows.json_text(answer),
        "created_at": clock.to_text(at),
    }
    return rows.insert(db, "answered_call", row, conflict="(name) do nothing")


def answer(db: Database, name: str) -> dict[str, Any] | None:
    """What the call `name` was answered, or None when it was not."""
    row = rows.one(db, "select answer from answered_call where name = ?", (name,))
    if row is None:
        return None
    kept: dict[str, Any] = json.loads(row["answer"])
    return kept
