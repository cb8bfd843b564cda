"""A real agent on stdio, the server in a process of its own, and the stand-in for Slack beside them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen
from mcp import Client

from intercom.local.places import private_directory
from tests.slack_standin import ALICE, BOB, CHANNEL, Standin, serve
from tests.support.server_process import TRUSTING, Home, Later, begin, call, user_home

CONFIG = f'{TRUSTING}\n[slack]\nchannel_id = "{CHANNEL}"\n'


@define
class ServerInSlack:
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


@frozen
class Work:
    """An agent at work in a workspace of its own, whose server runs and is in Slack."""

    server: ServerInSlack
    agent: Client
    workspace: Path
    nursery: trio.Nursery

    @property
    def slack(self) -> Standin:
        return self.server.slack

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What the agent is answered."""
        return await call(self.agent, tool, **arguments)

    def ask(self, tool: str, /, **arguments: Any) -> Later:
        """The agent asks, and the test goes on."""
        return begin(self.nursery, self.agent, tool, **arguments)

    async def propose(self, title: str, **arguments: Any) -> tuple[Later, dict[str, Any]]:
        """The agent proposes a small change; its call, and the card in Slack."""
        given = {"diff": f"{title}\n", "file_path": "new.txt"} | arguments
        later = self.ask("check_clearance", title=title, **given)
        return later, await self.slack.card(title)

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
    """A server that runs, and one agent of it."""
    async with server_in_slack(config, **options) as server, trio.open_nursery() as nursery:
        with server.serving():
            workspace = server.home.workspace()
            async with server.home.agent(workspace) as agent:
                await server.slack.connected()
                try:
                    yield Work(server, agent, workspace, nursery)
                finally:
                    nursery.cancel_scope.cancel()


@asynccontextmanager
async def server_in_slack(config: str = CONFIG, **options: Any) -> AsyncIterator[ServerInSlack]:
    """A user's directories, set up for Slack, and the stand-in; the server is not started yet."""
    with user_home(config) as made:
        async with serve(**options) as slack:
            yield ServerInSlack(made, slack)
