"""The watches of the local channel; each has its own bounded queue, so a slow reader delays no other."""

from __future__ import annotations

import trio

from intercom.model.card import Card, Notice
from intercom.operators.ctl.entries import card_entry, notice_entry
from intercom.operators.ctl.wire import event

#: How many lines may wait for one watcher before it is dropped.
QUEUE = 256

#: A diff longer than this many characters is omitted from a watch line; `show` has it.
WATCHED_DIFF = 128 * 1024

#: The last line for a watcher that could not keep up.
DROPPED = event("dropped", {"text": "this watch fell too far behind and was ended; start it again", "level": "warning"})


class Watcher:
    """One watch. `dropped` is true if it ended because its queue was full."""

    def __init__(self, capacity: int) -> None:
        self.dropped = False
        self._send: trio.MemorySendChannel[bytes]
        self.lines: trio.MemoryReceiveChannel[bytes]
        self._send, self.lines = trio.open_memory_channel[bytes](capacity)

    def offer(self, line: bytes) -> bool:
        """Queue a line. If the queue is full, return False and end the watch after the lines queued so far."""
        try:
            self._send.send_nowait(line)
        except (trio.WouldBlock, trio.BrokenResourceError):
            self.dropped = True
            self._send.close()
            return False
        return True

    def close(self) -> None:
        self._send.close()
        self.lines.close()


class Watchers:
    """All watches of the local channel; `capacity` bounds the queue of each."""

    def __init__(self, capacity: int = QUEUE) -> None:
        self._capacity = capacity
        self._all: set[Watcher] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Watcher:
        watcher = Watcher(self._capacity)
        self._all.add(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        self._all.discard(watcher)
        watcher.close()

    def publish(self, shown: Card | Notice) -> None:
        """Queue the line of a card or notice for every watcher. Never waits."""
        if not self._all:
            return
        line = line_of(shown)
        for watcher in [each for each in self._all if not each.offer(line)]:
            self._all.discard(watcher)


def line_of(shown: Card | Notice) -> bytes:
    """Return the watch line of a card or notice."""
    if isinstance(shown, Notice):
        return event("notice", notice_entry(shown))
    return event("card", card_entry(shown, diff=len(shown.diff or "") <= WATCHED_DIFF))
