"""The watch over the database's files: every few seconds its writer looks at them, and its lock is renewed."""

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
    """Registered as `database-watch`. `renew_lock` makes a removed lock file again; it runs in a thread."""

    def __init__(self, store: Name, renew_lock: Callable[[], object] | None) -> None:
        super().__init__()
        self._store = store
        self._renew_lock = renew_lock

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
        self.set_timer("look", WATCH_SECONDS, "look")
