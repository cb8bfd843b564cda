"""The actor of a downstream with connections that a test scripts, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import outcome
import pytest
import trio
import trio.testing
from attrs import define, field

from actors import ChildSpec, Request, Restart, Supervisor, System, ask
from actors.testing import Recorder
from intercom.gateway.breaker import Failure
from intercom.gateway.budgets import Budget, Usage
from intercom.gateway.connection import Connection, Listener
from intercom.gateway.downstream import DownstreamActor
from intercom.gateway.downstream_calls import carry
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.downstream_tasks import DownstreamDeps, Recalled, ToolsChanged, ToolsPinned
from intercom.gateway.handshake import HandshakeError
from intercom.gateway.messages import (
    Admit,
    AgentPeer,
    CallFailed,
    Describe,
    Downstream,
    GatewayRefused,
    InvocationStatus,
    Invoked,
    OfferChanged,
)
from intercom.gateway.pins import Changes
from intercom.model.json_types import JsonObject

R = TypeVar("R")
NAME = "downstream/files"
#: Noon, so that no test comes to midnight by accident.
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def tool(name: str, description: str = "reads") -> JsonObject:
    """A tool as a downstream lists it."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def config(**settings: Any) -> DownstreamConfig:
    """The configuration of the downstream. Its tool `read` is read-only."""
    return DownstreamConfig(
        "files",
        Transport.STDIO,
        schema_version="1.0.0",
        **{"capabilities": ("files.*",), "command": "files-server", "read_only": ("read",), **settings},
    )


@define(eq=False)
class Port:
    """An agent."""

    id: str = "agent 1"
    capabilities: JsonObject = field(factory=dict)

    def notify(self, method: str, params: JsonObject) -> None:
        pass

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        raise AssertionError("no agent is asked anything")


@define(eq=False)
class SentCall:
    """A call that a fake connection has got. `answer` gives it its result, or fails it."""

    call: str
    params: JsonObject
    limit: trio.CancelScope | None = None
    _outcome: JsonObject | BaseException | None = None
    _over: trio.Event = field(factory=trio.Event)
    cancelled: bool = False

    def answer(self, result: JsonObject | BaseException | None = None) -> None:
        self._outcome = {"content": []} if result is None else result
        self._over.set()

    async def wait(self) -> JsonObject:
        try:
            await self._over.wait()
        except trio.Cancelled:
            self.cancelled = True
            raise
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    @property
    def was_lost(self) -> bool:
        """Whether it was answered with a failure that says that it was never sent."""
        return isinstance(self._outcome, CallFailed) and not self._outcome.was_sent

    @property
    def is_open(self) -> bool:
        return not self._over.is_set() and not self.cancelled


@define(eq=False)
class FakeConnection:
    """Stands in for a `Connection`."""

    config: DownstreamConfig
    asked_version: str | None
    tell: Listener
    tools: list[JsonObject]
    version: str = "2025-11-25"
    server: JsonObject = field(factory=dict)
    capabilities: JsonObject = field(factory=lambda: {"tools": {}, "logging": {}})
    instructions: str = "do"
    handshake_seconds: float = 0.1
    pid: int | None = 4711
    calls: list[SentCall] = field(factory=list)
    lists: int = 0
    checks: list[SentCall] = field(factory=list)
    levels: list[object] = field(factory=list)
    ended: bool = False
    list_gate: trio.Event | None = None
    lost_reason: str = ""
    _lost: trio.Event = field(factory=trio.Event)

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    async def wait_lost(self) -> str:
        await self._lost.wait()
        return f"was lost: {self.lost_reason}"

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        call: str = "",
        limit: trio.CancelScope | None = None,
        **_more: Any,
    ) -> JsonObject:
        if self.is_lost:
            raise CallFailed(Failure.TRANSPORT, self.lost_reason, was_sent=False)
        if method == "tools/list":
            self.lists += 1
            listed = list(self.tools)
            if self.list_gate is not None:
                await self.list_gate.wait()
            return {"tools": listed}
        if method == "logging/setLevel":
            self.levels.append(params["level"])
            return {}
        sent = SentCall(call, params, limit)
        self.calls.append(sent)
        return await sent.wait()

    async def check(self) -> None:
        sent = SentCall("check", {})
        self.checks.append(sent)
        await sent.wait()

    @property
    def open(self) -> list[SentCall]:
        return [each for each in self.calls if each.is_open]

    def lose(self, reason: str = "the process exited with status 1") -> None:
        """End the connection, and with it its calls."""
        if not self.is_lost:
            self.lost_reason = reason
            self._lost.set()
            for each in self.open:
                each.answer(CallFailed(Failure.TRANSPORT, reason))


