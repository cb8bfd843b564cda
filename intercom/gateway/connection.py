"""A connection to one downstream: a carrier, the multiplexer on it, and the calls that run over it.

`handshake` makes it. A downstream may do anything: nothing that it sends raises in the reader, and a flood is read
slowly.

The time limits of calls stand still while a client answers a question of the downstream: a person may need minutes for
an answer, and the downstream can do nothing meanwhile. Which of an agent's calls a question belongs to is not always
known, so the limits of all that run stand still. `ANSWER_SECONDS` bounds it: a client that never answers does not hold
a call for ever.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import trio
from attrs import define, evolve, field
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from intercom.gateway import rpc_multiplexer
from intercom.gateway.breaker import Failure
from intercom.gateway.carrier import Carrier, CarrierDetail, CarrierLost, Received, RequestFailed
from intercom.gateway.messages import AgentPeer, CallFailed, RpcError
from intercom.gateway.rpc_multiplexer import (
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

log = logging.getLogger("intercom.gateway")

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
#: The most time that all answers together may add to one call (seconds).
ANSWER_SECONDS: Final = 600.0

DISCOVER: Final = "server/discover"
INITIALIZE: Final = "initialize"


class Listener(Protocol):
    """Takes what a downstream says on its own. It is called from the connection's reader, also before `connect` has
    returned; it must not raise or take long."""

    def notified(self, method: str, params: JsonObject, agent: AgentPeer | None) -> None:
        """Take a notification that was not passed on to an agent: changes of lists and resources, frames of
        subscriptions, tasks. `agent` is the one whose request it belongs to, if that is known."""

    def junk(self, text: str) -> None:
        """Take a line that was no message: its beginning, without control characters. It may contain secrets."""


@define(eq=False)
class _Limit:
    """The limit of one call. `to_answer` is what its answers may still take, `left` what the downstream has left, and
    `since` when it began to stand still (Trio's clock, seconds)."""

    agent: str
    scope: trio.CancelScope
    to_answer: float = ANSWER_SECONDS
    left: float = 0.0
    since: float = 0.0
    questions: int = 0

    def stop(self, now: float) -> None:
        if not self.questions:
            self.since, self.left = now, self.scope.deadline - now
            self.scope.deadline += self.to_answer
        self.questions += 1

    def go_on(self, now: float) -> None:
        self.questions -= 1
        if not self.questions:
            to_answer = self.to_answer - (now - self.since)
            self.scope.deadline = now + self.left + min(0.0, to_answer)
            self.to_answer = max(0.0, to_answer)


@define(eq=False)
class CallLimits:
    """The limits of the calls that run over one connection, by agent."""

    _running: dict[trio.CancelScope, _Limit] = field(factory=dict, init=False)

    def begin(self, agent: str, scope: trio.CancelScope) -> None:
        """Know a call of this agent until `end`. The deadline of `scope` is its limit."""
        self._running[scope] = _Limit(agent, scope)

    def end(self, scope: trio.CancelScope) -> None:
        """Forget a call, if it is known."""
        self._running.pop(scope, None)

    @contextmanager
    def answering(self, agent: str) -> Iterator[None]:
        """Let the limits of all calls of this agent stand still during the block."""
        stopped = [limit for limit in self._running.values() if limit.agent == agent]
        for limit in stopped:
            limit.stop(trio.current_time())
        try:
            yield
        finally:
            for limit in stopped:
                limit.go_on(trio.current_time())


@define(eq=False)
class _Waiter:
    """The task that waits for an answer."""

    arrived: trio.Event = field(factory=trio.Event)
    outcome: JsonObject | RpcError | CallFailed | None = None


class Connection:
    """A connection whose handshake succeeded.

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
        agent: AgentPeer | None = None,
        progress_token: str | int | None = None,
        modern_agent: bool = False,
        limit: trio.CancelScope | None = None,
    ) -> JsonObject:
        """Send a request and return its result. There is no time limit: use `trio.fail_after`. If its scope is given as
        `limit`, the time in which the agent answers a question of the downstream does not count (`CallLimits`).

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
        agent: AgentPeer | None = None,
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
                    self._post(rpc_multiplexer.cancellation(id))
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

    async def _collect(self, agent: AgentPeer | None, result: JsonObject, call: str) -> JsonObject:
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
        return await self._exchange(DISCOVER, {}, quietly=True)

    async def initialize(self, capabilities: JsonObject) -> JsonObject:
        """Begin the handshake of older versions."""
        self._multiplexer.speak("")
        params: JsonObject = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": capabilities,
            "clientInfo": CLIENT_INFO,
        }
        return await self._exchange(INITIALIZE, params, quietly=True)

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


async def _input(agent: AgentPeer | None, wanted: Json) -> JsonObject:
    """Get one input from the agent. Raises RpcError if it gives none, CallFailed if it is not what one can ask for."""
    method = wanted.get("method") if isinstance(wanted, Mapping) else None
    params = wanted.get("params", {}) if isinstance(wanted, Mapping) else None
    if not isinstance(method, str) or not isinstance(params, dict):
        raise CallFailed(Failure.PROTOCOL, "an input that the downstream wants is not a request")
    is_form = method == "elicitation/create"
    if agent is None:
        raise RpcError(METHOD_NOT_FOUND, "the downstream wants input from an agent, but no agent made this request")
    if not rpc_multiplexer.supports(agent, method, params):
        if is_form:
            return {"action": "decline"}
        raise RpcError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "the downstream wants input that the client of this agent cannot give: call another tool",
        )
    try:
        return await agent.request(method, rpc_multiplexer.without_token(params))
    except RpcError:
        if is_form:
            return {"action": "cancel"}
        raise
