"""The JSON-RPC state of one connection to a downstream, which many agents share. No I/O.

The caller sends the messages that it gets, reports what it receives, and carries out the returned events in their
order. Ids and progress tokens of requests are always numbers of our own, so no two agents can meet. A downstream is not
trusted: what breaks the protocol costs the request it belongs to, or only itself.

What a downstream asks for belongs to the request that it came with (HTTP). Over a stream that is unknown: it can only
be for an agent if no other agent has a request in flight, or one that was given up lately without an answer.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from attrs import define, field, frozen
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from intercom._version import __version__
from intercom.gateway.breaker import Failure
from intercom.gateway.messages import AgentPeer, CallFailed, RpcError
from intercom.model.json_types import Json, JsonObject, part
from intercom.workspace.command_runner import plain

#: What the gateway says that it is.
CLIENT_INFO: Final[JsonObject] = {"name": "agent-intercom", "version": __version__}
#: An error of JSON-RPC for what only this side knows: there is no agent to ask, or there are too many requests.
SERVER_ERROR: Final = -32000
#: How many requests of the downstream may be open at once.
MOST_ASKS: Final = 100
#: How long after a request was given up the downstream may still ask for something that belongs to it (seconds), and
#: how many such requests are remembered one by one.
LATE_SECONDS: Final = 60.0
MOST_LATE: Final = 1000
#: How long it may do that once it has answered a ping that was sent after the cancellation (seconds): it reads its
#: input in order, so it has read the cancellation, and only what it was just about to ask may still come. For one that
#: has answered a request after that, and so goes on with cancelled ones, `LATE_SECONDS` counts.
CANCELLED_SECONDS: Final = 5.0
#: How many messages may come in one array, and how long it may be.
MOST_TOGETHER: Final = 1000
_ARRAY_BYTES: Final = 1024 * 1024
#: How much of a line that is no message is kept, in characters.
JUNK_LENGTH: Final = 500

CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
LOG: Final = "notifications/message"
ELICITED: Final = "notifications/elicitation/complete"

_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})
#: What a downstream may ask an agent's client, and the capability that the client needs for it.
_CAPABILITY_FOR: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "tasks/get": "tasks",
    "tasks/list": "tasks",
    "tasks/result": "tasks",
    "tasks/cancel": "tasks",
}
#: What the gateway itself sets in the `_meta` of a request, or leaves out in older versions.
_OWN_META: Final = frozenset(
    {CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY, "progressToken"}
)
#: What Intercom's own programs tell each other in `_meta`.
_INTERNAL_META: Final = "intercom/"


# --- Events


@frozen
class Answered:
    """A request has ended: with its result, an error of the downstream, or without an answer."""

    id: int
    outcome: JsonObject | RpcError | CallFailed


@frozen
class ToAgent:
    """Send this notification to the agent."""

    agent: AgentPeer
    method: str
    params: JsonObject


@frozen
class Notified:
    """The downstream says something on its own. `agent` is the one whose request it belongs to, if that is known."""

    method: str
    params: JsonObject
    agent: AgentPeer | None


@frozen
class Ask:
    """Ask the agent, and answer the downstream with `replied` or `refused` for this key."""

    key: int | str
    method: str
    params: JsonObject
    agent: AgentPeer


@frozen
class AskEnded:
    """Stop asking an agent: nobody waits for the answer any more."""

    key: int | str


@frozen
class Send:
    """Send this message to the downstream."""

    message: JsonObject


@frozen
class Junk:
    """The downstream sent something that is no message."""

    text: str


Event: TypeAlias = Answered | ToAgent | Notified | Ask | AskEnded | Send | Junk
Events: TypeAlias = Sequence[Event]


@define(eq=False)
class _Pending:
    id: int
    agent: AgentPeer | None
    token: str | int | None


@frozen
class _OpenAsk:
    agent: AgentPeer
    request: int | None = field(default=None)


@frozen
class _Late:
    """A request that was given up without an answer: whose it was, and until when something may come of it."""

    agent: str
    until: float


class Multiplexer:
    """The state of one connection. `version` is the protocol version in use, empty before the handshake. `now` is a
    clock that never goes back, in seconds.

    `dropped_answers` counts answers that no request waited for: late, repeated, or with an unknown id. `junk` counts
    what was no message.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.dropped_answers = 0
        self.junk = 0
        self._version = ""
        self._modern = False
        self._last_id = 0
        self._pending: dict[int, _Pending] = {}
        # The requests in flight of each agent. Each may come with an object of its own.
        self._agents: dict[str, dict[int, AgentPeer]] = {}
        self._asks: dict[int | str, _OpenAsk] = {}
        self._now = now
        # Oldest first. What no longer had room may be anybody's until `_late_until`.
        self._late: dict[int, _Late] = {}
        self._late_until = -math.inf
        # The requests that were given up, by the pings that followed their cancellations.
        self._pings: dict[int, int] = {}
        self._ignores_cancellations = False

    @property
    def version(self) -> str:
        return self._version

    @property
    def is_modern(self) -> bool:
        """Whether each request names its version and the capabilities of its client, and there is no session."""
        return self._modern

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._pending)

    def speak(self, version: str) -> None:
        """Use this protocol version from now on."""
        self._version = version
        self._modern = version in MODERN_PROTOCOL_VERSIONS

    # --- Requests to the downstream

    def request(
        self,
        method: str,
        params: JsonObject,
        *,
        agent: AgentPeer | None = None,
        progress_token: str | int | None = None,
    ) -> tuple[int, JsonObject]:
        """Begin a request. Return its id and its message. `progress_token` is the agent's own."""
        self._last_id = id = self._last_id + 1
        if agent is None:
            progress_token = None
        else:
            self._agents.setdefault(agent.id, {})[id] = agent
        self._pending[id] = _Pending(id, agent, progress_token)
        sent = self._outward(params, agent, None if progress_token is None else id)
        return id, {"jsonrpc": "2.0", "id": id, "method": method, "params": sent}

    def _outward(self, params: JsonObject, agent: AgentPeer | None, token: int | None) -> JsonObject:
        given = params.get("_meta")
        if given is None and token is None and not self._modern:
            return params
        meta: dict[str, Json] = {}
        if isinstance(given, dict):
            meta = {
                key: value
                for key, value in given.items()
                if key not in _OWN_META
                and not key.startswith(_INTERNAL_META)
                and (self._modern or key != LOG_LEVEL_META_KEY)
            }
        if token is not None:
            meta["progressToken"] = token
        if self._modern:
            meta[PROTOCOL_VERSION_META_KEY] = self._version
            meta[CLIENT_INFO_META_KEY] = CLIENT_INFO
            meta[CLIENT_CAPABILITIES_META_KEY] = {} if agent is None else agent.capabilities
        if meta:
            return {**params, "_meta": meta}
        return {key: value for key, value in params.items() if key != "_meta"}

    def forget(self, id: int, *, was_sent: bool = True) -> Events:
        """End a request whose answer is not wanted any more. An answer that comes later is dropped. `was_sent` says
        whether the downstream may have received it."""
        pending = self._pending.get(id)
        if pending is None:
            return ()
        if was_sent:
            self._note_late(pending)
        return self._finish(pending)

    def failed(self, id: int, failure: Failure, reason: str, *, was_sent: bool) -> Events:
        """Report that a request has no answer and will get none."""
        pending = self._pending.get(id)
        if pending is not None and was_sent:
            self._note_late(pending)
        return self._end(id, CallFailed(failure, reason, was_sent=was_sent))

    def _note_late(self, pending: _Pending) -> None:
        """Note that the downstream may still work on a request, and ask for something for its agent."""
        if pending.agent is None:
            return
        if len(self._late) >= MOST_LATE:
            oldest = self._late.pop(next(iter(self._late)))
            self._late_until = max(self._late_until, oldest.until)
        self._late[pending.id] = _Late(pending.agent.id, self._now() + LATE_SECONDS)

    def ping_after(self, id: int) -> Events:
        """Return a ping to send after the cancellation of a request, if the downstream may still ask for something that
        belongs to it. Its answer says that the downstream has read the cancellation."""
        if id not in self._late or self._modern or len(self._pings) >= MOST_ASKS:
            return ()
        ping, message = self.request("ping", {})
        self._pings[ping] = id
        return (Send(message),)

    def _is_late_for_others(self, agent: str) -> bool:
        """Whether what comes now may belong to a request that another agent has given up."""
        now = self._now()
        for id, late in tuple(self._late.items()):
            if late.until <= now:
                del self._late[id]
        return self._late_until > now or any(late.agent != agent for late in self._late.values())

    def lost(self, reason: str) -> Events:
        """Report that the connection is lost: all requests have failed, and nobody is asked any more."""
        events: list[Event] = [
            Answered(id, CallFailed(Failure.TRANSPORT, reason, was_sent=True)) for id in self._pending
        ]
        events += [AskEnded(key) for key in self._asks]
        self._pending.clear()
        self._agents.clear()
        self._asks.clear()
        self._late.clear()
        self._late_until = -math.inf
        self._pings.clear()
        return events

    def _end(self, id: int, outcome: JsonObject | RpcError | CallFailed) -> Events:
        pending = self._pending.get(id)
        if pending is None:
            return ()
        answered = Answered(id, outcome)
        ended = self._finish(pending)
        return (answered, *ended) if ended else (answered,)

    def _finish(self, pending: _Pending) -> Events:
        del self._pending[pending.id]
        agent = pending.agent
        if agent is None:
            given_up = self._pings.pop(pending.id, None)
            late = None if given_up is None else self._late.get(given_up)
            if given_up is not None and late is not None and not self._ignores_cancellations:
                self._late[given_up] = _Late(late.agent, min(late.until, self._now() + CANCELLED_SECONDS))
            return ()
        requests = self._agents[agent.id]
        del requests[pending.id]
        if not requests:
            del self._agents[agent.id]
        return self._end_asks(pending.id, agent) if self._asks else ()

    # --- What comes from the downstream

    def received(self, data: bytes, request: int | None = None) -> Events:
        """Take one JSON text. `request` is the id of the request in whose response it came, if that is known."""
        if data[:1] == b"[" and len(data) > _ARRAY_BYTES:
            return self._junk(data)
        try:
            message = decode(data)
        except ValueError:
            return self._unreadable(data, request)
        if type(message) is dict:
            return self._message(message, request, data)
        if type(message) is not list or not 0 < len(message) <= MOST_TOGETHER:
            return self._junk(data)
        # An array of messages, which versions before 2025-06-18 allow.
        events: list[Event] = []
        for each in message:
            events += self._message(each, request, data) if type(each) is dict else self._junk(data)
        return events

    def _message(self, message: JsonObject, request: int | None, data: bytes) -> Events:
        if "method" not in message:
            if "result" in message or "error" in message:
                return self._answer(message, request)
            return self._junk(data)
        method, params = message["method"], message.get("params")
        if params is None:
            params = {}
        if type(method) is not str or type(params) is not dict:
            return self._junk(data)
        if "id" not in message:
            return self._notification(method, params, request, data)
        key = message["id"]
        if type(key) is not int and type(key) is not str:
            return self._junk(data)
        return self._asked(key, method, params, request)

    def _answer(self, message: JsonObject, request: int | None) -> Events:
        id = _own_number(message.get("id"))
        if id is None and message.get("id") is None and "error" in message:
            # The downstream could not read a request. It can only be this one.
            id = request if request is not None else next(iter(self._pending)) if len(self._pending) == 1 else None
        if id not in self._pending or request not in (None, id):
            self.dropped_answers += 1
            if id is not None and request in (None, id):
                self._late.pop(id, None)
                # An answer that crosses with the cancellation comes before that of the ping.
                self._ignores_cancellations |= 0 < id <= self._last_id and id not in self._pings.values()
            return ()
        return self._end(id, _outcome(message))

    def _unreadable(self, data: bytes, request: int | None) -> Events:
        """Take what is not valid JSON. If it was meant as an answer, its request fails at once, and not much later."""
        id, why = _answered_by(data)
        if id in self._pending and request in (None, id):
            return self._end(id, CallFailed(Failure.PROTOCOL, f"the answer {why}"))
        if id is not None and request in (None, id):
            self._late.pop(id, None)
        return self._junk(data)

    def _junk(self, data: bytes) -> Events:
        self.junk += 1
        return (Junk(plain(data[: 4 * JUNK_LENGTH])[:JUNK_LENGTH]),)

    # --- Notifications

    def _notification(self, method: str, params: JsonObject, request: int | None, data: bytes) -> Events:
        if method == PROGRESS:
            return self._progress(params, data)
        if method == CANCELLED:
            key = params.get("requestId")
            if type(key) not in (int, str) or self._asks.pop(key, None) is None:  # type: ignore[arg-type]
                return ()
            return (AskEnded(key),)  # type: ignore[arg-type]
        agent = self._agent_of(request)
        if method == LOG:
            level = params.get("level")
            if not isinstance(level, str) or level not in _LEVELS or "data" not in params:
                return self._junk(data)
            return (Notified(method, params, None) if agent is None else ToAgent(agent, method, params),)
        if method == ELICITED and agent is not None:
            return (ToAgent(agent, method, params),)
        return (Notified(method, params, agent),)

    def _progress(self, params: JsonObject, data: bytes) -> Events:
        pending = self._pending.get(_own_number(params.get("progressToken")) or 0)
        if pending is None or pending.agent is None or pending.token is None:
            # It came after the answer, or nobody asked for it. Clients close a connection that reports unknown tokens.
            return ()
        total, message = params.get("total"), params.get("message")
        if not _is_number(params.get("progress")) or not (total is None or _is_number(total)):
            return self._junk(data)
        if message is not None and type(message) is not str:
            return self._junk(data)
        return (ToAgent(pending.agent, PROGRESS, {**params, "progressToken": pending.token}),)

    def _agent_of(self, request: int | None) -> AgentPeer | None:
        """The agent that a message is for: that of the request, or the only one that it can be for."""
        if request is not None:
            pending = self._pending.get(request)
            return None if pending is None else pending.agent
        if len(self._agents) != 1:
            return None
        ((id, requests),) = self._agents.items()
        return None if self._is_late_for_others(id) else next(reversed(requests.values()))

    # --- Requests of the downstream

    def _asked(self, key: int | str, method: str, params: JsonObject, request: int | None) -> Events:
        if method == "ping":
            return (Send({"jsonrpc": "2.0", "id": key, "result": {}}),)
        if key in self._asks:
            # To answer it would answer the one that has this id already.
            self.junk += 1
            return ()
        if method not in _CAPABILITY_FOR or self._modern:
            return (_refusal(key, METHOD_NOT_FOUND, "the gateway does not answer this method"),)
        agent = self._agent_of(request)
        if agent is None:
            return (_refusal(key, INTERNAL_ERROR, self._why_nobody(request)),)
        if not supports(agent, method, params):
            wanted = _CAPABILITY_FOR[method]
            return (_refusal(key, METHOD_NOT_FOUND, f"the client of this agent does not support {wanted}"),)
        if len(self._asks) >= MOST_ASKS:
            return (_refusal(key, SERVER_ERROR, "too many requests are open: wait for their answers"),)
        self._asks[key] = _OpenAsk(agent, request)
        return (Ask(key, method, without_token(params), agent),)

    def _why_nobody(self, request: int | None) -> str:
        if request is not None or not self._agents:
            return "no agent can be asked: ask only while a request of an agent runs"
        if len(self._agents) == 1:
            return (
                "another agent's request was cancelled or timed out, and this could belong to it: answer that request,"
                " or ask again in a minute"
            )
        return (
            "requests of several agents run, and this one could be for any of them: set the sharing of this downstream"
            " to agent, so that each agent has its own connection"
        )

    def replied(self, key: int | str, result: JsonObject) -> Events:
        """Answer a request of the downstream, unless it has ended."""
        if self._asks.pop(key, None) is None:
            return ()
        return (Send({"jsonrpc": "2.0", "id": key, "result": result}),)

    def refused(self, key: int | str, error: RpcError) -> Events:
        """Answer a request of the downstream with an error, unless it has ended."""
        if self._asks.pop(key, None) is None:
            return ()
        return (_refusal(key, error.code, error.message, error.data),)

    def _end_asks(self, request: int, agent: AgentPeer) -> Events:
        """End what a downstream still asks for a request that has ended."""
        is_idle = agent.id not in self._agents
        ended = [
            key
            for key, ask in self._asks.items()
            if ask.request == request or (ask.request is None and is_idle and ask.agent.id == agent.id)
        ]
        events: list[Event] = []
        for key in ended:
            del self._asks[key]
            events += (AskEnded(key), _refusal(key, SERVER_ERROR, "the request that this belonged to has ended"))
        return events


