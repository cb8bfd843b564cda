"""The channel's actor over a real store, with a stand-in desk and a router that says what the test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import define, field

from actors import Actor, ChildSpec, Supervisor, System, ask
from intercom.masking import Masker
from intercom.model.card import Card
from intercom.model.config import Config, SlackSettings
from intercom.model.outbox import Row
from intercom.model.session import Session
from intercom.operators.messages import Subscribe
from intercom.operators.slack.channel import SlackChannel
from intercom.operators.slack.drawing import Drawing
from intercom.operators.slack.web import SlackTokens, WebApi
from intercom.store import outbox, sessions
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader
from intercom.store.writer import Writer
from tests.operators.desk import START, StandInDesk

T = TypeVar("T")

CHANNEL, ELSEWHERE = "C0123456789", "C0987654321"


class Router(Actor):
    """Tells whoever subscribes of `cards`, as they were."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, Subscribe):
            self._house.subscribed += 1
            return self._house.told
        return None


@define(eq=False)
class House:
    """`told` is what the router says is open, `subscribed` how often it was asked."""

    desk: StandInDesk
    told: tuple[Card, ...] = ()
    subscribed: int = 0
    system: System = field(init=False)

    def tell(self, message: object) -> None:
        self.system.named("slack/channel").tell(message)

    async def store(self, work: Callable[[Database], T]) -> T:
        return await ask(self.system.named("store"), Transact(work), timeout=30, retry=True)

    async def row(self, key: str) -> Row:
        """The row of this key, waited for."""
        while True:
            found = await self.store(partial(outbox.by_key, key=key))
            if found is not None:
                return found
            await trio.sleep(0.005)

    async def told_line(self) -> None:
        """Wait for a line's row: what was told before it is written then too."""
        while True:
            if await self.store(lambda db: list(db.query("select id from outbox where key like 'line/%'"))):
                return
            await trio.sleep(0.005)

    async def until(self, fits: Callable[[], bool]) -> None:
        while True:
            if fits():
                return
            await trio.sleep(0.005)


@asynccontextmanager
async def open_house(root: Path, *known: Session, cards: tuple[Card, ...] = ()) -> AsyncIterator[House]:
    """The channel with its store, in which these sessions are; `cards` are those the desk knows."""
    house = House(StandInDesk(*cards, sessions=known))
    path = root / "intercom.db"
    config = Config(slack=SlackSettings(channel_id=CHANNEL))
    web = WebApi(SlackTokens("", ""))

    def channel() -> SlackChannel:
        return SlackChannel(
            config=config,
            desk=house.desk,
            reader=Reader(path),
            store=house.system.named("store"),
            outbox=house.system.named("slack/outbox"),
            web=web,
            drawing=Drawing(Masker()),
            now=lambda: START,
        )

    children = [
        ChildSpec("store", lambda: Writer(path)),
        ChildSpec("operators", lambda: Router(house)),
        ChildSpec("slack/channel", channel),
    ]
    house.system = System([ChildSpec("server", lambda: Supervisor(children), shutdown=None)])
    async with house.system:
        for each in known:
            await house.store(partial(sessions.insert, session=each))
        yield house
