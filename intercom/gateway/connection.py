"""A connection to one downstream: a carrier, the multiplexer on it, and the handshake in either protocol version.

The handshake begins with `server/discover` of 2026-07-28. A downstream that answers with an error gets `initialize` on
the same carrier. One that does not answer gets it there too, because it may only be slow to start; its first good
answer counts. One that ends, or stays silent, is started again for `initialize` alone.

A downstream may do anything: nothing that it sends raises in the reader, and a flood is read slowly.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, Protocol, TypeAlias

import trio
from attrs import define, evolve, field, frozen
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from intercom.gateway import multiplexer
from intercom.gateway.breaker import Failure
from intercom.gateway.budgets import duration
from intercom.gateway.call_limits import CallLimits
from intercom.gateway.carrier import Carrier, CarrierDetail, CarrierLost, OpenCarrier, Received, RequestFailed
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.messages import AgentPort, CallFailed, RpcError
from intercom.gateway.multiplexer import (
    CLIENT_INFO,
    Answered,
    Ask,
    AskEnded,
    Events,
    Junk,
    Multiplexer,
    Notified,
    Send,
    ToAgent,
)
from intercom.model.json_types import Json, JsonObject, part
from intercom.workspace.command_runner import plain

log = logging.getLogger("intercom.gateway")

#: How long a downstream may be silent at `server/discover` before it gets `initialize`, too (seconds).
PROBE_SECONDS: Final = 3.0
#: The part of the time for the handshake after which a downstream that is still silent is started again.
_RESTART_AFTER: Final = 0.5
#: How often a request is repeated because the downstream asks for more input, and how much it may ask for at once.
MOST_ROUNDS: Final = 10
MOST_INPUTS: Final = 20
#: The pause before a request is repeated that needs no more input (seconds).
_ROUND_PAUSE: Final = 0.5
#: The time that is allowed for each message which is no answer and no question, and what may come at once (seconds).
#: A downstream that sends more is read more slowly. Long messages count as several of so many bytes.
_UNASKED_SECONDS: Final = 0.0005
_UNASKED_BURST: Final = 5.0
_UNASKED_BYTES: Final = 512
#: How many answers and cancellations may wait until the downstream reads them.
_MOST_UNSENT: Final = 1000
#: How many lines that are no messages are kept for people.
_JUNK_KEPT: Final = 20
#: How long the text about a failed handshake may be, and the downstream's own message in it, in characters.
_DETAIL_LENGTH: Final = 4000
_SAID_LENGTH: Final = 500

_DISCOVER: Final = "server/discover"
_INITIALIZE: Final = "initialize"


class HandshakeError(Exception):
    """A connection could not be made. `reason` continues "the connection ...", as in "could not be made: the process
    exited with status 1"; it contains nothing that a downstream wrote. `detail` may: it says more, for people."""

    def __init__(self, reason: str, detail: str = "", carrier: CarrierDetail | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.carrier = carrier or CarrierDetail()


class Listener(Protocol):
    """Takes what a downstream says on its own. It is called from the connection's reader, also before `connect` has
    returned; it must not raise or take long."""

    def notified(self, method: str, params: JsonObject, agent: AgentPort | None) -> None:
        """Take a notification that was not passed on to an agent: changes of lists and resources, frames of
        subscriptions, tasks. `agent` is the one whose request it belongs to, if that is known."""

    def junk(self, text: str) -> None:
        """Take a line that was no message: its beginning, without control characters. It may contain secrets."""


@define(eq=False)
class _Waiter:
    """The task that waits for an answer."""

    arrived: trio.Event = field(factory=trio.Event)
    outcome: JsonObject | RpcError | CallFailed | None = None


class Connection:
    """A connection whose handshake succeeded; `connect` makes it.

    `server` and `capabilities` are what the downstream said of itself, unchecked, and `instructions` are its own.
    `handshake_seconds` includes the start of its process. `lost_reason` is a clause, empty before the loss.
    """

    def __init__(self, carrier: Carrier, tell: Listener) -> None:
        self.server: JsonObject = {}
        self.capabilities: JsonObject = {}
        self.instructions = ""
        self.handshake_seconds = 0.0
        self._carrier = carrier
        self._tell = tell
        self._multiplexer = Multiplexer(trio.current_time)
        self._waiters: dict[int, _Waiter] = {}
        self._asking: dict[int | str, trio.CancelScope] = {}
        self._limits = CallLimits()
        self._unsent: deque[JsonObject] = deque()
        self._wake_sender = trio.Event()
        self._lost = trio.Event()
        self.lost_reason = ""
        self._read_until = -math.inf
        self._junk: deque[str] = deque(maxlen=_JUNK_KEPT)

    # --- What it is

    @property
    def version(self) -> str:
        """The protocol version in use."""
        return self._multiplexer.version

    @property
    def is_lost(self) -> bool:
        """Whether it works no more: each request fails at once."""
        return self._lost.is_set()

    @property
    def pid(self) -> int | None:
        """The id of the downstream's process, if it is a child of this one."""
        return self._carrier.detail().pid

    @property
    def running(self) -> int:
        """How many requests wait for their answers."""
        return len(self._waiters)

    @property
    def dropped_answers(self) -> int:
        """How many answers came that no request waited for."""
        return self._multiplexer.dropped_answers

    @property
    def junk_lines(self) -> int:
        """How many messages came that were none."""
        return self._multiplexer.junk

    def detail(self) -> CarrierDetail:
        """Return what is known about the process or the last response, for people. It may contain secrets."""
        return evolve(self._carrier.detail(), output=tuple(self._junk))

    async def wait_lost(self) -> str:
        """Wait until the connection is lost. Returns the reason, which continues "the connection ..."."""
        await self._lost.wait()
        return f"was lost: {self.lost_reason}"

    # --- Requests

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        call: str = "",
        agent: AgentPort | None = None,
        progress_token: str | int | None = None,
        modern_agent: bool = False,
        limit: trio.CancelScope | None = None,
    ) -> JsonObject:
        """Send a request and return its result. There is no time limit: use `trio.fail_after`. If its scope is given as
        `limit`, the time in which the agent answers a question of the downstream does not count (`call_limits`).

        Its progress goes to `agent` under `progress_token`. A downstream of 2026-07-28 may want input first: an agent
        that speaks this version too (`modern_agent`) gets this as the result. Any other agent is asked here, and the
        request is repeated with its answers. `call` is its name in logs.

        If the call is cancelled, the downstream is told. Raises RpcError if the downstream answers with an error, or if
        `params` cannot be sent, and CallFailed if there is no answer or it breaks the protocol.
        """
        if agent is not None and limit is not None:
            self._limits.begin(agent.id, limit)
        try:
            result = await self._exchange(method, params, agent, progress_token)
            if modern_agent or result.get("resultType") != "input_required" or not self._multiplexer.is_modern:
                return result
            for _ in range(MOST_ROUNDS):
                answers = await self._collect(agent, result, call)
                more: JsonObject = {"requestState": result["requestState"]} if "requestState" in result else {}
                if answers:
                    more["inputResponses"] = answers
                result = await self._exchange(method, {**params, **more}, agent, progress_token)
                if result.get("resultType") != "input_required":
                    return result
        finally:
            if limit is not None:
                self._limits.end(limit)
        raise CallFailed(Failure.PROTOCOL, f"the downstream asked for more input more than {MOST_ROUNDS} times")

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification. Raises CallFailed if the connection is lost."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def check(self) -> None:
        """Send the request that has no effect, and wait for its answer. Raises as `request` does."""
        await self.request("server/discover" if self._multiplexer.is_modern else "ping", {}, call="check")

    async def _exchange(
        self,
        method: str,
        params: JsonObject,
        agent: AgentPort | None = None,
        progress_token: str | int | None = None,
        *,
        quietly: bool = False,
    ) -> JsonObject:
        """Send one request, and return its result. If `quietly`, the downstream is not told of a cancellation."""
        if self._lost.is_set():
            raise CallFailed(Failure.TRANSPORT, self.lost_reason, was_sent=False)
        id, message = self._multiplexer.request(method, params, agent=agent, progress_token=progress_token)
        waiter = self._waiters[id] = _Waiter()
        was_sent = True
        try:
            await self._send(message)
            await waiter.arrived.wait()
        except (TypeError, ValueError):
            quietly, was_sent = True, False
            raise RpcError(INVALID_PARAMS, "the request is not valid JSON, or cannot be sent over HTTP") from None
        finally:
            del self._waiters[id]
            if waiter.outcome is None:
                # The task is cancelled, or the message could not be sent.
                self._handle(self._multiplexer.forget(id, was_sent=was_sent))
                if not self._carrier.cancel(id) and not quietly:
                    self._post(multiplexer.cancellation(id))
                    self._handle(self._multiplexer.ping_after(id))
        outcome = waiter.outcome
        if type(outcome) is dict:
            return outcome
        assert isinstance(outcome, RpcError | CallFailed)
        raise outcome

    async def _send(self, message: JsonObject) -> None:
        try:
            await self._carrier.send(message)
        except CarrierLost as lost:
            self._lose(lost.reason)
            raise CallFailed(Failure.TRANSPORT, lost.reason, was_sent=False) from None

    # --- Input that a downstream of 2026-07-28 wants before it answers

    async def _collect(self, agent: AgentPort | None, result: JsonObject, call: str) -> JsonObject:
        """Ask the agent for all inputs that a result wants, and return the answers by their keys."""
        wanted = result.get("inputRequests")
        if not wanted:
            # There is only a state to repeat: the downstream needs time.
            await trio.sleep(_ROUND_PAUSE)
            return {}
        if not isinstance(wanted, dict) or len(wanted) > MOST_INPUTS:
            raise CallFailed(
                Failure.PROTOCOL, f"the input that the downstream wants is not up to {MOST_INPUTS} requests"
            )
        log.debug("call %s: the downstream wants %d inputs", call, len(wanted))
        with self._limits.answering("" if agent is None else agent.id):
            return {key: await _input(agent, each) for key, each in wanted.items()}

    # --- Reading

    async def read(self) -> None:
        """Read until the connection is lost."""
        carrier = self._carrier
        try:
            while True:
                came = await carrier.receive()
                length = 0
                if type(came) is bytes:
                    events = self._multiplexer.received(came)
                    length = len(came)
                elif isinstance(came, Received):
                    events = self._multiplexer.received(came.data, came.request)
                    length = len(came.data)
                else:
                    assert isinstance(came, RequestFailed)
                    events = self._multiplexer.failed(came.id, came.failure, came.reason, was_sent=came.was_sent)
                self._handle(events)
                if not events or not isinstance(events[0], Answered | Ask):
                    await self._slow_down(max(1, len(events), length // _UNASKED_BYTES))
        except CarrierLost as lost:
            self._lose(lost.reason)
        except Exception:
            log.exception("a message of a downstream could not be handled")
            self._lose("a message could not be handled, which is a fault of the gateway")

    async def _slow_down(self, messages: int) -> None:
        """Wait if the downstream sends too much that nobody asked for: its pipe fills, and it has to wait too."""
        now = trio.current_time()
        self._read_until = max(self._read_until, now) + messages * _UNASKED_SECONDS
        ahead = self._read_until - now - _UNASKED_BURST
        if ahead > 0:
            await trio.sleep(ahead)

    def _handle(self, events: Events) -> None:
        for event in events:
            match event:
                case Answered(id, outcome):
                    waiter = self._waiters.get(id)
                    if waiter is not None and waiter.outcome is None:
                        waiter.outcome = outcome
                        waiter.arrived.set()
                case ToAgent(agent, method, params):
                    # One agent's fault must not cost the others their connection.
                    with _logged("an agent could not be told %s", method):
                        agent.notify(method, params)
                case Notified(method, params, to):
                    with _logged("%s could not be handled", method):
                        self._tell.notified(method, params, to)
                case Send(message):
                    self._post(message)
                case Ask(key):
                    scope = self._asking[key] = trio.CancelScope()
                    self._nursery.start_soon(self._ask, event, scope)
                case AskEnded(key):
                    asked = self._asking.pop(key, None)
                    if asked is not None:
                        asked.cancel()
                case Junk(text):
                    self._junk.append(text)
                    with _logged("junk could not be handled"):
                        self._tell.junk(text)

    async def _ask(self, ask: Ask, scope: trio.CancelScope) -> None:
        """Ask an agent what the downstream wants to know, until the multiplexer says that the request has ended."""
        with scope:
            try:
                with self._limits.answering(ask.agent.id):
                    result = await ask.agent.request(ask.method, ask.params)
            except RpcError as error:
                events = self._multiplexer.refused(ask.key, error)
            except Exception:
                log.exception("an agent could not be asked %s", ask.method)
                events = self._multiplexer.refused(ask.key, RpcError(INTERNAL_ERROR, "the agent could not be asked"))
            else:
                events = self._multiplexer.replied(ask.key, result)
            if self._asking.get(ask.key) is scope:
                del self._asking[ask.key]
            self._handle(events)

    # --- Messages that no task waits to send

    def _post(self, message: JsonObject) -> None:
        """Send a message soon. The reader must not wait for a downstream that itself waits to be read."""
        if self._lost.is_set():
            return
        if len(self._unsent) >= _MOST_UNSENT:
            self._lose("the downstream does not read what it is sent")
            return
        self._unsent.append(message)
        self._wake_sender.set()

    async def send_posted(self) -> None:
        """Send posted messages until the connection is lost."""
        while not self._lost.is_set():
            await self._wake_sender.wait()
            self._wake_sender = trio.Event()
            while self._unsent:
                try:
                    await self._send_or_refuse(self._unsent.popleft())
                except CarrierLost as lost:
                    self._lose(lost.reason)
                    return

    async def _send_or_refuse(self, message: JsonObject) -> None:
        try:
            await self._carrier.send(message)
        except (TypeError, ValueError):
            # An agent's answer, which a parser more lenient than JSON has read.
            error: JsonObject = {"code": INTERNAL_ERROR, "message": "the answer of the agent is not valid JSON"}
            await self._carrier.send({"jsonrpc": "2.0", "id": message.get("id"), "error": error})

    # --- Beginning and end

    def start(self, nursery: trio.Nursery) -> None:
        """Start to read and to send. Its tasks run in this nursery."""
        self._nursery = nursery
        nursery.start_soon(self.read)
        nursery.start_soon(self.send_posted)

    def close(self) -> None:
        """End all requests. The caller then ends the tasks and the carrier."""
        self._lose("the gateway closed it")

    def _lose(self, reason: str) -> None:
        if not self._lost.is_set():
            self.lost_reason = reason
            self._lost.set()
            self._wake_sender.set()
            self._unsent.clear()
            self._handle(self._multiplexer.lost(reason))

    # --- The handshake

    async def discover(self) -> JsonObject:
        """Ask for the versions and capabilities, as 2026-07-28 has it."""
        self._multiplexer.speak(LATEST_MODERN_VERSION)
        return await self._exchange(_DISCOVER, {}, quietly=True)

    async def initialize(self, capabilities: JsonObject) -> JsonObject:
        """Begin the handshake of older versions."""
        self._multiplexer.speak("")
        params: JsonObject = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": capabilities,
            "clientInfo": CLIENT_INFO,
        }
        return await self._exchange(_INITIALIZE, params, quietly=True)

    async def adopt(self, version: str, result: JsonObject) -> None:
        """Use what the handshake has shown. Raises CallFailed if the connection is lost meanwhile."""
        self._multiplexer.speak(version)
        self._carrier.negotiated(version)
        info = part(part(result, "_meta"), SERVER_INFO_META_KEY) if self._multiplexer.is_modern else {}
        self.server = info or part(result, "serverInfo")
        self.capabilities = part(result, "capabilities")
        instructions = result.get("instructions")
        self.instructions = instructions if isinstance(instructions, str) else ""
        if not self._multiplexer.is_modern:
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})


