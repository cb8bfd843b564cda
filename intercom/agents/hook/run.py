"""`agent-intercom hook CLIENT`: reads an operation from the client, asks about it, and answers in the client's format.

It fails closed: unreadable input, no server, no decision in time and internal errors all lead to a refusal. Every
client accepts its exit code 2 as one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, NamedTuple

from intercom.agents.hook import clients
from intercom.agents.hook.clients import Client
from intercom.agents.hook.errand import Answer, Errand, Way
from intercom.agents.hook.question import (
    INNER,
    KINDS,
    OWN,
    READ,
    Other,
    Question,
    Said,
    Stopping,
    Unreadable,
)
from intercom.agents.shim.options import Options
from intercom.local.lines import MEBIBYTE
from intercom.local.places import peek, places
from intercom.model.errors import IntercomError

#: The largest input of a hook, in bytes, and the time limit for it, in seconds.
MOST_BYTES = 16 * MEBIBYTE
INPUT_SECONDS = 20.0
#: How long before the client's limit a hook answers, in seconds: a killed hook has refused nothing.
MARGIN_SECONDS = 30.0
#: How long the end of an agent's turn may wait for instructions, in seconds.
STOP_SECONDS = 10.0
#: The kinds to ask about by default (`[hooks] ask_for` in the configuration).
ASK_FOR = tuple(kind for kind in KINDS if kind != READ)

REFUSED = 2


class Order(NamedTuple):
    """The command line: the client, the event if the client does not name it, and the time limit in seconds."""

    client: str
    event: str | None
    wait: float | None
    options: Options


def main(order: Order) -> int:
    """Answer one event on standard output. Returns the exit code. Must run in the main thread because it sets
    signals."""
    output = _claim_standard_output()
    client = clients.CLIENTS[order.client]
    wait = order.wait if order.wait is not None else client.seconds - MARGIN_SECONDS
    began = time.monotonic()
    stop, wake = _listen_for_signals(wait)
    try:
        said = _Hook(order, client, began + wait, stop, wake, output).run()
    except Exception as fault:
        said = _refused(client, order.event, f"the hook failed ({type(fault).__name__}); this is denied")
        _write(output, said)
    signal.alarm(0)
    return said.code


class _Hook:
    def __init__(self, order: Order, client: Client, until: float, stop: list[int], wake: int, output: int) -> None:
        self._order, self._client, self._until = order, client, until
        self._stop, self._wake, self._output = stop, wake, output
        self._event = order.event

    def run(self) -> Said:
        try:
            data = clients.parse(_read_input(self._until))
            self._client = clients.writer(self._order.client, data)
            asked = self._client.read(data, self._order.event)
        except Unreadable as unread:
            said = self._deny(f"the {self._client.name} hook could not be read: {unread}; this is denied")
            _write(self._output, said)
            return said
        self._event = asked.event
        match asked:
            case Question():
                return self._judge(asked)
            case Stopping():
                return self._detain(asked)
            case Other():
                said = self._client.pass_on(asked.event)
        _write(self._output, said)
        return said

    def _judge(self, asked: Question) -> Said:
        kind = asked.operation.kind
        if kind == OWN:
            said = self._client.allow(asked.event, "one of intercom's own tools")
        elif kind == INNER or kind not in self._ask_for():
            said = self._client.pass_on(asked.event)
        else:
            return self._ask(asked)
        _write(self._output, said)
        return said

    def _ask(self, asked: Question) -> Said:
        errand = Errand("intercom/permission", _params(asked, self._order.client))
        with Way(errand, _as_hook(self._order.options), self._stop, self._wake, start=True) as way:
            answer = way.run(self._until)
            said = self._verdict(answer)
            if not _write(self._output, said):
                # The client may look only at the exit code, which must not allow anything then.
                return said._replace(code=REFUSED)
            if answer.result is not None:
                way.told(answer.result.get("receipt"))
        return said

    def _verdict(self, answer: Answer) -> Said:
        assert self._event is not None
        if answer.result is not None and answer.result.get("behavior") == "allow":
            return self._client.allow(self._event, str(answer.result.get("message") or "allowed"))
        if answer.failure is not None:
            why = f"{answer.failure.message}; nobody could be asked, so this is denied"
        elif answer.result is None:
            why = _undecided(answer)
        else:
            why = str(answer.result.get("message") or "denied")
        if self._client.name != self._order.client:
            # This client runs another client's hooks, and may expect either answer format.
            return self._deny(why)
        return self._client.deny(self._event, why)

    def _detain(self, asked: Stopping) -> Said:
        """Give the agent pending instructions before it stops. If they cannot be read, it stops."""
        params = {**_where(asked, self._order.client), "call": f"stop/{os.urandom(16).hex()}"}
        errand = Errand("intercom/stopping", params)
        until = min(self._until, time.monotonic() + STOP_SECONDS)
        with Way(errand, _as_hook(self._order.options), self._stop, self._wake, start=False) as way:
            answer = way.run(until)
            result = answer.result or {}
            words = result.get("words")
            said = self._client.pass_on(asked.event)
            if isinstance(words, str) and words:
                said = self._client.go_on(asked.event, words)
            if _write(self._output, said):
                way.told(result.get("receipt"))
        return said

    def _ask_for(self) -> tuple[str, ...]:
        """Return the kinds to ask about; all kinds if the configuration is unreadable."""
        try:
            config = peek(self._order.options.config or places().config_file)
        except IntercomError:
            return KINDS
        hooks = config.get("hooks", {})
        wanted: Any = hooks.get("ask_for", list(ASK_FOR)) if isinstance(hooks, dict) else None
        if isinstance(wanted, list) and all(each in KINDS for each in wanted):
            return tuple(wanted)
        return KINDS

    def _deny(self, why: str) -> Said:
        return _refused(self._client, self._event, why)


def _refused(client: Client, event: str | None, why: str) -> Said:
    """Return a refusal that every client understands. The end of a turn is never refused."""
    if event in ("Stop", "SubagentStop", "agentStop", "subagentStop", "stop"):
        return client.pass_on(event)
    return client.deny(event or "PreToolUse", why)._replace(stderr=why, code=REFUSED)


def _undecided(answer: Answer) -> str:
    if answer.paused:
        return "an operator has paused this agent, so this is denied; wait, and try the same again later"
    request_id = answer.request_id
    if request_id is None:
        return "nobody could be asked in time, so this is denied; try the same again later"
    return (
        f"not decided yet: request {request_id} still waits for a person; do not do this by other means; try exactly"
        " the same again to go on waiting, or do something else first"
    )


def _params(asked: Question, named: str) -> dict[str, Any]:
    use = asked.use or os.urandom(16).hex()
    return {
        **_where(asked, named),
        # The same use of a tool at the same event gets the same call name, and so the same answer.
        "call": f"hook/{named}/{asked.event}/{asked.conversation}/{use}"[:1000],
        "turn": asked.turn,
        "operation": asked.operation._asdict(),
    }


def _where(asked: Question | Stopping, named: str) -> dict[str, Any]:
    return {
        "client": asked.client,
        "slot": f"{named}/{asked.event}",
        "conversation": asked.conversation,
        "cwd": asked.cwd or _directory(),
        "roots": list(asked.roots),
        "session": os.environ.get("INTERCOM_SESSION_ID") or None,
    }


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _as_hook(options: Options) -> Options:
    return options._replace(role="hook")


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
            raise Unreadable("its input can not be read") from None
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise Unreadable(f"its input is larger than {MOST_BYTES // MEBIBYTE} MiB")


def _write(output: int, said: Said) -> bool:
    """Write the answer. Returns whether all of it was written; the client may be gone."""
    try:
        if said.stderr:
            with contextlib.suppress(OSError):
                os.write(2, f"agent-intercom: {said.stderr}\n".encode(errors="replace")[: select.PIPE_BUF])
        data = said.stdout.encode(errors="replace") + b"\n"
        while data:
            data = data[os.write(output, data) :]
    except OSError:
        return False
    return True


def _claim_standard_output() -> int:
    """Reserve standard output for the answer: all other output goes to standard error."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def _listen_for_signals(wait: float) -> tuple[list[int], int]:
    received: list[int] = []
    wake, tell = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda signum, _frame: received.append(signum))

    def too_late(_signum: int, _frame: object) -> None:
        # Something blocks the process; after its time limit the client would let the tool run.
        os.write(2, b"agent-intercom: the hook did not get through in time; this is denied\n")
        os._exit(REFUSED)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(max(1, int(wait + MARGIN_SECONDS / 3)))
    return received, wake
