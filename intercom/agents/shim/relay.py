"""The relay's logic: what to pass on, what to remember, what to ask again. No I/O, no clock.

The caller reports events and performs the returned effects, in order. The relay keeps the handshake and the requests in
flight, so that a client does not notice a server's death. The next server run gets the handshake and those requests
again; each tool call keeps its name (docs/reference/shim-wire.md).

While no server is connected, the shipped answers to the handshake and the lists are used, so that a client's first turn
has its tools. Anything unusual (a page of a list, a malformed request, another protocol version) waits for the server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeGuard

from intercom.agents.clients import offers_tasks, without_tasks
from intercom.local.wire import decode, encode
from intercom.model.json_types import Json, JsonObject, part

#: The key of a call's name in `_meta`. The server uses it too.
CALL_KEY = "intercom/call"
#: Requests whose answer may carry a decision, or which must not have their effect twice: each gets a name.
NAMED = frozenset({"tools/call", "tasks/get", "tasks/result", "tasks/cancel"})


def control(line: bytes) -> JsonObject:
    """Return what a control line says, by kind; nothing for any other line. Ignore unknown kinds: the other end may be
    newer."""
    try:
        message = decode(line)
    except ValueError:
        return {}
    return part(message if isinstance(message, dict) else {}, "intercom")


HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"

_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "handshake_and_lists.json")
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")

#: The results by protocol version and method.
Results = dict[str, dict[str, JsonObject]]


def load_shipped(path: str = _FILE) -> Results:
    """Read the shipped results. Returns none if the package lacks them; every answer then waits for a server. Raises
    ValueError for a damaged file."""
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    return {version: found[version] for version in (HANDSHAKE_VERSIONS[-1], MODERN_VERSION) if version in found}


def shipped_answer(results: Results, method: str, params: Json, *, greeted: bool) -> JsonObject | None:
    """Answer a request from `results`, or return None to leave it to the server. `greeted` says that the connection
    began with the handshake (`initialize`) of older protocol versions."""
    if params is None:
        params = {}
    if not isinstance(params, dict):
        return None
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        return None
    if VERSION_KEY in meta:
        return None if greeted else _modern(results, method, params, meta)
    if method == "initialize":
        return _initialize(results, params)
    if not greeted:
        return None
    if method == "ping":
        return {}
    if method in LISTS and params.get("cursor") is None:
        return results.get(HANDSHAKE_VERSIONS[-1], {}).get(method)
    return None


def _initialize(results: Results, params: JsonObject) -> JsonObject | None:
    shipped = results.get(HANDSHAKE_VERSIONS[-1], {}).get("initialize")
    version = params.get("protocolVersion")
    if shipped is None or not isinstance(version, str) or not isinstance(params.get("capabilities"), dict):
        return None
    if not _names_a_program(params.get("clientInfo")):
        return None
    agreed = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    answer: JsonObject = {**shipped, "protocolVersion": agreed}
    if agreed != HANDSHAKE_VERSIONS[-1] and "capabilities" in shipped:
        # Only the newest handshake version has tasks.
        answer["capabilities"] = {key: value for key, value in part(shipped, "capabilities").items() if key != "tasks"}
    return answer


def _modern(results: Results, method: str, params: JsonObject, meta: JsonObject) -> JsonObject | None:
    if meta[VERSION_KEY] != MODERN_VERSION or not isinstance(meta.get(_CAPABILITIES_KEY), dict):
        return None
    if meta.get(_CLIENT_KEY) is not None and not _names_a_program(meta[_CLIENT_KEY]):
        return None
    if method == "server/discover" or (method in LISTS and params.get("cursor") is None):
        return results.get(MODERN_VERSION, {}).get(method)
    return None


def _names_a_program(info: object) -> bool:
    return isinstance(info, dict) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str)


def client_named(params: object) -> str:
    """Return the client's name in the parameters of a request; empty if it is not named there."""
    found = params if isinstance(params, dict) else {}
    for info in (found.get("clientInfo"), part(found, "_meta").get(_CLIENT_KEY)):
        if isinstance(info, dict) and isinstance(name := info.get("name"), str):
            return name
    return ""


def _key(value: Json) -> str:
    """Return an id or a token as JSON: 1 and "1" are two."""
    return str(value) if type(value) is int else json.dumps(value)


