"""The sender: the actor that makes Slack show what stands in the outbox, with workers for each channel.

An error in one channel or method delays no other. Each worker does its own waiting. No row is given up because of too
many failures.
"""

from __future__ import annotations

import logging
import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import trio
from attrs import field, frozen

from actors import Actor, Refused, Reply
from intercom.model import crash_points
from intercom.model.chat_status import OutboxStatus
from intercom.model.errors import IntercomError
from intercom.operators.slack.draw import blocks as draw_blocks
from intercom.operators.slack.draw.cards import processing
from intercom.operators.slack.slack_messages import OutboxHealth, SocketUp, Wake
from intercom.operators.slack.web_api import (
    Api,
    Json,
    RateLimited,
    Remedy,
    SlackApiError,
    SlackRefused,
    Unreachable,
    masked,
    remedy,
    sentence,
)
from intercom.sessions.messages import ClockChanged, Posted
from intercom.store import outbox
from intercom.store.outbox import Begun, Content, Row, RowKind, RowState, Waiting
from intercom.store.store_and_reader import Store, StoreUnavailable
from intercom.store.writer_messages import Database

log = logging.getLogger(__name__)

_STORE_TROUBLE = (IntercomError, StoreUnavailable)

# --- which row is next -----------------------------------------------------------------------------------------------

#: The maximum size of a message of merged lines.
CHARS = 2_800
LINES = 20

#: How many rows are examined for lines to merge.
REACH = 500

#: After this many attempts a message that may be posted, but is not found, no longer blocks the ones behind it.
PATIENCE = 8

#: How many cards and alerts are examined to find a session whose turn it is.
FAIR_REACH = 5_000


@frozen
class Choice:
    """Post the row `id` with the lines of the rows `merge`. `group` is the session or thread whose turn it is."""

    id: int
    merge: tuple[int, ...] = ()
    group: str | None = field(default=None, eq=False)


