"""`agent-intercom hook CLIENT`: read what the client is about to do, have it judged, say so in the client's own words.

It fails closed. Whatever goes wrong (input that can not be read, no server, no verdict in time, a fault in here) is
answered with a refusal and exit code 2, which every client takes for one.
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

#: The most a client may write to its hook, and how long it may take to.
MOST_BYTES = 16 * MEBIBYTE
INPUT_SECONDS = 20.0
#: How much sooner than the client's limit a hook answers: one that is killed has refused nothing.
MARGIN_SECONDS = 30.0
#: How long an agent that wants to stop is kept waiting for words to be found.
STOP_SECONDS = 10.0
#: What is asked for where the configuration does not say (`[hooks] ask_for`).
ASK_FOR = tuple(kind for kind in KINDS if kind != READ)

REFUSED = 2


class Order(NamedTuple):
    """The command line: which client, the event where the client does not name it, and how many seconds there are."""

    client: str
    event: str | None
    wait: float | None
    options: Options


def main(order: Order) -> int:
    """Answer one event on standard output; returns the exit code. Needs the main thread, for signals."""
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
                # Should the client look at how the hook ended only, that is no leave.
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
            # It runs another's hooks, and which form it expects of them is its own affair.
            return self._deny(why)
        return self._client.deny(self._event, why)

    def _detain(self, asked: Stopping) -> Said:
        """Whether there are words the agent should hear before it stops. Where that can not be known, it stops."""
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
        """What the configuration wants a person asked for; everything, where it can not be read."""
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
    """A refusal that every client understands; an agent that wants to stop is not kept by it."""
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
        # One use of a tool, at one event, as one hook asks about it: asked again, it is answered alike.
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
    """All of standard input. Raises Unreadable when it is more than a hook is given, or does not end."""
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
    """Say it; whether all of it is said. Nobody may be there to hear it any more."""
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
    """Standard output is the answer's alone: whatever else is printed goes to standard error."""
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
        # Something holds the process up where it should not; the client would let the tool run.
        os.write(2, b"agent-intercom: the hook did not get through in time; this is denied\n")
        os._exit(REFUSED)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(max(1, int(wait + MARGIN_SECONDS / 3)))
    return received, wake