@define(eq=False)
class FakeConnections:
    """Makes fake connections. `gate` holds handshakes back, `failure` fails them, `end_gate` holds back their ends."""

    tools: list[JsonObject] = field(factory=lambda: [tool("read"), tool("write", "writes")])
    made: list[FakeConnection] = field(factory=list)
    attempts: int = 0
    versions: list[str | None] = field(factory=list)
    gate: trio.Event | None = None
    failure: Exception | None = None
    end_gate: trio.Event | None = None
    open: int = 0
    most_open: int = 0

    def __call__(
        self, config: DownstreamConfig, version: str | None, tell: Listener
    ) -> AbstractAsyncContextManager[Connection]:
        return self._connect(config, version, tell)

    @asynccontextmanager
    async def _connect(
        self, config: DownstreamConfig, version: str | None, tell: Listener
    ) -> AsyncIterator[Connection]:
        self.attempts += 1
        self.versions.append(version)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            made = FakeConnection(config, version, tell, list(self.tools))
            self.made.append(made)
            try:
                yield cast("Connection", made)
            finally:
                made.lose("the gateway closed it")
                made.ended = True
                if self.end_gate is not None:
                    with trio.CancelScope(shield=True):
                        await self.end_gate.wait()
        finally:
            self.open -= 1

    @property
    def last(self) -> FakeConnection:
        return self.made[-1]

    def sent(self) -> list[str]:
        """The names of all calls that any connection has got, in order."""
        return [each.call for connection in self.made for each in connection.calls]

    def received(self) -> set[str]:
        """The names of the calls that a downstream may have received."""
        return {each.call for connection in self.made for each in connection.calls if not each.was_lost}


def refuses(reason: str = "could not be made: the process exited with status 1") -> HandshakeError:
    return HandshakeError(reason)


class Pending:
    """A request that waits, or has its outcome."""

    def __init__(self) -> None:
        self.outcome: outcome.Outcome[Any] | None = None
        self.scope = trio.CancelScope()
        self.answers = 0

    async def run(self, rig: Rig, admit: Admit) -> None:
        with self.scope:
            try:
                self.outcome = outcome.Value(await carry(rig.actor, "files", admit))
            except Exception as error:
                self.outcome = outcome.Error(error)
            self.answers += 1

    @property
    def done(self) -> bool:
        return self.outcome is not None

    @property
    def error(self) -> BaseException:
        """The error that it was answered with."""
        assert isinstance(self.outcome, outcome.Error), self.outcome
        return self.outcome.error

    @property
    def value(self) -> Any:
        """The result that it was answered with."""
        assert self.outcome is not None, "it still waits"
        if isinstance(self.outcome, outcome.Error):
            raise self.outcome.error
        assert isinstance(self.outcome, outcome.Value)
        return self.outcome.value