def choose(waiting: Iterable[Waiting], now: datetime, turns: Mapping[str, int] | None = None) -> Choice | None:
    """Choose the next row to post; None if nothing may be posted now.

    `waiting` is ordered by urgency, then age; it is read no further than needed. The most urgent row is first, and
    among equals the oldest, so cards overtake lines and each group keeps its order. Cards and alerts of several groups
    take turns, so that one agent's hundred cards do not delay another's one. `turns` has the last turn of each group,
    as an increasing number. A row that is not due is skipped; if it may be posted already, it also blocks the ones
    behind it in its group. A reply waits for its thread's root, which gets the urgency of the most urgent reply.
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
                return Choice(row.id, _sharing(row, rows, now), row.group)
            choice = Choice(row.id, (), row.group)
        elif _due(row.root_not_before, now):
            choice = Choice(row.root_id, (), row.group)
        if choice is None:
            continue
        last = 0 if row.group is None else turns.get(row.group, 0)
        if last == 0 or (row.urgency.is_line and best is None):
            return choice
        if best is None or last < best[0]:
            best, urgency = (last, choice), row.urgency
        # Each group keeps its own order.
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
    return (row.group, row.urgency)


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


#: How many groups' turns are remembered.
MOST_TURNS = 1_000


def begin_next(
    db: Database, channel: str, now: datetime, coming: frozenset[int], turns: dict[str, int] | None = None
) -> Begun | None:
    """Choose and begin the next post of a channel; None if nothing may be posted now. Slack may still act on earlier
    calls about the rows `coming`. The turn of its group is noted in `turns`."""
    choice = choose(outbox.waiting(db, channel), now, turns)
    if choice is None:
        return None
    if turns is not None and choice.group is not None:
        turns[choice.group] = max(turns.values(), default=0) + 1
        if len(turns) > MOST_TURNS:
            del turns[min(turns, key=turns.__getitem__)]
    return outbox.begin_post(db, choice.id, now, choice.merge, may_come=choice.id in coming)


# --- one row ---------------------------------------------------------------------------------------------------------

EVENT_TYPE = "intercom_message"

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


class StillOut(SlackApiError):
    """An earlier attempt has no result yet, and may still be carried out."""


async def show(web: Api, method: str, row: Row, content: Content, **params: Any) -> Json:
    """Post or update the message of a row; without its blocks if Slack rejects them. The metadata identifies the row
    and its version, so the message can be found again. Raises SlackApiError."""
    metadata = {"event_type": EVENT_TYPE, "event_payload": {"client_id": row.client_id, "version": row.version}}
    call = partial(
        web.call,
        method,
        channel=row.channel,
        text=str(content.get("text", "")),
        metadata=metadata,
        unfurl_links=False,
        unfurl_media=False,
        **params,
    )
    blocks = list(content.get("blocks") or ())
    try:
        return await call(blocks=blocks)
    except SlackRefused as refused:
        if not blocks or remedy(refused.error, updating=row.ts is not None) is not Remedy.REDRAW:
            raise
        return await call(blocks=[])


async def post(store: Store, web: Api, begun: Begun) -> Sent:
    """Post a begun row, or find it, perhaps with an older version.

    Content that Slack rejects is posted as plain text. Raises StillOut if an earlier attempt may still be carried out
    and is not found, else another SlackApiError; `maybe_done` of Unreachable says whether it may be posted now.
    """
    row = begun.row
    if row.kind is RowKind.FILE:
        return Sent(await share(store, web, row, begun.thread_ts), row.version)
    if begun.seek:
        found = await find(web, row, begun.thread_ts)
        if found is not None:
            return found
        if begun.may_come:
            raise StillOut("slack did not answer, and may still post it; it is searched for again")
    content = merged(begun.contents)
    # Of a card that an earlier version queued.
    broadcast = True if content.get("reply_broadcast") and begun.thread_ts is not None else None
    answer = await show(web, "chat.postMessage", row, content, thread_ts=begun.thread_ts, reply_broadcast=broadcast)
    ts = answer.get("ts")
    if not isinstance(ts, str):
        raise Unreachable("slack did not say where a message was posted", maybe_done=True)
    return Sent(ts, row.version)


async def find(web: Api, row: Row, thread_ts: str | None) -> Sent | None:
    """Return the message of `row`, perhaps with an older version; None if there is none. Raises as `call` does."""
    if row.first_at is None:
        return None
    method = "conversations.history" if thread_ts is None else "conversations.replies"
    oldest = f"{(row.first_at - MARGIN).timestamp():.6f}"
    call = partial(web.call, method, channel=row.channel, ts=thread_ts, oldest=oldest, limit=PAGE)
    cursor = None
    for _ in range(PAGES):
        try:
            answer = await call(cursor=cursor, include_all_metadata=True)
        except SlackRefused as refused:
            if thread_ts is not None and refused.error in {"thread_not_found", "message_not_found"}:
                return None
            raise
        for message in answer.get("messages") or ():
            metadata = message.get("metadata") or {}
            told = (metadata.get("event_payload") or {}) if metadata.get("event_type") == EVENT_TYPE else {}
            if told.get("client_id") == row.client_id:
                version = told.get("version")
                return Sent(str(message["ts"]), version if isinstance(version, int) and version <= row.version else 0)
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
        if cursor is None:
            break
    return None


async def share(store: Store, web: Api, row: Row, thread_ts: str | None) -> str | None:
    """Share the file of `row` once; return the ts of its message if Slack reports it.

    The upload's id is stored before the file is shared. A row with an id may be shared already: then Slack is asked
    first. Raises as `WebApi.call` does.
    """
    keep = partial(outbox.uploading, id=row.id)
    file_id = row.file_id
    try:
        if file_id is not None:
            file: Json = (await web.call("files.info", file=file_id)).get("file") or {}
            ts = _ts(file, row.channel)
            if ts is not None or any(row.channel in (file.get(kind) or ()) for kind in ("channels", "groups", "ims")):
                return ts
            return await _complete(web, row, file_id, thread_ts)
    except SlackRefused as refused:
        if remedy(refused.error, updating=False) is not Remedy.LATER:
            raise
        # the upload no longer exists or is broken
        await store.transact(partial(keep, file_id=None))
    file_id = await _uploaded(web, row, row.content.get("snippet_type") or None)
    await store.transact(partial(keep, file_id=file_id))
    return await _complete(web, row, file_id, thread_ts)


async def _uploaded(web: Api, row: Row, snippet_type: object) -> str:
    filename = str(row.content["filename"])
    # Masked before the upload, because Slack needs the final length first. Slack rejects an empty file.
    text = str(row.content["text"]).encode("utf-8", "replace").decode() or "\n"
    data = (await masked(text)).encode()
    ask = partial(web.call, "files.getUploadURLExternal", filename=filename, length=len(data))
    try:
        place = await ask(snippet_type=snippet_type)
    except SlackRefused as refused:
        if snippet_type is None or remedy(refused.error, updating=False) is not Remedy.REDRAW:
            raise
        return await _uploaded(web, row, None)
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
    files = [{"id": file_id, "title": title}]
    answer = await web.call("files.completeUploadExternal", files=files, channel_id=row.channel, thread_ts=thread_ts)
    shared = answer.get("files") or ()
    return _ts(shared[0], row.channel) if shared else None


def _ts(file: Json, channel: str) -> str | None:
    for shares in (file.get("shares") or {}).values():
        for share in shares.get(channel) or ():
            if isinstance(share.get("ts"), str):
                return str(share["ts"])
    return None


# --- one channel -----------------------------------------------------------------------------------------------------

#: The longest pause between two tries, in seconds, and the pause while a person has to fix something.
LONGEST_PAUSE = 60.0
MENDING_PAUSE = 60.0
#: Seconds between two posts, and for how long this pace applies, after Slack limited the rate. Measured between the
#: starts of calls, so that round trips do not slow it down; slightly over a second, because their times vary.
PACE = 1.02
PACED = 60.0

#: For this many seconds Slack may still carry out a call that it left unanswered, or that a crashed sender may have
#: begun; and the pause between two searches for the result.
SETTLING = 35.0
LOOK_AGAIN = 5.0
#: Extra seconds after that time: clocks differ slightly, and a retry too early would repeat at once, several times.
HAIR = 1.0


@frozen
class SenderDeps:
    """The dependencies of workers. `processing` draws a message with a line in place of its buttons; `dice` randomizes
    retries. `posted` is called with the rows that a worker has posted, `look` if there is something new to post, and
    `report` with each new fault."""

    store: Store
    web: Api
    now: Callable[[], datetime]
    processing: Callable[[Content, str], Content]
    dice: random.Random
    posted: Callable[[tuple[Row, ...]], None]
    look: Callable[[], None]
    report: Callable[[str], None]


class ChannelWorker:
    """One channel's posts or updates. It runs in one task at a time. `fault` says what is wrong now."""

    def __init__(self, deps: SenderDeps, channel: str) -> None:
        self.deps = deps
        self.channel = channel
        self.fault: str | None = None
        self._fails = 0
        self._paced_until = 0.0
        self._hurried: trio.Event | None = None
        #: Until when Slack may still act on each row; None until the calls of an earlier sender are known.
        self._unanswered: dict[int, float] | None = None
        #: The last turn of each session or thread, as an increasing number.
        self._turns: dict[str, int] = {}

    async def run(self) -> datetime | None:
        """Work until nothing can be done now. Return the time of the next due row, if known."""
        while True:
            try:
                if self._unanswered is None:
                    begun = await self._begun_before()
                    self._unanswered = {id: trio.current_time() + seconds for id, seconds in begun.items()}
                if not await self._next():
                    return await self.deps.store.transact(partial(outbox.next_due, now=self.deps.now()))
            except _STORE_TROUBLE as failed:
                # A row that was sent but not recorded will be found later.
                log.warning("the outbox has to wait for the store: %s", failed)
                await self._wait(self._backoff())

    def hurry(self) -> None:
        """End a pause that Slack did not impose: Slack is reachable again."""
        if self._hurried is not None:
            self._hurried.set()

    @abstractmethod
    async def _begun_before(self) -> dict[int, float]:
        """Return the rows that a crashed earlier sender may have sent, with the seconds for which Slack may still act
        on them."""

    @abstractmethod
    async def _next(self) -> bool:
        """Handle one row; return False if there is nothing to do now."""

    async def _went_well(self, began: float) -> None:
        self._fails = 0
        self.fault = None
        if trio.current_time() < self._paced_until:
            await trio.sleep_until(began + PACE)

    @abstractmethod
    async def _remedied(self, row: Row, found: Remedy, error: str) -> bool:
        """Apply a remedy that only this kind of call has; return False if it is none, or changed nothing."""

    async def _failed(self, row: Row, error: SlackApiError, *, uncertain: bool) -> None:
        """Apply the remedy of a failure, or record it and wait as long as needed."""
        deps = self.deps
        if isinstance(error, Unreachable) and error.unanswered:
            now = trio.current_time()
            known = self._unanswered or {}
            self._unanswered = {id: until for id, until in known.items() if until > now} | {row.id: now + SETTLING}
        note = partial(outbox.retry, id=row.id, error=str(error), uncertain=uncertain)
        match error:
            case RateLimited():
                await deps.store.transact(partial(note, not_before=None))
                await trio.sleep(error.retry_after)
                self._paced_until = trio.current_time() + PACED
            case SlackRefused():
                found = remedy(error.error, updating=row.ts is not None)
                if found is Remedy.MEND:
                    self._note(sentence(error.error, row.channel))
                    await deps.store.transact(partial(note, not_before=None))
                    await self._wait(MENDING_PAUSE)
                elif found is Remedy.REDRAW:
                    log.warning("slack does not accept %s in any form: %s", row.key, error)
                    deps.report(f"slack does not accept {row.key} in any form ({error.error})")
                    await deps.store.transact(partial(outbox.refused, id=row.id, error=str(error), version=row.version))
                elif not await self._remedied(row, found, str(error)):
                    self._note(sentence(error.error, row.channel))
                    await deps.store.transact(partial(note, not_before=deps.now() + timedelta(seconds=MENDING_PAUSE)))
            case _:
                pause = self._backoff()
                self._note(f"{error}; it is tried again until it works")
                await deps.store.transact(partial(note, not_before=self._put_off(row, error, pause)))
                await self._wait(pause)

    def _put_off(self, row: Row, error: SlackApiError, pause: float) -> datetime | None:
        """Return until when the row is skipped. If Slack fails on this row, others must get a turn."""
        if isinstance(error, Unreachable) and not error.maybe_done:
            return None
        tries = max(row.attempts, self._fails)
        seconds = pause if tries <= 2 else 2 * pause if tries <= PATIENCE else LONGEST_PAUSE
        return self.deps.now() + timedelta(seconds=seconds)

    def _backoff(self) -> float:
        self._fails += 1
        return min(LONGEST_PAUSE, 2.0 ** min(self._fails - 1, 10)) * self.deps.dice.uniform(0.5, 1.0)

    async def _wait(self, seconds: float) -> None:
        self._hurried = trio.Event()
        with trio.move_on_after(seconds):
            await self._hurried.wait()
        self._hurried = None

    def _unsettled(self, id: int) -> float:
        """Return for how many seconds Slack may still carry out an unanswered call about this row."""
        return max(0.0, (self._unanswered or {}).get(id, 0.0) - trio.current_time())

    def _note(self, fault: str) -> None:
        if fault != self.fault:
            log.warning("%s", fault)
        self.fault = fault
        self.deps.report(fault)


