"""The outbox: what Slack is to show, how each row was sent, and which questions wait in its threads.

A row is a desired state of one message or file, not a command: put new content to change it, and the sender brings
Slack up to date. Every attempt is persisted before it is made. After a crash, the store tells what may have reached
Slack.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any
from uuid import uuid4

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows
from intercom.store.rows import Codec, Table

Content = dict[str, Any]


class Urgency(IntEnum):
    """The order of sending: lower values first."""

    CARD = 0
    ALERT = 1
    LINE = 2
    LOG = 3

    @property
    def is_line(self) -> bool:
        """Whether rows of this kind may share one message."""
        return self >= Urgency.LINE


class RowKind(StrEnum):
    MESSAGE = "message"
    FILE = "file"


class RowState(StrEnum):
    """The state of a row. `POSTING`: it may have been posted, so it is searched for before the next attempt. `MERGED`:
    its lines are in the message of another row."""

    QUEUED = "queued"
    POSTING = "posting"
    POSTED = "posted"
    MERGED = "merged"
    REFUSED = "refused"


@frozen
class Row:
    """A row of `outbox`.

    `key` is unique and stable ("card/<card id>"). `thread` is the key of the row it replies to, or a Slack ts.
    `client_id` is in the message's metadata, so a search can find the message. `version` is what Slack should show, and
    `shown` what it shows (0: unknown). `interim` is a line that replaces the buttons until `interim_until`. `open`
    marks a card with active buttons. `content` is rendered and masked. A message has `text`, `blocks` and perhaps
    `reply_broadcast`. A file has `filename`, `title`, `snippet_type` and `text`, and nothing after it was posted.
    `first_at` is the time of the first attempt, `file_id` the upload to share.
    """

    id: int
    key: str
    kind: RowKind
    state: RowState
    channel: str
    client_id: str
    urgency: Urgency
    content: Content
    version: int
    shown: int
    open: bool
    created_at: datetime
    session_id: str | None = None
    thread: str | None = None
    interim: str | None = None
    interim_until: datetime | None = None
    ts: str | None = None
    file_id: str | None = None
    attempts: int = 0
    first_at: datetime | None = None
    not_before: datetime | None = None
    last_error: str | None = None
    merged_into: int | None = None
    posted_at: datetime | None = None


@frozen
class Waiting:
    """The data of a row that the send schedule uses. `root_id` and `root_not_before` describe the row it replies to,
    while that one waits too. `chars` and `lines` measure its text. `session_id` is its session, if it has one."""

    id: int
    kind: RowKind
    state: RowState
    urgency: Urgency
    thread: str | None
    attempts: int
    not_before: datetime | None
    chars: int
    lines: int
    root_id: int | None = None
    root_not_before: datetime | None = None
    session_id: str | None = None

    @property
    def group(self) -> str | None:
        """What the row shares turns and order with: the rows of its session, or of its thread without one."""
        return self.session_id or self.thread


@frozen
class Counts:
    """The backlog: posts by urgency, updates, and the time of the oldest post."""

    posts: Mapping[Urgency, int]
    updates: int
    oldest: datetime | None


_TS = re.compile(r"\d+\.\d+")
_WAITING = "state in ('queued', 'posting')"
_STALE = "state = 'posted' and shown < version"

_CONTENT = Codec(rows.json_text, lambda text: {} if text is None else json.loads(text))
_ROWS = Table("outbox", Row, codecs={"content": _CONTENT})
#: The same rows without their content, which may be large.
_WITHOUT_CONTENT = Table("outbox", Row, elsewhere={"content": lambda _db, _row: {}})


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
) -> None:
    """Make Slack show `content` under `key`.

    A new key creates a message in `channel`. `thread` is the key of a row put earlier, or the ts of a message; that of
    a reply stands for the thread the reply is in. A known key keeps its place and is redrawn if `content` or `open`
    differs; otherwise nothing changes. A posted file never changes.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    chars, lines = measure(content)
    drawn = {
        "urgency": int(urgency),
        "content": rows.json_text(content),
        "digest": digest,
        "chars": chars,
        "lines": lines,
        "open": int(open),
    }
    found = rows.one(db, "select id, kind, state, digest, open, merged_into from outbox where key = ?", (key,))
    if found is None:
        new = {
            "key": key,
            "kind": kind.value,
            "state": RowState.QUEUED.value,
            "channel": channel,
            "session_id": session_id,
            "thread": _root(db, channel, thread),
            "client_id": str(uuid4()),
            "version": 1,
            "created_at": clock.to_text(at),
        }
        rows.insert(db, "outbox", new | drawn)
        return
    is_posted_file = found["kind"] == RowKind.FILE and found["state"] == RowState.POSTED
    if is_posted_file or (found["digest"] == digest and found["open"] == int(open)):
        return
    assigned = ", ".join(f"{name} = :{name}" for name in drawn)
    db.execute(
        # If Slack refused the old content, it has not refused this one.
        f"update outbox set {assigned}, state = case when state = 'refused' then 'queued' else state end,"
        " version = version + 1, interim = null, interim_until = null, not_before = null, last_error = null"
        " where id = :id",
        {**drawn, "id": found["id"]},
    )
    if found["merged_into"] is not None:
        db.execute("update outbox set version = version + 1 where id = ?", (found["merged_into"],))


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
    for name in ("not_before", "interim_until"):
        for row in rows.every(db, f"select id, {name} as due from outbox where {name} is not null"):
            try:
                later = clock.to_text(clock.from_text(row["due"]) + timedelta(seconds=seconds))
            except OverflowError:
                # Beyond the range of datetime: due now.
                later = None
            db.execute(f"update outbox set {name} = ? where id = ?", (later, row["id"]))


