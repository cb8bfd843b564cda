"""Acts over a real store and a stand-in desk, in virtual time, with a Web API that remembers what it was asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
import trio.testing
from attrs import field, frozen

from actors import Actor, ChildSpec, System, ask
from intercom.model.card import Card, CardKind, CardState
from intercom.model.outbox import Row, Urgency
from intercom.model.verdict import Decision
from intercom.operators.slack.acts import Acts
from intercom.operators.slack.envelopes import Command
from intercom.operators.slack.means import Means
from intercom.operators.slack.messages import Redraw, Wake
from intercom.operators.slack.people import People
from intercom.operators.slack.security import Gate
from intercom.operators.slack.whispers import Whispers
from intercom.store import outbox, postings
from intercom.store.messages import Database, Transact
from intercom.store.writer import Writer
from tests.operators.desk import START, StandInDesk, card
from tests.operators.slack.acts.payloads import ANNA, BERT, CHANNEL, MESSAGE, ROOT, TEAM

T = TypeVar("T")

CARD = "3f0c6f5e-7a9b-4a53-9a51-0d0a2f9c1b11"
OTHER = "3f0c7777-7a9b-4a53-9a51-0d0a2f9c1b11"


class TaskWriter(Writer):
    """On the loop, so that time can be virtual."""

    run_as_task = True


class Heard(Actor):
    """Keeps what it is told."""

    def __init__(self, kept: list[Any]) -> None:
        super().__init__()
        self._kept = kept

    def on_receive(self, message: Any) -> None:
        self._kept.append(message)


class Web:
    """Remembers the calls; `faults` are raised by the next calls of a method, one each, and `slow` is how long calls of
    a method take, in seconds."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.faults: dict[str, list[Exception]] = {}
        self.slow: dict[str, float] = {}
        self.names = {ANNA: "anna", BERT: "bert"}

    async def call(self, method: str, *, app: bool = False, timeout: float = 10.0, **params: Any) -> dict[str, Any]:
        self.calls.append((method, params))
        await trio.sleep(self.slow.get(method, 0))
        if self.faults.get(method):
            raise self.faults[method].pop(0)
        if method == "users.info":
            return {"ok": True, "user": {"id": params["user"], "name": self.names[params["user"]]}}
        return {"ok": True}

    def made(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.calls if name == method]


class Forms:
    """Forms as plain as can be."""

    def form(self, name: str, card: Card, metadata: str) -> dict[str, Any]:
        return {"callback_id": f"intercom_{name}", "private_metadata": metadata, "initial": card.body}

    def notice(self, title: str, text: str) -> dict[str, Any]:
        return {"title": title, "text": text}


class Commands:
    def __init__(self) -> None:
        self.ran: list[Command] = []

    async def run(self, command: Command) -> dict[str, Any] | None:
        self.ran.append(command)
        return {"text": f"ran {command.text}"}


class Desk(StandInDesk):
    """A stand-in that can also be slow or down. `verdicts` are those it was given, by id."""

    def __init__(self, *cards: Card) -> None:
        super().__init__(*cards)
        self.verdicts: list[str] = []
        self.slow = 0.0
        self.down: list[Exception] = []
        self.deaf: Exception | None = None

    async def decide(self, prefix: str, verdict: Any) -> Card:
        await trio.sleep(self.slow)
        if self.down:
            raise self.down.pop(0)
        nudged = self.cards.get(prefix)
        if nudged is not None and nudged.kind is CardKind.STALL and verdict.decision is Decision.NUDGE:
            # An alert stays open when its agent is nudged; the same nudge is no second one.
            if verdict.id not in self.verdicts:
                self.verdicts.append(verdict.id)
                self.acts.append(("decide", prefix, verdict.decision.value, verdict.text, verdict.by, verdict.channel))
            return nudged
        decided = await super().decide(prefix, verdict)
        self.verdicts.append(verdict.id)
        return decided

    async def security_event(self, summary: str, data: dict[str, Any]) -> None:
        if self.deaf is not None:
            raise self.deaf
        await super().security_event(summary, data)


