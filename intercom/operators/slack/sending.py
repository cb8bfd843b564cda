"""Sends one row of the outbox: a message is posted, found or updated, a file is uploaded."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from attrs import Factory, field, frozen

from intercom.model.outbox import Content, Row, RowKind, RowState, Waiting
from intercom.operators.slack.draw import blocks as draw_blocks
from intercom.operators.slack.web_api import Api, Json, Remedy, SlackApiError, SlackRefused, Unreachable, masked, remedy
from intercom.store import outbox
from intercom.store.client import Store
from intercom.store.outbox import Begun, Update

EVENT_TYPE = "intercom_message"


def message(row: Row, content: Content, *, plain: bool = False) -> Json:
    """Return the arguments for a message that shows `content`; with `plain`, without its blocks. The metadata
    identifies the row and its version, so the message can be found again."""
    return {
        "channel": row.channel,
        "text": str(content.get("text", "")),
        "blocks": [] if plain else list(content.get("blocks") or ()),
        "metadata": {"event_type": EVENT_TYPE, "event_payload": {"client_id": row.client_id, "version": row.version}},
        "unfurl_links": False,
        "unfurl_media": False,
    }


Keep = Callable[[str | None], Awaitable[object]]


async def share(web: Api, row: Row, thread_ts: str | None, keep: Keep) -> str | None:
    """Share the file of `row` once; return the ts of its message if Slack reports it.

    The upload's id is passed to `keep` before the file is shared. A row with an id may be shared already: then Slack is
    asked first. Raises as `WebApi.call` does.
    """
    if row.file_id is not None:
        try:
            shared, ts = await _shared(web, row, row.file_id)
            if shared:
                return ts
            return await _complete(web, row, row.file_id, thread_ts)
        except SlackRefused as refused:
            if remedy(refused.error, updating=False) is not Remedy.LATER:
                raise
            # the upload no longer exists or is broken
            await keep(None)
    file_id = await _uploaded(web, row, typed=True)
    await keep(file_id)
    return await _complete(web, row, file_id, thread_ts)


async def _uploaded(web: Api, row: Row, *, typed: bool) -> str:
    content = row.content
    filename = str(content["filename"])
    # Slack rejects an empty file
    data = str(content["text"]).encode("utf-8", "replace") or b"\n"
    # Masked before the upload, because Slack needs the final length first.
    data = (await masked(data.decode())).encode()
    snippet_type = content.get("snippet_type") if typed else None
    try:
        place = await web.call(
            "files.getUploadURLExternal", filename=filename, length=len(data), snippet_type=snippet_type
        )
    except SlackRefused as refused:
        if snippet_type is None or remedy(refused.error, updating=False) is not Remedy.REDRAW:
            raise
        return await _uploaded(web, row, typed=False)
    url, file_id = place.get("upload_url"), place.get("file_id")
    if not isinstance(url, str) or not isinstance(file_id, str):
        raise Unreachable("slack gave no place to upload a file to", maybe_done=False)
    try:
        await web.upload(url, data, filename)
    except Unreachable as lost:
        # an upload that is not shared is visible to nobody
        raise Unreachable(str(lost), maybe_done=False) from lost
    return file_id


async def _complete(web: Api, row: Row, file_id: str, thread_ts: str | None) -> str | None:
    title = str(row.content.get("title") or row.content.get("filename") or "")
    answer = await web.call(
        "files.completeUploadExternal",
        files=[{"id": file_id, "title": title}],
        channel_id=row.channel,
        thread_ts=thread_ts,
    )
    files = answer.get("files") or ()
    return _ts(files[0], row.channel) if files else None


async def _shared(web: Api, row: Row, file_id: str) -> tuple[bool, str | None]:
    file: Json = (await web.call("files.info", file=file_id)).get("file") or {}
    ts = _ts(file, row.channel)
    places = [place for kind in ("channels", "groups", "ims") for place in file.get(kind) or ()]
    return ts is not None or row.channel in places, ts


def _ts(file: Json, channel: str) -> str | None:
    for shares in (file.get("shares") or {}).values():
        for share in shares.get(channel) or ():
            if isinstance(share.get("ts"), str):
                return str(share["ts"])
    return None


#: How far before the first attempt the search begins, because our clock and Slack's may differ.
MARGIN = timedelta(minutes=5)

#: Messages per page, and the maximum number of pages.
PAGE = 200
PAGES = 100


@frozen
class Sent:
    """A message in Slack. `version` is the version of its row that it shows (0: not known). `ts` is None for a file if
    Slack did not report its message."""

    ts: str | None
    version: int


async def find(web: Api, row: Row, thread_ts: str | None) -> Sent | None:
    """Return the message of `row`, perhaps with an older version; None if there is none. Raises as `call` does."""
    if row.first_at is None:
        return None
    place: Json = {"channel": row.channel}
    if thread_ts is not None:
        place["ts"] = thread_ts
    method = "conversations.history" if thread_ts is None else "conversations.replies"
    oldest = f"{(row.first_at - MARGIN).timestamp():.6f}"
    cursor = None
    for _ in range(PAGES):
        try:
            answer = await web.call(
                method, **place, oldest=oldest, limit=PAGE, include_all_metadata=True, cursor=cursor
            )
        except SlackRefused as refused:
            if thread_ts is not None and refused.error in {"thread_not_found", "message_not_found"}:
                return None
            raise
        for message in answer.get("messages") or ():
            told = _payload(message)
            if told.get("client_id") == row.client_id:
                version = told.get("version")
                return Sent(str(message["ts"]), version if isinstance(version, int) and version <= row.version else 0)
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
        if cursor is None:
            break
    return None


def _payload(message: Json) -> Json:
    metadata = message.get("metadata") or {}
    return (metadata.get("event_payload") or {}) if metadata.get("event_type") == EVENT_TYPE else {}


#: The maximum size of a message of merged lines.
CHARS = 2_800
LINES = 20

#: How many rows are examined for lines to merge.
REACH = 500

#: After this many attempts a message that may be posted, but is not found, no longer blocks the ones behind it.
PATIENCE = 8


#: How many cards and alerts are examined to find a thread whose turn it is.
FAIR_REACH = 5_000


@frozen
class Choice:
    """Post the row `id`, followed by the lines of the rows `merge`. `thread` is the thread whose turn is used."""

    id: int
    merge: tuple[int, ...] = ()
    thread: str | None = field(default=None, eq=False)


def choose(waiting: Iterable[Waiting], now: datetime, turns: Mapping[str, int] | None = None) -> Choice | None:
    """Choose the next row to post; None if nothing may be posted now.

    `waiting` is ordered by urgency, then age; it is read no further than needed. The most urgent row is first, and
    among equals the oldest, so cards overtake lines and each thread keeps its order. Cards and alerts of several
    threads take turns, so that one agent's hundred cards do not delay another's one. `turns` has the last turn of each
    thread, as an increasing number. A row that is not due is skipped; if it may be posted already, it also blocks the
    ones behind it in its thread. A reply waits for its thread's root message, which gets the urgency of the most urgent
    reply.
    """
    turns = turns or {}
    rows = iter(waiting)
    held: set[tuple[str | None, int]] = set()
    best: tuple[int, Choice] | None = None
    urgency = None
    for number, row in enumerate(rows):
        if best is not None and (row.urgency != urgency or number >= FAIR_REACH):
            break
        if _order(row) in held:
            continue
        choice = None
        if not _due(row.not_before, now):
            if row.state is RowState.POSTING and row.attempts <= PATIENCE:
                held.add(_order(row))
        elif row.root_id is None:
            if row.urgency.is_line:
                return Choice(row.id, _sharing(row, rows, now), row.thread)
            choice = Choice(row.id, (), row.thread)
        elif _due(row.root_not_before, now):
            choice = Choice(row.root_id, (), row.thread)
        if choice is None:
            continue
        last = 0 if row.thread is None else turns.get(row.thread, 0)
        if last == 0 or (row.urgency.is_line and best is None):
            return choice
        if best is None or last < best[0]:
            best, urgency = (last, choice), row.urgency
        # Each thread keeps its own order.
        held.add(_order(row))
    return None if best is None else best[1]


def _sharing(first: Waiting, behind: Iterator[Waiting], now: datetime) -> tuple[int, ...]:
    """Return the rows whose lines can share the message of the first. A row that was tried before must stay unchanged.
    A line outside a thread may become the root of one, and two sessions must not share a root."""
    if not first.urgency.is_line or first.kind is not RowKind.MESSAGE or first.attempts or first.thread is None:
        return ()
    chars, lines = first.chars, first.lines
    sharing: list[int] = []
    for _, row in zip(range(REACH), behind, strict=False):
        if row.urgency != first.urgency:
            break
        if row.thread != first.thread:
            continue
        chars, lines = chars + 1 + row.chars, lines + row.lines
        fits = chars <= CHARS and lines <= LINES
        fresh = row.kind is RowKind.MESSAGE and row.attempts == 0 and _due(row.not_before, now)
        if not (fits and fresh):
            # the rows behind it keep their place
            break
        sharing.append(row.id)
    return tuple(sharing)


def _order(row: Waiting) -> tuple[str | None, int]:
    return (row.thread, row.urgency)


def _due(not_before: datetime | None, now: datetime) -> bool:
    return not_before is None or not_before <= now


def merged(contents: Sequence[Content]) -> Content:
    """Return one content that shows all of `contents` in order; a single content is returned unchanged. What exceeds
    Slack's limit of blocks appears in the text only."""
    if len(contents) == 1:
        return contents[0]
    blocks = [block for content in contents for block in content.get("blocks") or ()]
    text = "\n".join(str(content.get("text", "")) for content in contents)
    if len(text) > draw_blocks.TEXT:
        text = text[: draw_blocks.TEXT].rpartition("\n")[0] or text[: draw_blocks.TEXT]
    return {"text": text, "blocks": blocks[: draw_blocks.BLOCKS]}