def restore(db: Database, key: str) -> bool:
    """Cancel an interim line and show the last content again at once. Returns False if it is already shown."""
    return rows.changed(
        db,
        "update outbox set interim = null, interim_until = null, not_before = null"
        " where key = ? and state = 'posted' and shown < version",
        (key,),
    )


def reopen(db: Database, key: str) -> bool:
    """Have a card compared again whose message was over, because it is open again. Returns False if there is no such
    message, or it is not over."""
    return rows.changed(db, "update outbox set open = 1 where key = ? and open = 0", (key,))


def abandon(db: Database, key: str) -> bool:
    """Delete a message that is not known to be posted; it is neither sent nor looked for any more. Returns False and
    changes nothing if it is posted."""
    return rows.changed(db, "delete from outbox where key = ? and state in ('queued', 'posting')", (key,))


def by_key(db: Database, key: str) -> Row | None:
    """Return the row with this key, or None."""
    return _ROWS.first(db, "key = ?", (key,))


def by_id(db: Database, id: int) -> Row | None:
    """Return the row with this id, or None."""
    return _ROWS.first(db, "id = ?", (id,))


def by_ts(db: Database, channel: str, ts: str) -> Row | None:
    """Return the row of the message `ts` in a channel (the one others were merged into), or None."""
    return _ROWS.first(db, "channel = ? and ts = ? order by merged_into is not null, id limit 1", (channel, ts))


def with_merged(db: Database, id: int) -> tuple[Row, ...]:
    """Return this row and those merged into its message, in order, without content."""
    return _WITHOUT_CONTENT.select(db, "id = ? or merged_into = ? order by id", (id, id))


def open_rows(db: Database) -> tuple[Row, ...]:
    """Return the open cards, whose buttons work or soon will, oldest first, without content."""
    return _WITHOUT_CONTENT.select(db, "open = 1 order by id")


def counts(db: Database) -> Counts:
    """Count what waits to be posted and updated."""
    posts = rows.every(
        db, f"select urgency, count(*) as n, min(created_at) as oldest from outbox where {_WAITING} group by urgency"
    )
    return Counts(
        posts={Urgency(row["urgency"]): row["n"] for row in posts},
        updates=rows.count(db, f"select count(*) from outbox where {_STALE}"),
        oldest=rows.time_value(min((row["oldest"] for row in posts), default=None)),
    )


def is_ts(thread: str) -> bool:
    """Whether a row's `thread` is the ts of a message, not a key."""
    return _TS.fullmatch(thread) is not None


