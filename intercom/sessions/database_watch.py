"""The watch over the databases' files: every few seconds the writer looks at those of the main one, whose lock is
renewed, and the file of checkpoints' contents is looked at."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from actors import Actor, Name, NotRunning
from intercom.store.messages import Inspect

log = logging.getLogger("intercom.store")

#: Seconds between two looks.
WATCH_SECONDS = 2.0


class DatabaseWatch(Actor):
    """Registered as `database-watch`. `renew_lock` makes a removed lock file again; `disturbed` says what became of the
    contents' file, which `tell` tells people. Both look in a thread."""

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
            pass  # it restarts, and opens the files anew then
        if self._renew_lock is not None:
            try:
                await trio.to_thread.run_sync(self._renew_lock)
            except OSError as failed:
                log.warning("the database's lock could not be renewed: %s", failed)
        found = await trio.to_thread.run_sync(self._disturbed)
        if found is not None:
            self._tell(found)
        self.set_timer("look", WATCH_SECONDS, "look")
