"""The watch over the database files, every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from actors import Actor, Name, NotRunning
from intercom.store.messages import Inspect

log = logging.getLogger("intercom.store")

#: Seconds between two checks.
WATCH_SECONDS = 2.0


class DatabaseWatch(Actor):
    """The actor `database-watch`. The writer checks the main database. `renew_lock` restores a removed lock file.
    `disturbed` returns what is wrong with the checkpoint contents' file, for `tell`. Both run in a thread."""

    def __init__(
        self,
        store: Name,
        renew_lock: Callable[[], object] | None,
        disturbed: Callable[[], str | None],
        tell: Callable[[str], object],
    ) -> None:
        super().__init__()
        self._store = store
        self._renew_lock = renew_lock
        self._disturbed = disturbed
        self._tell = tell

    def on_start(self) -> None:
        self.set_timer("look", WATCH_SECONDS, "look")

    async def on_receive(self, message: Any) -> None:
        try:
            self._store.tell(Inspect())
        except NotRunning:
            pass  # it restarts, and reopens the files
        if self._renew_lock is not None:
            try:
                await trio.to_thread.run_sync(self._renew_lock)
            except OSError as failed:
                log.warning("the database's lock could not be renewed: %s", failed)
        found = await trio.to_thread.run_sync(self._disturbed)
        if found is not None:
            self._tell(found)
        self.set_timer("look", WATCH_SECONDS, "look")