def _root(db: Database, channel: str, thread: str | None) -> str | None:
    """Return the key or ts of a thread's first message: Slack has no replies to replies. A ts that no row of this
    channel has is taken as that of a first message."""
    if thread is None:
        return None
    values: tuple[str, ...]
    if is_ts(thread):
        where, values = "channel = ? and ts = ? order by merged_into is not null, id limit 1", (channel, thread)
    else:
        where, values = "key = ?", (thread,)
    above = rows.one(db, f"select thread from outbox where {where}", values)
    return thread if above is None or above["thread"] is None else str(above["thread"])


#: After this many attempts a row whose thread Slack does not know goes to the channel.
_THREADINGS = 3


@frozen
class Begun:
    """A post that may be made now, in the thread `thread_ts`.

    `contents` are those of `row` first, then of the rows merged into it. `seek`: an earlier attempt may have succeeded.
    `may_come`: an earlier attempt may still succeed, so the message is only looked for.
    """

    row: Row
    contents: tuple[Content, ...]
    thread_ts: str | None
    seek: bool
    may_come: bool = False


@frozen
class Update:
    """An update to make: the message of `row` shows `contents`, or the row's interim line if it has one."""

    row: Row
    contents: tuple[Content, ...]


def channels_waiting(db: Database) -> tuple[str, ...]:
    """Return the channels with something to post or update, now or later."""
    return tuple(
        rows.column(
            db,
            f"select distinct channel from outbox where {_WAITING} union"
            f" select distinct channel from outbox where {_STALE}",
        )
    )


def posting(db: Database, channel: str) -> dict[int, datetime | None]:
    """Return the rows of a channel whose last attempt has no recorded result, and when each attempt was made."""
    found = db.execute("select id, asked_at from outbox where channel = ? and state = 'posting'", (channel,))
    return {id: rows.time_value(asked_at) for id, asked_at in found.fetchall()}


def stale(db: Database, channel: str) -> tuple[int, ...]:
    """Return the rows of a channel whose current version Slack does not show, according to the store."""
    return tuple(rows.column(db, f"select id from outbox where channel = ? and {_STALE}", (channel,)))


def next_due(db: Database, now: datetime) -> datetime | None:
    """Return the earliest time after `now` at which a postponed row is due; None if there is none."""
    row = rows.one(
        db,
        "select not_before from outbox where not_before is not null and not_before > ?"
        f" and ({_WAITING} or {_STALE}) order by not_before limit 1",
        (clock.to_text(now),),
    )
    return None if row is None else clock.from_text(row["not_before"])


def waiting(db: Database, channel: str) -> Iterator[Waiting]:
    """Yield what is to be posted in a channel, the most urgent and oldest first. Rows are read lazily: do not write
    before the iteration ends."""
    cursor = db.execute(
        "select post.id, post.kind, post.state, post.urgency, post.thread, post.attempts, post.not_before,"
        " post.chars, post.lines, root.id, root.not_before, post.session_id"
        " from outbox as post left join outbox as root on root.key = post.thread"
        " and root.state in ('queued', 'posting') and root.channel = post.channel"
        " where post.channel = ? and post.state in ('queued', 'posting') order by post.urgency, post.id",
        (channel,),
    )
    for id, kind, state, urgency, thread, attempts, not_before, chars, lines, root_id, root_due, session in cursor:
        yield Waiting(
            id=id,
            kind=RowKind(kind),
            state=RowState(state),
            urgency=Urgency(urgency),
            thread=thread,
            attempts=attempts,
            not_before=rows.time_value(not_before),
            chars=chars,
            lines=lines,
            root_id=root_id,
            root_not_before=rows.time_value(root_due),
            session_id=session,
        )


def begin_post(
    db: Database, id: int, at: datetime, merge: Sequence[int] = (), *, may_come: bool = False
) -> Begun | None:
    """Persist an attempt to post a row, with the lines of the rows `merge` under its own.

    With `may_come`, an earlier request may still arrive, so the message is only looked for. Returns None and changes
    nothing if the row is no longer waiting. After the commit, make the post, then call `posted`, `retry` or `refused`.
    """
    before = rows.one(db, f"select state from outbox where id = ? and {_WAITING}", (id,))
    if before is None:
        return None
    text = clock.to_text(at)
    db.execute(
        "update outbox set state = 'posting', attempts = attempts + 1, first_at = coalesce(first_at, ?),"
        " asked_at = case when ? then asked_at else ? end, not_before = null where id = ?",
        (text, int(may_come), text, id),
    )
    if merge:
        db.execute(
            f"update outbox set state = 'merged', merged_into = ? where id in ({rows.placeholders(merge)})"
            " and state = 'queued'",
            (id, *merge),
        )
    row = by_id(db, id)
    assert row is not None
    return Begun(row, _contents(db, row), _thread_ts(db, row), before["state"] == RowState.POSTING, may_come)