@contextmanager
def _logged(what: str, *values: object) -> Iterator[None]:
    """Log an exception as the fault that it is, and go on."""
    try:
        yield
    except Exception:
        log.exception(what, *values)


async def _input(agent: AgentPort | None, wanted: Json) -> JsonObject:
    """Get one input from the agent. Raises RpcError if it gives none, CallFailed if it is not what one can ask for."""
    method = wanted.get("method") if isinstance(wanted, Mapping) else None
    params = wanted.get("params", {}) if isinstance(wanted, Mapping) else None
    if not isinstance(method, str) or not isinstance(params, dict):
        raise CallFailed(Failure.PROTOCOL, "an input that the downstream wants is not a request")
    is_form = method == "elicitation/create"
    if agent is None:
        raise RpcError(METHOD_NOT_FOUND, "the downstream wants input from an agent, but no agent made this request")
    if not multiplexer.supports(agent, method, params):
        if is_form:
            return {"action": "decline"}
        raise RpcError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "the downstream wants input that the client of this agent cannot give: call another tool",
        )
    try:
        return await agent.request(method, multiplexer.without_token(params))
    except RpcError:
        if is_form:
            return {"action": "cancel"}
        raise


# --- Connecting


class _Failed(Exception):
    """An attempt to connect failed. `said` is what the downstream wrote about it. `may_be_other` says that the other
    protocol version may succeed on a new carrier."""

    def __init__(self, reason: str, said: str = "", *, may_be_other: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.said = said
        self.may_be_other = may_be_other


@asynccontextmanager
async def connect(
    config: DownstreamConfig,
    open_carrier: OpenCarrier,
    *,
    version: str | None = None,
    capabilities: JsonObject | None = None,
    tell: Listener,
) -> AsyncIterator[Connection]:
    """Connect to a downstream for the time of the block. Everything that was started ends with the block.

    `config` must be expanded. `version` is the protocol version that was in use the last time; it saves a failed
    attempt. `capabilities` are declared in the handshake of older protocol versions, for all agents. The handshake may
    take `config.startup_seconds`. A lost connection does not end the block: see `wait_lost`.

    Raises HandshakeError. What the block raises leaves it unchanged.
    """
    began = trio.current_time()
    limit = _Limit(began, config.startup_seconds)
    is_modern = version not in HANDSHAKE_PROTOCOL_VERSIONS
    async with AsyncExitStack() as stack:
        connection = None
        for attempt in (1, 2):
            try:
                connection = await stack.enter_async_context(_opened(config, open_carrier, tell, limit))
                if is_modern:
                    await _negotiate(connection, capabilities or {}, limit, may_restart=attempt == 1)
                else:
                    await _initialize(connection, capabilities or {}, limit)
                break
            except (_Failed, CarrierLost, CallFailed) as error:
                failed = error if isinstance(error, _Failed) else _Failed(error.reason)
            # The end of a process may say more: its exit status, and the last lines that it wrote.
            await stack.aclose()
            if attempt == 2 or not failed.may_be_other:
                raise _handshake_error(failed, connection)
            is_modern = not is_modern
        assert connection is not None
        connection.handshake_seconds = trio.current_time() - began
        yield connection


@frozen
class _Limit:
    """The time limit of the handshake: `seconds` from the time `began`."""

    began: float
    seconds: float

    @property
    def deadline(self) -> float:
        return self.began + self.seconds

    def over(self) -> _Failed:
        return _Failed(f"the handshake was not answered within {duration(self.seconds)}")


@asynccontextmanager
async def _opened(
    config: DownstreamConfig, open_carrier: OpenCarrier, tell: Listener, limit: _Limit
) -> AsyncIterator[Connection]:
    """Open a carrier with a connection on it. Raises CarrierLost, or _Failed if that takes too long."""
    failure: Exception | None = None
    is_open = False
    with trio.CancelScope(deadline=limit.deadline) as opening:
        async with open_carrier(config) as carrier:
            opening.deadline, is_open = math.inf, True
            connection = Connection(carrier, tell)
            async with trio.open_nursery() as nursery:
                connection.start(nursery)
                # A nursery would wrap what the block raises, and callers catch it by its type.
                try:
                    yield connection
                except Exception as error:
                    failure = error
                finally:
                    connection.close()
                    nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not is_open:
        raise limit.over()


_Outcome: TypeAlias = "JsonObject | RpcError | CallFailed"


async def _negotiate(connection: Connection, capabilities: JsonObject, limit: _Limit, *, may_restart: bool) -> None:
    """Find out which protocol version the downstream speaks, and do its handshake. Raises _Failed and CallFailed."""
    answers_in, answers = trio.open_memory_channel[tuple[str, _Outcome]](2)

    async def attempt(method: str) -> None:
        request = connection.discover() if method == _DISCOVER else connection.initialize(capabilities)
        answers_in.send_nowait((method, await _outcome_of(request)))

    restart_at = limit.began + limit.seconds * _RESTART_AFTER if may_restart else limit.deadline
    until = min(trio.current_time() + PROBE_SECONDS, restart_at)
    outcomes: dict[str, _Outcome] = {}
    is_initializing = False
    verdict: tuple[str, JsonObject] | _Failed | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt, _DISCOVER)
        while verdict is None:
            is_silent = True
            with trio.move_on_at(until):
                method, outcome = await answers.receive()
                outcomes[method] = outcome
                is_silent = False
            if connection.is_lost:
                verdict = _Failed(connection.lost_reason, may_be_other=may_restart)
            elif not is_silent:
                verdict = _verdict(outcomes)
            elif until >= limit.deadline:
                verdict = limit.over()
            elif is_initializing:
                verdict = _Failed("the downstream is silent", may_be_other=True)
            if verdict is None:
                until = limit.deadline if outcomes else restart_at
                if not is_initializing:
                    is_initializing = True
                    nursery.start_soon(attempt, _INITIALIZE)
        nursery.cancel_scope.cancel()
    if isinstance(verdict, _Failed):
        raise verdict
    await connection.adopt(*verdict)


