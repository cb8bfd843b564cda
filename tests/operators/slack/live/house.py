"""Slack and all: a real agent on stdio, the server in a process of its own, and the stand-in for Slack beside them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen
from mcp import Client

from intercom.local.places import private_directory
from tests.agents.live import TRUSTING, Home, Later, begin, call, home
from tests.slack import ALICE, BOB, CHANNEL, Standin, serve

CONFIG = f'{TRUSTING}\n[slack]\nchannel_id = "{CHANNEL}"\n'


@define
class SlackHouse:
    """`home` is where the server lives, `slack` what it talks to."""

    home: Home
    slack: Standin
    environ: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.environ = {
            "INTERCOM_SLACK_API": self.slack.api_url,
            "SLACK_APP_TOKEN": self.slack.app_token,
            "SLACK_BOT_TOKEN": self.slack.bot_token,
            "SLACK_MEMBER_IDS": f"{ALICE},{BOB}",
            # No keychain of the machine's own is asked.
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }

    @contextmanager
    def serving(self, **environ: str) -> Iterator[Any]:
        """A server in the foreground, with Slack set up by its environment."""
        with self.home.serving(**self.environ, **environ) as process:
            yield process

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else starts a server meanwhile: a shim whose server is gone waits for the one that comes next."""
        private_directory(self.home.places.runtime_dir)
        held = os.open(self.home.places.start_lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(held)

    async def message(self, fits: Callable[[dict[str, Any]], bool], channel: str = CHANNEL) -> dict[str, Any]:
        """The first message that fits, waited for."""
        found: list[dict[str, Any]] = await self.slack.wait_for(
            lambda: [one for one in self.slack.messages(channel) if fits(one)], 60
        )
        return found[0]

    async def card(self, words: str, channel: str = CHANNEL) -> dict[str, Any]:
        """The message with buttons in which these words stand, waited for."""
        return await self.message(lambda one: words in text_of(one) and bool(buttons(one)), channel)

    async def shows(self, ts: str, words: str, channel: str = CHANNEL) -> dict[str, Any]:
        """The message, once these words stand in it."""
        return await self.message(lambda one: one["ts"] == ts and words in text_of(one), channel)

    async def answered(self, ts: str, words: str, channel: str = CHANNEL) -> dict[str, Any]:
        """The reply in this thread in which these words stand, waited for."""
        return await self.message(lambda one: one.get("thread_ts") == ts and words in text_of(one), channel)

    async def told(self, user: str, words: str) -> dict[str, Any]:
        """What one person alone was told with these words, waited for."""
        found: list[dict[str, Any]] = await self.slack.wait_for(
            lambda: [one for one in self.slack.ephemerals(user) if words in f"{one['text']}{text_of(one)}"]
        )
        return found[0]

    async def form(self, user: str, name: str) -> dict[str, Any]:
        """The form of this name on this person's screen, waited for."""
        found: list[dict[str, Any]] = await self.slack.wait_for(
            lambda: [view for view in self.slack.views(user) if view["callback_id"] == f"intercom_{name}"]
        )
        return found[-1]


@frozen
class Work:
    """An agent at work in a workspace of its own, in a house whose server runs and is in Slack."""

    house: SlackHouse
    agent: Client
    workspace: Path
    nursery: trio.Nursery

    @property
    def slack(self) -> Standin:
        return self.house.slack

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What the agent is answered."""
        return await call(self.agent, tool, **arguments)

    def ask(self, tool: str, /, **arguments: Any) -> Later:
        """The agent asks, and the test goes on."""
        return begin(self.nursery, self.agent, tool, **arguments)

    async def asked(self, tool: str, words: str, /, **arguments: Any) -> tuple[Later, dict[str, Any]]:
        """The same, and the card in Slack in which these words stand."""
        later = self.ask(tool, **arguments)
        return later, await self.house.card(words)

    async def propose(self, title: str, **arguments: Any) -> tuple[Later, dict[str, Any]]:
        """The agent proposes a small change."""
        given = {"diff": f"{title}\n", "file_path": "new.txt"} | arguments
        return await self.asked("check_clearance", title, title=title, **given)

    async def tap(self, card: dict[str, Any], action: str, user: str = ALICE) -> None:
        """A person taps, and the server has taken it."""
        await self.slack.tap(user, card["ts"], action).answer()

    async def fill(self, card: dict[str, Any], action: str, text: str | None, user: str = ALICE) -> dict[str, Any]:
        """A person taps, fills in the form that opens and sends it; what the server answers to that."""
        await self.tap(card, action, user)
        [view] = self.slack.views(user)
        return await self.slack.submit(user, view, {} if text is None else {"text": text}).answer() or {}


@asynccontextmanager
async def at_work(config: str = CONFIG, **options: Any) -> AsyncIterator[Work]:
    """A house whose server runs, and one agent in it."""
    async with slack_house(config, **options) as house, trio.open_nursery() as nursery:
        with house.serving():
            workspace = house.home.workspace()
            async with house.home.agent(workspace) as agent:
                await house.slack.connected()
                try:
                    yield Work(house, agent, workspace, nursery)
                finally:
                    nursery.cancel_scope.cancel()


@asynccontextmanager
async def slack_house(config: str = CONFIG, **options: Any) -> AsyncIterator[SlackHouse]:
    """A user's directories, set up for Slack, and the stand-in; the server is not started yet."""
    with home(config) as made:
        async with serve(**options) as slack:
            yield SlackHouse(made, slack)


def buttons(message: dict[str, Any]) -> list[str]:
    """The `action_id`s of a message's buttons."""
    return [
        element["action_id"]
        for block in message.get("blocks") or ()
        if block["type"] == "actions"
        for element in block["elements"]
    ]


def text_of(message: dict[str, Any]) -> str:
    """Every word that a message's blocks show."""
    return "\n".join(_texts(message.get("blocks") or ()))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("text"), str):
            yield node["text"]
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _texts(value)


async def settled(slack: Standin) -> None:
    """Let what is on its way arrive."""
    await trio.testing.wait_all_tasks_blocked()
