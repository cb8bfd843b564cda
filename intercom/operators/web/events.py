"""The events of the page, as a stream that a browser resumes where it ended (server-sent events).

The newest events are kept once for all readers. A reader is only a place in them, so a slow one takes no memory. If
events behind its place are gone, it is cut off, and begins again with all open cards.

A card is kept once, in its newest state: that is what a reader who missed the earlier ones has to know.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable

import trio
from attrs import define, field, frozen

from intercom.model.card import Card, Notice
from intercom.model.json_types import JsonObject
from intercom.operators.commands.json_forms import watch_entry

#: How many events are kept, and how many bytes they may have together.
KEPT = 2000
KEPT_BYTES = 32 * 2**20
#: How often a quiet stream sends a comment, in seconds: it shows both sides that the other is there.
COMMENT_SECONDS = 15.0
#: How much is sent at once, in bytes.
_PART = 64 * 1024
_COMMENT = b": \n\n"
_ID = re.compile(r"([0-9a-f]{32})-([0-9]{1,15})")


def line(name: str, data: JsonObject, id: str | None = None) -> bytes:
    """Return one event as it is sent."""
    head = "" if id is None else f"id: {id}\n"
    # ASCII, and JSON has no line break outside of its strings.
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'), default=str)}\n\n".encode("ascii")


@frozen
class NumberedEvent:
    number: int
    line: bytes


@define(eq=False)
class EventLog:
    """The newest events of one run of the listener, numbered from 1. `epoch` names the run: the numbers of another one
    mean nothing here."""

    most: int = KEPT
    most_bytes: int = KEPT_BYTES
    epoch: str = field(factory=lambda: uuid.uuid4().hex)
    last: int = field(init=False, default=0)
    _kept: OrderedDict[str, NumberedEvent] = field(init=False, factory=OrderedDict)
    _bytes: int = field(init=False, default=0)
    #: The newest event that is gone without a later one about the same card.
    _gone: int = field(init=False, default=0)
    _news: trio.Event = field(init=False, factory=trio.Event)

    def publish(self, shown: Card | Notice) -> None:
        """Add an event, and wake the readers. Never waits."""
        self.last += 1
        event = NumberedEvent(self.last, line(*watch_entry(shown), id=self.id_of(self.last)))
        name = f"card {shown.id}" if isinstance(shown, Card) else f"notice {self.last}"
        if (earlier := self._kept.pop(name, None)) is not None:
            self._bytes -= len(earlier.line)
        self._kept[name] = event
        self._bytes += len(event.line)
        while len(self._kept) > self.most or (self._bytes > self.most_bytes and len(self._kept) > 1):
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.line)
            self._gone = oldest.number
        self.wake()

    def id_of(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def place_of(self, last_event_id: str | None) -> int | None:
        """Return the number of the event that a reader had last; None if it cannot resume there."""
        found = _ID.fullmatch(last_event_id or "")
        if found is None or found[1] != self.epoch:
            return None
        number = int(found[2])
        return number if self._gone <= number <= self.last else None

    def since(self, number: int) -> list[NumberedEvent] | None:
        """Return what came after this event, oldest first; None if some of it is gone."""
        if number < self._gone:
            return None
        found: list[NumberedEvent] = []
        for event in reversed(self._kept.values()):
            if event.number <= number:
                break
            found.append(event)
        return found[::-1]

    async def wait(self, number: int) -> None:
        """Wait until there is an event after this one, or until `wake`."""
        if self.last <= number:
            await self._news.wait()

    def wake(self) -> None:
        """Let all readers look again whether they may read on."""
        news, self._news = self._news, trio.Event()
        news.set()


async def stream(
    log: EventLog,
    open_cards: Callable[[], Iterable[Card]],
    last_event_id: str | None,
    send: Callable[[bytes], Awaitable[None]],
    is_signed_in: Callable[[], bool],
) -> None:
    """Send events, until the reader has fallen behind, or is no longer signed in. Both is checked before each part.

    It begins with what came after `last_event_id`, or with `reset` and all open cards. Then comes `ready`. Those cards
    have no id: a reader that loses its connection among them starts over.
    """
    place = log.place_of(last_event_id)
    if place is None:
        # Between these two lines nothing may wait: no event may be missed, or come before its card.
        place, cards = log.last, tuple(open_cards())
        parts = [line("reset", {})]
        for card in cards:
            if sum(map(len, parts)) > _PART:
                await send(b"".join(parts))
                parts = []
            parts.append(line(*watch_entry(card)))
        await send(b"".join(parts))
    else:
        place = await _send_since(log, place, send, is_signed_in)
        if place is None:
            return
    await send(line("ready", {}, id=log.id_of(place)))
    while is_signed_in():
        with trio.move_on_after(COMMENT_SECONDS) as quiet:
            await log.wait(place)
        if quiet.cancelled_caught:
            await send(_COMMENT)
            continue
        place = await _send_since(log, place, send, is_signed_in)
        if place is None:
            return


async def _send_since(
    log: EventLog, place: int, send: Callable[[bytes], Awaitable[None]], is_signed_in: Callable[[], bool]
) -> int | None:
    """Send what came after this event. Return the number of the last event; None if the stream must end."""
    while events := log.since(place):
        if not is_signed_in():
            return None
        part = b""
        for event in events:
            part += event.line
            place = event.number
            if len(part) > _PART:
                break
        await send(part)
    return None if events is None else place
