"""Operator commands that must run at most once, and their answers.

A command is persisted before it runs. Its rows are among the answered calls and are purged with them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from attrs import frozen
from sqlite_utils import Database

from intercom.store import audit, calls, rows

_TOOL = "slack_command"
#: Suffixes of the act id, for rows recorded later about the same act.
_ANSWER = "#answer"
_PROCESS = "#process"


@frozen
class Begun:
    """A command begun earlier: its note, and its answer or None if it is not finished."""

    note: dict[str, Any]
    answer: dict[str, Any] | None


def begin(
    db: Database, act_id: str, note: dict[str, Any], at: datetime, *, who: str, session_id: str | None
) -> Begun | None:
    """Persist that the command of this act is about to run, and add an audit entry.

    Returns None the first time. Later it returns what is known of the command and changes nothing. `note` holds the
    command line (`line`) and whatever else its completion needs.
    """
    if calls.record(db, act_id, session_id, _TOOL, note, at):
        audit.record(db, at, "command", session_id, who, str(note.get("line", "")), {**note, "channel": "slack"})
        return None
    return known(db, act_id)


def known(db: Database, act_id: str) -> Begun | None:
    """Return what is recorded of the command of this act, or None."""
    note = calls.answer(db, act_id)
    return None if note is None else Begun(note, calls.answer(db, act_id + _ANSWER))


def finish(db: Database, act_id: str, answer: dict[str, Any], at: datetime) -> bool:
    """Store the answer of a command. Returns False and keeps the first if it has one."""
    return calls.record(db, act_id + _ANSWER, None, _TOOL, answer, at)


def started(db: Database, act_id: str, pid: int, began: float, at: datetime) -> None:
    """Store the process that runs a command, and its start time in seconds since the epoch."""
    calls.record(db, act_id + _PROCESS, None, _TOOL, {"pid": pid, "began": began}, at)


@frozen
class Unfinished:
    """A command begun but not answered: its note, and its process (pid, start time) or None."""

    act_id: str
    note: dict[str, Any]
    process: tuple[int, float] | None


def unfinished(db: Database) -> tuple[Unfinished, ...]:
    """Return the commands that were begun but not finished, oldest first."""
    found = rows.every(
        db,
        "select begun.name, begun.answer, process.answer as process from answered_call as begun"
        " left join answered_call as process on process.name = begun.name || ?"
        " where begun.tool = ? and substr(begun.name, ?) <> ? and substr(begun.name, ?) <> ? and not exists"
        " (select 1 from answered_call as done where done.name = begun.name || ?)"
        " order by begun.created_at, begun.rowid",
        (_PROCESS, _TOOL, -len(_ANSWER), _ANSWER, -len(_PROCESS), _PROCESS, _ANSWER),
    )
    return tuple(Unfinished(row["name"], json.loads(row["answer"]), _process(row["process"])) for row in found)


def _process(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    kept = json.loads(text)
    return int(kept["pid"]), float(kept["began"])
