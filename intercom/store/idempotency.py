"""What was done, and what was answered: repeating an act does nothing a second time, and gets the first answer.

An act has an id that stays the same when it is repeated: the name of a tool's call, the id of a decision, of a Slack
action. It is recorded in the transaction of its effect, once in each `Scope`. Rows are deleted by age (`retention`).

Three records are not here, because they promise something else. A decision is a compare-and-set on its request's row. A
permission may be used once by each hook (`permission_use`). What Slack shows is a state with a key (`outbox`).
"""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.store import audit, rows
from intercom.store.rows import JsonObject


class Scope(Enum):
    """The kind of act that a row records. Ids are unique within a scope only: agents choose the names of their calls,
    which could be the id of another act. So the value is the first part of the row's name.
    """

    #: The answer of a tool's call, by session and name. Its row names the tool.
    CALL = "call"
    #: A person's change of who is notified.
    MODE = "mode"
    #: What a person's reply in a Slack thread means.
    REPLY = "slack.reply"
    #: A slash command that is about to run; its answer; the process that it runs.
    COMMAND = "slack_command"
    COMMAND_ANSWER = "slack_command.answer"
    COMMAND_PROCESS = "slack_command.process"
    #: A decision whose effect is not a change of a request's row.
    DECISION = "verdict"
    #: A person's act that took a decision back, and the decision that was: sent again, it decides nothing.
    TAKE_BACK = "take_back"
    TAKEN_BACK = "verdict.taken_back"
    #: The end of a pause.
    UNPAUSE = "unpause"
    #: The session that a command without a name was about.
    SESSION = "session"
    #: A command whose signature counts once, or that ends something: its answer, or its refusal.
    SIGNED = "signed"
    #: News of an agent that people started, by session and run.
    PROCESS = "process"


def record(
    db: Database,
    scope: Scope,
    id: str,
    answer: JsonObject,
    at: datetime,
    *,
    session_id: str | None = None,
    tool: str | None = None,
) -> bool:
    """Record an act with its answer. Returns False and keeps the first answer if it is recorded. `tool` is the tool of
    a call."""
    row = {
        "name": f"{scope.value}/{id}",
        "session_id": session_id,
        "tool": tool or scope.value,
        "answer": rows.json_text(answer),
        "created_at": clock.to_text(at),
    }
    return rows.insert(db, "answered_call", row, conflict="(name) do nothing")


def first_answer(db: Database, scope: Scope, id: str, given: JsonObject, at: datetime) -> JsonObject:
    """Record an act with its answer. Returns the answer that is recorded of it, which is the first one."""
    record(db, scope, id, given, at)
    return answer(db, scope, id) or given


def answer(db: Database, scope: Scope, id: str) -> JsonObject | None:
    """Return the answer of an act, or None if it is not recorded."""
    found = rows.column(db, "select answer from answered_call where name = ?", (f"{scope.value}/{id}",))
    kept: JsonObject | None = json.loads(found[0]) if found else None
    return kept


def was_done(db: Database, scope: Scope, id: str) -> bool:
    """Whether an act is recorded."""
    return answer(db, scope, id) is not None


@frozen
class Begun:
    """A command begun earlier: its note, and its answer or None if it is not finished."""

    note: JsonObject
    answer: JsonObject | None


def begin(
    db: Database, act_id: str, note: JsonObject, at: datetime, *, who: str, session_id: str | None
) -> Begun | None:
    """Persist that the command of this act is about to run, and add an audit entry.

    Returns None the first time. Later it returns what is known of the command and changes nothing. `note` holds the
    command line (`line`) and whatever else its completion needs.
    """
    if not record(db, Scope.COMMAND, act_id, note, at, session_id=session_id):
        return known(db, act_id)
    audit.record(db, at, "command", session_id, who, str(note.get("line", "")), {**note, "channel": "slack"})
    return None


def known(db: Database, act_id: str) -> Begun | None:
    """Return what is recorded of the command of this act, or None."""
    note = answer(db, Scope.COMMAND, act_id)
    return None if note is None else Begun(note, answer(db, Scope.COMMAND_ANSWER, act_id))


def finish(db: Database, act_id: str, answer: JsonObject, at: datetime) -> bool:
    """Store the answer of a command. Returns False and keeps the first if it has one."""
    return record(db, Scope.COMMAND_ANSWER, act_id, answer, at)


def started(db: Database, act_id: str, pid: int, began: float, at: datetime) -> None:
    """Store the process that runs a command, and its start time in seconds since the epoch."""
    record(db, Scope.COMMAND_PROCESS, act_id, {"pid": pid, "began": began}, at)


@frozen
class Unfinished:
    """A command begun but not answered: its note, and its process (pid, start time) or None."""

    act_id: str
    note: JsonObject
    process: tuple[int, float] | None


def unfinished(db: Database) -> tuple[Unfinished, ...]:
    """Return the commands that were begun but not finished, oldest first."""
    found = rows.column(
        db,
        "select substr(name, 15) as act_id from answered_call where name glob 'slack_command/*' and not exists"
        " (select 1 from answered_call as done where done.name = 'slack_command.answer/' || act_id)"
        " order by created_at, rowid",
    )
    return tuple(_unfinished(db, act_id) for act_id in found)


def _unfinished(db: Database, act_id: str) -> Unfinished:
    process = answer(db, Scope.COMMAND_PROCESS, act_id)
    pair = None if process is None else (int(process["pid"]), float(process["began"]))
    return Unfinished(act_id, answer(db, Scope.COMMAND, act_id) or {}, pair)
