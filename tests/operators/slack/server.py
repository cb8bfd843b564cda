"""Slack's part of a server for tests: its actors over a real store, with operators, router and Slack in memory.

`async with slack_server(tmp_path, card(CARD), runs=("outbox",)) as server:` runs the named actors. What others are told
is recorded. The clock is Trio's, so tests run in virtual time.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
import trio.testing
from attrs import define, field

from actors import Actor, ChildSpec, Supervisor, System, ask
from intercom.masking import Masker
from intercom.model import crash_points
from intercom.model.card import Card, CardKind
from intercom.model.chat_status import OutboxStatus
from intercom.model.config import Config, SlackSettings
from intercom.model.decision import Decision
from intercom.model.session import Session
from intercom.operators.router_messages import Subscribe
from intercom.operators.slack.button_actions import ActionDeps, People, SlackAuthorization
from intercom.operators.slack.commands import runner
from intercom.operators.slack.commands.command_call import CommandDeps
from intercom.operators.slack.commands.runner import CommandRunner
from intercom.operators.slack.draw.cards import processing as draw_processing
from intercom.operators.slack.envelope_parser import Command, Person
from intercom.operators.slack.ephemeral_sender import EphemeralSender
from intercom.operators.slack.interaction_handler import Interactions
from intercom.operators.slack.outbox_writer import Drawing, OutboxWriter
from intercom.operators.slack.sender import Sender
from intercom.operators.slack.slack_messages import OutboxHealth, Redraw, Wake
from intercom.operators.slack.socket_mode import SlackConnection
from intercom.store import outbox, sessions
from intercom.store.database import Database, OpenedDatabase
from intercom.store.outbox import Content, Row, Urgency
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer import Writer
from intercom.store.writer_messages import Transact
from tests.operators.slack.draw.valid import Words
from tests.operators.slack.fake_slack import FakeSlack
from tests.operators.slack.payloads import ANNA, BERT, CHANNEL, MESSAGE, ROOT, TEAM
from tests.operators.stand_in_service import START, StandInService

T = TypeVar("T")

CARD = "3f0c6f5e-7a9b-4a53-9a51-0d0a2f9c1b11"
OTHER = "3f0c7777-7a9b-4a53-9a51-0d0a2f9c1b11"
ELSEWHERE = "C0ELSEWHERE"
RESPONSE_URL = "https://hooks.slack.com/commands/T0TEAM/1/x"


class TaskWriter(Writer):
    """On the loop, so that time can be virtual."""

    run_as_task = True


class Recorder(Actor):
    """Keeps what it is told. As a router, it answers a subscription with the server's `open_cards`."""

    def __init__(self, server: SlackServer, name: str) -> None:
        super().__init__()
        self._server, self._name = server, name

    def on_receive(self, message: Any) -> Any:
        self._server.recorded[self._name].append(message)
        return self._server.open_cards if isinstance(message, Subscribe) else None


class CommandRecorder:
    """Keeps commands, and answers each."""

    def __init__(self) -> None:
        self.ran: list[Command] = []

    async def run(self, command: Command) -> dict[str, Any] | None:
        self.ran.append(command)
        return {"text": f"ran {command.text}"}


class Service(StandInService):
    """A stand-in that can also be slow or down. `verdicts` are those it was given, by id."""

    def __init__(self, *cards: Card, sessions: Sequence[Session] = ()) -> None:
        super().__init__(*cards, sessions=sessions)
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


