"""The outbox: what Slack is to show. How it is sent stands in `postings`.

A row is a wish, not a command: whoever wants a message changed puts its new content, and the sender makes Slack show
it, now or in an hour.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime, timedelta
from uuid import uuid4

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.outbox import Content, Counts, Row, RowKind, RowState, Urgency, measure
from intercom.store import rows

_TS = re.compile(r"\d+\.\d+")

#: Everything of a row but what it shows.
_COLUMNS = (
    "id, key, kind, state, channel, session_id, thread, client_id, urgency, version, shown, interim, interim_until,"
    " open, ts, file_id, attempts, first_at, not_before, last_error, merged_into, created_at, posted_at"
)


@frozen
class Put:
    """`changed` is False when Slack is to show just this already."""

    id: int
    created: bool
    changed: bool


def put(
    db: Database,
    key: str,
    content: Content,
    at: datetime,
    *,
    channel: str,
    urgency: Urgency,
    session_id: str | None = None,
    thread: str | None = None,
    kind: RowKind = RowKind.MESSAGE,
    open: bool = False,
    client_id: str | None = None,
) -> Put:
    """See to it that Slack shows `content` under `key`.

    A new key is a new message in `channel`, in the thread of the row with the key `thread` (put before it, or in the
    same transaction; of a row that is a reply itself, the thread that is in) or of the message with that ts. A known
    key keeps its place, and is redrawn if `content` or `open` differs, whatever stands there meanwhile; the same again
    changes nothing. A file that is posted stays as it is. `client_id` is made up if it is left out.
    """
    text = rows.json_text(content)
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    chars, lines = measure(content)
    drawn = {
        "urgency": int(urgency),
        "content": text,
        "digest": digest,
        "chars": chars,
        "lines": lines,
        "open": int(open),
    }
    found = rows.one(db, "select id, kind, state, ts, digest, open, merged_into from outbox where key = ?", (key,))
    if found is None:
        rows.insert(
            db,
            "outbox",
            {
                "key": key,
                "kind": kind.value,
                "state": RowState.QUEUED.value,
                "channel": channel,
                "session_id": session_id,
                "thread": _root(db, thread),
                "client_id": client_id or str(uuid4()),
                "version": 1,
                "created_at": clock.to_text(at),
                **drawn,
            },
        )
        return Put(rows.count(db, "select id from outbox where key = ?", (key,)), created=True, changed=True)
    id: int = found["id"]
    posted_file = found["kind"] == RowKind.FILE and found["state"] == RowState.POSTED
    if posted_file or (found["digest"] == digest and found["open"] == int(open)):
        return Put(id, created=False, changed=False)
    state = found["state"]
    if state == RowState.REFUSED:
        # what was refused was the old content
        state = RowState.QUEUED.value
    assigned = ", ".join(f"{name} = :{name}" for name in drawn)
    db.execute(
        f"update outbox set {assigned}, state = :state, version = version + 1, interim = null, interim_until = null,"
        " not_before = null, last_error = null where id = :id",
        {**drawn, "state": state, "id": id},
    )
    if found["merged_into"] is not None:
        db.execute("update outbox set version = version + 1 where id = ?", (found["merged_into"],))
    return Put(id, created=False, changed=True)


def interim(db: Database, key: str, line: str, until: datetime) -> bool:
    """Show `line` in place of the buttons, once and soon. If nothing newer was put by `until`, the buttons come back,
    also when whoever asked for this is dead. False when there is no such message, or it is no open card."""
    return rows.changed(
        db,
        "update outbox set interim = ?, interim_until = ?, shown = 0, not_before = null"
        " where key = ? and open = 1 and state in ('queued', 'posting', 'posted')",
        (line, clock.to_text(until), key),
    )


def shift(db: Database, seconds: float) -> None:
    """Move what is put off by as much as the clock was moved, so that it waits neither longer nor shorter."""
    found = rows.every(
        db, "select id, not_before, interim_until from outbox where not_before is not null or interim_until is not null"
    )
    for row in found:
        later = {name: _later(row[name], seconds) for name in ("not_before", "interim_until")}
        db.execute(
            "update outbox set not_before = :not_before, interim_until = :interim_until where id = :id",
            {**later, "id": row["id"]},
        )


def _later(text: str | None, seconds: float) -> str | None:
    if text is None:
        return None
    try:
        return clock.to_text(clock.from_text(text) + timedelta(seconds=seconds))
    except OverflowError:
        # A clock without a year: now, then.
        return None


def restore(db: Database, key: str) -> bool:
    """Take an interim line back: what was put last is shown again at once. False when nothing else is shown."""
    return rows.changed(
        db,
        "update outbox set interim = null, interim_until = null, not_before = null"
        " where key = ? and state = 'posted' and shown < version",
        (key,),
    )


def abandon(db: Database, key: str) -> bool:
    """Forget a message that is not posted, or not known to be: it is neither sent nor looked for any more. False,
    changing nothing, when it is posted."""
    return rows.changed(db, "delete from outbox where key = ? and state in ('queued', 'posting')", (key,))


def by_key(db: Database, key: str) -> Row | None:
    """The row with this key, or None."""
    return _one(db, "key = ?", key)


def by_id(db: Database, id: int) -> Row | None:
    """The row with this id, or None."""
    return _one(db, "id = ?", id)


def by_ts(db: Database, channel: str, ts: str) -> Row | None:
    """The row that the message `ts` of a channel shows (of several merged ones, that of the message), or None."""
    return _one(db, "channel = ? and ts = ? order by merged_into is not null, id limit 1", channel, ts)


def with_merged(db: Database, id: int) -> tuple[Row, ...]:
    """The row with this id and those whose lines stand in its message, in their order, without their content."""
    sql = f"select {_COLUMNS}, null as content from outbox where id = ? or merged_into = ? order by id"
    return tuple(from_row(row) for row in rows.every(db, sql, (id, id)))


def open_rows(db: Database) -> tuple[Row, ...]:
    """The cards whose buttons are live or about to be, oldest first, without their content."""
    found = rows.every(db, f"select {_COLUMNS}, null as content from outbox where open = 1 order by id")
    return tuple(from_row(row) for row in found)


def counts(db: Database) -> Counts:
    """How much waits to be posted and updated."""
    waiting = "state in ('queued', 'posting')"
    posts = rows.every(
        db, f"select urgency, count(*) as n, min(created_at) as oldest from outbox where {waiting} group by urgency"
    )
    fault = rows.one(
        db,
        "select last_error from outbox where last_error is not null and"
        f" id in (select id from outbox where {waiting} union all"
        " select id from outbox where state = 'posted' and shown < version) order by id desc limit 1",
    )
    return Counts(
        posts={Urgency(row["urgency"]): row["n"] for row in posts},
        updates=rows.count(db, "select count(*) from outbox where state = 'posted' and shown < version"),
        oldest=rows.time_value(min((row["oldest"] for row in posts), default=None)),
        last_error=None if fault is None else fault["last_error"],
    )


def from_row(row: rows.Row) -> Row:
    """A Row from its columns; the content is {} where that is null."""
    return Row(
        id=row["id"],
        key=row["key"],
        kind=RowKind(row["kind"]),
        state=RowState(row["state"]),
        channel=row["channel"],
        client_id=row["client_id"],
        urgency=Urgency(row["urgency"]),
        content={} if row["content"] is None else json.loads(row["content"]),
        version=row["version"],
        shown=row["shown"],
        open=bool(row["open"]),
        created_at=clock.from_text(row["created_at"]),
        session_id=row["session_id"],
        thread=row["thread"],
        interim=row["interim"],
        interim_until=rows.time_value(row["interim_until"]),
        ts=row["ts"],
        file_id=row["file_id"],
        attempts=row["attempts"],
        first_at=rows.time_value(row["first_at"]),
        not_before=rows.time_value(row["not_before"]),
        last_error=row["last_error"],
        merged_into=row["merged_into"],
        posted_at=rows.time_value(row["posted_at"]),
    )


def is_ts(thread: str) -> bool:
    """Whether a row's `thread` is a message's ts, and no key."""
    return _TS.fullmatch(thread) is not None


def _one(db: Database, where: str, *values: str | int) -> Row | None:
    row = rows.one(db, f"select {_COLUMNS}, content from outbox where {where}", values)
    return None if row is None else from_row(row)


def _root(db: Database, thread: str | None) -> str | None:
    """The key or ts at the top of a thread: Slack has no replies to replies."""
    if thread is None or is_ts(thread):
        return thread
    above = rows.one(db, "select thread from outbox where key = ?", (thread,))
    return thread if above is None or above["thread"] is None else str(above["thread"])
