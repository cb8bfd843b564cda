"""A gateway that runs, with a store of its own and without the rest of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import trio
from attrs import define, field

from actors import ChildSpec, Supervisor, System
from intercom.gateway.call_journal import Journal, arguments_key
from intercom.gateway.call_log import InvocationLog
from intercom.gateway.service import Gateway, lookup_in
from intercom.gateway.stored_state import StoredState
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer import Writer
from tests.gateway.programs import environ
from tests.support.database import new_database


@define
class News:
    """What the gateway tells people; `changed` is set at the next change that people or agents are told of."""

    told: list[str] = field(factory=list)
    changed: trio.Event = field(factory=trio.Event)

    def note(self, text: str = "", _level: str = "") -> None:
        self.told.append(text)
        self.changed.set()
        self.changed = trio.Event()


@asynccontextmanager
async def gateway_in(state: Path, settings: Path) -> AsyncIterator[tuple[Gateway, Store, Reader, News]]:
    """Run the gateway of the directory `settings`; `state` keeps what it remembers. Yields it, its store, a reader of
    that, and its news."""
    news = News()
    database = state / "intercom.db"
    new_database(database)
    reader = Reader(database)
    # Made when the system starts, which the gateway needs to be made.
    children: list[ChildSpec] = [ChildSpec("store", lambda: Writer(database))]
    system = System([ChildSpec("server", lambda: Supervisor(children), shutdown=None)])
    store = Store(system.named("store"))

    def now() -> datetime:
        return datetime.now(UTC)

    gateway = Gateway(
        directory=settings,
        system=system,
        log=InvocationLog(Journal(state / "calls.jsonl"), arguments_key(state / "key"), store, now=now),
        stored=StoredState(store, reader, now),
        show=lambda _card: None,
        lookup=lookup_in(environ()),
        environ=environ(),
        tell=news.note,
        now=now,
    )
    children += gateway.children()
    async with system:
        gateway.listen("a test", news.note)
        yield gateway, store, reader, news
    gateway.log.close()
    reader.close()
