"""The outbox: the content that Slack is to show. `postings` holds the queries for sending it.

A row is a desired state, not a command: put new content to change a message, and the sender brings Slack up to date.
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

#: All columns but the content.
_COLUMNS = (
    "id, key, kind, state, channel, session_id, thread, client_id, urgency, version, shown, interim, interim_until,"
    " open, ts, file_id, attempts, first_at, not_before, last_error, merged_into, created_at, posted_at"
)


@frozen
class Put:
    """The result of `put`. `changed` is False if Slack is to show exactly this already."""

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
    """Make Slack show `content` under `key`.

    A new key creates a message in `channel`. `thread` is the key of a row put earlier, or the ts of a message; a
    reply's key stands for the thread the reply is in. A known key keeps its place and is redrawn if `content` or `open`
    differs; otherwise nothing changes. A posted file never changes. `client_id` is generated if omitted.
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
        # Slack refused the old content, not this one.
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
    """Show `line` once in place of the buttons, soon. If nothing newer is put by `until`, the buttons return, even
    if the caller has crashed. Returns False if the row does not exist or is not an open card."""
    return rows.changed(
        db,
        "update outbox set interim = ?, interim_until = ?, shown = 0, not_before = null"
        " where key = ? and open = 1 and state in ('queued', 'posting', 'posted')",
        (line, clock.to_text(until), key),
    )


def shift(db: Database, seconds: float) -> None:
    """Move all deadlines by as many seconds as the clock was moved, so that each wait keeps its length."""
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
        # Beyond the range of datetime: due now.
        return None


def restore(db: Database, key: str) -> bool:
    """Cancel an interim line and show the last content again at once. Returns False if it is already shown."""
    return rows.changed(
        db,
        "update outbox set interim = null, interim_until = null, not_before = null"
        " where key = ? and state = 'posted' and shown < version",
        (key,),
    )


def abandon(db: Database, key: str) -> bool:
    """Delete a message that is not known to be posted; it is neither sent nor looked for any more. Returns False and
    changes nothing if it is posted."""
    return rows.changed(db, "delete from outbox where key = ? and state in ('queued', 'posting')", (key,))


def by_key(db: Database, key: str) -> Row | None:
    """Return the row with this key, or None."""
    return _one(db, "key = ?", key)


def by_id(db: Database, id: int) -> Row | None:
    """Return the row with this id, or None."""
    return _one(db, "id = ?", id)


def by_ts(db: Database, channel: str, ts: str) -> Row | None:
    """Return the row of the message `ts` in a channel (the one others were merged into), or None."""
    return _one(db, "channel = ? and ts = ? order by merged_into is not null, id limit 1", channel, ts)


def with_merged(db: Database, id: int) -> tuple[Row, ...]:
    """Return this row and those merged into its message, in order, without content."""
    sql = f"select {_COLUMNS}, null as content from outbox where id = ? or merged_into = ? order by id"
    return tuple(from_row(row) for row in rows.every(db, sql, (id, id)))


def open_rows(db: Database) -> tuple[Row, ...]:
    """Return the open cards, whose buttons work or soon will, oldest first, without content."""
    found = rows.every(db, f"select {_COLUMNS}, null as content from outbox where open = 1 order by id")
    return tuple(from_row(row) for row in found)


def counts(db: Database) -> Counts:
    """Count what waits to be posted and updated."""
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
    """Return a Row from its columns. The content is {} if the column is null."""
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
    """Whether a row's `thread` is the ts of a message, not a key."""
    return _TS.fullmatch(thread) is not None


def _one(db: Database, where: str, *values: str | int) -> Row | None:
    row = rows.one(db, f"select {_COLUMNS}, content from outbox where {where}", values)
    return None if row is None else from_row(row)


def _root(db: Database, thread: str | None) -> str | None:
    """Return the key or ts of a thread's first message: Slack has no replies to replies."""
    if thread is None or is_ts(thread):
        return thread
    above = rows.one(db, "select thread from outbox where key = ?", (thread,))
    return thread if above is None or above["thread"] is None else str(above["thread"])