def cancellation(id: int) -> JsonObject:
    """Return the message that cancels a request."""
    return {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": id}}


def supports(agent: AgentPeer, method: str, params: Mapping[str, Json]) -> bool:
    """Whether the client of an agent can be asked this, as its capabilities say."""
    wanted = _CAPABILITY_FOR.get(method)
    offered = agent.capabilities
    if wanted is None or offered.get(wanted) is None:
        return False
    if method != "elicitation/create":
        return True
    modes = part(offered, wanted)
    if params.get("mode") == "url":
        return "url" in modes
    # A client that declares nothing below `elicitation` shows forms, as the first version of it did.
    return "form" in modes or "url" not in modes


def without_token(params: JsonObject) -> JsonObject:
    """Return the parameters without a progress token, which may be one of another downstream, too."""
    meta = part(params, "_meta")
    if "progressToken" not in meta:
        return params
    return {**params, "_meta": {key: value for key, value in meta.items() if key != "progressToken"}}


def _refusal(key: int | str, code: int, message: str, data: Json = None) -> Send:
    error: JsonObject = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Send({"jsonrpc": "2.0", "id": key, "error": error})


def _own_number(id: object) -> int | None:
    """Return one of our ids as a downstream repeats it: some make a text or a fraction of it."""
    if type(id) is int:
        return id
    if type(id) is str and id.isascii() and id.isdecimal() and len(id) <= 15 and id[0] != "0":
        return int(id)
    if type(id) is float and id.is_integer():
        return int(id)
    return None


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _outcome(message: JsonObject) -> JsonObject | RpcError | CallFailed:
    if "error" not in message or (message["error"] is None and message.get("result") is not None):
        result = message["result"]
        if type(result) is dict:
            return result
        return CallFailed(Failure.PROTOCOL, "the result of the answer is not an object")
    error = message["error"]
    if message.get("result") is not None:
        return CallFailed(Failure.PROTOCOL, "the answer has both a result and an error")
    if type(error) is not dict:
        return CallFailed(Failure.PROTOCOL, "the error of the answer is not an object")
    code, text = error.get("code"), error.get("message")
    return RpcError(
        code if type(code) is int else INTERNAL_ERROR,
        text if type(text) is str else "the downstream gave no message with this error",
        error.get("data"),
    )


# --- Reading JSON that is not trusted


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        # It could be read, but not written again.
        raise ValueError("a number is too large")
    return value


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
_LENIENT: Final = json.JSONDecoder()
#: Escapes that may be half of a character, because the other half is not beside them. An escaped backslash before `ud`
#: only looks like one, and is checked, too.
_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]|\\\\u[dD]", re.DOTALL
)
#: How deep a message may be nested. What only just can be decoded cannot be encoded from a deeper call.
_DEEPEST: Final = 200
_BOM: Final = b"\xef\xbb\xbf"
#: Where the id stands in an answer that cannot be read: first, or last, as SDKs write it.
_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?([0-9]{1,15})"?\s*[,}]')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*"?([0-9]{1,15})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
#: How far from the ends of a text the id is looked for.
_ID_BYTES: Final = 200