class ServerAsks:
    """Maps each request of a server to an id that no other server run used, and its answer back. The request's progress
    token is mapped to the same id."""

    def __init__(self) -> None:
        self._run = 0
        self._open: dict[str, Json] = {}
        self._tokens: dict[str, Json] = {}

    def new_server_run(self) -> list[str]:
        """Switch to another server run. Returns the open request ids of the earlier one."""
        left = list(self._open)
        self._run += 1
        self._open.clear()
        self._tokens.clear()
        return left

    def outward(self, message: JsonObject) -> JsonObject:
        """Convert a server's request to what the client sees."""
        key = f"s{self._run}/{json.dumps(message['id'])}"
        self._open[key] = message["id"]
        params = part(message, "params")
        meta = part(params, "_meta")
        if "progressToken" not in meta:
            return {**message, "id": key}
        self._tokens[key] = meta["progressToken"]
        return {**message, "id": key, "params": {**params, "_meta": {**meta, "progressToken": key}}}

    def inward(self, answer: JsonObject) -> JsonObject | None:
        """Convert a client's answer to what the server expects; None if no server waits for it."""
        key = answer.get("id")
        if not isinstance(key, str) or key not in self._open:
            return None
        self._tokens.pop(key, None)
        return {**answer, "id": self._open.pop(key)}

    def withdrawn(self, server_id: Json) -> str | None:
        """Remove a request that the server cancelled. Returns the id that the client got; None if it is not open."""
        key = f"s{self._run}/{json.dumps(server_id)}"
        if key not in self._open:
            return None
        del self._open[key]
        self._tokens.pop(key, None)
        return key

    def progressed(self, params: JsonObject) -> JsonObject | None:
        """Convert a client's progress report to what the server expects; None to drop it."""
        token = params.get("progressToken")
        if not isinstance(token, str) or token not in self._tokens:
            return None
        return {**params, "progressToken": self._tokens[token]}


Number = int | float


class Progress:
    """The progress of requests in flight, by token."""

    def __init__(self) -> None:
        self._last: dict[str, Number | None] = {}
        self._shift: dict[str, Number] = {}

    def follow(self, token: Json) -> None:
        """Start a request that has `token`, and forget an earlier use of that token."""
        self._last[_key(token)] = None

    def forget(self, token: Json) -> None:
        """Drop an answered or cancelled request: its progress is stale."""
        self._last.pop(_key(token), None)
        self._shift.pop(_key(token), None)

    def new_server_run(self) -> None:
        """Switch to another server run."""
        self._shift.clear()

    def rise(self, token: Json, value: Json) -> Number | None:
        """Return the value to show for a value that the server reported; None to show nothing. The first value of a new
        server run is shown unchanged if it is higher than the last one shown. Otherwise it is raised to one more than
        that, and later values by the same amount."""
        key = _key(token)
        if key not in self._last or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        last = self._last[key]
        if last is None:
            self._shift[key] = 0
        elif key not in self._shift:
            self._shift[key] = 0 if value > last else last - value + 1
        shown = value + self._shift[key]
        if last is not None and shown <= last:
            return None
        self._last[key] = shown
        return shown


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
SERVER_ERROR = -32000


class Failure(NamedTuple):
    """Why there is no server: a code of docs/reference/errors.md, and a sentence."""

    code: str
    message: str


