"""Teams at work in one room: writers and waiters, a ledger of what they were told, and the judge who compares it."""

from __future__ import annotations

import itertools
import random
import uuid
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import trio
from attrs import define, field

from tests.rooms.node import Caller, Connect, Node, Refused, at
from tests.support.http_responses import Broken

#: What a caller may meet where nodes are killed: no node, a connection that breaks, and a node without its database.
_GONE = (OSError, Broken)
_UNAVAILABLE = 503
#: The time limit of a wait that a waiter asks for, in seconds.
POLL_SECONDS = 20.0
#: The pause before a call is repeated at another node, in seconds.
AGAIN_SECONDS = 0.05


@define(eq=False)
class Ledger:
    """What teams were told. Every text is posted once, so it identifies its message.

    `acknowledged` has the cursors of posts by their texts, and `seen` the messages by their cursors, as the first
    waiter saw each. `delays` are seconds from a post's acknowledgement to a waiter, for each message and waiter.
    `longest_pause` is the longest time that a waiter was without a message while others posted, in seconds.
    """

    faults: list[str] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)
    acknowledged: dict[str, int] = field(factory=dict)
    acknowledged_at: dict[str, float] = field(factory=dict)
    seen: dict[int, tuple[str, str]] = field(factory=dict)
    read: Counter[str] = field(factory=Counter)
    delays: array[float] = field(factory=lambda: array("d"))
    longest_pause: float = 0.0

    def fault(self, what: str) -> None:
        if len(self.faults) < 100:
            self.faults.append(what)

    def posted(self, text: str, cursor: int) -> None:
        self.acknowledged[text] = cursor
        self.acknowledged_at[text] = trio.current_time()

    def saw(self, waiter: str, message: dict[str, Any]) -> None:
        """Note a message of a waiter's page."""
        cursor, text = message["cursor"], text_of(message)
        told = self.seen.setdefault(cursor, (message["message_id"], text))
        if told != (message["message_id"], text):
            self.fault(f"{waiter} saw {text!r} at {cursor}, and others {told[1]!r}")
        self.read[waiter] += 1
        if message["type"] == "chat":
            now = trio.current_time()
            self.delays.append(max(0.0, now - self.acknowledged_at.get(text, now)))

    def judge(self, feed: Sequence[dict[str, Any]], waiters: int) -> None:
        """Compare what teams were told with the whole feed, as it is at the end."""
        cursors = [message["cursor"] for message in feed]
        if cursors != list(range(1, len(feed) + 1)):
            self.fault(f"the feed is not numbered from 1 without gaps: {cursors[:10]}…{cursors[-10:]}")
        places: dict[str, list[int]] = {}
        for message in feed:
            if message["type"] == "chat":
                places.setdefault(text_of(message), []).append(message["cursor"])
        for text, cursor in self.acknowledged.items():
            found = places.pop(text, [])
            if found != [cursor]:
                self.counts["posts lost" if not found else "posts doubled or moved"] += 1
                self.fault(f"{text!r} was acknowledged as {cursor}, and the feed has it at {found}")
        self.counts["messages that nobody posted"] = len(places)
        for text, found in places.items():
            self.fault(f"the feed has {text!r} at {found}, and no post of it was acknowledged")
        for message in feed:
            told = (message["message_id"], text_of(message))
            if waiters and self.seen.get(message["cursor"], told) != told:
                self.fault(f"waiters saw {self.seen[message['cursor']]} at {message['cursor']}, and it is {told}")
        for waiter, count in self.read.items():
            if count != len(feed):
                self.fault(f"{waiter} saw {count} messages, and the feed has {len(feed)}")
        if len(self.read) != waiters:
            self.fault(f"{len(self.read)} waiters saw something, of {waiters}")
        self.counts["messages in the feed"] = len(feed)
        self.counts["posts acknowledged"] = len(self.acknowledged)
        self.counts["messages delivered to waiters"] = sum(self.read.values())
        self.counts["ms that a waiter was without a message, longest"] = round(1000 * self.longest_pause)
        if self.delays:
            delays = sorted(self.delays)
            for name, part in (("median", 0.5), ("p99", 0.99)):
                self.counts[f"ms from acknowledgement to a waiter, {name}"] = round(
                    1000 * delays[int(part * len(delays))]
                )
            self.counts["ms from acknowledgement to a waiter, longest"] = round(1000 * delays[-1])


