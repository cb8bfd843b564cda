"""The whole server in this process, without its listeners, on a clock that moves when the test says so.

Files, the database and its threads are real; time is not. Nothing jumps by itself, so a thread that takes its time
makes no deadline pass.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import outcome
import trio
import trio.testing
from attrs import define, evolve, field, frozen

from actors import Actor, Request, ask
from intercom.app import App
from intercom.local.places import places
from intercom.model.card import Card, Notice
from intercom.model.config import Config
from intercom.model.decision import Decision, Verdict
from intercom.model.request import RiskLevel
from intercom.operators.router_messages import Channel, Subscribe
from intercom.sessions.chat_messages import ChatOutbox
from intercom.sessions.housekeeping import WATCH_SECONDS
from intercom.sessions.messages import (
    Admit,
    Agent,
    AgentsGone,
    AgentsHere,
    Answered,
    AwaitDecision,
    Describe,
    RecordedRequest,
    ToolRequest,
)
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.store.room_database import WRITER, SqliteRooms
from intercom.store.writer_messages import Transact
from tests.support.database import new_database

R = TypeVar("R")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
#: Worker threads that Trio has from the start.
WORKERS = 40
#: Seconds of real time after which a test that waits for what never comes is ended.
STUCK = 30


class Operator(Actor):
    """A channel: keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.cards: list[Card] = []
        self.notices: list[Notice] = []
        self.on_card: Callable[[Card], object] = lambda card: None
        self._news = trio.Event()

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Card):
            self.cards.append(message)
            self.on_card(message)
        else:
            self.notices.append(message)
        self._news.set()
        self._news = trio.Event()

    async def card(self, fits: Callable[[Card], bool] = lambda card: True, **wanted: Any) -> Card:
        """The newest card that fits, waited for if there is none."""
        while True:
            for card in reversed(self.cards):
                if all(getattr(card, name) == value for name, value in wanted.items()) and fits(card):
                    return card
            await self._news.wait()

    async def notice(self, part: str) -> Notice:
        """The first notice that says this, waited for if there is none."""
        while True:
            for notice in self.notices:
                if part in notice.text:
                    return notice
            await self._news.wait()


@frozen
class AgentClient:
    """One agent, as its connection speaks for it."""

    server: VirtualServer
    identity: Agent
    session_id: str

    async def ask(self, message: Request[R]) -> R:
        """Ask this agent's session; one that is restarting is asked again. A tool call without a name gets one."""
        if isinstance(message, ToolRequest) and not message.call:
            message = evolve(message, call=self.call())
        return await ask(self.server.app.system.named(f"session/{self.session_id}"), message, retry=True)

    def tell(self, message: object) -> None:
        self.server.app.system.named(f"session/{self.session_id}").tell(message)

    def call(self) -> str:
        """A name for one more call."""
        return f"{self.identity.key}/{next(self.server.numbers)}"

    async def propose(
        self, path: str = "a.txt", diff: str = "a\n", risk: RiskLevel = RiskLevel.LOW, call: str | None = None
    ) -> RecordedRequest[Any]:
        asked = CheckClearance(f"change {path}", diff, path, risk_level=risk, call=call or self.call())
        return await self.ask(asked)

    async def settled(self) -> None:
        """Every message sent to the session so far has been handled."""
        await self.ask(Describe())