def result(request_id: Json, value: JsonObject) -> bytes:
    """Return a request's result."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": value})


def error(request_id: Json, code: int, message: str, data: JsonObject | None = None) -> bytes:
    """Return a request's error; `request_id` is None if the request could not be read."""
    body: JsonObject = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification(method: str, params: JsonObject) -> bytes:
    """Return a notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def failed(request_id: Json, method: str, failure: Failure, *, modern: bool) -> bytes:
    """Return the answer for a caller without a server, in the error shape of all tools. A tool call gets a result,
    which models read; other requests get a JSON-RPC error."""
    if method != "tools/call":
        return error(request_id, SERVER_ERROR, failure.message, {"error_code": failure.code})
    told = {"status": "error", "error_code": failure.code, "error_message": failure.message}
    value: JsonObject = {
        "content": [{"type": "text", "text": json.dumps(told)}],
        "structuredContent": told,
        "isError": True,
    }
    return result(request_id, {**value, "resultType": "complete"} if modern else value)


#: The prefix of the shim's own request ids; their answers are not passed on.
OWN = "intercom/"


class Greeting:
    """Remembers `initialize`, `notifications/initialized`, the log level and the subscriptions."""

    def __init__(self) -> None:
        self._initialize: Json = None
        self._initialized = False
        self._level: Json = None
        self._subscribed: dict[str, JsonObject] = {}
        self._asked = 0

    @property
    def client_name(self) -> str:
        """The client's name in its `initialize`; empty without one."""
        return client_named(self._initialize)

    @property
    def is_answered(self) -> bool:
        """Whether the client's `initialize` has been answered."""
        return self._initialize is not None

    def initialized(self) -> None:
        """Note that the client is ready."""
        self._initialized = True

    def learn(self, method: str, params: Json) -> None:
        """Note a request that succeeded, if its effect must outlive the server."""
        if method == "initialize":
            self._initialize = params
        elif method == "logging/setLevel":
            self._level = params
        elif method == "resources/subscribe" and isinstance(params, dict):
            self._subscribed[str(params.get("uri"))] = params
        elif method == "resources/unsubscribe" and isinstance(params, dict):
            self._subscribed.pop(str(params.get("uri")), None)

    def again(self) -> list[bytes]:
        """Return the lines that restore this state in a new server."""
        lines: list[bytes] = []
        if self.is_answered:
            lines.append(self._own("initialize", self._initialize))
            if self._initialized:
                lines.append(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        if self._level is not None:
            lines.append(self._own("logging/setLevel", self._level))
        return lines + [self._own("resources/subscribe", params) for params in self._subscribed.values()]

    def _own(self, method: str, params: Json) -> bytes:
        self._asked += 1
        return encode({"jsonrpc": "2.0", "id": f"{OWN}{self._asked}/{method}", "method": method, "params": params})


_MANY = 10_000
#: The most bytes of requests kept for repetition. Only lines above `_LARGE` are checked against it.
_ROOM = 256 * 2**20
_LARGE = 65536


class ToClient(NamedTuple):
    """Write `line` to the client. After the write, report `written(receipt)` if there is a receipt."""

    line: bytes
    receipt: str | None = None


class ToServer(NamedTuple):
    """Write `line` to the server."""

    line: bytes


class Leave(NamedTuple):
    """Leave this server, which steps down, and find or start another."""


class Retry(NamedTuple):
    """Find or start a server now, unless that is in progress: a call waits for it."""


class Note(NamedTuple):
    """Print a line of diagnostics."""

    text: str


Effect = ToClient | ToServer | Leave | Retry | Note


class Party:
    """The user of a link: a shim's relay, or a hook with one question. Each method returns the effects to perform.

    `undelivered` are the receipts of written answers that no server has recorded yet, oldest first. `agents` are the
    conversations that the client has named, as the last server reported them.
    """

    undelivered: Collection[str] = ()
    agents: Sequence[str] = ()

    def server_up(self) -> Sequence[Effect]:
        """Process a server's welcome."""
        return ()

    def server_line(self, line: bytes) -> Sequence[Effect]:
        """Process a line from the server."""
        return ()

    def server_down(self) -> Sequence[Effect]:
        """Process the loss of the server."""
        return ()

    def server_failed(self, failure: Failure) -> Sequence[Effect]:
        """Process a failure: there is no server, and there will be none soon."""
        return ()

    def retry_allowed(self) -> None:
        """Let the next call cause another try: some time has passed since the failure."""


class InFlight(NamedTuple):
    """A request without its answer."""

    id: str | int
    method: str
    line: bytes
    call: str | None
    token: str | int | None
    params: Json


class Relay(Party):
    """The state of one shim's run; `shim` is its id, `results` the shipped answers."""

    def __init__(self, shim: str, results: Results) -> None:
        self.in_flight: dict[str, InFlight] = {}
        self.undelivered: dict[str, None] = {}
        self.agents: list[str] = []
        #: The receipts to return when the answers to these calls were written.
        self._receipts: dict[str, str] = {}
        self._shim = shim
        self._results = results
        self._up = False
        self._failure: Failure | None = None
        self._may_retry = False
        self._modern = False
        self._greeting = Greeting()
        self._named = 0
        self._asks = ServerAsks()
        self._progress = Progress()

    # Events of the client

    def client_line(self, line: bytes) -> list[Effect]:
        """Process a line from the client."""
        try:
            message = decode(line)
        except ValueError as fault:
            return [ToClient(error(None, PARSE_ERROR, f"not a line of JSON: {fault}"))]
        try:
            if not (isinstance(message, dict) and message.get("method") == "tools/call"):
                # Refuse at once what can be decoded but not encoded. A tool call is encoded first anyway.
                encode(message)
            return self._client_message(message)
        except ValueError as fault:
            request_id = message.get("id") if isinstance(message, dict) and "method" in message else None
            known = request_id if _is_id(request_id) and str(request_id).isprintable() else None
            return [ToClient(error(known, INVALID_REQUEST, f"not usable: {fault}"))]

    def client_line_too_long(self) -> list[Effect]:
        """Process a line from the client that exceeds the limit; its content is unknown."""
        return [ToClient(error(None, INVALID_REQUEST, "the line is too long"))]

    def written(self, receipt: str) -> list[Effect]:
        """Note that the answer with this receipt was written to the client."""
        self.undelivered[receipt] = None
        while len(self.undelivered) > _MANY:
            del self.undelivered[next(iter(self.undelivered))]
        return [_delivered([receipt])] if self._up else []

    # Events of the server

    def server_up(self) -> list[Effect]:
        """Process a server's welcome: repeat the receipts, the handshake and the unanswered requests."""
        self._up, self._failure = True, None
        effects: list[Effect] = []
        if self.undelivered:
            effects.append(_delivered(list(self.undelivered)))
        effects += [ToServer(line) for line in self._greeting.again()]
        effects += [ToServer(each.line) for each in self.in_flight.values()]
        return effects

    def server_line(self, line: bytes) -> list[Effect]:
        """Process a line from the server."""
        try:
            message = decode(line)
        except ValueError as fault:
            return [Note(f"the server sent no JSON: {fault}")]
        if not isinstance(message, dict):
            return [Note("the server sent no JSON-RPC message")]
        try:
            return self._server_message(message, line)
        except ValueError as fault:
            return [Note(f"the server sent what cannot be passed on: {fault}")]

    def server_down(self) -> list[Effect]:
        """Process the loss of the server: withdraw its requests, answer what needs no server, keep the rest."""
        if not self._up:
            return []
        self._up = False
        self._receipts.clear()
        self._progress.new_server_run()
        effects: list[Effect] = [_cancelled(key) for key in self._asks.new_server_run()]
        for key, each in list(self.in_flight.items()):
            effects += self._answer_alone(key, each.id, each.method, each.params)
        return effects

    def server_failed(self, failure: Failure) -> list[Effect]:
        """Answer every request with this failure: there is no server. New calls fail until `retry_allowed`."""
        self._up, self._failure, self._may_retry = False, failure, False
        waiting = list(self.in_flight.values())
        self.in_flight.clear()
        effects: list[Effect] = []
        for each in waiting:
            self._progress.forget(each.token)
            effects.append(ToClient(failed(each.id, each.method, failure, modern=self._modern)))
        return effects

    def retry_allowed(self) -> None:
        """Let the next call cause another try: some time has passed since the failure."""
        self._may_retry = True

    # Helpers

    def _client_message(self, message: Json) -> list[Effect]:
        if isinstance(message, list):
            text = "batches are not supported: send each message on a line of its own"
            return [ToClient(error(None, INVALID_REQUEST, text))]
        if isinstance(message, dict):
            message.pop("intercom", None)  # the shim protocol uses this key for control lines
            method = message.get("method")
            if isinstance(method, str):
                _strip(message)
                return self._request(method, message) if "id" in message else self._notification(method, message)
            if method is None and "id" in message and ("result" in message or "error" in message):
                answer = self._asks.inward(message)
                return [ToServer(encode(answer))] if answer is not None and self._up else []
        return [ToClient(error(None, INVALID_REQUEST, "not a JSON-RPC message"))]

    def _request(self, method: str, message: JsonObject) -> list[Effect]:
        request_id = message["id"]
        if not _is_id(request_id):
            text = "a request's id must be a string or a whole number"
            return [ToClient(error(None, INVALID_REQUEST, text))]
        key = _key(request_id)
        if key in self.in_flight:
            return [Note(f"dropped a request: id {key} is still in flight")]
        params = message.get("params")
        meta = part(part(message, "params"), "_meta")
        if not self._greeting.is_answered and VERSION_KEY in meta:
            self._modern = True
        if not self._up:
            alone = self._answer_alone(key, request_id, method, params)
            if alone:
                return alone
        if self._failure is not None and not self._may_retry:
            return [ToClient(failed(request_id, method, self._failure, modern=self._modern))]
        if len(self.in_flight) >= _MANY:
            busy = Failure("busy", "too many requests are in flight: wait for some of them")
            return [ToClient(failed(request_id, method, busy, modern=self._modern))]
        call = self._name(method, message, key) if method in NAMED else None
        line = encode(message)
        if len(line) > _LARGE and sum(len(each.line) for each in self.in_flight.values()) + len(line) > _ROOM:
            busy = Failure("busy", "the requests in flight are too large together: wait for some of them")
            return [ToClient(failed(request_id, method, busy, modern=self._modern))]
        token = meta.get("progressToken")
        if not _is_id(token):
            token = None
        else:
            self._progress.follow(token)
        self.in_flight[key] = InFlight(request_id, method, line, call, token, params)
        if self._up:
            return [ToServer(line)]
        if self._failure is not None:
            self._failure = None
            return [Retry()]
        return []

    def _name(self, method: str, message: JsonObject, key: str) -> str:
        self._named += 1
        name = f"{self._shim}/{self._named}/{key}/{method}"
        params = message.get("params")
        if isinstance(params, dict):
            message["params"] = {**params, "_meta": {**part(params, "_meta"), CALL_KEY: name}}
        return name

    def _answer_alone(self, key: str, request_id: str | int, method: str, params: Json) -> list[Effect]:
        if method == "initialize" and self._modern:
            return []
        value = shipped_answer(self._results, method, params, greeted=self._greeting.is_answered)
        if value is None:
            return []
        if not offers_tasks(self._greeting.client_name or client_named(params)):
            value = without_tasks(value)
        self._greeting.learn(method, params)
        waiting = self.in_flight.pop(key, None)
        if waiting is not None:
            self._progress.forget(waiting.token)
        return [ToClient(result(request_id, value))]

    def _notification(self, method: str, message: JsonObject) -> list[Effect]:
        params = part(message, "params")
        if method == "notifications/initialized":
            self._greeting.initialized()
        elif method == "notifications/cancelled":
            cancelled = self.in_flight.pop(_key(params.get("requestId")), None)
            if cancelled is not None:
                self._progress.forget(cancelled.token)
        elif method == "notifications/progress":
            mapped = self._asks.progressed(params)
            if mapped is None:
                return []
            message["params"] = mapped
        # Without a server nothing is lost: the next one gets the handshake and requests the rest itself.
        return [ToServer(encode(message))] if self._up else []

    def _control(self, word: Json) -> list[Effect]:
        if not isinstance(word, dict):
            return [Note("the server sent a control line without content")]
        if "handover" in word:
            return [Leave()]
        receipt = word.get("receipt")
        if isinstance(receipt, dict):
            self._receipts[str(receipt.get("call"))] = str(receipt.get("text"))
        agents = word.get("agents")
        if isinstance(agents, list):
            self.agents = [str(agent) for agent in agents]
        recorded = word.get("recorded")
        if isinstance(recorded, list):
            for written in recorded:
                self.undelivered.pop(str(written), None)
        return []

    def _server_message(self, message: JsonObject, line: bytes) -> list[Effect]:
        if "intercom" in message:
            return self._control(message["intercom"])
        method = message.get("method")
        if method is None:
            return self._answer(message, line)
        if "id" in message:
            return [ToClient(encode(self._asks.outward(message)))]
        if method == "notifications/progress":
            return self._server_progress(message)
        if method == "notifications/cancelled":
            return self._withdraw(message)
        return [ToClient(line + b"\n")]

    def _answer(self, message: JsonObject, line: bytes) -> list[Effect]:
        request_id = message.get("id")
        done = self.in_flight.pop(_key(request_id), None)
        if done is None:
            # Cancelled, answered by an earlier server run, or a request of the shim itself.
            ours = isinstance(request_id, str) and request_id.startswith(OWN)
            return [Note(f"the server refused {request_id}: {message['error']}")] if ours and "error" in message else []
        self._progress.forget(done.token)
        if "error" not in message:
            self._greeting.learn(done.method, done.params)
            self._modern = self._modern and not self._greeting.is_answered
        return [ToClient(line + b"\n", self._receipts.pop(done.call, None) if done.call is not None else None)]

    def _server_progress(self, message: JsonObject) -> list[Effect]:
        params = part(message, "params")
        shown = self._progress.rise(params.get("progressToken"), params.get("progress"))
        if shown is None:
            return []
        params = {**params, "progress": shown}
        total = params.get("total")
        if isinstance(total, int | float) and total < shown:
            del params["total"]
        return [ToClient(encode({**message, "params": params}))]

    def _withdraw(self, message: JsonObject) -> list[Effect]:
        params = part(message, "params")
        key = self._asks.withdrawn(params.get("requestId"))
        return [] if key is None else [ToClient(encode({**message, "params": {**params, "requestId": key}}))]


def _strip(message: JsonObject) -> None:
    """Remove our own keys from a client's `_meta`: only the shim may set them."""
    params = part(message, "params")
    meta = part(params, "_meta")
    if any(key.startswith(OWN) for key in meta):
        message["params"] = {**params, "_meta": {k: v for k, v in meta.items() if not k.startswith(OWN)}}


def _is_id(value: Json) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _delivered(receipts: list[str]) -> ToServer:
    return ToServer(encode({"intercom": {"delivered": receipts}}))


def _cancelled(key: str) -> ToClient:
    reason = "the server that asked is gone"
    return ToClient(notification("notifications/cancelled", {"requestId": key, "reason": reason}))