@frozen
class House:
    system: System
    desk: Desk
    web: Web
    commands: Commands
    acts: Acts
    woken: list[Any] = field(factory=list)
    redrawn: list[Any] = field(factory=list)

    async def tap(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        return await self.acts.handle("interactive", payload)

    async def say(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        return await self.acts.handle("events_api", payload)

    def again(self) -> Acts:
        """The acts of a server that was started anew: what was only in memory is gone."""
        return Acts(self.acts.means, self.acts.gate, self.acts.commands)

    def without_store(self) -> Acts:
        """The acts of a server whose store is down for longer than anybody waits."""
        means = attrs.evolve(self.acts.means, store=self.system.named("nobody"))
        return Acts(means, self.acts.gate, self.acts.commands)

    async def store(self, work: Callable[[Database], T]) -> T:
        return await ask(self.system.named("store"), Transact(work), timeout=5)

    async def row(self, key: str) -> Row | None:
        return await self.store(partial(outbox.by_key, key=key))

    async def put_card(self, card: Card) -> None:
        """The card's message, posted in its session's thread as `slack/channel` and the sender would have it."""
        thread = f"thread/{card.session_id}" if card.session_id else None
        await self.store(partial(_put, key=f"card/{card.id}", thread=thread, session_id=card.session_id or None))

    @property
    def decided(self) -> list[tuple[str, str, str | None]]:
        """What the desk was asked to decide, refused or not: card, decision, text."""
        return [(act[1], act[2], act[3]) for act in self.desk.acts if act[0] == "decide"]

    async def whispered(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        return [params["text"] for params in self.web.made("chat.postEphemeral")]

    async def answers(self) -> list[str]:
        """What was said in threads, in order."""
        sql = "select key from outbox where key like 'reply/%' or key like 'question/%' order by id"
        keys: list[str] = await self.store(lambda db: [key for (key,) in db.execute(sql).fetchall()])
        rows = [await self.row(key) for key in keys]
        return [row.content["text"] for row in rows if row is not None]

    async def redraws(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        return [each.card_id for each in self.redrawn if isinstance(each, Redraw)]

    async def wakes(self) -> int:
        await trio.testing.wait_all_tasks_blocked()
        return sum(isinstance(each, Wake) for each in self.woken)


def _put(db: Database, key: str, thread: str | None, session_id: str | None) -> None:
    content = {"text": "a card", "blocks": []}
    if thread is not None and outbox.by_key(db, thread) is None:
        _post(db, thread, content, None, session_id, ROOT, open=False)
    _post(db, key, content, thread, session_id, MESSAGE, open=True)


def _post(
    db: Database,
    key: str,
    content: dict[str, Any],
    thread: str | None,
    session_id: str | None,
    ts: str,
    *,
    open: bool,
) -> None:
    put = outbox.put(
        db,
        key,
        content,
        START,
        channel=CHANNEL,
        urgency=Urgency.CARD,
        session_id=session_id,
        thread=thread,
        open=open,
    )
    postings.begin_post(db, put.id, START)
    postings.posted(db, put.id, ts, 1, START)


@contextlib.asynccontextmanager
async def open_house(directory: Path, *cards: Card, team: str = TEAM) -> AsyncIterator[House]:
    """Acts of Anna and Bert on these cards, whose messages are in the channel."""
    desk, web, commands = Desk(*cards), Web(), Commands()
    woken: list[Any] = []
    redrawn: list[Any] = []

    def now() -> Any:
        return START + timedelta(seconds=trio.current_time() - began)

    began = trio.current_time()
    children = [
        ChildSpec("store", lambda: TaskWriter(directory / "intercom.db")),
        ChildSpec("slack/outbox", lambda: Heard(woken)),
        ChildSpec("slack/channel", lambda: Heard(redrawn)),
        ChildSpec("slack/whispers", lambda: Whispers(web, now)),
    ]
    async with System(children) as system:
        means = Means(
            desk=desk,
            store=system.named("store"),
            outbox=system.named("slack/outbox"),
            channel=system.named("slack/channel"),
            whispers=system.named("slack/whispers"),
            web=web,
            people=People(web),
            forms=Forms(),
            now=now,
        )
        acts = Acts(means, Gate(desk, frozenset({ANNA, BERT}), team), commands)
        house = House(system, desk, web, commands, acts, woken, redrawn)
        for each in cards:
            await house.put_card(each)
        yield house


__all__ = ["CARD", "OTHER", "CardKind", "CardState", "House", "card", "open_house"]
