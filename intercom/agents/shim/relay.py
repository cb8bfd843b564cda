"""The shim's protocol logic: what to pass on, remember and repeat. No I/O, no clock.

The caller reports events and performs the returned effects, in order. The relay keeps the handshake and the requests in
flight, so that a client does not notice a server's death. The next server run gets the handshake and those requests
again; each tool call keeps its name.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from intercom.agents.call_names import CALL_KEY, NAMED
from intercom.agents.shim import replies, shipped
from intercom.agents.shim.asks import ServerAsks
from intercom.agents.shim.greeting import OWN, Greeting
from intercom.agents.shim.progress import Progress
from intercom.agents.shim.replies import Failure
from intercom.local.lines import decode, encode

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


class InFlight(NamedTuple):
    """A request without its answer."""

    id: str | int
    method: str
    line: bytes
    call: str | None
    token: str | int | None
    params: Any


class Relay:
    """The state of one shim's run; `shim` is its id, `results` the shipped answers (see `shipped`)."""

    def __init__(self, shim: str, results: shipped.Results) -> None:
        self.in_flight: dict[str, InFlight] = {}
        #: Receipts of written answers that no server has recorded yet, oldest first.
        self.undelivered: dict[str, None] = {}
        #: The conversations that the client has named, as the last server reported them.
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
            return [ToClient(replies.error(None, replies.PARSE_ERROR, f"not a line of JSON: {fault}"))]
        try:
            if not (isinstance(message, dict) and message.get("method") == "tools/call"):
                # Refuse at once what can be decoded but not encoded. A tool call is encoded first anyway.
                encode(message)
            return self._client_message(message)
        except ValueError as fault:
            request_id = message.get("id") if isinstance(message, dict) and "method" in message else None
            known = request_id if _is_id(request_id) and str(request_id).isprintable() else None
            return [ToClient(replies.error(known, replies.INVALID_REQUEST, f"not usable: {fault}"))]

    def client_line_too_long(self) -> list[Effect]:
        """Process a line from the client that exceeds the limit; its content is unknown."""
        return [ToClient(replies.error(None, replies.INVALID_REQUEST, "the line is too long"))]

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
            return [Note(f"the server sent what can not be passed on: {fault}")]

    def server_down(self) -> list[Effect]:
        """Process the loss of the server: withdraw its requests, answer what needs no server, keep the rest."""
        if not self._up:
            return []
        self._up = False
        self._receipts.clear()
        self._progress.new_life()
        effects: list[Effect] = [_cancelled(key) for key in self._asks.new_life()]
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
            effects.append(ToClient(replies.failed(each.id, each.method, failure, modern=self._modern)))
        return effects

    def retry_allowed(self) -> None:
        """Let the next call cause another try: some time has passed since the failure."""
        self._may_retry = True

    # Helpers

    def _client_message(self, message: Any) -> list[Effect]:
        if isinstance(message, list):
            text = "batches are not supported: send each message on a line of its own"
            return [ToClient(replies.error(None, replies.INVALID_REQUEST, text))]
        if isinstance(message, dict):
            message.pop("intercom", None)  # the shim protocol uses this key for control lines
            method = message.get("method")
            if isinstance(method, str):
                _strip(message)
                return self._request(method, message) if "id" in message else self._notification(method, message)
            if method is None and "id" in message and ("result" in message or "error" in message):
                answer = self._asks.inward(message)
                return [ToServer(encode(answer))] if answer is not None and self._up else []
        return [ToClient(replies.error(None, replies.INVALID_REQUEST, "not a JSON-RPC message"))]

    def _request(self, method: str, message: dict[str, Any]) -> list[Effect]:
        request_id = message["id"]
        if not _is_id(request_id):
            text = "a request's id must be a string or a whole number"
            return [ToClient(replies.error(None, replies.INVALID_REQUEST, text))]
        key = json.dumps(request_id)
        if key in self.in_flight:
            return [Note(f"dropped a request: id {key} is still in flight")]
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if not self._greeting.given and isinstance(meta, dict) and shipped.VERSION_KEY in meta:
            self._modern = True
        if not self._up:
            alone = self._answer_alone(key, request_id, method, params)
            if alone:
                return alone
        if self._failure is not None and not self._may_retry:
            return [ToClient(replies.failed(request_id, method, self._failure, modern=self._modern))]
        if len(self.in_flight) >= _MANY:
            busy = Failure("busy", "too many requests are in flight: wait for some of them")
            return [ToClient(replies.failed(request_id, method, busy, modern=self._modern))]
        call = self._name(method, message, key) if method in NAMED else None
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        line = encode(message)
        if len(line) > _LARGE and sum(len(each.line) for each in self.in_flight.values()) + len(line) > _ROOM:
            busy = Failure("busy", "the requests in flight are too large together: wait for some of them")
            return [ToClient(replies.failed(request_id, method, busy, modern=self._modern))]
        if not _is_id(token):
            token = None
        elif token is not None:
            self._progress.follow(token)
        self.in_flight[key] = InFlight(request_id, method, line, call, token, params)
        if self._up:
            return [ToServer(line)]
        if self._failure is not None:
            self._failure = None
            return [Retry()]
        return []

    def _name(self, method: str, message: dict[str, Any], key: str) -> str:
        self._named += 1
        name = f"{self._shim}/{self._named}/{key}/{method}"
        params = message.get("params")
        if isinstance(params, dict):
            meta = params.get("_meta")
            message["params"] = {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), CALL_KEY: name}}
        return name

    def _answer_alone(self, key: str, request_id: str | int, method: str, params: Any) -> list[Effect]:
        if method == "initialize" and self._modern:
            return []
        value = shipped.answer(self._results, method, params, greeted=self._greeting.given)
        if value is None:
            return []
        self._greeting.learn(method, params)
        waiting = self.in_flight.pop(key, None)
        if waiting is not None:
            self._progress.forget(waiting.token)
        return [ToClient(replies.result(request_id, value))]

    def _notification(self, method: str, message: dict[str, Any]) -> list[Effect]:
        params = message.get("params")
        if method == "notifications/initialized":
            self._greeting.initialized()
        elif method == "notifications/cancelled" and isinstance(params, dict):
            cancelled = self.in_flight.pop(json.dumps(params.get("requestId")), None)
            if cancelled is not None:
                self._progress.forget(cancelled.token)
        elif method == "notifications/progress":
            mapped = self._asks.progressed(params) if isinstance(params, dict) else None
            if mapped is None:
                return []
            message["params"] = mapped
        # Without a server nothing is lost: the next one gets the handshake and requests the rest itself.
        return [ToServer(encode(message))] if self._up else []

    def _control(self, word: object) -> list[Effect]:
        if not isinstance(word, dict):
            return [Note("the server sent a control line without words")]
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

    def _server_message(self, message: dict[str, Any], line: bytes) -> list[Effect]:
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

    def _answer(self, message: dict[str, Any], line: bytes) -> list[Effect]:
        request_id = message.get("id")
        done = self.in_flight.pop(json.dumps(request_id), None)
        if done is None:
            # Cancelled, answered by an earlier server run, or a request of the shim itself.
            ours = isinstance(request_id, str) and request_id.startswith(OWN)
            return [Note(f"the server refused {request_id}: {message['error']}")] if ours and "error" in message else []
        self._progress.forget(done.token)
        if "error" not in message:
            self._greeting.learn(done.method, done.params)
            self._modern = self._modern and not self._greeting.given
        return [ToClient(line + b"\n", self._receipts.pop(done.call, None) if done.call is not None else None)]

    def _server_progress(self, message: dict[str, Any]) -> list[Effect]:
        params: Any = message.get("params")
        if not isinstance(params, dict):
            return []
        shown = self._progress.rise(params.get("progressToken"), params.get("progress"))
        if shown is None:
            return []
        params = {**params, "progress": shown}
        total = params.get("total")
        if isinstance(total, int | float) and total < shown:
            del params["total"]
        return [ToClient(encode({**message, "params": params}))]

    def _withdraw(self, message: dict[str, Any]) -> list[Effect]:
        params: Any = message.get("params")
        key = self._asks.withdrawn(params.get("requestId")) if isinstance(params, dict) else None
        return [] if key is None else [ToClient(encode({**message, "params": {**params, "requestId": key}}))]


def _strip(message: dict[str, Any]) -> None:
    """Remove our own keys from a client's `_meta`: only the shim may set them."""
    params: Any = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and any(key.startswith(OWN) for key in meta):
        message["params"] = {**params, "_meta": {k: v for k, v in meta.items() if not k.startswith(OWN)}}


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _delivered(receipts: list[str]) -> ToServer:
    return ToServer(encode({"intercom": {"delivered": receipts}}))


def _cancelled(key: str) -> ToClient:
    reason = "the server that asked is gone"
    return ToClient(replies.notification("notifications/cancelled", {"requestId": key, "reason": reason}))
