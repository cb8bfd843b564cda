"""The health page: it says whether this server works."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import trio
from attrs import define, field

from actors import Busy, Down, Info, Name, NotRunning, ask
from intercom._version import __version__
from intercom.model.errors import IntercomError
from intercom.model.page import Answer
from intercom.store.messages import Transact

#: How long the store may take to answer, in seconds: a restart of its writer takes much less.
STORE_SECONDS = 2.0
#: How long an answer is cached, in seconds. Anybody may ask, and each check costs the store an empty transaction.
GOOD_SECONDS = 1.0


@define
class Health:
    """Answers `/healthz`. `tree` returns the current actor tree, `life` identifies this server run, and `clock` is the
    wall clock in seconds."""

    tree: Callable[[], Info]
    store: Name
    life: str
    clock: Callable[[], float]
    _one: trio.Lock = field(factory=trio.Lock, init=False)
    _known: tuple[float, list[str]] = field(default=(-math.inf, []), init=False)

    async def answer(self) -> Answer:
        """Return 200 and the status, or 503 and the faults. Faults are described in general terms, because anybody may
        read them."""
        async with self._one:
            asked, faults = self._known
            if trio.current_time() - asked >= GOOD_SECONDS:
                faults = await self._faults()
                self._known = trio.current_time(), faults
        status = "failing" if faults else "ok"
        said: dict[str, Any] = {
            "status": status,
            "version": __version__,
            "life": self.life,
            "uptime_seconds": self._uptime(),
            "store": "failing" if _STORE in faults else "ok",
            "faults": faults,
        }
        return Answer(503 if faults else 200, "application/json", json.dumps(said).encode() + b"\n")

    async def _faults(self) -> list[str]:
        faults = [f"{name} is {state}" for name, state in _parts(self.tree()) if state != "running"]
        try:
            await ask(self.store, Transact(_nothing), timeout=STORE_SECONDS, retry=True)
        except (Busy, Down, IntercomError, NotRunning, trio.TooSlowError):
            faults.append(_STORE)
        return faults

    def _uptime(self) -> float:
        started = self.tree().started_at
        return 0.0 if started is None else round(max(0.0, self.clock() - started), 3)


_STORE = "the database can not be written; see the server's log, or agent-intercom doctor"


def _nothing(_db: object) -> None:
    """Change nothing. The transaction succeeds only if the writer runs and the database is open for writing."""


def _parts(root: Info) -> list[tuple[str, str]]:
    """Return the parts of the server with their state. Actors below them restart without any effect on health."""
    server = next((child for child in root.children if child.id == "server"), None)
    if server is None or server.state != "running":
        return [("the server", "starting or stopping")]
    return [(part.id, part.state) for part in server.children]
