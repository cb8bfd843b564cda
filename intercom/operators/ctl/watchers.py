"""Those who watch: each with a bounded queue of its own, so that one who does not read holds up nobody."""

from __future__ import annotations

import trio

from intercom.model.card import Card, Notice
from intercom.operators.ctl.entries import card_entry, notice_entry
from intercom.operators.ctl.wire import event

#: How many lines may wait for one watcher before it is dropped.
QUEUE = 256

#: A diff longer than this many characters is left out of a watch line; `show` has it.
WATCHED_DIFF = 128 * 1024

#: The last line for one who could not keep up.
DROPPED = event("dropped", {"text": "this watch fell too far behind and was ended; start it again", "level": "warning"})


class Watcher:
    """One watch. `dropped` says that it ended because it fell behind."""

    def __init__(self, capacity: int) -> None:
        self.dropped = False
        self._send: trio.MemorySendChannel[bytes]
        self.lines: trio.MemoryReceiveChannel[bytes]
        self._send, self.lines = trio.open_memory_channel[bytes](capacity)

    def offer(self, line: bytes) -> bool:
        """Queue a line; False, and the end of the watch once what is queued has been read, if the queue is full."""
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
    """All watches of the local channel. `capacity` bounds the lines that wait for each."""

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
    """The watch line of a card or notice."""
    if isinstance(shown, Notice):
        return event("notice", notice_entry(shown))
    return event("card", card_entry(shown, diff=len(shown.diff or "") <= WATCHED_DIFF))
