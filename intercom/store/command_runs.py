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
#: The names end in this, so that one is found from the other and neither is taken for a call.
_ANSWER = "#answer"


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


def unfinished(db: Database) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The acts whose command was begun and has no answer, with what was noted of each, oldest first."""
    found = rows.every(
        db,
        "select name, answer from answered_call as begun where tool = ? and substr(name, ?) <> ? and not exists"
        " (select 1 from answered_call as done where done.name = begun.name || ?) order by created_at, rowid",
        (_TOOL, -len(_ANSWER), _ANSWER, _ANSWER),
    )
    return tuple((row["name"], json.loads(row["answer"])) for row in found)
