"""The server in the test's own loop and in virtual time: real sockets, a real database, and no hour is long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing
from attrs import define, field, frozen

from intercom.app import App
from intercom.embedding import EmbeddedAgent
from intercom.local.places import places
from intercom.model.config import Config, CtlSettings, DatabaseSettings, SlackSettings, StallSettings, TimeoutSettings
from intercom.model.decision import Decision, Verdict
from intercom.operators.slack.settings import SlackSetup
from intercom.operators.slack.web_api import SlackTokens
from intercom.sessions.messages import Answered, RecordedRequest, ToolRequest
from intercom.store import outbox
from intercom.store.writer import Writer
from tests.operators.slack.live.truth import Found, look
from tests.slack_standin import ALICE, BOB, CHANNEL, Standin, serve, text_of
from tests.support.database import new_database
from tests.support.task_tree import within
from tests.support.virtual_server import Pending, R

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
#: Virtual seconds after which whatever is not so never will be.
PATIENCE = 86400.0
#: The farthest that time goes at once, in virtual seconds.
STEP = 60.0
#: Real seconds a test may take.
STUCK = 90


@define
class Threads:
    """Trio's worker threads, counted: while one is at work, time stands still."""

    run: Callable[..., Any] = trio.to_thread.run_sync
    busy: int = 0
    idle: trio.Event = field(factory=trio.Event)

    async def run_sync(self, *args: Any, **kwargs: Any) -> Any:
        self.busy += 1
        try:
            return await self.run(*args, **kwargs)
        finally:
            self.busy -= 1
            self.idle.set()
            self.idle = trio.Event()


def quick(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A test whose time is virtual: it goes to the next deadline when all tasks wait and no thread is at work."""

    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        threads, clock = Threads(), trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        with (
            within(STUCK),
            patch.object(Writer, "run_as_task", True),
            patch.object(trio.to_thread, "run_sync", threads.run_sync),
        ):
            async with trio.open_nursery() as driving:
                # Also when the test is given up: to end takes time as well.
                driving.start_soon(_drive, clock, threads)
                with trio.fail_after(PATIENCE):
                    await test(*args, **kwargs)
                driving.cancel_scope.cancel()

    # The test's own deadline comes after: it would also end what moves the time.
    return pytest.mark.real_time(seconds=2 * STUCK)(pytest.mark.usefixtures("clock")(run))


async def _drive(clock: trio.testing.MockClock, threads: Threads) -> None:
    while True:
        # What is written to a socket of this machine is there at once; the rest of a moment is for the system.
        await trio.testing.wait_all_tasks_blocked(0.001)
        if threads.busy:
            await threads.idle.wait()
            continue
        gap = trio.lowlevel.current_statistics().seconds_to_next_deadline
        # In steps: the thread of a watch that ends is none of those that are counted.
        clock.jump(min(max(gap, 0.0), STEP))


@frozen
class Room:
    """A server that runs, and what it talks to."""

    app: App
    slack: Standin
    root: Path
    nursery: trio.Nursery

    def agent(self, name: str = "agent") -> EmbeddedAgent:
        """An agent in a workspace of its own."""
        (self.root / name).mkdir(exist_ok=True)
        return EmbeddedAgent(self.app, name, str(self.root / name))

    def ask(self, request: ToolRequest[RecordedRequest[R]], name: str = "agent") -> Pending[Answered[R]]:
        """An agent asks, and the test goes on."""
        pending: Pending[Answered[R]] = Pending()
        self.nursery.start_soon(pending.run, partial(self.agent(name).call, request))
        return pending

    async def typed(self, text: str, user: str = ALICE) -> str:
        """What one person alone reads in answer to a command, at once or a little later."""
        before = len(self.slack.ephemerals(user))
        told = await self.slack.command(user, CHANNEL, text).answer()
        if not told:
            await self.slack.wait_for(lambda: len(self.slack.ephemerals(user)) > before, PATIENCE)
            told = self.slack.ephemerals(user)[-1]
        return f"{told.get('text', '')}\n{text_of(told)}"

    async def card(self, words: str) -> dict[str, Any]:
        return await self.slack.card(words, seconds=PATIENCE)

    async def shows(self, ts: str, words: str) -> dict[str, Any]:
        return await self.slack.shows(ts, words, seconds=PATIENCE)

    async def approval(self, title: str, agent: EmbeddedAgent | None = None, diff: str = "") -> dict[str, Any]:
        """One change from the question to the disk, approved by a tap; its card as it is in the end."""
        agent = agent or self.agent()
        cards: list[dict[str, Any]] = []

        async def person() -> None:
            cards.append(await self.card(title))
            self.slack.tap(ALICE, cards[0]["ts"], "approve_accept")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(person)
            told = await agent.check_clearance(title, diff or f"{title}\n", f"{title}.txt")
        assert told.answer.status == "approved"
        await agent.check_diff(told.answer.request_id)
        return await self.shows(cards[0]["ts"], "*Applied*")

    async def decide(self, card_id: str, decision: Decision) -> None:
        """Somebody decides elsewhere."""
        verdict = Verdict(f"elsewhere/{card_id}", decision, "kim", "ctl", self.app.now())
        await self.app.service.decide(card_id, verdict)

    async def settled(self) -> Found:
        """How things are once nothing is on its way any more."""
        while True:
            await trio.sleep(10)
            waiting = await self.app.reader.read(outbox.counts)
            if not waiting.updates and not sum(waiting.posts.values()) and not self.slack.socket_mode.pending:
                return await look(self.app.reader, self.slack)


def setup_for(slack: Standin) -> SlackSetup:
    """How a server gets into this Slack, in which Alice and Bob may act."""
    tokens = SlackTokens(slack.app_token, slack.bot_token)
    return SlackSetup(tokens, CHANNEL, frozenset({ALICE, BOB}), api_url=slack.api_url)


@asynccontextmanager
async def room(
    root: Path,
    *,
    up: bool = True,
    listens: frozenset[str] = frozenset(),
    config: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> AsyncIterator[Room]:
    """A server in Slack, or one that cannot reach it when not `up`. It `listens` on the sockets of these names.
    `config` is what its configuration has besides."""
    clock = trio.lowlevel.current_clock()
    async with serve(**options) as slack:
        settings: dict[str, Any] = {
            "ipc_name": "quick",
            "database": DatabaseSettings(path=root / "quick.db"),
            "slack": SlackSettings(channel_id=CHANNEL),
            "timeouts": TimeoutSettings(approval_seconds=PATIENCE, prompt_seconds=PATIENCE),
            "stall": StallSettings(enabled=False),
            "ctl": CtlSettings(trust_agent_processes=True),
        }

        def now() -> datetime:
            return BEGIN + timedelta(seconds=clock.current_time())

        new_database(root / "quick.db")
        where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root)})
        app = App(Config(**{**settings, **config}), where, root / "quick.db", listens, slack=setup_for(slack), now=now)
        if not up:
            slack.go_down()
        async with app.system:
            if up:
                await slack.connected()
            async with trio.open_nursery() as nursery:
                yield Room(app, slack, root, nursery)
                nursery.cancel_scope.cancel()