@define(eq=False)
class SlackServer:
    """`recorded` is what was told to the actors that do not run, `open_cards` what the router says is open. `poll` is
    how often the store is asked, in seconds."""

    service: Any
    slack: Any
    channel: str = CHANNEL
    poll: float = 0.5
    open_cards: tuple[Card, ...] = ()
    commands: CommandRecorder = field(factory=CommandRecorder)
    began: float = field(factory=trio.current_time)
    recorded: dict[str, list[Any]] = field(factory=lambda: defaultdict(list))
    system: System = field(init=False)
    interactions: Interactions = field(init=False)

    def tell(self, message: object, name: str = "slack/outbox_writer") -> None:
        self.system.named(name).tell(message)

    def now(self) -> datetime:
        """The wall clock, which runs with Trio's."""
        return START + timedelta(seconds=trio.current_time() - self.began)

    # People

    async def tap(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        return await self.interactions.handle("interactive", payload)

    async def say(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        return await self.interactions.handle("events_api", payload)

    async def type(
        self, text: str, *, by: str = ANNA, channel: str = CHANNEL, act: str = "slack/1.2.3"
    ) -> dict[str, Any] | None:
        """What the acknowledgement of this command holds."""
        command = Command(act, Person(by, "anna"), TEAM, channel, "/intercom", text, RESPONSE_URL)
        return await runner.carry_out(self.system.named("slack/commands"), command)

    async def told(self, text: str, **more: Any) -> str:
        """What the person alone reads in answer to this command, all its texts in one."""
        return texts(await self.type(text, **more))

    # Servers that came before or come after

    def again(self) -> Interactions:
        """The acts of a server that was started anew: what was only in memory is gone."""
        return Interactions(self.interactions.deps, self.interactions.authorization, self.interactions.run_command)

    def without_store(self) -> Interactions:
        """The acts of a server whose store is down for longer than anybody waits."""
        deps = attrs.evolve(self.interactions.deps, store=Store(self.system.named("nobody")))
        return Interactions(deps, self.interactions.authorization, self.interactions.run_command)

    # The store

    async def store(self, work: Callable[[Database], T]) -> T:
        return await ask(self.system.named("store"), Transact(work), timeout=30, retry=True)

    async def find(self, key: str = "command/slack/1.2.3") -> Row | None:
        return await self.store(partial(outbox.by_key, key=key))

    async def row(self, key: str) -> Row:
        """The row of this key, waited for."""
        found = await self.wait_for(partial(self.find, key))
        assert found is not None
        return found

    async def shown(self, key: str = "command/slack/1.2.3") -> str:
        """What the message of a command says now; empty when there is none."""
        found = await self.find(key)
        return "" if found is None else texts(found.content)

    async def until_shown(self, says: str, key: str = "command/slack/1.2.3") -> str:
        """Wait until the message of a command says this."""

        async def look() -> str | None:
            shown = await self.shown(key)
            return shown if says in shown else None

        return await self.wait_for(look) or ""

    async def until(self, fits: Callable[[], bool]) -> None:
        async def look() -> bool:
            return fits()

        await self.wait_for(look)

    async def told_line(self) -> None:
        """Wait for a line's row: what was told before it is written then too."""
        lines = "select id from outbox where key like 'line/%'"
        await self.wait_for(lambda: self.store(lambda db: list(db.query(lines))))

    async def wait_for(self, look: Callable[[], Awaitable[T]], pause: float = 0.01) -> T:
        """The first true answer of `look`, asked again and again."""
        while True:
            if found := await look():
                return found
            await trio.sleep(pause)

    async def put(self, key: str, content: Content | str, **options: Any) -> None:
        """Put a row, as the channel does, and wake the sender."""
        await self.put_all([(key, content, options)])

    async def put_all(self, wishes: list[tuple[str, Content | str, dict[str, Any]]], *, wake: bool = True) -> None:
        def work(db: Database) -> None:
            for key, content, options in wishes:
                drawn = text(content) if isinstance(content, str) else content
                outbox.put(db, key, drawn, self.now(), **{"channel": self.channel, "urgency": Urgency.CARD, **options})

        await self.store(work)
        if wake:
            self.tell(Wake(), "slack/outbox")

    async def interim(self, key: str, line: str, seconds: float) -> None:
        await self.store(partial(outbox.interim, key=key, line=line, until=self.now() + timedelta(seconds=seconds)))
        self.tell(Wake(), "slack/outbox")

    async def health(self) -> OutboxStatus:
        return await ask(self.system.named("slack/outbox"), OutboxHealth(), retry=True)

    async def settled(self) -> float:
        """Wait until nothing is left to send; when that was. Raises TooSlowError after three hours."""

        async def nothing_waits() -> bool:
            standing = await self.health()
            return not standing.waiting and not standing.updates

        with trio.fail_after(3 * 3600):
            await self.wait_for(nothing_waits, self.poll)
        return trio.current_time()

    # What came of it

    @property
    def decided(self) -> list[tuple[str, str, str | None]]:
        """What the service was asked to decide, refused or not: card, decision, text."""
        return [(act[1], act[2], act[3]) for act in self.service.acts if act[0] == "decide"]

    async def ephemerals(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        return [params["text"] for params in self.slack.made("chat.postEphemeral")]

    async def answers(self) -> list[str]:
        """What was said in threads, in order."""
        sql = "select key from outbox where key like 'reply/%' or key like 'question/%' order by id"
        keys: list[str] = await self.store(lambda db: [key for (key,) in db.execute(sql).fetchall()])
        return [(await self.row(key)).content["text"] for key in keys]

    async def redraws(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        return [each.card_id for each in self.recorded["slack/outbox_writer"] if isinstance(each, Redraw)]

    async def wakes(self) -> int:
        await trio.testing.wait_all_tasks_blocked()
        return len(self.recorded["slack/outbox"])


def text(words: str) -> Content:
    """A drawn message."""
    return {"text": words, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": words}}]}


def texts(content: Any) -> str:
    """All texts of a message."""
    if isinstance(content, dict):
        own = content.get("text")
        found = [own] if isinstance(own, str) else []
        found += [texts(part) for part in content.values() if not isinstance(part, str)]
        return "\n".join(part for part in found if part)
    return "\n".join(texts(part) for part in content) if isinstance(content, list | tuple) else ""


def _show(db: Database, card: Card) -> None:
    """Post a card's message in its session's thread, as earlier versions did: replies there are about the session."""
    thread = f"thread/{card.session_id}" if card.session_id else None
    rows = [(thread, None, ROOT, False)] if thread is not None and outbox.by_key(db, thread) is None else []
    for key, within, ts, is_open in (*rows, (f"card/{card.id}", thread, MESSAGE, True)):
        assert key is not None
        about: dict[str, Any] = {"session_id": card.session_id or None, "thread": within, "open": is_open}
        about |= {"channel": CHANNEL, "urgency": Urgency.CARD}
        outbox.put(db, key, {"text": "a card", "blocks": []}, START, **about)
        row = outbox.by_key(db, key)
        assert row is not None
        outbox.begin_post(db, row.id, START)
        outbox.posted(db, row.id, ts, 1, START)


def plain_processing(content: Content, line: str) -> Content:
    return {"text": line, "blocks": []}


def _quick(opened: OpenedDatabase) -> None:
    # Nobody pulls the plug of these tests.
    opened.db.execute("pragma synchronous = off")


@contextlib.asynccontextmanager
async def slack_server(
    directory: Path | None = None,
    *given: Card | Session,
    runs: Collection[str] = ("ephemeral",),
    web: Any = None,
    service: StandInService | None = None,
    team: str = TEAM,
    processing: Callable[[Content, str], Content] = draw_processing,
    environ: dict[str, str] | None = None,
    channel: str = CHANNEL,
    poll: float = 0.5,
    **settings: Any,
) -> AsyncIterator[SlackServer]:
    """Run the actors `slack/<name>` for each name in `runs`: outbox, channel, commands, ephemeral, connection.

    The service knows the given cards and sessions. Without `channel` among `runs`, the cards are in Slack already. Anna
    and Bert may act. `web` is the Web API, else a new FakeSlack; `settings` go into the configuration. An actor that
    crashes is started again at once.
    """
    known = tuple(each for each in given if isinstance(each, Session))
    cards = tuple(each for each in given if isinstance(each, Card))
    assert len(known) + len(cards) == len(given), "these are cards and sessions"
    if service is None:
        service = Service(*cards, sessions=known)
        if "commands" in runs:
            service.all_sessions = {each.id: each for each in known}
    web = FakeSlack(latency=0.05 if "outbox" in runs else 0.0) if web is None else web
    server = SlackServer(service, web, channel, poll)
    masker: Any = Words(r"hush-\w+") if "commands" in runs else Masker()
    with contextlib.ExitStack() as stack:
        root = directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (root / "work").mkdir(parents=True, exist_ok=True)
        path = root / "intercom.db"
        config = Config(
            **{"default_workspace_root": root / "work", "slack": SlackSettings(channel_id=CHANNEL), **settings}
        )

        parts: dict[str, Callable[[], Actor]] = {
            "outbox": lambda: Sender(deps.store, web, server.now, processing=processing, dice=random.Random(1)),
            "outbox_writer": lambda: OutboxWriter(
                config=config,
                service=service,
                reader=Reader(path),
                store=deps.store,
                outbox=deps.outbox,
                web=web,
                drawing=Drawing(masker),
                now=server.now,
            ),
            "commands": lambda: CommandRunner(command_deps),
            "ephemeral": lambda: EphemeralSender(web),
            "connection": lambda: SlackConnection(web, server.interactions.handle, now=server.now),
        }
        children = [
            ChildSpec("store", lambda: TaskWriter(path, on_opened=_quick)),
            ChildSpec("card_router", lambda: Recorder(server, "card_router")),
            *(
                ChildSpec(f"slack/{name}", part if name in runs else partial(Recorder, server, f"slack/{name}"))
                for name, part in parts.items()
            ),
        ]
        server.system = System(ChildSpec("root", partial(Supervisor, children, max_restarts=100)))
        named = server.system.named
        deps = ActionDeps(
            service=service,
            store=Store(named("store")),
            outbox=named("slack/outbox"),
            outbox_writer=named("slack/outbox_writer"),
            ephemeral=named("slack/ephemeral"),
            web=web,
            people=People(web),
            mask=masker,
            now=server.now,
        )
        command_deps = CommandDeps(
            service=service,
            store=deps.store,
            outbox=deps.outbox,
            web=web,
            config=config,
            masker=masker,
            now=server.now,
            environ={"PATH": os.environ["PATH"], **(environ or {})},
        )
        server.interactions = Interactions(
            deps, SlackAuthorization(service, frozenset({ANNA, BERT}), team), server.commands.run
        )
        async with server.system:
            if "outbox_writer" in runs:
                for each in known:
                    await server.store(partial(sessions.insert, session=each))
            else:
                for shown in cards:
                    await server.store(partial(_show, card=shown))
            yield server


class Crash(Exception):
    """What a crash point raises in these tests."""


@contextlib.contextmanager
def crashing(name: str, times: int = 1) -> Iterator[list[str]]:
    """Crash the actor that passes the crash point, so many times; yields how often it was passed."""
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


#: Servers for the tests of one part.
outbox_writer_server = partial(slack_server, runs=("outbox_writer",))
command_server = partial(slack_server, runs=("commands",))
sender_server = partial(slack_server, None, runs=("outbox",), channel="C1", processing=plain_processing)
