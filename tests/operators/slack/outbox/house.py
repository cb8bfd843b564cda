"""The sender with its store and a Slack in memory, all on the test's clock."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import frozen

from actors import ChildSpec, Name, Supervisor, System, ask
from intercom.model import crash_points
from intercom.model.outbox import Content, Row, Urgency
from intercom.operators.slack.messages import OutboxHealth, OutboxStanding, Wake
from intercom.operators.slack.outbox import Sender
from intercom.operators.slack.wire import Web
from intercom.store import outbox
from intercom.store.database import Database, Opened
from intercom.store.messages import Transact
from intercom.store.writer import Writer

from .fake import EPOCH, FakeSlack

R = TypeVar("R")


def now() -> datetime:
    """The wall clock, which runs with the test's."""
    return datetime.fromtimestamp(EPOCH, UTC) + timedelta(seconds=trio.current_time())


class TaskWriter(Writer):
    run_as_task = True


def processing(content: Content, line: str) -> Content:
    return {"text": line, "blocks": []}


def text(words: str) -> Content:
    """A drawn message."""
    return {"text": words, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": words}}]}


@frozen
class House:
    system: System
    slack: Any
    channel: str = "C1"
    poll: float = 0.5

    async def transact(self, work: Callable[[Database], R]) -> R:
        return await ask(self.system.named("store"), Transact(work), retry=True)

    async def put(self, key: str, content: Content | str, **options: Any) -> None:
        """Put a row, as the channel does, and wake the sender."""
        await self.put_all([(key, content, options)])

    async def put_all(self, wishes: list[tuple[str, Content | str, dict[str, Any]]], *, wake: bool = True) -> None:
        def work(db: Database) -> None:
            for key, content, options in wishes:
                drawn = text(content) if isinstance(content, str) else content
                outbox.put(db, key, drawn, now(), **{"channel": self.channel, "urgency": Urgency.CARD, **options})

        await self.transact(work)
        if wake:
            self.wake()

    async def interim(self, key: str, line: str, seconds: float) -> None:
        await self.transact(partial(outbox.interim, key=key, line=line, until=now() + timedelta(seconds=seconds)))
        self.wake()

    async def row(self, key: str) -> Row:
        found = await self.transact(partial(outbox.by_key, key=key))
        assert found is not None
        return found

    async def health(self) -> OutboxStanding:
        return await ask(self.system.named("slack/outbox"), OutboxHealth(), retry=True)

    def wake(self) -> None:
        self.system.named("slack/outbox").tell(Wake())

    async def settled(self) -> float:
        """Wait until nothing is left to send; when that was. Raises TooSlowError after three hours."""
        with trio.fail_after(3 * 3600):
            while True:
                standing = await self.health()
                if not standing.waiting and not standing.updates:
                    break
                await trio.sleep(self.poll)
        return trio.current_time()


def _quick(opened: Opened) -> None:
    # nobody pulls the plug of these tests
    opened.db.execute("pragma synchronous = off")


@contextlib.asynccontextmanager
async def open_house(slack: Web | None = None, channel: str = "C1", poll: float = 0.5) -> AsyncIterator[House]:
    """A running sender that speaks to `slack` (else to a new FakeSlack). One that falls is started again at once."""
    web = slack or FakeSlack()
    with tempfile.TemporaryDirectory() as directory:
        children = [
            ChildSpec("store", lambda: TaskWriter(Path(directory) / "intercom.db", on_opened=_quick)),
            ChildSpec("slack/outbox", lambda: Sender(store, web, now, processing=processing, dice=random.Random(1))),
        ]
        root = ChildSpec("root", partial(Supervisor, children, max_restarts=100))
        system = System(root)
        store = Name(system, "store")
        async with system:
            yield House(system, web, channel, poll)


class Crash(Exception):
    """What a crash point raises in these tests."""


@contextlib.contextmanager
def crashing(name: str, times: int = 1) -> Any:
    """Let whoever passes the crash point fall, so many times; yields how often it was passed."""
    passed: list[str] = []

    def hook(reached: str) -> None:
        if reached == name:
            passed.append(reached)
            if len(passed) <= times:
                raise Crash(name)

    before, crash_points.hook = crash_points.hook, hook
    try:
        yield passed
    finally:
        crash_points.hook = before