async def _initialize(connection: Connection, capabilities: JsonObject, limit: _Limit) -> None:
    """Do the handshake of older versions. Raises _Failed and CallFailed."""
    outcome: _Outcome | None = None
    with trio.move_on_at(limit.deadline):
        outcome = await _outcome_of(connection.initialize(capabilities))
    if outcome is None:
        raise limit.over()
    version = _version_in(_INITIALIZE, outcome)
    if version is None or not isinstance(outcome, dict):
        is_newer = isinstance(outcome, RpcError) and outcome.code == UNSUPPORTED_PROTOCOL_VERSION
        raise _failure(outcome, may_be_other=is_newer)
    await connection.adopt(version, outcome)


async def _outcome_of(request: Awaitable[JsonObject]) -> _Outcome:
    try:
        return await request
    except (RpcError, CallFailed) as error:
        return error


def _verdict(outcomes: Mapping[str, _Outcome]) -> tuple[str, JsonObject] | _Failed | None:
    """Return the agreed version with the result that has it, the failure of both attempts, or None to wait."""
    for method, outcome in outcomes.items():
        version = _version_in(method, outcome)
        if version is not None and isinstance(outcome, dict):
            return version, outcome
    if len(outcomes) < 2:
        return None
    return _failure(outcomes[_INITIALIZE])


