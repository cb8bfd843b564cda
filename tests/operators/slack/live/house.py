"""Slack and all: a real agent on stdio, the server in a process of its own, and the stand-in for Slack beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from attrs import define, field

from tests.agents.live import TRUSTING, Home, home
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
    def serving(self) -> Iterator[Any]:
        """A server in the foreground, with Slack set up by its environment."""
        with self.home.serving(**self.environ) as process:
            yield process

    async def message(self, fits: Callable[[dict[str, Any]], bool], channel: str = CHANNEL) -> dict[str, Any]:
        """The first message that fits, waited for."""
        found: list[dict[str, Any]] = await self.slack.wait_for(
            lambda: [one for one in self.slack.messages(channel) if fits(one)]
        )
        return found[0]

    async def card(self, words: str, channel: str = CHANNEL) -> dict[str, Any]:
        """The message with buttons in which these words stand, waited for."""
        return await self.message(lambda one: words in text_of(one) and bool(buttons(one)), channel)

    async def shows(self, ts: str, words: str, channel: str = CHANNEL) -> dict[str, Any]:
        """The message, once these words stand in it."""
        return await self.message(lambda one: one["ts"] == ts and words in text_of(one), channel)


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