class PostWorker(ChannelWorker):
    """A channel's posts."""

    async def _begun_before(self) -> dict[int, float]:
        posting = await self.deps.store.transact(partial(outbox.posting, channel=self.channel))
        now = self.deps.now()
        ages = {id: 0.0 if asked is None else (now - asked).total_seconds() for id, asked in posting.items()}
        # The clock may have been set since.
        return {id: min(SETTLING, max(0.0, SETTLING - age)) for id, age in ages.items()}

    async def _next(self) -> bool:
        deps = self.deps
        coming = frozenset(id for id in self._unanswered or () if self._unsettled(id) > 0)
        begin = partial(begin_next, channel=self.channel, now=deps.now(), coming=coming, turns=self._turns)
        begun = await deps.store.transact(begin)
        if begun is None:
            return False
        row = begun.row
        crash_points.reach("outbox.before_post")
        began = trio.current_time()
        try:
            sent = await post(deps.store, deps.web, begun)
        except StillOut as error:
            # Slack answers again: other rows must not wait, and this one is searched again soon.
            again = deps.now() + timedelta(seconds=min(LOOK_AGAIN, self._unsettled(row.id) + HAIR))
            retry = partial(outbox.retry, id=row.id, not_before=again, error=str(error), uncertain=True)
            await deps.store.transact(retry)
        except SlackApiError as error:
            maybe_done = isinstance(error, Unreachable) and error.maybe_done
            await self._failed(row, error, uncertain=begun.seek or maybe_done)
        else:
            crash_points.reach("outbox.after_post")
            posted = partial(outbox.posted, id=row.id, ts=sent.ts, version=sent.version, at=deps.now())
            deps.posted(await deps.store.transact(posted))
            await self._went_well(began)
        return True

    async def _remedied(self, row: Row, found: Remedy, error: str) -> bool:
        unthread = partial(outbox.unthread, id=row.id, error=error)
        return found is Remedy.RETHREAD and await self.deps.store.transact(unthread)


