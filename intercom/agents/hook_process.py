"""`agent-intercom hook CLIENT`: reads what the client is about to do, asks a server, and answers the client.

It fails closed: unreadable input, no server, no decision in time and internal errors all lead to a refusal. Every
client accepts its exit code 2 as one. It runs on the standard library alone, because the client waits for its start.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import NamedTuple

from intercom.agents.clients import CLIENTS, hooks_of, sender_of
from intercom.agents.clients.client import (
    HOOK_MARGIN_SECONDS,
    HOOK_SECONDS,
    KINDS,
    OWN,
    READ,
    Hooks,
    Other,
    Question,
    Stopping,
    Unreadable,
    parse,
)
from intercom.agents.shim.launch import Options
from intercom.agents.shim.link import Link
from intercom.agents.shim.relay import Effect, Failure, Party, ToServer
from intercom.local.places import peek, places
from intercom.local.shim_process import claim_standard_output, listen_for_signals
from intercom.local.wire import MEBIBYTE, decode, encode
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject, part

#: The notification that a person has been asked.
ASKED = "intercom/asked"
#: The notification that the agent is paused, so nobody is asked until it continues.
PAUSED = "intercom/paused"

#: How long the connection's end may take, and how long a hook waits for the record of its delivery, in seconds.
_CLOSE_SECONDS, _CONFIRM_SECONDS = 1.0, 3.0
#: The largest input of a hook, in bytes, and the time limit for it, in seconds.
MOST_BYTES = 16 * MEBIBYTE
INPUT_SECONDS = 20.0
#: How long the end of an agent's turn may wait for instructions, in seconds.
STOP_SECONDS = 10.0
#: The kinds to ask about by default (`[hooks] ask_for` in the configuration).
ASK_FOR = tuple(kind for kind in KINDS if kind != READ)

#: The exit code that every client takes for a refusal.
REFUSED = 2


class Answer(NamedTuple):
    """The outcome of a hook request: the server's `result`, or the `failure` if there is none. `request_id` names the
    request that a person was asked. `paused` says that nobody is asked because the agent is paused."""

    result: JsonObject | None = None
    failure: Failure | None = None
    request_id: str | None = None
    paused: bool = False


class HookRequest(Party):
    """The hook's side of a `Link`, which asks one question at a time. `method` and `params` follow
    docs/reference/shim-wire.md.

    If the server dies, the next one is asked about the same request in the same session.
    """

    def __init__(self, method: str, params: JsonObject) -> None:
        self._id = 0
        self.ask(method, params)

    def ask(self, method: str, params: JsonObject) -> bytes:
        """Replace the question. Returns its line, for a server that is already connected."""
        self._method, self._params = method, params
        self._id += 1
        self.answer = Answer()
        self.done = False
        return self._line()

    def _line(self) -> bytes:
        return encode({"jsonrpc": "2.0", "id": self._id, "method": self._method, "params": self._params})

    def server_up(self) -> list[Effect]:
        """Ask the server that is now connected."""
        return [ToServer(self._line())]

    def server_failed(self, failure: Failure) -> list[Effect]:
        """Fail the request: there is no server, and there will be none soon."""
        self._close(self.answer._replace(failure=failure))
        return []

    def server_line(self, line: bytes) -> list[Effect]:
        """Process a line from the server."""
        try:
            message = decode(line)
        except ValueError:
            return []
        if not isinstance(message, dict):
            return []
        if message.get("method") == ASKED:
            params = part(message, "params")
            request_id, session_id = params.get("request_id"), params.get("session_id")
            if isinstance(request_id, str) and isinstance(session_id, str):
                self.answer = self.answer._replace(request_id=request_id, paused=False)
                # A later server is asked in the same session, wherever it would look otherwise.
                self._params = {**self._params, "session": session_id}
        elif message.get("method") == PAUSED:
            self.answer = self.answer._replace(paused=True)
        elif message.get("id") == self._id:
            self._answered(message)
        return []

    def _answered(self, response: JsonObject) -> None:
        result, error = response.get("result"), part(response, "error")
        if isinstance(result, dict):
            self._close(self.answer._replace(result=result))
            return
        message, code = error.get("message"), part(error, "data").get("error_code")
        if not isinstance(message, str) or not isinstance(code, str):
            message, code = "the server does not know permission hooks: it has another version", "version_mismatch"
        self._close(self.answer._replace(failure=Failure(code, message)))

    def _close(self, answer: Answer) -> None:
        self.answer, self.done = answer, True


class ServerConnection:
    """The connection to the server for one hook request, as a context manager that closes it cleanly."""

    def __init__(self, request: HookRequest, options: Options, stop: Sequence[int], wake: int, *, start: bool) -> None:
        """Prepare the connection. `stop` is non-empty once the process is to end, and `wake` polls readable then.
        `start` allows starting a server."""
        self._request, self._stop, self._wake = request, stop, wake
        options = options._replace(role="hook")
        self._link = Link(options, request, os.urandom(16).hex(), self._perform, _silent, start=start, alone=False)

    def __enter__(self) -> ServerConnection:
        return self

    def __exit__(self, *_failed: object) -> None:
        self._link.send(encode({"intercom": {"bye": {}}}))
        self._link.close(_CLOSE_SECONDS)

    def run(self, until: float) -> Answer:
        """Wait for the answer, at the latest until `until` (`time.monotonic` seconds)."""
        while not self._request.done and not self._stop and time.monotonic() < until:
            self._link.on_time()
            self._turn(until)
        return self._request.answer

    def confirm(self, receipt: object) -> None:
        """Confirm to the server that the client has what this receipt came with."""
        if isinstance(receipt, str):
            self._link.send(self._request.ask("intercom/told", {"receipt": receipt}))
            self.run(time.monotonic() + _CONFIRM_SECONDS)

    def _turn(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for descriptor, events in self._link.wanted(reading=True).items():
            poll.register(descriptor, events)
        due = min(until, self._link.due)
        for descriptor, events in poll.poll(min(1000.0, max(0.0, (due - time.monotonic()) * 1000))):
            if descriptor != self._wake:
                self._link.on_ready(descriptor, events)
        self._link.flush()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ToServer):
                self._link.send(effect.line)


def _silent(_text: str) -> None:
    """Drop a message that a shim would print: on a hook's standard error the client would take it for the reason."""


