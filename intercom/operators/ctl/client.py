"""ctl's client of the local socket.

It uses only the standard library, because every ctl command waits for its imports. A server may be killed during a
request. So a request without an answer is sent again for a short time, and an act carries an id that makes the
repetition safe.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, NamedTuple

from intercom.local.places import Places, peek
from intercom.local.wire import connect
from intercom.model.errors import ConfigError, IpcError
from intercom.model.json_types import JsonObject, part
from intercom.operators.commands.command_table import COMMANDS

#: How long a request is repeated after its answer was lost, in seconds.
PATIENCE = 10.0

#: How long the first try waits, in seconds, for a server whose socket exists but does not listen: after a kill a shim
#: may be restarting it, which takes the time of its imports.
FIRST_PATIENCE = 4.0

#: How long an answer may take, in seconds.
ANSWER = 90.0

#: What a person is told of an act without an answer.
MAY_BE_DONE = "what you asked for may still be done: check before you try again"

_PAUSE = 0.05

#: Seconds between two tries at a server with too many connections: the first pause, and the longest.
_BUSY_PAUSES = (0.05, 1.0)
_CHUNK = 256 * 1024


class NoServer(Exception):
    """No server listens at the socket. `may_be_done` is set if one had got a request that changes something before."""

    def __init__(self, why: str, *, may_be_done: bool = False) -> None:
        super().__init__(why)
        self.may_be_done = may_be_done


class Event(NamedTuple):
    """One event of a watch: "card" or "notice" with its entry, or "dropped" with a notice as the last one."""

    name: str
    data: JsonObject


class Refusal(Exception):
    """The server refused the request; holds its sentence, code and details."""

    def __init__(self, reply: JsonObject) -> None:
        super().__init__(str(reply.get("error", "the server gave no reason")))
        self.code = str(reply.get("error_code", "ipc"))
        self.details = reply.get("details")


def request(places: Places, command: str, fields: JsonObject, *, patience: float = PATIENCE) -> Any:
    """Send `command` to the server and return the data of its answer.

    A broken or refused connection is retried for `patience` seconds, counted from the first that broke: the server may
    have worked on the request for longer. An act keeps its `verdict_id` meanwhile; one is generated if `fields` has
    none. Raises NoServer, Refusal, or IpcError for a socket that is not this user's.
    """
    fields = dict(fields)
    row = COMMANDS[command]
    if row.acts and "verdict_id" not in fields:
        fields["verdict_id"] = os.urandom(16).hex()
    deadline = time.monotonic() + min(patience, FIRST_PATIENCE)
    asked = there = is_lost = False
    pause, longest = _BUSY_PAUSES
    while True:
        token = None
        # Checked before each try. A starting server removes the old socket for a moment, and a crashed listener has
        # none until its restart. The socket of the agents exists meanwhile.
        there = there or os.path.exists(places.ctl_socket) or os.path.exists(places.mcp_socket) or _is_served(places)
        try:
            with _Line(places) as line:
                token = line.token
                line.send(command, fields)
                if not asked:
                    asked, deadline = True, time.monotonic() + patience
                return _data(line.receive())
        except (NoServer, OSError, EOFError) as lost:
            if asked and not is_lost and not isinstance(lost, TimeoutError):
                is_lost, deadline = True, time.monotonic() + patience
            if (not asked and not there) or time.monotonic() >= deadline:
                raise _no_server(lost, may_be_done=asked and row.acts and not row.only_shows) from None
        except Refusal as refusal:
            if refusal.code == "busy" and time.monotonic() < deadline:
                # The pause is random, so clients do not retry in step.
                time.sleep(pause * (0.5 + os.urandom(1)[0] / 510))
                pause = min(longest, pause * 2)
                continue
            if (left := _retry_after(refusal)) and time.monotonic() + left < deadline:
                # A server that has just started decides nothing yet; it says how long to wait.
                sys.stderr.write(f"agent-intercom-ctl: {refusal}\n")
                time.sleep(left)
                continue
            # The token may be that of the previous server, or its file was removed. The server writes a new one once it
            # has the socket.
            known = token is not None and token == _token(places)
            if refusal.code != "unauthorized" or known:
                raise
            if time.monotonic() >= deadline:
                if _token(places) is None:
                    raise
                # Servers came and went all the time; that the token of each was another's helps nobody.
                raise _no_server(refusal, may_be_done=is_lost and row.acts and not row.only_shows) from None
        time.sleep(_PAUSE)


class Watch:
    """A watch that has begun; it yields cards and notices as they arrive. Use it as a context manager; wait on its
    `fileno`. Raises NoServer or Refusal if it cannot begin."""

    def __init__(self, places: Places) -> None:
        try:
            self._line = _Line(places)
            self._line.send("watch", {})
            _data(self._line.receive())
        except (OSError, EOFError) as lost:
            raise _no_server(lost) from None
        # No time limit from here on: hours without an event are normal.
        self._line.patience(None)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    def fileno(self) -> int:
        return self._line.fileno()

    @property
    def ready(self) -> bool:
        """Whether events are buffered, which `fileno` does not signal."""
        return self._line.buffered

    def read(self) -> list[Event]:
        """Return the events that arrived; maybe none. Waits for bytes. Raises EOFError at the end."""
        try:
            return [Event(str(line.get("event")), part(line, "data")) for line in self._line.receive_some()]
        except OSError as error:
            raise EOFError(str(error)) from None


class _Line:
    """One connection, and the token of its server."""

    def __init__(self, places: Places) -> None:
        try:
            self._socket: socket.socket = connect(places.ctl_socket)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoServer(str(error)) from None
        # Read after connecting: a server writes its token as soon as it listens, and answers no request before.
        self.token = _token(places)
        self._parts = [b""]
        self.patience(ANSWER)

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def patience(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, command: str, fields: JsonObject) -> None:
        line = {"command": command, **fields, "auth_token": self.token}
        try:
            self._socket.sendall(json.dumps(line).encode("ascii") + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            # The server may have answered before it closed the connection, so the answer is still read.
            return

    def receive(self) -> JsonObject:
        """Return the next line. Raises EOFError at the end, TimeoutError, or IpcError if the line is no JSON object."""
        while not self.buffered:
            self._fill()
        line, _, rest = b"".join(self._parts).partition(b"\n")
        self._parts = [rest]
        return _object(line)

    def receive_some(self) -> list[JsonObject]:
        """Return the whole lines that are buffered; if there are none, wait for bytes once. Raises as `receive`."""
        if not self.buffered:
            self._fill()
        if not self.buffered:
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts = [rest]
        return [_object(line) for line in lines]

    @property
    def buffered(self) -> bool:
        return b"\n" in self._parts[-1]

    def _fill(self) -> None:
        chunk = self._socket.recv(_CHUNK)
        if not chunk:
            raise EOFError("the server closed the connection")
        self._parts.append(chunk)


def _object(line: bytes) -> JsonObject:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise IpcError("the answer is not of this protocol: check that ctl and server have the same version")
    return value


def _retry_after(refusal: Refusal) -> float:
    """Return how many seconds the server asks to wait; 0 if it does not say."""
    after = refusal.details.get("retry_after") if isinstance(refusal.details, dict) else None
    return float(after) if isinstance(after, int | float) and 0 < after <= PATIENCE else 0.0


def _data(reply: JsonObject) -> Any:
    if reply.get("ok") is True:
        return reply.get("data")
    raise Refusal(reply)


def _token(places: Places) -> str | None:
    try:
        descriptor = os.open(places.token_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise IpcError(f"{places.token_file} belongs to another user: remove it and restart the server")
        return file.read(1024).strip()


def _is_served(places: Places) -> bool:
    """Return whether a server of this user runs without sockets. Its database is locked then, and it is about to create
    its sockets again."""
    import fcntl

    database = places.database
    try:
        settings = peek(places.config_file).get("database")
        named = settings.get("path") if isinstance(settings, dict) else None
        if isinstance(named, str):
            database = os.path.join(places.state_dir, os.path.expanduser(named))
        lock = os.open(os.path.realpath(database) + ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ConfigError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _no_server(error: BaseException, *, may_be_done: bool = False) -> Exception:
    if isinstance(error, TimeoutError):
        then = MAY_BE_DONE if may_be_done else "try again"
        return Refusal({"error": f"the server did not answer in time; {then}", "error_code": "unavailable"})
    return NoServer(str(error), may_be_done=may_be_done)


__all__ = ["MAY_BE_DONE", "Event", "NoServer", "Refusal", "Watch", "request"]
