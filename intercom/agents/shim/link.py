"""The shim's link to a server: it finds one or starts one, exchanges lines with it, and begins again when it is gone.

It never blocks. The loop that drives it is in `main`.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from intercom._version import __version__
from intercom.agents.shim import launch
from intercom.agents.shim.launch import Options
from intercom.agents.shim.relay import Effect, Failure, Party, control
from intercom.local.places import DEFAULT_IPC_NAME, Places, ipc_name_in, places, recorded
from intercom.local.wire import MEBIBYTE, LineBuffer, LineTooLong, connect, encode
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject

if TYPE_CHECKING:
    import subprocess

#: The version of the shim protocol, which differs from the package's.
WIRE = 1


#: The variable with the token by which the agent has a role in the gateway.
ROLE_TOKEN = "INTERCOM_ROLE_TOKEN"


def hello(
    shim: str, options: Options, where: Places | None, delivered: Sequence[str], agents: Sequence[str] = ()
) -> bytes:
    """Return a shim's first line. Without `where` it has no token, which a private server does not need."""
    config = None if options.config is None else os.path.abspath(options.config)
    said = {
        "wire": WIRE,
        "version": __version__,
        "shim": shim,
        "pid": os.getpid(),
        "client_pid": os.getppid(),
        "cwd": _directory(),
        "workspace": None if options.workspace is None else os.path.abspath(options.workspace),
        "channel": options.channel,
        "session": options.session_id,
        "config": config,
        "config_digest": None if config is None else _digest(config),
        "token": "" if where is None else _token(where.token_file),
        "delivered": list(delivered),
        "agents": list(agents),
    }
    if options.agent is not None:
        said["agent"] = options.agent
    if options.role != "shim":
        said["role"] = options.role
    if role_token := os.environ.get(ROLE_TOKEN):
        said["role_token"] = role_token
    return encode({"intercom": {"hello": said}})


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"  # the directory was removed; the server refuses "/" as a workspace, with a message


def _digest(path: str) -> str | None:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _token(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, encoding="ascii", errors="replace") as file:
        return file.read(4096).strip()


#: The most bytes of one read or write. From 128 KiB on, the C library would map and unmap pages for every read.
_CHUNK = 64 * 1024
# A pipe that polls writable has room for this much, in blocking mode too.
_PIPE_ROOM = min(select.PIPE_BUF, 4096)


class Outlet:
    """The queue of lines for one descriptor, written in order. The descriptor's mode is not changed because others may
    share it: a client's terminal, a log. `write` must be called only if the system reports room."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = 0
        self._lines: deque[tuple[memoryview, str | None]] = deque()
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        self._socket = socket.socket(fileno=os.dup(descriptor)) if is_socket else None

    def put(self, line: bytes, receipt: str | None = None) -> None:
        """Queue a line; `write` returns the `receipt` once the line was written."""
        self._lines.append((memoryview(line), receipt))
        self.waiting += len(line)

    def write(self) -> list[str]:
        """Write as much as there is room for. Returns the receipts of written lines; raises OSError."""
        done: list[str] = []
        while self._lines:
            view, receipt = self._lines[0]
            sent = self._send(view)
            self.waiting -= sent
            if sent < len(view):
                self._lines[0] = (view[sent:], receipt)
                break
            self._lines.popleft()
            if receipt is not None:
                done.append(receipt)
            if self._socket is None:
                break  # a pipe's room is known for one write only
        return done

    def _send(self, view: memoryview) -> int:
        try:
            if self._socket is not None:
                return self._socket.send(view[:_CHUNK], socket.MSG_DONTWAIT)
            return os.write(self.descriptor, view[:_PIPE_ROOM])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the duplicate of the descriptor; the caller closes the descriptor itself."""
        if self._socket is not None:
            self._socket.close()


