"""Sending of one row to Slack: it is posted, found if it may be posted already, or updated. No state and no retries."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from attrs import Factory, frozen

from actors import Name, ask
from intercom.model.outbox import Content, RowKind
from intercom.operators.slack.errors import SlackError, SlackRefused, Unreachable
from intercom.operators.slack.finding import Sent, find
from intercom.operators.slack.merging import merged
from intercom.operators.slack.refusals import Remedy, remedy
from intercom.operators.slack.uploading import share
from intercom.operators.slack.wire import Web, message
from intercom.store import postings
from intercom.store.messages import Database, Transact
from intercom.store.postings import Begun, Update

R = TypeVar("R")

#: How long the store may take, in seconds.
STORE_SECONDS = 30.0


@frozen
class Means:
    """The dependencies. `processing` draws a message with a line in place of its buttons; `dice` randomizes retries."""

    store: Name
    web: Web
    now: Callable[[], datetime]
    processing: Callable[[Content, str], Content]
    dice: random.Random = Factory(random.Random)

    async def transact(self, work: Callable[[Database], R]) -> R:
        """Run `work` in one transaction, which is durable when this returns."""
        return await ask(self.store, Transact(work), timeout=STORE_SECONDS, retry=True)


class StillOut(SlackError):
    """An earlier attempt has no result yet, and may still be carried out."""

    def __init__(self) -> None:
        super().__init__("slack did not answer, and may still post it; it is looked for again")


async def post(means: Means, begun: Begun) -> Sent:
    """Post a begun row, or find it, perhaps with an older version.

    Content that Slack rejects is posted as plain text. Raises StillOut if an earlier attempt may still be carried out
    and is not found. Other failures raise another SlackError; with Unreachable, `maybe_done` says whether the row may
    be posted now.
    """
    row = begun.row
    if row.kind is RowKind.FILE:

        async def keep(file_id: str | None) -> None:
            await means.transact(partial(postings.uploading, id=row.id, file_id=file_id))

        return Sent(await share(means.web, row, begun.thread_ts, keep), row.version)
    if begun.seek:
        found = await find(means.web, row, begun.thread_ts)
        if found is not None:
            return found
        if begun.may_come:
            raise StillOut
    content = merged(begun.contents)
    broadcast = True if content.get("reply_broadcast") and begun.thread_ts is not None else None
    call = partial(means.web.call, "chat.postMessage", thread_ts=begun.thread_ts, reply_broadcast=broadcast)
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


async def update(means: Means, wanted: Update) -> None:
    """Update a message from its row. Content that Slack rejects is shown as plain text. Raises SlackError."""
    row = wanted.row
    content = merged(wanted.contents)
    if row.interim is not None:
        content = means.processing(content, row.interim)
    call = partial(means.web.call, "chat.update", ts=row.ts)
    try:
        await call(**message(row, content))
    except SlackRefused as refused:
        if remedy(refused.error, updating=True) is not Remedy.REDRAW or not content.get("blocks"):
            raise
        await call(**message(row, content, plain=True))
