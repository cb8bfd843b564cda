"""The commands' actor over a real store and a stand-in desk, with a web that remembers what it was told to answer."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
import trio.testing
from attrs import field, frozen

from actors import Actor, ChildSpec, System, ask
from intercom.model.config import Config
from intercom.model.outbox import Row
from intercom.model.session import Session
from intercom.operators.slack.commands.call import Surroundings
from intercom.operators.slack.commands.runner import CommandRunner, Commands
from intercom.operators.slack.envelopes import Command, Person
from intercom.store import outbox
from intercom.store.messages import Database, Transact
from intercom.store.writer import Writer
from tests.operators.desk import START, StandInDesk, card, session

T = TypeVar("T")

ANNA, BERT = "U0ANNA", "U0BERT"
CHANNEL, ELSEWHERE = "C0CHANNEL", "C0ELSEWHERE"
RESPONSE_URL = "https://hooks.slack.com/commands/T0TEAM/1/x"


@frozen
class Masked:
    text: str
    kinds: tuple[str, ...] = ()


class Mask:
    """Knows one kind of secret."""

    def mask(self, text: str) -> Masked:
        masked = re.sub(r"hush-\w+", "****", text)
        return Masked(masked, ("Hush",) if masked != text else ())


class TaskWriter(Writer):
    """On the loop, so that time can be virtual."""

    run_as_task = True


class Ear(Actor):
    def __init__(self, heard: list[Any]) -> None:
        super().__init__()
        self._heard = heard

    def on_receive(self, message: Any) -> None:
        self._heard.append(message)


class Web:
    """`faults` are raised by the next answers, one each."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.faults: list[Exception] = []

    async def respond(self, response_url: str, body: dict[str, Any]) -> None:
        assert response_url == RESPONSE_URL
        if self.faults:
            raise self.faults.pop(0)
        self.answers.append(body)


@frozen
class House:
    system: System
    desk: StandInDesk
    web: Web
    commands: Commands
    woken: list[Any] = field(factory=list)

    async def type(
        self, text: str, *, by: str = ANNA, channel: str = CHANNEL, act: str = "slack/1.2.3"
    ) -> dict[str, Any] | None:
        """What the acknowledgement of this command holds."""
        command = Command(act, Person(by, "anna"), "T0TEAM", "/intercom", text, channel, act, RESPONSE_URL)
        return await self.commands.run(command)

    async def told(self, text: str, **more: Any) -> str:
        """What the person alone reads in answer to this command, all its texts in one."""
        return texts(await self.type(text, **more))

    async def store(self, work: Callable[[Database], T]) -> T:
        return await ask(self.system.named("store"), Transact(work), timeout=5)

    async def row(self, key: str = "command/slack/1.2.3") -> Row | None:
        return await self.store(partial(outbox.by_key, key=key))

    async def shown(self, key: str = "command/slack/1.2.3") -> str:
        """What the message of a command says now; empty when there is none."""
        found = await self.row(key)
        return "" if found is None else texts(found.content)

    async def until(self, says: str, key: str = "command/slack/1.2.3") -> str:
        """Wait until the message of a command says this."""
        while True:
            shown = await self.shown(key)
            if says in shown:
                return shown
            await trio.sleep(0.02)


def texts(content: Any) -> str:
    """All texts of a message."""
    if isinstance(content, dict):
        own = content.get("text")
        found = [own] if isinstance(own, str) else []
        found += [texts(part) for part in content.values() if not isinstance(part, str)]
        return "\n".join(part for part in found if part)
    return "\n".join(texts(part) for part in content) if isinstance(content, list | tuple) else ""


@contextlib.asynccontextmanager
async def open_house(
    directory: Path,
    *sessions: Session,
    desk: StandInDesk | None = None,
    commands: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    """A server whose default workspace is `directory`/work, with these sessions and `[commands]`."""
    if desk is None:
        desk = StandInDesk()
        desk.all_sessions = {each.id: each for each in sessions}
    web = Web()
    woken: list[Any] = []
    (directory / "work").mkdir(exist_ok=True)
    config = Config(
        **{"default_workspace_root": directory / "work", "commands": commands or {}, "slack": slack(), **settings}
    )
    began = trio.current_time()
    children = [
        ChildSpec("store", lambda: TaskWriter(directory / "intercom.db")),
        ChildSpec("slack/outbox", lambda: Ear(woken)),
        ChildSpec("slack/commands", lambda: CommandRunner(surroundings)),
    ]
    system = System(children)
    surroundings = Surroundings(
        desk=desk,
        store=system.named("store"),
        outbox=system.named("slack/outbox"),
        web=web,
        config=config,
        masker=Mask(),
        now=lambda: START + timedelta(seconds=trio.current_time() - began),
        environ={"PATH": os.environ["PATH"], **(environ or {})},
    )
    async with system:
        yield House(system, desk, web, Commands(system.named("slack/commands")), woken)


def slack(**more: Any) -> Any:
    from intercom.model.config import SlackSettings

    return SlackSettings(**{"channel_id": CHANNEL, **more})


__all__ = ["ANNA", "BERT", "CHANNEL", "ELSEWHERE", "House", "card", "open_house", "session", "slack", "texts"]
