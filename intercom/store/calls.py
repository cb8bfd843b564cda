"""The answers of calls with an effect, by call name, so that a repeated call never acts twice.

The answer is recorded in the same transaction as the effect.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


def record(db: Database, name: str, session_id: str | None, tool: str, answer: dict[str, Any], at: datetime) -> bool:
    """Store the answer of the call `name`. Returns False and keeps the first if it has one."""
    row = {
        "name": name,
        "session_id": session_id,
        "tool": tool,
        "answer": rows.json_text(answer),
        "created_at": clock.to_text(at),
    }
    return rows.insert(db, "answered_call", row, conflict="(name) do nothing")


def answer(db: Database, name: str) -> dict[str, Any] | None:
    """Return the answer of the call `name`, or None."""
    row = rows.one(db, "select answer from answered_call where name = ?", (name,))
    if row is None:
        return None
    kept: dict[str, Any] = json.loads(row["answer"])
    return kept