def has_room(descriptor: int) -> bool:
    """Whether the descriptor can be written to now."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))


def read(descriptor: int) -> bytes | None:
    """Read from a descriptor that polled readable. Returns b"" at its end, None if there was nothing."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None


LINE_LIMIT = 64 * MEBIBYTE

_GREETING_SECONDS = 15.0
_START_SECONDS = 60.0
_OTHERS_START_SECONDS = 75.0  # how long another relay's server may take to get ready
_LOOK_SECONDS = 0.05  # between checks for it
_SHORT_LIFE_SECONDS = 1.0
_CRASH_LOOP_SECONDS = 120.0
_CRASH_LOOP_LIVES = 20
_HELD_SECONDS = 15.0  # how long another server may hold the database without an answer
_LONGEST_PAUSE = 2.0
_SILENT_STARTS = 5
_RETRY_SECONDS = 2.0  # after a failure, before a call may cause another try


class Link:
    """One shim's connection, across all server runs. `perform` gets the relay's effects, `say` a line of diagnostics.
    `start` allows it to start a server if none is found. `alone` allows a server for this shim alone if no other is
    possible. Times are `time.monotonic` seconds."""

    def __init__(
        self,
        options: Options,
        relay: Party,
        shim: str,
        perform: Callable[[Sequence[Effect]], None],
        say: Callable[[str], None],
        *,
        start: bool = True,
        alone: bool = True,
    ) -> None:
        self.due: float = 0.0  # when to call `on_time`; at first, at once
        self._options, self._relay, self._shim = options, relay, shim
        self._perform, self._say = perform, say
        self._may_start, self._may_be_alone = start, alone
        self._socket: socket.socket | None = None
        self._out: Outlet | None = None
        self._lines = LineBuffer(LINE_LIMIT)
        self._start: launch.Start | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._greeted = False
        self._up_since = 0.0
        self._tries = 0  # since a server last ran for a while
        self._trying_since = time.monotonic()
        self._unheard_since = self._trying_since  # since a server last answered, however soon it crashed
        self._silent = 0  # starts in a row that ended without a word, while no other server welcomed it either
        self._failures = 0
        self._retry_at: float | None = None

    # Called by the loop

    def wanted(self, *, reading: bool) -> dict[int, int]:
        """Return the descriptors to poll and their events. Without `reading`, the server's lines are not read."""
        if self._start is not None:
            return {self._start.descriptor: select.POLLIN}
        if self._socket is None or self._out is None:
            return {}
        events = (select.POLLIN if reading else 0) | (select.POLLOUT if self._out.waiting else 0)
        return {self._socket.fileno(): events}

    @property
    def backlog(self) -> int:
        """The number of bytes that the server has not read yet."""
        return self._out.waiting if self._out is not None else 0

    def on_ready(self, descriptor: int, events: int) -> None:
        """Process a ready descriptor, one of the `wanted`."""
        if self._start is not None and descriptor == self._start.descriptor:
            self._on_start(self._start)
        elif self._socket is not None and self._out is not None and descriptor == self._socket.fileno():
            try:
                if events & select.POLLOUT:
                    self._out.write()
                if events & ~select.POLLOUT:
                    self._on_data(read(descriptor))
            except OSError:
                self.leave()

    def on_time(self) -> None:
        """Do what is due, if anything."""
        now = time.monotonic()
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._relay.retry_allowed()
        if now < self.due:
            return
        if self._start is not None:
            self._end_start()
            self._fail(Failure("unavailable", f"the server did not get ready within {_START_SECONDS:.0f} s"))
        elif self._socket is None:
            self._seek(now)
        elif not self._greeted:
            self._say("the server does not answer; trying again")
            self.leave()
        else:
            self.due = float("inf")

    def send(self, line: bytes) -> None:
        """Queue a line for the server."""
        if self._out is not None:
            self._out.put(line)

    def flush(self) -> None:
        """Write as much as there is room for."""
        if self._out is not None and self._out.waiting:
            try:
                self._out.write()
            except OSError:
                self.leave()

    def retry(self) -> None:
        """Look for a server now, unless one is being greeted or started."""
        if self._socket is None and self._start is None:
            self.due = 0.0

    def close(self, seconds: float) -> None:
        """Write queued lines for at most `seconds`, and disconnect; end a private server."""
        end = time.monotonic() + seconds
        try:
            while self._greeted and self._out and self._out.waiting and (left := end - time.monotonic()) > 0:
                poll = select.poll()
                poll.register(self._out.descriptor, select.POLLOUT)
                if poll.poll(left * 1000):
                    self._out.write()
        except OSError:
            pass
        if self._start is not None:
            self._end_start()
        self._disconnect()

    # Finding a server

    def _seek(self, now: float) -> None:
        try:
            where = self._places()
            if self._reach(where):
                return
            elsewhere = recorded(where, self._options.config)
            if elsewhere is not None and self._reach(elsewhere):
                return
            if not self._may_start:
                self._fail(Failure("unavailable", "no server runs"))
                return
            unwritable = launch.sandboxed(where)
            if unwritable is not None:
                self._serve_alone(f"cannot write {unwritable} from here")
                return
            doomed = launch.doom(launch.look())
            if doomed is not None:
                self._serve_alone(doomed)
                return
            claim = launch.claim(where)
            if claim is None and now - self._unheard_since <= _OTHERS_START_SECONDS:
                self.due = now + _LOOK_SECONDS
                return
            if claim is not None and self._is_overtaken(where, claim):
                return
            # A server that hangs while it starts must not hold up all agents: without the claim, either another one
            # can run, or it says which process has the database.
            self._start = launch.start(self._options, claim)
            self.due = now + _START_SECONDS
        except IntercomError as error:
            self._fail(Failure(error.error_code, error.message))
        except BlockingIOError:
            self._wait_for_room(now)  # its queue of connections is full
        except OSError as error:
            self._fail(Failure("unavailable", f"cannot start a server: {error.strerror or error}"))

    def _places(self) -> Places:
        name = self._options.ipc_name
        if name is not None:
            return places(name)
        own = places(DEFAULT_IPC_NAME)
        return places(ipc_name_in(self._options.config or own.config_file))

    def _reach(self, where: Places) -> bool:
        try:
            sock = connect(where.mcp_socket, timeout=0)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, PermissionError):
            return False
        self._greet(sock, self._hello(where))
        return True

    def _is_overtaken(self, where: Places, claim: int) -> bool:
        """Whether another relay has started a server before this one got the claim, which is given back then."""
        is_reached = True
        try:
            is_reached = self._reach(where)
        finally:
            # It is given back also if the connection fails, as with a server whose queue is full.
            if is_reached:
                os.close(claim)
        return is_reached

    def _wait_for_room(self, now: float) -> None:
        if now - self._unheard_since > _OTHERS_START_SECONDS:
            self._fail(Failure("unavailable", "the server is too busy to be reached"))
        else:
            self.due = now + _LOOK_SECONDS

    def _serve_alone(self, why: str) -> None:
        if not self._may_be_alone:
            self._fail(Failure("unavailable", f"{why}, and no server outside can be reached"))
            return
        self._say(
            f"{why}, so this agent gets a server of its own, which ends with it;"
            " one that runs outside (agent-intercom serve) is used if its socket can be reached"
        )
        sock, self._child = launch.start_private(self._options)
        sock.setblocking(False)
        self._greet(sock, self._hello(None))
        self.due = time.monotonic() + _START_SECONDS

    def _on_start(self, start: launch.Start) -> None:
        try:
            if not start.ready():
                return
            self._silent = 0
            self._end_start()
            self._again()
        except launch.NotReady as not_ready:
            self._end_start()
            if not_ready.sandboxed:
                self._serve_alone("the server cannot write its state from here")
            elif not_ready.again and time.monotonic() - self._unheard_since < _HELD_SECONDS:
                self._again()
            else:
                self._fail(not_ready.failure)
        except EOFError:
            self._end_start()
            self._silent += 1
            if self._silent >= _SILENT_STARTS:
                self._silent = 0
                self._fail(Failure("unavailable", "the server ends before it is ready: see its log, or run it by hand"))
            else:
                self._again()

    def _end_start(self) -> None:
        if self._start is not None:
            self._start.close()
            self._start = None

    # Exchanging lines

    def _hello(self, where: Places | None) -> bytes:
        return hello(self._shim, self._options, where, list(self._relay.undelivered), self._relay.agents)

    def _greet(self, sock: socket.socket, line: bytes) -> None:
        self._socket, self._out, self._lines = sock, Outlet(sock.fileno()), LineBuffer(LINE_LIMIT)
        self._greeted = False
        self.due = time.monotonic() + _GREETING_SECONDS
        self._out.put(line)

    def _on_data(self, data: bytes | None) -> None:
        if data is None:
            return
        if not data:
            self.leave()
            return
        self._lines.feed(data)
        lines = self._lines
        try:
            # A line may end this connection and replace its buffer.
            while self._lines is lines and (line := lines.next_line()) is not None:
                if self._greeted:
                    self._perform(self._relay.server_line(line))
                else:
                    self._on_welcome(control(line))
        except LineTooLong:
            self._say("the server sent a line that is too long")
            self.leave()

    def _on_welcome(self, told: JsonObject) -> None:
        welcome, refused = told.get("welcome"), told.get("refused")
        if isinstance(welcome, dict) and welcome.get("wire") == WIRE:
            self._greeted = True
            self._up_since = self._unheard_since = time.monotonic()
            self._silent, self._failures, self._retry_at, self.due = 0, 0, None, float("inf")
            self._perform(self._relay.server_up())
        elif isinstance(refused, dict):
            failure = Failure(str(refused.get("code", "mcp")), str(refused.get("message", "refused")))
            self._disconnect()
            if refused.get("retry") is True:
                self._again()
            else:
                self._fail(failure)
        elif "handover" in told:
            self.leave()
        else:
            text = f"this shim ({__version__}) and the running server do not understand each other: stop the server"
            self._disconnect()
            self._fail(Failure("version_mismatch", text))

    def leave(self) -> None:
        """Leave the current server, or note that it is gone, and look for another."""
        lived = time.monotonic() - self._up_since if self._greeted else 0.0
        if self._greeted:
            self._unheard_since = time.monotonic()
        self._disconnect()
        self._perform(self._relay.server_down())
        if lived >= _SHORT_LIFE_SECONDS:
            self._tries, self._trying_since = 0, time.monotonic()
        self._again()

    def _disconnect(self) -> None:
        if self._out is not None:
            self._out.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._out = None
        self._greeted = False
        self._lines = LineBuffer(LINE_LIMIT)
        if self._child is not None:
            launch.end(self._child)
            self._child = None

    # Trying again

    def _again(self) -> None:
        now = time.monotonic()
        self._tries += 1
        if self._tries > _CRASH_LOOP_LIVES and now - self._trying_since > _CRASH_LOOP_SECONDS:
            self._fail(Failure("unavailable", "the server keeps ending right after its start: see its log"))
        else:
            # The first try is immediate; then the pause is 50 ms, and doubles each time.
            self.due = now if self._tries <= 2 else now + min(_LONGEST_PAUSE, 0.025 * 2 ** (self._tries - 2))

    def _fail(self, failure: Failure) -> None:
        now = time.monotonic()
        self._failures += 1
        self._tries, self._trying_since, self._unheard_since = 0, now, now
        self._say(failure.message)
        self.due = now + min(60.0, 2.0**self._failures)
        self._retry_at = now + _RETRY_SECONDS
        self._perform(self._relay.server_failed(failure))
