"""Commands that people gave and that must not be done twice: on record before they are done, and what they were
answered. Kept with the answered calls, and purged with them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from attrs import frozen
from sqlite_utils import Database

from intercom.store import audit, calls, rows

_TOOL = "slack_command"
#: What is recorded later of an act has its name with one of these at its end.
_ANSWER = "#answer"
_PROCESS = "#process"


@frozen
class Begun:
    """A command that was on record before: what was noted of it, and its answer, None while it is not done."""

    note: dict[str, Any]
    answer: dict[str, Any] | None


def begin(
    db: Database, act_id: str, note: dict[str, Any], at: datetime, *, who: str, session_id: str | None
) -> Begun | None:
    """Put on record that the command of this act is about to be done, in the audit trail too; None when it is the
    first time, else what is known of it, and nothing changes. `note` says what was asked (`line`), and whatever else
    its end needs."""
    if calls.record(db, act_id, session_id, _TOOL, note, at):
        audit.record(db, at, "command", session_id, who, str(note.get("line", "")), {**note, "channel": "slack"})
        return None
    return known(db, act_id)


def known(db: Database, act_id: str) -> Begun | None:
    """What is on record of the command of this act; None when nothing is."""
    note = calls.answer(db, act_id)
    return None if note is None else Begun(note, calls.answer(db, act_id + _ANSWER))


def finish(db: Database, act_id: str, answer: dict[str, Any], at: datetime) -> bool:
    """Keep what a command was answered; False, keeping the first, when it has an answer."""
    return calls.record(db, act_id + _ANSWER, None, _TOOL, answer, at)


def started(db: Database, act_id: str, pid: int, began: float, at: datetime) -> None:
    """Keep which process carries a command out, and when (seconds since the epoch) it began."""
    calls.record(db, act_id + _PROCESS, None, _TOOL, {"pid": pid, "began": began}, at)


@frozen
class Unfinished:
    """A command that was begun and has no answer: what was noted of it, and the process that was started for it (pid,
    and when it began), None when none was."""

    act_id: str
    note: dict[str, Any]
    process: tuple[int, float] | None


def unfinished(db: Database) -> tuple[Unfinished, ...]:
    """The commands that were begun and not finished, oldest first."""
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
