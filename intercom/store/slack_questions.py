"""Open questions in Slack threads, each answered by the next reply there."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


@frozen
class Question:
    """A question: the next reply of user `asked_of` in the thread is the text of `decision` on the card `card_id`."""

    channel: str
    thread: str
    card_id: str
    decision: str
    asked_of: str
    at: datetime


def ask(db: Database, question: Question) -> None:
    """Store a question. It replaces an earlier one in the same thread."""
    row = {
        "channel": question.channel,
        "thread": question.thread,
        "card_id": question.card_id,
        "decision": question.decision,
        "asked_of": question.asked_of,
        "at": clock.to_text(question.at),
    }
    newer = ", ".join(f"{name} = excluded.{name}" for name in ("card_id", "decision", "asked_of", "at"))
    rows.insert(db, "slack_question", row, conflict=f"(channel, thread) do update set {newer}")


def peek(db: Database, channel: str, thread: str) -> Question | None:
    """Return the open question of a thread, or None."""
    row = rows.one(db, "select * from slack_question where channel = ? and thread = ?", (channel, thread))
    return None if row is None else Question(**{**row, "at": clock.from_text(row["at"])})


def forget(db: Database, channel: str, thread: str) -> bool:
    """Delete the question of a thread. Returns False if there is none."""
    return rows.changed(db, "delete from slack_question where channel = ? and thread = ?", (channel, thread))
