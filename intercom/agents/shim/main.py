"""The shim's main loop: it relays between standard input and output and a server, and never blocks on one side."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence

from intercom.agents.shim.launch import Options
from intercom.agents.shim.link import LINE_LIMIT, Link, Outlet, has_room, read
from intercom.agents.shim.relay import Effect, Leave, Note, Relay, Results, Retry, ToClient, ToServer, load_shipped
from intercom.local import shim_process
from intercom.local.places import peek, places
from intercom.local.shim_process import claim_standard_output, listen_for_signals
from intercom.local.wire import MEBIBYTE, LineBuffer, LineTooLong, encode
from intercom.model.errors import IntercomError

#: The shim's last line if the client has closed the connection.
BYE = encode({"intercom": {"bye": {}}})

_MUCH = 8 * MEBIBYTE  # with more queued for one side, the other is not read
_LINGER_SECONDS = 1.5  # for outstanding answers after the client closed its input
_LAST_WORDS_SECONDS = 0.5


def main(options: Options) -> int:
    """Relay between standard input and output and a server until the client is gone. Returns the exit code. Standard
    output carries MCP only: all other output goes to standard error. Must run in the main thread because it sets
    signals. SIGTERM and SIGINT end it cleanly."""
    client = claim_standard_output()
    stop, wake = listen_for_signals(signal.SIGTERM, signal.SIGINT)
    return _Shim(options, client, stop, wake).run()


class _Shim:
    def __init__(self, options: Options, client: int, stop: list[int], wake: int) -> None:
        shim = shim_process.make_id()
        self._stop, self._wake = stop, wake
        self._relay = Relay(shim, _shipped_for(options))
        self._link = Link(options, self._relay, shim, self._perform, _say)
        self._client = Outlet(client)
        self._lines = LineBuffer(LINE_LIMIT)
        self._ended: float | None = None  # when the client closed its side

    def run(self) -> int:
        try:
            while not self._stop and not self._done():
                self._link.on_time()
                self._turn()
        except ConnectionError:
            pass  # the client is gone
        finally:
            if self._ended is not None:
                self._link.send(BYE)
            self._link.close(_LAST_WORDS_SECONDS)
        return 0

    def _done(self) -> bool:
        if self._ended is None:
            return False
        idle = not self._relay.in_flight and not self._client.waiting
        return idle or time.monotonic() > self._ended + _LINGER_SECONDS

    def _turn(self) -> None:
        """Wait until something is ready, and process it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        # Many requests are answered here, so a client that does not read is not read from either.
        if self._ended is None and self._link.backlog < _MUCH and self._client.waiting < _MUCH:
            poll.register(0, select.POLLIN)
        # Without any events, a descriptor still reports that its reader is gone.
        poll.register(self._client.descriptor, select.POLLOUT if self._client.waiting else 0)
        for descriptor, events in self._link.wanted(reading=self._client.waiting < _MUCH).items():
            poll.register(descriptor, events)
        for descriptor, events in poll.poll(self._milliseconds()):
            if descriptor == 0:
                self._read_client()
            elif descriptor == self._client.descriptor:
                self._write_client(events)
            elif descriptor == self._wake:
                os.read(self._wake, 4096)
            else:
                self._link.on_ready(descriptor, events)
        self._flush()

    def _flush(self) -> None:
        """Write at once what there is room for: another turn of the loop would delay each call."""
        self._link.flush()
        if self._client.waiting and has_room(self._client.descriptor):
            self._write_client(select.POLLOUT)

    def _milliseconds(self) -> float | None:
        due = self._link.due
        if self._ended is not None:
            due = min(due, self._ended + _LINGER_SECONDS + 0.001)
        # A failed start has a second retry time, on demand: wake up at least once a second.
        return min(1000.0, max(0.0, (due - time.monotonic()) * 1000))

    def _read_client(self) -> None:
        try:
            data = read(0)
        except ConnectionError:
            data = b""
        if data is None:
            return
        if not data:
            self._ended = time.monotonic()
            # A last line may lack its end.
            data = b"\n" if self._lines.partial else b""
        self._lines.feed(data)
        while True:
            try:
                line = self._lines.next_line()
            except LineTooLong:
                self._perform(self._relay.client_line_too_long())
                continue
            if line is None:
                return
            self._perform(self._relay.client_line(line))

    def _write_client(self, events: int) -> None:
        if not events & select.POLLOUT:
            raise BrokenPipeError
        for receipt in self._client.write():
            self._perform(self._relay.written(receipt))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ToClient):
                self._client.put(effect.line, effect.receipt)
            elif isinstance(effect, ToServer):
                self._link.send(effect.line)
            elif isinstance(effect, Leave):
                self._link.leave()
            elif isinstance(effect, Retry):
                self._link.retry()
            elif isinstance(effect, Note):
                _say(effect.text)


def _shipped_for(options: Options) -> Results:
    try:
        results = load_shipped(options.shipped) if options.shipped else load_shipped()
    except ValueError:
        _say("the shipped answers are damaged; reinstall the package")
        return {}
    try:
        settings = peek(options.config or places().config_file)
    except IntercomError:
        return results  # calls will report what is wrong
    mcp, rooms, gateway = (settings.get(table) for table in ("mcp", "rooms", "gateway"))
    if isinstance(gateway, dict) and gateway.get("enabled"):
        # What the server can do, and every list, depends on its downstreams.
        return {}
    has_more = isinstance(mcp, dict) and (mcp.get("legacy_tool_names") or mcp.get("permission_prompt_tool"))
    if has_more or (isinstance(rooms, dict) and rooms.get("enabled")):
        # The shipped list lacks these names: clients wait for the server's own.
        for era in results.values():
            era.pop("tools/list", None)
    return results


def _say(text: str) -> None:
    """Print a line on standard error unless it is full: a client that never reads it must not block the shim."""
    line = f"agent-intercom: {text}\n".encode(errors="replace")
    try:
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if any(events & select.POLLOUT for _, events in poll.poll(0)):
            os.write(2, line[: select.PIPE_BUF])
    except OSError:
        pass
