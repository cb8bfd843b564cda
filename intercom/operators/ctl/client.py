"""ctl's end of the local socket, on the standard library alone: whoever types a command waits for its imports.

A server may be killed while it is being asked. So a request whose answer was lost is sent again, for a short while, and
a verdict carries an id that makes the repetition the same act.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

from intercom.local.dial import connect
from intercom.local.places import Places, peek
from intercom.model.errors import ConfigError, IpcError

#: Seconds a request is repeated for after its answer was lost.
PATIENCE = 10.0

#: Seconds a first try waits for a server whose socket is there but which does not listen: it was killed, and a shim may
#: be starting it again, which takes the time of its imports.
FIRST_PATIENCE = 4.0

#: Seconds an answer may take.
ANSWER = 90.0

_PAUSE = 0.05

#: Seconds between two tries at a server that has no place for another connection: at first, and at most.
_BUSY_PAUSES = (0.05, 1.0)
_CHUNK = 256 * 1024

#: Verbs that a repetition would do twice, so they are sent once.
ONCE = frozenset({"nudge"})

#: Verbs that change something, and so travel under an id of their own.
_VERDICTS = frozenset({"approve", "reject", "answer", "policy-accept", "policy-reject"})
_CONTROLS = frozenset({"resume", "mode", "nudge", "start", "clear", "pause", "unpause", "steer", "task", "take-back"})
_KEYS = frozenset({"key-add", "key-revoke"})
_CHECKPOINTS = frozenset({"checkpoint", "restore"})
ACTS = _VERDICTS | _CONTROLS | _CHECKPOINTS | _KEYS


class NoServer(Exception):
    """Nobody listens at the socket."""


class Refusal(Exception):
    """The server said no: its sentence, its code, and what else it told."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(str(reply.get("error", "the server gave no reason")))
        self.code = str(reply.get("error_code", "ipc"))
        self.details = reply.get("details")


def request(places: Places, command: str, fields: dict[str, Any], *, patience: float = PATIENCE) -> Any:
    """Ask the server to carry out `command` and return the data of its answer.

    A connection that breaks, or that there is no place for, is made again for `patience` seconds; an act keeps its
    `verdict_id` meanwhile (one is made up if `fields` has none). Raises NoServer, Refusal, or IpcError for a socket
    that is not this user's.
    """
    fields = dict(fields)
    if command in ACTS and "verdict_id" not in fields:
        fields["verdict_id"] = os.urandom(16).hex()
    deadline = time.monotonic() + min(patience, FIRST_PATIENCE)
    asked = there = False
    pause, longest = _BUSY_PAUSES
    while True:
        token = None
        # Looked at before each try: a server that starts takes the old socket away for a moment, and one whose listener
        # fell has none until that is back; the socket of its agents is there meanwhile.
        there = there or os.path.exists(places.ctl_socket) or os.path.exists(places.mcp_socket) or _is_served(places)
        try:
            with _Line(places) as line:
                token = line.token
                line.send(command, fields)
                if not asked:
                    asked, deadline = True, time.monotonic() + patience
                return _data(line.receive())
        except (NoServer, OSError, EOFError) as lost:
            if asked and command in ONCE:
                raise _unsure(command) from None
            if (not asked and not there) or time.monotonic() >= deadline:
                raise _no_server(lost) from None
        except Refusal as refusal:
            if refusal.code == "busy" and time.monotonic() < deadline:
                # Nothing was done: also what must not be done twice is asked again. Not all in step.
                time.sleep(pause * (0.5 + os.urandom(1)[0] / 510))
                pause = min(longest, pause * 2)
                continue
            if (left := _retry_after(refusal)) and time.monotonic() + left < deadline:
                # A server that has just started decides nothing yet, and says for how long.
                sys.stderr.write(f"agent-intercom-ctl: {refusal}\n")
                time.sleep(left)
                continue
            # The token may have been that of the server before this one: a new one is written once the socket is had.
            # Or its file was taken away: the server writes it again.
            known = token is not None and token == _token(places)
            if refusal.code != "unauthorized" or known or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)


class Watch:
    """A watch that has begun: cards and notices as they come. Use it as a context; it has a `fileno` to wait on.

    Raises NoServer or Refusal when it can not begin.
    """

    def __init__(self, places: Places) -> None:
        try:
            self._line = _Line(places)
            self._line.send("watch", {})
            _data(self._line.receive())
        except (OSError, EOFError) as lost:
            raise _no_server(lost) from None
        # From here on silence is normal: nothing may happen for hours.
        self._line.patience(None)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    def fileno(self) -> int:
        return self._line.fileno()

    @property
    def ready(self) -> bool:
        """Whether there are events that need no waiting, which the `fileno` does not tell of."""
        return self._line.buffered

    def read(self) -> list[dict[str, Any]]:
        """What has come, `{"event": ..., "data": ...}` each, perhaps none. Waits for bytes; EOFError at the end."""
        try:
            return self._line.receive_some()
        except OSError as error:
            raise EOFError(str(error)) from None


class _Line:
    """One connection, and the token of the server behind it."""

    def __init__(self, places: Places) -> None:
        try:
            self._socket: socket.socket = connect(places.ctl_socket)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoServer(str(error)) from None
        # Read after connecting: a server writes its token as soon as it listens, and answers nobody before.
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

    def send(self, command: str, fields: dict[str, Any]) -> None:
        line = {"command": command, **fields, "auth_token": self.token}
        try:
            self._socket.sendall(json.dumps(line).encode("ascii") + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            # It may have answered before it hung up, so let the answer be read.
            return

    def receive(self) -> dict[str, Any]:
        """The next line; raises EOFError at the end, TimeoutError, or IpcError for what is no object."""
        while not self.buffered:
            self._fill()
        line, _, rest = b"".join(self._parts).partition(b"\n")
        self._parts = [rest]
        return _object(line)

    def receive_some(self) -> list[dict[str, Any]]:
        """The whole lines that are there, after waiting for bytes once if there are none; raises as `receive`."""
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


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise IpcError("the answer is not of this protocol: check that ctl and server are of one version")
    return value


def _retry_after(refusal: Refusal) -> float:
    """For how many seconds the server wants to be left alone; 0 where it does not say."""
    after = refusal.details.get("retry_after") if isinstance(refusal.details, dict) else None
    return float(after) if isinstance(after, int | float) and 0 < after <= PATIENCE else 0.0


def _data(reply: dict[str, Any]) -> Any:
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
    """Whether a server of this user runs although there are no sockets: it has its database locked, and makes what was
    taken away again in a moment."""
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


def _unsure(command: str) -> Refusal:
    sentence = f"the server went away before it answered {command}; log says whether it was carried out"
    return Refusal({"error": sentence, "error_code": "unavailable"})


def _no_server(error: BaseException) -> Exception:
    if isinstance(error, TimeoutError):
        return Refusal({"error": "the server did not answer in time; try again", "error_code": "unavailable"})
    return NoServer(str(error))


__all__ = ["ACTS", "NoServer", "Refusal", "Watch", "request"]