class Output(NamedTuple):
    """What the hook prints for its client, and its exit code."""

    stdout: str
    stderr: str = ""
    code: int = 0


class Order(NamedTuple):
    """The command line: the client, the event if the client does not name it, and the time limit in seconds."""

    client: str
    event: str | None
    wait: float | None
    options: Options


def main(order: Order) -> int:
    """Answer one event on standard output. Returns the exit code. Must run in the main thread because it sets
    signals."""
    output = claim_standard_output()
    wait = order.wait if order.wait is not None else HOOK_SECONDS - HOOK_MARGIN_SECONDS
    began = time.monotonic()
    stop, wake = listen_for_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    _deny_after(wait + HOOK_MARGIN_SECONDS / 3)
    hook = Hook(order, began + wait, stop, wake, output)
    try:
        printed = hook.run()
    except Exception as fault:
        printed = hook.refuse(f"the hook failed ({type(fault).__name__}); this is denied")
        _write(output, printed)
    signal.alarm(0)
    return printed.code


def _deny_after(seconds: float) -> None:
    """Deny and exit then, also if something blocks the process: after its time limit the client would let the tool
    run."""

    def too_late(_signum: int, _frame: object) -> None:
        os.write(2, b"agent-intercom: the hook did not finish in time; this is denied\n")
        os._exit(REFUSED)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(max(1, int(seconds)))