#: The tables of what cards show, with the ts of the card's message.
_WITH_TS = ("approval_request", "continuation_prompt", "wait", "stall_alert")


def uploading(db: Database, id: int, file_id: str | None) -> None:
    """Store the id of an upload that is about to be shared; None if the upload has to be made again."""
    db.execute("update outbox set file_id = ? where id = ? and state = 'posting'", (file_id, id))


def posted(db: Database, id: int, ts: str | None, version: int, at: datetime) -> tuple[Row, ...]:
    """Record that Slack shows this version of a row as the message `ts` (None: a file without a known message).

    Returns the row and those merged into it, without content; nothing if it was not being posted. Drops a file's text.
    A card's ts is recorded with its request or alert too.
    """
    text = clock.to_text(at)
    won = rows.changed(
        db,
        "update outbox set state = 'posted', ts = ?, posted_at = ?, attempts = 0, not_before = null, last_error = null,"
        " shown = case when kind = 'file' then version when interim is null then ? else 0 end,"
        " content = case when kind = 'file' then null else content end where id = ? and state = 'posting'",
        (ts, text, version, id),
    )
    if not won:
        return ()
    db.execute("update outbox set ts = ?, posted_at = ?, shown = version where merged_into = ?", (ts, text, id))
    done = with_merged(db, id)
    for shown in done:
        kind, _, card_id = shown.key.partition("/")
        for table in _WITH_TS if kind == "card" else ():
            db.execute(f"update {table} set slack_ts = :ts where id = :card", {"ts": ts, "card": card_id})
    return done


def retry(db: Database, id: int, not_before: datetime | None, error: str, *, uncertain: bool) -> None:
    """Record a failed attempt to post or update; the next is made at `not_before` or later. `uncertain`: the post
    may have reached Slack despite the error."""
    db.execute(
        "update outbox set not_before = ?, last_error = ?,"
        " state = case when state = 'posting' and not ? then 'queued' else state end where id = ?",
        (rows.time_text(not_before), error, int(uncertain), id),
    )


def refused(db: Database, id: int, error: str, version: int) -> None:
    """Record that Slack does not accept this version of a row in any form. A newer version is still tried."""
    db.execute(
        "update outbox set last_error = ?, not_before = null, interim = null, interim_until = null,"
        " shown = case when state = 'posted' then max(shown, ?) else shown end,"
        " state = case when state = 'posting' then case when version > ? then 'queued' else 'refused' end"
        " else state end where id = ?",
        (error, version, version, id),
    )


def next_update(db: Database, channel: str, now: datetime) -> Update | None:
    """Return the next message to update in a channel: interim lines first, then by urgency and age; or None."""
    due = f"channel = ? and {_STALE} and (not_before is null or not_before <= ?)"
    text = clock.to_text(now)
    for where in (f"interim is not null and {due} order by id", f"{due} order by urgency, id"):
        found = rows.one(db, f"select id from outbox where {where} limit 1", (channel, text))
        if found is not None:
            # An expired interim line is not worth showing.
            db.execute(
                "update outbox set interim = null, interim_until = null where id = ? and interim_until <= ?",
                (found["id"], text),
            )
            row = by_id(db, found["id"])
            assert row is not None
            return Update(row, _contents(db, row))
    return None


def shown(db: Database, id: int, version: int, interim: str | None = None) -> None:
    """Record that Slack shows this version of a row. After an `interim` line, the row is redrawn when that expires."""
    if interim is not None:
        db.execute(
            "update outbox set not_before = interim_until, interim = null, interim_until = null, last_error = null"
            " where id = ? and version = ? and interim = ?",
            (id, version, interim),
        )
        return
    db.execute(
        "update outbox set shown = max(shown, ?), not_before = null, last_error = null"
        " where id = ? and interim is null and state = 'posted'",
        (version, id),
    )


