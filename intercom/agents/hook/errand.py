"""A hook request to the server, repeated after server restarts until it is answered or its time is over."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from intercom.agents.shim.link import Link
from intercom.agents.shim.options import Options
from intercom.agents.shim.relay import Effect, ToServer
from intercom.agents.shim.replies import Failure
from intercom.local.lines import decode, encode

#: The notification that a person has been asked.
ASKED = "intercom/asked"
#: The notification that the agent is paused, so nobody is asked until it continues.
PAUSED = "intercom/paused"
_LAST_WORDS_SECONDS = 1.0
#: How long a hook waits for the record of its delivery, in seconds: its client waits for its end.
_TOLD_SECONDS = 3.0


class Answer(NamedTuple):
    """The outcome of a hook request: the server's `result`, or the `failure` if there is none. `request_id` names the
    request that a person was asked. `paused` says that nobody is asked because the agent is paused."""

    result: dict[str, Any] | None = None
    failure: Failure | None = None
    request_id: str | None = None
    paused: bool = False


class Errand:
    """The hook's side of a `Link`, which asks one question at a time. `method` and `params` follow
    docs/reference/shim-wire.md.

    If the server dies, the next one is asked about the same request in the same session.
    """

    #: Receipts and agents of a shim; a hook has neither.
    undelivered: Mapping[str, str] = {}
    agents: Sequence[str] = ()

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self._id = 0
        self.ask(method, params)

    def ask(self, method: str, params: dict[str, Any]) -> bytes:
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

    def server_down(self) -> list[Effect]:
        """Do nothing: the next server is asked."""
        return []

    def server_failed(self, failure: Failure) -> list[Effect]:
        """Fail the request: there is no server, and there will be none soon."""
        self._close(self.answer._replace(failure=failure))
        return []

    def retry_allowed(self) -> None:
        """Do nothing: a shim would let its next call try again, and a hook has no next call."""

    def server_line(self, line: bytes) -> list[Effect]:
        """Process a line from the server."""
        try:
            said = decode(line)
        except ValueError:
            return []
        if not isinstance(said, dict):
            return []
        params = said.get("params")
        if said.get("method") == ASKED and isinstance(params, dict):
            request_id, session_id = params.get("request_id"), params.get("session_id")
            if isinstance(request_id, str) and isinstance(session_id, str):
                self.answer = self.answer._replace(request_id=request_id, paused=False)
                # A later server is asked in the same session, wherever it would look otherwise.
                self._params = {**self._params, "session": session_id}
        elif said.get("method") == PAUSED:
            self.answer = self.answer._replace(paused=True)
        elif said.get("id") == self._id:
            self._answered(said)
        return []

    def _answered(self, said: dict[str, Any]) -> None:
        result, error = said.get("result"), said.get("error")
        if isinstance(result, dict):
            self._close(self.answer._replace(result=result))
            return
        message = error.get("message") if isinstance(error, dict) else None
        data = error.get("data") if isinstance(error, dict) else None
        code = data.get("error_code") if isinstance(data, dict) else None
        if not isinstance(message, str) or not isinstance(code, str):
            message, code = "the server does not know permission hooks: it is of another version", "version_mismatch"
        self._close(self.answer._replace(failure=Failure(code, message)))

    def _close(self, answer: Answer) -> None:
        self.answer, self.done = answer, True


class Way:
    """The connection to the server for one hook request, as a context manager that closes it cleanly."""

    def __init__(self, errand: Errand, options: Options, stop: Sequence[int], wake: int, *, start: bool) -> None:
        """Prepare the connection. `stop` is non-empty once the process is to end, and `wake` polls readable then.
        `start` allows starting a server."""
        self._errand, self._stop, self._wake = errand, stop, wake
        name = os.urandom(16).hex()
        self._link = Link(options, errand, name, self._perform, _silent, start=start, alone=False)

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *_failed: object) -> None:
        self._link.send(encode({"intercom": {"bye": {}}}))
        self._link.close(_LAST_WORDS_SECONDS)

    def run(self, until: float) -> Answer:
        """Wait for the answer, at the latest until `until` (`time.monotonic` seconds)."""
        while not self._errand.done and not self._stop and time.monotonic() < until:
            self._link.on_time()
            self._turn(until)
        return self._errand.answer

    def told(self, receipt: object) -> None:
        """Confirm to the server that the client has what this receipt came with."""
        if isinstance(receipt, str):
            self._link.send(self._errand.ask("intercom/told", {"receipt": receipt}))
            self.run(time.monotonic() + _TOLD_SECONDS)

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