class UpdateWorker(ChannelWorker):
    """A channel's updates."""

    async def _begun_before(self) -> dict[int, float]:
        return dict.fromkeys(await self.deps.store.transact(partial(outbox.stale, channel=self.channel)), SETTLING)

    async def _next(self) -> bool:
        deps = self.deps
        wanted = await deps.store.transact(partial(outbox.next_update, channel=self.channel, now=deps.now()))
        if wanted is None:
            return False
        row = wanted.row
        began = trio.current_time()
        content = merged(wanted.contents)
        if row.interim is not None:
            content = deps.processing(content, row.interim)
        try:
            await show(deps.web, "chat.update", row, content, ts=row.ts)
        except SlackApiError as error:
            await self._failed(row, error, uncertain=False)
            return True
        await deps.store.transact(partial(outbox.shown, id=row.id, version=row.version, interim=row.interim))
        unsettled = self._unsettled(row.id)
        if unsettled and row.interim is None:
            # An older version that arrives late would replace it, so it is sent once more after that time.
            again = deps.now() + timedelta(seconds=unsettled + HAIR)
            await deps.store.transact(partial(outbox.show_again, id=row.id, version=row.version, not_before=again))
        await self._went_well(began)
        return True

    async def _remedied(self, row: Row, found: Remedy, error: str) -> bool:
        if found is not Remedy.GONE:
            return False
        if await self.deps.store.transact(partial(outbox.deleted, id=row.id, version=row.version)):
            self.deps.look()
        return True