def text_of(message: dict[str, Any]) -> str:
    """Return what identifies a message among others of its room."""
    return str(message["content"]["text"]) if message["type"] == "chat" else f"({message['event']})"


@define(eq=False)
class Team:
    """A team that calls any of these nodes. If it is `patient`, it repeats a call that broke at another node; otherwise
    such a call is an error."""

    ledger: Ledger
    nodes: Sequence[Node]
    name: str
    caller: Caller
    dice: random.Random
    patient: bool = False

    async def repeat(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call until it is answered. It must be safe to repeat."""
        while True:
            try:
                return await call()
            except Refused as refused:
                if not self.patient or refused.status != _UNAVAILABLE:
                    raise
                self.ledger.counts["calls refused for want of the database"] += 1
            except _GONE:
                if not self.patient:
                    raise
                self.ledger.counts["calls that broke, or found no node"] += 1
            await trio.sleep(AGAIN_SECONDS)
            others = [node for node in self.nodes if node is not self.caller.node] or list(self.nodes)
            await self.caller.move(self.dice.choice(others))

    async def write(
        self, room: str, count: int | None = None, *, over: trio.Event | None = None, pause: float = 0.0
    ) -> None:
        """Post so many messages, or until the event, each with a key of its own. Their cursors must rise.

        `pause` is the average pause between two, in seconds.
        """
        last = 0
        for number in itertools.count():
            if number == count or (over is not None and over.is_set()):
                return
            text, key = f"{self.name} {number}", uuid.uuid4().hex
            said = await self.repeat(partial(self.caller.say, room, text, key))
            self.ledger.posted(text, said["cursor"])
            if said["cursor"] <= last:
                self.ledger.fault(f"{self.name} was told {said['cursor']} after {last}")
            last = said["cursor"]
            if pause:
                await trio.sleep(2 * pause * self.dice.random())

    async def follow(self, room: str, *, sse: bool = False) -> None:
        """Wait for messages from the first one until the room is closed. Each must come once, in order."""
        cursor, closed, last = 0, False, trio.current_time()
        self.ledger.read[self.name] = 0
        while not closed:
            page = await self.repeat(partial(self.caller.wait, room, cursor, POLL_SECONDS, sse=sse))
            if page["messages"]:
                self.ledger.longest_pause = max(self.ledger.longest_pause, trio.current_time() - last)
                last = trio.current_time()
            for expected, message in enumerate(page["messages"], cursor + 1):
                if message["cursor"] != expected:
                    self.ledger.counts["messages out of order"] += 1
                    self.ledger.fault(f"{self.name} saw {message['cursor']} where {expected} comes next")
                self.ledger.saw(self.name, message)
            if page["next_cursor"] != cursor + len(page["messages"]):
                self.ledger.fault(
                    f"{self.name}: {len(page['messages'])} messages after {cursor}: {page['next_cursor']}"
                )
            cursor, closed = page["next_cursor"], page["session_closed"]
            self.ledger.counts["pages"] += 1
            self.ledger.counts["empty pages"] += not page["messages"]


async def team(
    connect: Connect, ledger: Ledger, nodes: Sequence[Node], room: str, name: str, *, patient: bool = False
) -> Team:
    """Join a room as a new team, at one of these nodes."""
    dice = random.Random(name)
    caller = connect(dice.choice(nodes))
    await caller.join(room, name)
    return Team(ledger, nodes, name, caller, dice, patient)


async def conclude(convener: Caller, room: str, summary: str = "All is done.") -> None:
    """Close a room. The convener's connection may have ended: it was idle, or its node was killed."""
    await convener.close()
    await convener.post(f"{at(room)}/conclude", summary_section=summary)