def _version_in(method: str, outcome: _Outcome) -> str | None:
    """Return the version of a successful answer that both sides speak."""
    if not isinstance(outcome, dict):
        return None
    if method == _INITIALIZE:
        version = outcome.get("protocolVersion")
        return version if isinstance(version, str) and version in HANDSHAKE_PROTOCOL_VERSIONS else None
    versions = outcome.get("supportedVersions")
    return LATEST_MODERN_VERSION if isinstance(versions, list) and LATEST_MODERN_VERSION in versions else None


def _failure(outcome: _Outcome, *, may_be_other: bool = False) -> _Failed:
    if isinstance(outcome, CallFailed):
        return _Failed(outcome.reason, may_be_other=may_be_other)
    if isinstance(outcome, RpcError):
        reason = f"the downstream answered the handshake with error {outcome.code}"
        return _Failed(reason, outcome.message, may_be_other=may_be_other)
    said = outcome.get("protocolVersion")
    reason = "the downstream speaks no protocol version that Intercom knows"
    return _Failed(reason, f"version {said}" if isinstance(said, str) else "", may_be_other=may_be_other)


def _handshake_error(failed: _Failed, connection: Connection | None) -> HandshakeError:
    carrier = CarrierDetail() if connection is None else connection.detail()
    said = (plain(failed.said.encode("utf-8", "replace"))[:_SAID_LENGTH], *carrier.output, carrier.stderr)
    detail = "\n".join(text for text in said if text.strip())
    return HandshakeError(f"could not be made: {failed.reason}", detail[-_DETAIL_LENGTH:], carrier)