@define
class VirtualServer:
    app: App
    clock: trio.testing.MockClock
    operator: Operator
    nursery: trio.Nursery
    numbers: Any = field(factory=lambda: itertools.count(1))
    shifted: list[float] = field(factory=lambda: [0.0])

    async def arrive(self, root: Path, key: str = "agent", client: str | None = "client") -> AgentClient:
        """An agent connects."""
        agent = Agent(key, client, str(root))
        self.app.connected_agents.came(key, "connection")
        return AgentClient(self, agent, await self.ask("registry", Admit(agent)))

    def back(self, *keys: str) -> None:
        """These agents' connections are up again."""
        for key in keys:
            self.app.connected_agents.came(key, "connection")
        self.app.system.named("registry").tell(AgentsHere(keys))

    def gone(self, *keys: str, for_good: bool = False) -> None:
        """These agents' connections are gone."""
        for key in keys:
            self.app.connected_agents.left(key, "connection")
        self.app.system.named("registry").tell(AgentsGone(keys, for_good))

    async def ask(self, name: str, message: Request[R]) -> R:
        return await ask(self.app.system.named(name), message, retry=True)

    def begin(self, what: Callable[[], Awaitable[R]]) -> Pending[R]:
        """Do something and go on."""
        pending: Pending[R] = Pending()
        self.nursery.start_soon(pending.run, what)
        return pending

    async def wait(self, agent: AgentClient, request_id: str, call: str | None = None) -> Pending[Answered[Any]]:
        """Let one more call of the agent wait for a clearance; it waits when this returns."""
        waiting = self.begin(partial_ask(agent, AwaitDecision(call or agent.call(), request_id)))
        await trio.testing.wait_all_tasks_blocked()
        await agent.settled()
        return waiting

    def verdict(self, decision: Decision, text: str | None = None, id: str | None = None) -> Verdict:
        return Verdict(id or f"v{next(self.numbers)}", decision, "kim", "ctl", self.now(), text)

    async def decide(self, id: str, decision: Decision, text: str | None = None, verdict_id: str | None = None) -> Card:
        return await self.app.service.decide(id, self.verdict(decision, text, verdict_id))

    async def accept(self, root: Path) -> Card:
        """A person accepts the policy of this workspace as its file states it now."""
        return await self.app.service.decide_policy(str(root), self.verdict(Decision.ACCEPT))

    def now(self) -> datetime:
        return self.app.session_deps.now()

    async def later(self, seconds: float) -> None:
        """Let so much time pass; what it makes due has been told when this returns."""
        await self._quiet()
        self.clock.jump(seconds)
        await self._quiet()

    async def set_clock(self, seconds: float) -> None:
        """Set the system's clock forward, or (negative) back; it has been noticed when this returns."""
        self.shifted[0] += seconds
        await self.later(WATCH_SECONDS)

    @asynccontextmanager
    async def restarting(self) -> AsyncIterator[None]:
        """Let time creep on meanwhile, as restarts wait a little."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._creep)
            yield
            nursery.cancel_scope.cancel()

    async def _creep(self) -> None:
        while True:
            await trio.testing.wait_all_tasks_blocked(0.005)
            self.clock.jump(0.02)

    async def _quiet(self) -> None:
        """Wait for what is under way: a handler asks the store a few times at most, which answers in turn."""
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked()
            while self._reading() or _in_threads():
                # To Trio who waits for a thread is blocked.
                await trio.testing.wait_all_tasks_blocked(0.001)
            await self.ask("store", Transact(lambda db: None))
            if self.app.rooms is not None:
                await self.ask(WRITER, Transact(lambda db: None))

    def _reading(self) -> bool:
        readers = [self.app.reader]
        if self.app.rooms is not None and isinstance(self.app.rooms.store, SqliteRooms):
            readers.append(self.app.rooms.store._reader)
        limits = [reader._limit for reader in readers]
        return any(limit is not None and limit.borrowed_tokens > 0 for limit in limits)


def _in_threads() -> bool:
    """Whether a worker thread is busy, other than those of watches, each of which brings one of its own."""
    threads = trio.to_thread.current_default_thread_limiter()
    return threads.borrowed_tokens > threads.total_tokens - WORKERS


def partial_ask(agent: AgentClient, message: Request[R]) -> Callable[[], Awaitable[R]]:
    return functools.partial(agent.ask, message)


class Pending(Generic[R]):
    """What was begun: `await pending()` gives its answer, or raises its refusal."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.outcome: outcome.Outcome[R] | None = None
        self._done = trio.Event()

    async def run(self, what: Callable[[], Awaitable[R]]) -> None:
        with self.scope:
            try:
                self.outcome = outcome.Value(await what())
            except Exception as refused:
                self.outcome = outcome.Error(refused)
        self._done.set()

    async def __call__(self) -> R:
        await self._done.wait()
        assert self.outcome is not None, "it was cancelled"
        return self.outcome.unwrap()


#: A chat channel that is set up, and shows no session anywhere.
SILENT_CHAT = ChatOutbox(lambda _session: None, lambda _notice: {}, lambda _session: {}, lambda: None)


@asynccontextmanager
async def virtual_server(
    root: Path,
    clock: trio.testing.MockClock,
    config: Config | None = None,
    *,
    chat: ChatOutbox | None = None,
    **more: Any,
) -> AsyncIterator[VirtualServer]:
    """A server whose database lies in `root`; a second one there finds what the first left. `more` is the server's."""

    shifted = [0.0]

    def now() -> datetime:
        return BEGAN + timedelta(seconds=clock.current_time() + shifted[0])

    where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root)})
    new_database(root / "intercom.db")
    app = App(config or Config(), where, root / "intercom.db", frozenset(), now=now, boot_time=None, **more)
    app.session_deps = evolve(app.session_deps, chat=chat)
    operator = Operator()
    async with app.system, trio.open_nursery() as nursery:
        app.system.adopt(operator, "operator")
        await ask(app.system.named("card_router"), Subscribe("operator", Channel.CTL))
        yield VirtualServer(app, clock, operator, nursery, shifted=shifted)
        nursery.cancel_scope.cancel()