@define(eq=False)
class Rig:
    """A downstream's actor in a system of its own."""

    config: DownstreamConfig
    clock: trio.testing.MockClock
    fakes: FakeConnections = field(factory=FakeConnections)
    recalled: Recalled = field(factory=lambda: Recalled(None, Usage(BEGAN.date())))
    published: list[OfferChanged | ToolsPinned | ToolsChanged] = field(factory=list)
    told: list[str] = field(factory=list)
    log_level: str | None = None
    expand: Callable[[DownstreamConfig], DownstreamConfig] = lambda config: config
    recorder: Recorder = field(factory=Recorder)
    system: System = field(init=False)
    nursery: trio.Nursery = field(init=False)
    _names: int = 0

    @property
    def actor(self) -> Any:
        return self.system.named(NAME)

    async def recall(self, name: str) -> Recalled:
        assert name == "files"
        return self.recalled

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.clock.current_time())

    def deps(self) -> DownstreamDeps:
        return DownstreamDeps(
            connect=self.fakes,
            expand=self.expand,
            recall=self.recall,
            publish=self.published.append,
            tell=lambda text, _level: self.told.append(text),
            now=self.now,
            random=lambda: 0.5,
            log_level=lambda: self.log_level,
        )

    async def quiet(self) -> None:
        """Return when every task waits: all that follows from what was done has happened."""
        await trio.testing.wait_all_tasks_blocked()

    async def later(self, seconds: float) -> None:
        """Let so much time pass."""
        await self.quiet()
        self.clock.jump(seconds)
        await self.quiet()

    def begin(
        self, tool: str = "read", agent: AgentPeer | None = None, *, call: str | None = None, counts: bool = True
    ) -> Pending:
        """Begin a call, without waiting for anything."""
        self._names += 1
        pending = Pending()
        name = call or f"call {self._names}"
        admit = Admit(name, "tools/call", {"name": tool, "arguments": {}}, agent, counts=counts)
        self.nursery.start_soon(pending.run, self, admit)
        return pending

    async def call(self, tool: str = "read", agent: AgentPeer | None = None, **more: Any) -> Pending:
        """Begin a call. When this returns, it is sent, refused or waits."""
        pending = self.begin(tool, agent, **more)
        await self.quiet()
        return pending

    async def succeed(self, tool: str = "read") -> Invoked:
        """Make a call that is answered."""
        pending = await self.call(tool)
        self.fakes.last.open[-1].answer()
        await self.quiet()
        invoked: Invoked = pending.value
        return invoked

    async def fail(self, failure: Failure = Failure.TRANSPORT, tool: str = "write") -> BaseException:
        """Make a call that has no answer, over a connection that remains."""
        pending = await self.call(tool)
        self.fakes.last.open[-1].answer(CallFailed(failure, "the response was cut short"))
        await self.quiet()
        return pending.error

    async def ask(self, message: Request[R]) -> R:
        return await ask(self.actor, message)

    async def state(self) -> Downstream:
        await self.quiet()
        return await ask(self.actor, Describe())

    async def running(self) -> int:
        """How many calls the budget counts as running; it must have a limit of them."""
        state = await self.state()
        assert state.remaining.concurrent is not None
        limit = state.config.budget.concurrency_limit
        assert limit is not None
        return limit - state.remaining.concurrent

    def tools(self) -> list[str]:
        """The names of the tools that agents have now."""
        offers = [each.offer for each in self.published if isinstance(each, OfferChanged)]
        return [str(each["name"]) for each in offers[-1].tools]

    def changes(self) -> Changes:
        """How the tools differ from the pins, as it was published last."""
        return [each.changes for each in self.published if isinstance(each, ToolsChanged)][-1]

    def start(self) -> DownstreamActor:
        return DownstreamActor(self.config, self.deps())


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    """Run the rig, and check that nothing of it is left."""
    supervisor = ChildSpec(
        "downstreams", lambda: Supervisor([ChildSpec(NAME, rig.start, Restart.PERMANENT, shutdown=None)])
    )
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        rig.nursery = nursery
        rig.system = System([supervisor], on_event=rig.recorder)
        async with rig.system:
            await rig.quiet()
            yield rig
        assert rig.fakes.open == 0, "a connection is still open"
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living <= before, "tasks are left"


@contextmanager
def threads_inline() -> Iterator[None]:
    """Have tasks do at once what they give to threads: the clock of a test does not wait for threads."""

    async def run_sync(work: Callable[..., R], *args: Any, abandon_on_cancel: bool = False) -> R:
        await trio.lowlevel.checkpoint()
        return work(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", run_sync)
        yield


# --- Fixtures and checks: import `no_threads` and `rig` to use them

LIMITED = Budget(concurrency_limit=4, daily_quota=1000)


@pytest.fixture(autouse=True)
def no_threads() -> Iterator[None]:
    with threads_inline():
        yield


@pytest.fixture
async def rig(clock: trio.testing.MockClock, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A downstream that is connected; `configured` changes its configuration."""
    made = Rig(config(**{"budget": LIMITED, **getattr(request, "param", {})}), clock)
    async with running(made):
        yield made


def configured(**settings: Any) -> pytest.MarkDecorator:
    """The rig of this test has these settings."""
    return pytest.mark.parametrize("rig", [settings], indirect=True, ids=[" "])


def refusal(pending: Pending, status: InvocationStatus = InvocationStatus.CIRCUIT_OPEN) -> GatewayRefused:
    """The refusal that a call got, which says when to come back."""
    refused = pending.error
    assert isinstance(refused, GatewayRefused), refused
    assert refused.status is status
    return refused


def failure(pending: Pending, kind: Failure = Failure.TRANSPORT) -> CallFailed:
    failed = pending.error
    assert isinstance(failed, CallFailed), failed
    assert failed.failure is kind
    return failed