def show_again(db: Database, id: int, version: int, not_before: datetime) -> None:
    """Show this version of a row again at `not_before` or later, because Slack may not keep it. A newer version is
    not delayed."""
    db.execute(
        "update outbox set shown = 0, not_before = ?"
        " where id = ? and version = ? and interim is null and state = 'posted'",
        (clock.to_text(not_before), id, version),
    )


def deleted(db: Database, id: int, version: int) -> bool:
    """Handle a message deleted in Slack: an open card is posted again (True), anything else is finished (False)."""
    row = by_id(db, id)
    if row is not None and row.open and repost(db, id):
        return True
    db.execute("update outbox set interim = null, interim_until = null where id = ?", (id,))
    shown(db, id, version)
    return False


def repost(db: Database, id: int) -> bool:
    """Queue a posted message again as a new one. Returns False if it was not posted."""
    return rows.changed(
        db,
        "update outbox set state = 'queued', client_id = ?, ts = null, posted_at = null, shown = 0, attempts = 0,"
        " first_at = null, asked_at = null, not_before = null, interim = null, interim_until = null"
        " where id = ? and state = 'posted' and kind = 'message'",
        (str(uuid4()), id),
    )


def unthread(db: Database, id: int, error: str) -> bool:
    """Handle a row whose thread Slack does not know. The thread's first message is posted again. The row goes to the
    channel itself if that message is not ours, is in another channel, or was posted again in vain. Returns False if the
    row has no thread."""
    row = by_id(db, id)
    if row is None or row.thread is None:
        return False
    root = None if is_ts(row.thread) else by_key(db, row.thread)
    if root is None or root.channel != row.channel or row.attempts >= _THREADINGS or not repost(db, root.id):
        db.execute("update outbox set thread = null where id = ?", (id,))
    retry(db, id, None, error, uncertain=False)
    return True


def _contents(db: Database, row: Row) -> tuple[Content, ...]:
    merged = rows.column(db, "select content from outbox where merged_into = ? order by id", (row.id,))
    return (row.content, *(json.loads(text) for text in merged))


def _thread_ts(db: Database, row: Row) -> str | None:
    if row.thread is None or is_ts(row.thread):
        return row.thread
    root = rows.one(db, "select ts from outbox where key = ?", (row.thread,))
    return None if root is None else root["ts"]


@frozen
class Question:
    """A question: the next reply of user `asked_of` in the thread is the text of `decision` on the card `card_id`."""

    channel: str
    thread: str
    card_id: str
    decision: str
    asked_of: str
    at: datetime


_QUESTIONS = Table("slack_question", Question)


def ask(db: Database, question: Question) -> None:
    """Store a question. It replaces an earlier one in the same thread."""
    newer = ", ".join(f"{name} = excluded.{name}" for name in ("card_id", "decision", "asked_of", "at"))
    _QUESTIONS.insert(db, question, conflict=f"(channel, thread) do update set {newer}")


def peek(db: Database, channel: str, thread: str) -> Question | None:
    """Return the open question of a thread, or None."""
    return _QUESTIONS.first(db, "channel = ? and thread = ?", (channel, thread))


def forget(db: Database, channel: str, thread: str) -> bool:
    """Delete the question of a thread. Returns False if there is none."""
    return rows.changed(db, "delete from slack_question where channel = ? and thread = ?", (channel, thread))


def measure(content: Content) -> tuple[int, int]:
    """Return the characters and lines of a message's text, or of its blocks if they are longer."""
    blocks = [text for block in content.get("blocks") or () for text in _texts(block)]
    told = max(str(content.get("text", "")), "\n".join(blocks), key=len)
    return len(told), told.count("\n") + 1


def _texts(block: Any) -> list[str]:
    if not isinstance(block, dict):
        return []
    text = block.get("text")
    parts = [text] if isinstance(text, dict) else []
    parts += [part for part in (*block.get("fields", ()), *block.get("elements", ())) if isinstance(part, dict)]
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]