class Hook:
    """One event of a client, from its payload on standard input to the answer on standard output."""

    def __init__(self, order: Order, until: float, stop: Sequence[int], wake: int, output: int) -> None:
        self._order, self._until, self._stop, self._wake, self._output = order, until, stop, wake, output
        self._client, self._event = CLIENTS[order.client], order.event

    @property
    def _hooks(self) -> Hooks:
        return hooks_of(self._client.name)

    def run(self) -> Output:
        """Read the event, ask if it is a question, and print the answer. Returns what was printed."""
        try:
            data = parse(_read_input(self._until))
            self._client = sender_of(data, self._client)
            asked = self._hooks.read(data, self._event)
        except Unreadable as fault:
            printed = self.refuse(f"the {self._client.name} hook could not be read: {fault}; this is denied")
            _write(self._output, printed)
            return printed
        self._event = asked.event
        match asked:
            case Question() if asked.operation.kind == OWN:
                answer = self._hooks.decide(asked.event, True, "one of intercom's own tools")
            case Question() if asked.operation.kind in self._ask_for():
                return self._ask(asked)
            case Question() | Other():
                answer = self._hooks.pass_on(asked.event)
            case Stopping():
                return self._stopping(asked)
        printed = Output(json.dumps(answer))
        _write(self._output, printed)
        return printed

    def refuse(self, why: str) -> Output:
        """Return a refusal that every client understands. The end of a turn is never refused."""
        event = self._event or "PreToolUse"
        if event in self._hooks.stops:
            return Output(json.dumps(self._hooks.pass_on(event)))
        return Output(json.dumps(self._hooks.decide(event, False, why)), why, REFUSED)

    def _ask(self, asked: Question) -> Output:
        use = asked.use or os.urandom(16).hex()
        params = {
            **self._where(asked),
            # The same use of a tool at the same event gets the same call name, and so the same answer.
            "call": f"hook/{self._order.client}/{asked.event}/{asked.conversation}/{use}"[:1000],
            "turn": asked.turn,
            "operation": asked.operation._asdict(),
        }
        request = HookRequest("intercom/permission", params)
        with ServerConnection(request, self._order.options, self._stop, self._wake, start=True) as server:
            answer = server.run(self._until)
            printed = self._decision(asked.event, answer)
            if not _write(self._output, printed):
                # The client may look only at the exit code, which must not allow anything then.
                return printed._replace(code=REFUSED)
            if answer.result is not None:
                server.confirm(answer.result.get("receipt"))
        return printed

    def _decision(self, event: str, answer: Answer) -> Output:
        result = answer.result or {}
        if result.get("behavior") == "allow":
            return Output(json.dumps(self._hooks.decide(event, True, str(result.get("message") or "allowed"))))
        if answer.failure is not None:
            why = f"{answer.failure.message}; nobody could be asked, so this is denied"
        elif answer.result is None:
            why = _undecided(answer)
        else:
            why = str(result.get("message") or "denied")
        if self._client.name != self._order.client:
            # This client runs another client's hooks, and may expect either answer format.
            return self.refuse(why)
        return Output(json.dumps(self._hooks.decide(event, False, why)))

    def _stopping(self, asked: Stopping) -> Output:
        """Give the agent pending instructions before it stops. If they cannot be read, it stops."""
        request = HookRequest("intercom/stopping", {**self._where(asked), "call": f"stop/{os.urandom(16).hex()}"})
        until = min(self._until, time.monotonic() + STOP_SECONDS)
        with ServerConnection(request, self._order.options, self._stop, self._wake, start=False) as server:
            result = server.run(until).result or {}
            text = result.get("words")
            answer = self._hooks.pass_on(asked.event)
            if isinstance(text, str) and text:
                answer = self._hooks.continue_with(asked.event, text)
            printed = Output(json.dumps(answer))
            if _write(self._output, printed):
                server.confirm(result.get("receipt"))
        return printed

    def _where(self, asked: Question | Stopping) -> JsonObject:
        return {
            "client": self._client.name,
            "slot": f"{self._order.client}/{asked.event}",
            "conversation": asked.conversation,
            "cwd": asked.cwd or _directory(),
            "roots": list(asked.roots),
            "session": os.environ.get("INTERCOM_SESSION_ID") or None,
        }

    def _ask_for(self) -> tuple[str, ...]:
        """Return the kinds to ask about; all kinds if the configuration is unreadable."""
        try:
            config = peek(self._order.options.config or places().config_file)
        except IntercomError:
            return KINDS
        hooks = config.get("hooks", {})
        wanted = hooks.get("ask_for", list(ASK_FOR)) if isinstance(hooks, dict) else None
        if isinstance(wanted, list) and all(each in KINDS for each in wanted):
            return tuple(wanted)
        return KINDS


def _undecided(answer: Answer) -> str:
    if answer.paused:
        return "an operator has paused this agent, so this is denied; wait, and try the same again later"
    request_id = answer.request_id
    if request_id is None:
        return "nobody could be asked in time, so this is denied; try the same again later"
    return (
        f"not decided yet: request {request_id} still waits for a person; do not do this by other means; try exactly"
        " the same again to continue waiting, or do something else first"
    )


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _read_input(until: float) -> bytes:
    """Read all of standard input. Raises Unreadable if it is too large or does not end."""
    until = min(until, time.monotonic() + INPUT_SECONDS)
    parts: list[bytes] = []
    size = 0
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while True:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise Unreadable("its input does not end")
        try:
            part = os.read(0, 2**18)
        except OSError:
            raise Unreadable("its input cannot be read") from None
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise Unreadable(f"its input is larger than {MOST_BYTES // MEBIBYTE} MiB")


def _write(output: int, printed: Output) -> bool:
    """Write the answer. Returns whether all of it was written; the client may be gone."""
    try:
        if printed.stderr:
            with contextlib.suppress(OSError):
                os.write(2, f"agent-intercom: {printed.stderr}\n".encode(errors="replace")[: select.PIPE_BUF])
        data = printed.stdout.encode(errors="replace") + b"\n"
        while data:
            data = data[os.write(output, data) :]
    except OSError:
        return False
    return True