def decode(data: bytes) -> Json:
    """Decode one JSON text, so that it can be encoded again: halves of surrogate pairs become replacement characters.
    Raises ValueError for what is not valid, including NaN and what is nested too deeply."""
    if data[:1] == b"\xef":
        data = data.removeprefix(_BOM)
    try:
        value: Json = _DECODER.decode(data.decode())
        if data.count(b"[") + data.count(b"{") > _DEEPEST and _is_too_deep(value):
            raise ValueError("the value is nested too deeply")
        if b"\\u" in data and _SURROGATE.search(data):
            value = json.loads(_whole_characters(json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    return value


def _is_too_deep(value: Json) -> bool:
    level: list[Iterable[Json]] = [value] if type(value) is dict or type(value) is list else []
    for _ in range(_DEEPEST):
        insides = (each.values() if type(each) is dict else each for each in level)
        level = [each for inside in insides for each in inside if type(each) is dict or type(each) is list]
        if not level:
            return False
    return True


def _whole_characters(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _answered_by(data: bytes) -> tuple[int | None, str]:
    """Return the id of the answer that a text was meant to be, if it can be found, and what is wrong with the text."""
    why = "is not valid JSON"
    try:
        data.decode()
    except UnicodeDecodeError:
        why = "is not valid UTF-8"
    try:
        message = _LENIENT.decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        found = _FIRST_ID.match(data[:_ID_BYTES]) or _LAST_ID.search(data[-_ID_BYTES:])
        return (int(found[1]) if found else None), why
    if type(message) is not dict or "method" in message:
        return None, why
    return _own_number(message.get("id")), why