# --- all channels ----------------------------------------------------------------------------------------------------

#: Seconds until the next look at a store that could not be read.
_AGAIN = 5.0


class Sender(Actor):
    """Posts and updates messages until Slack matches the outbox; registered as `slack/outbox`.

    Tell it `Wake` after an insert and `SocketUp` when Slack is back; ask it `OutboxHealth`. `now` is the wall clock.
    `processing` draws a message with a line in place of its buttons. No state is lost in a crash: at its start it
    searches Slack for what may have been posted. It tells the session `Posted` about each posted notice.
    """

    mailbox_size = 10_000
    overflow = "drop_oldest"
    refusals = (Refused, IntercomError)

    def __init__(
        self,
        store: Store,
        web: Api,
        now: Callable[[], datetime],
        *,
        processing: Callable[[Content, str], Content] = processing,
        dice: random.Random | None = None,
    ) -> None:
        super().__init__()
        dice = dice or random.Random()
        self._deps = SenderDeps(store, web, now, processing, dice, self._posted, self._look_soon, self._note)
        self._workers: dict[tuple[str, type[ChannelWorker]], ChannelWorker] = {}
        self._running: set[ChannelWorker] = set()
        self._woken: set[ChannelWorker] = set()
        self._last_fault: str | None = None
        self._looking = False
        self._look_again = False
        self._due: datetime | None = None

    def on_start(self) -> None:
        self._look_soon()

    def on_receive(self, message: object) -> None:
        match message:
            case Wake():
                self._look_soon()
            case ClockChanged():
                self._due = None
                self._look_soon()
            case SocketUp():
                for worker in self._running:
                    worker.hurry()
            case OutboxHealth():
                # In a task: the mailbox must not wait while the store is down.
                self.spawn(self._health, self.defer())

    def _look_soon(self) -> None:
        self._look_again = True
        if not self._looking:
            self._looking = True
            self.spawn(self._look)

    async def _look(self) -> None:
        """Start the workers of each channel with something to do."""
        while self._look_again:
            self._look_again = False
            try:
                channels, due = await self._deps.store.transact(partial(_waiting_and_due, now=self._deps.now()))
            except _STORE_TROUBLE as failed:
                log.warning("the outbox cannot be read: %s", failed)
                await trio.sleep(_AGAIN)
                self._look_again = True
                continue
            for channel in channels:
                for kind in (PostWorker, UpdateWorker):
                    self._start(channel, kind)
            self._wake_at(due)
        self._looking = False

    def _start(self, channel: str, kind: type[ChannelWorker]) -> None:
        worker = self._workers.get((channel, kind))
        if worker is None:
            worker = self._workers[channel, kind] = kind(self._deps, channel)
        if worker in self._running:
            self._woken.add(worker)  # It may have read the store before the new row was there.
        else:
            self._running.add(worker)
            self.spawn(self._run, worker)

    async def _run(self, worker: ChannelWorker) -> None:
        while True:
            self._woken.discard(worker)
            self._wake_at(await worker.run())
            if worker not in self._woken:
                break
        self._running.discard(worker)

    def _wake_at(self, due: datetime | None) -> None:
        now = self._deps.now()
        if due is not None and (self._due is None or self._due <= now or due < self._due):
            self._due = due
            self.set_timer("due", max(0.0, (due - now).total_seconds()), Wake())

    def _posted(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.key.startswith("notice/") and row.session_id is not None and row.ts is not None:
                self.system.named(f"session/{row.session_id}").tell(Posted(row.key, row.ts))
            if row.shown < row.version:
                # changed, or given an interim line, while it was posted
                self._start(row.channel, UpdateWorker)

    def _note(self, fault: str) -> None:
        self._last_fault = fault

    async def _health(self, reply: Reply[OutboxStatus]) -> None:
        try:
            counts = await self._deps.store.transact(outbox.counts)
        except _STORE_TROUBLE as failed:
            reply.fail(failed)
            return
        workers = self._workers.values()
        reply.set(
            OutboxStatus(
                waiting={urgency.name.lower(): number for urgency, number in counts.posts.items()},
                updates=counts.updates,
                oldest=counts.oldest,
                faults={each.channel: each.fault for each in workers if each.fault is not None},
                last_error=self._last_fault,
            )
        )


def _waiting_and_due(db: Database, now: datetime) -> tuple[tuple[str, ...], datetime | None]:
    return outbox.channels_waiting(db), outbox.next_due(db, now)