@frozen
class SenderDeps:
    """The dependencies. `processing` draws a message with a line in place of its buttons; `dice` randomizes retries."""

    store: Store
    web: Api
    now: Callable[[], datetime]
    processing: Callable[[Content, str], Content]
    dice: random.Random = Factory(random.Random)


class StillOut(SlackApiError):
    """An earlier attempt has no result yet, and may still be carried out."""

    def __init__(self) -> None:
        super().__init__("slack did not answer, and may still post it; it is looked for again")


async def post(deps: SenderDeps, begun: Begun) -> Sent:
    """Post a begun row, or find it, perhaps with an older version.

    Content that Slack rejects is posted as plain text. Raises StillOut if an earlier attempt may still be carried out
    and is not found. Other failures raise another SlackError; with Unreachable, `maybe_done` says whether the row may
    be posted now.
    """
    row = begun.row
    if row.kind is RowKind.FILE:

        async def keep(file_id: str | None) -> None:
            await deps.store.transact(partial(outbox.uploading, id=row.id, file_id=file_id))

        return Sent(await share(deps.web, row, begun.thread_ts, keep), row.version)
    if begun.seek:
        found = await find(deps.web, row, begun.thread_ts)
        if found is not None:
            return found
        if begun.may_come:
            raise StillOut
    content = merged(begun.contents)
    broadcast = True if content.get("reply_broadcast") and begun.thread_ts is not None else None
    call = partial(deps.web.call, "chat.postMessage", thread_ts=begun.thread_ts, reply_broadcast=broadcast)
    try:
        answer = await call(**message(row, content))
    except SlackRefused as refused:
        if remedy(refused.error, updating=False) is not Remedy.REDRAW or not content.get("blocks"):
            raise
        answer = await call(**message(row, content, plain=True))
    ts = answer.get("ts")
    if not isinstance(ts, str):
        raise Unreachable("slack did not say where a message was posted", maybe_done=True)
    return Sent(ts, row.version)


async def update(deps: SenderDeps, wanted: Update) -> None:
    """Update a message from its row. Content that Slack rejects is shown as plain text. Raises SlackError."""
    row = wanted.row
    content = merged(wanted.contents)
    if row.interim is not None:
        content = deps.processing(content, row.interim)
    call = partial(deps.web.call, "chat.update", ts=row.ts)
    try:
        await call(**message(row, content))
    except SlackRefused as refused:
        if remedy(refused.error, updating=True) is not Remedy.REDRAW or not content.get("blocks"):
            raise
        await call(**message(row, content, plain=True))
