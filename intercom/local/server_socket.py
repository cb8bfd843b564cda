"""The server's end of a local socket: listening, its files, places for connections, and who wrote what.

Its interface is `listen(path)`, a `trio.abc.Listener` of byte streams from processes of this user.

The system reports which process opened a connection, but another process can inherit or receive the connection. With
SO_PASSCRED the system also reports the writer, and never joins data of two writers.

Pure bookkeeping without I/O or waiting. Connections without the token cannot keep out those with it. An agent, which
has the token too, cannot keep out the person at the terminal.
"""

from __future__ import annotations

import array
import errno
import fcntl
import logging
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable
from enum import Enum

import trio
from attrs import define, field, frozen

from intercom.local.places import SOCKET_PATH_LIMIT, check_socket_path, private_directory
from intercom.local.wire import Peer, peer_of
from intercom.model.errors import IntercomError, IpcError

log = logging.getLogger("intercom")

_SO_PASSCRED = getattr(socket, "SO_PASSCRED", 16)
_SCM_CREDENTIALS = 2
_CREDENTIALS = struct.Struct("=iII")
_LINUX = sys.platform.startswith("linux")


def peer(stream: trio.SocketStream) -> Peer:
    """Return the process (`pid`, 0 if unknown) and user (`uid`) that opened a Unix stream.

    The system records this at connect time; the process may have ended since. Raises OSError if the stream is not a
    connected Unix socket.
    """
    # Only getsockopt is used, and Trio's wrapper has it with the same signature.
    return peer_of(stream.socket)  # type: ignore[arg-type]


def tells_writers(stream: object) -> bool:
    """Whether this stream reports its writers."""
    if not _LINUX or not isinstance(stream, trio.SocketStream) or stream.socket.family != socket.AF_UNIX:
        return False
    return bool(stream.socket.getsockopt(socket.SOL_SOCKET, _SO_PASSCRED))


async def receive(stream: trio.SocketStream, most: int) -> tuple[bytes, int]:
    """Receive at most `most` bytes, empty at the end. Return them with the pid of their writer (0 if it is hidden).

    Descriptors that the peer sends along are closed. Raises trio.BrokenResourceError and trio.ClosedResourceError as
    the stream itself does.
    """
    try:
        data, told, _, _ = await stream.socket.recvmsg(most, socket.CMSG_SPACE(_CREDENTIALS.size))
    except OSError as error:
        if stream.socket.fileno() < 0:
            raise trio.ClosedResourceError("this socket was closed") from None
        raise trio.BrokenResourceError(f"the connection broke: {error}") from error
    writer = 0
    for level, kind, content in told:
        if level != socket.SOL_SOCKET:
            continue
        if kind == _SCM_CREDENTIALS and len(content) >= _CREDENTIALS.size:
            writer = _CREDENTIALS.unpack_from(content)[0]
        elif kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
            for descriptor in descriptors:
                os.close(descriptor)
    return data, writer


_BACKLOG = 128
#: Errors of `accept` while too many files are open, and the pause (seconds) after one.
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SCARCE_SECONDS = 0.1


class LocalListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts connections from this user's processes. Use `listen` to create it, `trio.serve_listeners` to serve it."""

    def __init__(self, path: str, sock: trio.socket.SocketType, lock: int) -> None:
        self.path = path
        self._listener = trio.SocketListener(sock)
        self._lock = lock
        self._file = _identity(path)

    async def accept(self) -> trio.SocketStream:
        """Wait for the next connection of this user. Connections of other users are closed unread.

        Raises trio.ClosedResourceError after the listener was closed.
        """
        while True:
            listener = self._listener
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                if listener is self._listener:
                    raise
                continue  # `renew` replaced the listener
            except OSError as error:
                if error.errno not in _SCARCE:
                    raise
                # Other connections will close; new ones wait in the system's queue until then.
                await trio.sleep(_SCARCE_SECONDS)
                continue
            try:
                if peer(stream).uid == os.geteuid():
                    return stream
            except OSError:
                pass  # the peer disconnected first
            await trio.aclose_forcefully(stream)

    def renew(self) -> str | None:
        """Create the socket and its lock again, if they were removed or replaced.

        Returns a message, or None if there was nothing to do. Accepted connections continue. While we hold the lock
        file, no other server may listen here, so a foreign file in place of the socket is replaced atomically. If
        another server has locked a new file since, the path belongs to that server.

        Raises IpcError if another server has the path or the directory is not safe, and OSError for other failures.
        """
        if self._lock < 0 or (_identity(self.path) == self._file and self._has_lock()):
            return None
        private_directory(os.path.dirname(self.path))
        if not self._has_lock():
            lock = _lock(self.path)
            os.close(self._lock)
            self._lock = lock
        if _identity(self.path) == self._file:
            return f"the lock of the local socket {self.path} was gone; it is there again"
        stood = os.path.lexists(self.path)
        before, self._listener = self._listener, trio.SocketListener(_replaced(self.path))
        self._file = _identity(self.path)
        # Clients that waited in the old socket's queue connect again.
        before.socket.close()
        if stood:
            return f"something else stood in the place of the local socket {self.path}; it was replaced"
        return f"the local socket {self.path} was gone; it is there again"

    def _has_lock(self) -> bool:
        return _identity(_lock_path(self.path)) == _identity(self._lock)

    async def aclose(self) -> None:
        """Stop listening. Remove the socket file, unless it was replaced."""
        if self._lock < 0:
            return
        try:
            await self._listener.aclose()
        finally:
            try:
                if _identity(self.path) == self._file:
                    os.unlink(self.path)
            except FileNotFoundError:
                pass
            os.close(self._lock)
            self._lock = -1


def listen(path: str) -> LocalListener:
    """Listen at `path` with mode 0600. Its directory must be private to this user, and is created if necessary.

    A socket file of a dead server is removed if it is ours and has no listener. A lock file beside it is held while the
    listener is open, so two servers that start at once cannot remove each other's socket.

    Raises IpcError if another server listens there, if the path is something else, or if the directory is not safe.
    Raises OSError for other failures.
    """
    check_socket_path(path)
    private_directory(os.path.dirname(path))
    lock = _lock(path)
    try:
        _remove_stale(path)
        sock = _bound(path)
        return LocalListener(path, sock, lock)
    except BaseException:
        os.close(lock)
        raise


def _lock_path(path: str) -> str:
    return path + ".lock"


def _identity(file: str | int) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if it does not exist."""
    try:
        found = os.fstat(file) if isinstance(file, int) else os.lstat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock(path: str) -> int:
    lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise IpcError(f"another server listens at {path}: stop it, or give this one another ipc_name") from None
    return lock


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise IpcError(f"{path} is not a socket of yours: remove it, or choose another ipc_name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass  # a full backlog or a slow server still means that there is a listener
    raise IpcError(f"another program listens at {path}: stop it, or give this server another ipc_name")


def _replaced(path: str) -> trio.socket.SocketType:
    """Return a socket that listens at `path` and replaces the file there."""
    draft = path + "~"
    if len(os.fsencode(draft)) > SOCKET_PATH_LIMIT:
        # There is no room for a temporary name, so the path is empty for a moment.
        _remove(path)
        return _bound(path)
    _remove(draft)
    sock = _bound(draft)
    try:
        os.rename(draft, path)
    except BaseException:
        sock.close()
        _remove(draft)
        raise
    return sock


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _bound(path: str) -> trio.socket.SocketType:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Set the mode through the umask: a chmod after bind would leave the socket open to others for a moment.
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        if _LINUX:
            # Every accepted connection inherits this.
            sock.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)
        sock.listen(_BACKLOG)
        return trio.socket.from_stdlib_socket(sock)
    except BaseException:
        sock.close()
        raise


#: Seconds between two checks of a server's files.
RENEWAL_SECONDS = 1.0

#: Recreates what is missing. Returns a message, or None if there was nothing to do. Raises IntercomError or OSError.
Check = Callable[[], str | None]
#: Notifies people: a message and its level.
Tell = Callable[[str, str], object]


class Renewal:
    """Recreates files that a running server needs, because cleaners of temporary directories remove them. Each new
    result of a check is reported: what was recreated, and a repeated failure once."""

    def __init__(self, tell: Tell, *checks: Check) -> None:
        self._tell = tell
        self._checks = checks
        self._faults: dict[int, str] = {}

    async def keep(self) -> None:
        """Run the checks again and again. Never returns."""
        while True:
            await trio.sleep(RENEWAL_SECONDS)
            self.run()

    def run(self) -> None:
        """Run every check. Never raises."""
        for number, check in enumerate(self._checks):
            try:
                renewed = check()
            except (IntercomError, OSError) as error:
                why = _why(error)
                if self._faults.get(number) != why:
                    self._faults[number] = why
                    log.error("%s", why)
                    self._tell(why, "error")
                continue
            self._faults.pop(number, None)
            if renewed is not None:
                log.warning("%s", renewed)
                self._tell(renewed, "warning")


def _why(error: IntercomError | OSError) -> str:
    if isinstance(error, IntercomError):
        return error.message
    return f"{error.filename or 'a file of the server'} cannot be made again ({(error.strerror or str(error)).lower()})"


@frozen
class PlaceLimits:
    """The limits for simultaneous connections.

    `unauthenticated` connections have not sent the token yet. `shared` ones have; `watching` ones have too, and then
    only receive. `reserved` and `reserved_watching` are further places for operators only.
    """

    unauthenticated: int = 32
    shared: int = 48
    reserved: int = 16
    watching: int = 32
    reserved_watching: int = 8

    @property
    def total(self) -> int:
        return self.unauthenticated + self.shared + self.reserved + self.watching + self.reserved_watching


class _State(Enum):
    UNAUTHENTICATED = "unauthenticated"
    IDLE = "idle"
    BUSY = "busy"
    WATCHING = "watching"


@define(eq=False)
class Place:
    """The place of one connection. `close` ends the connection soon, without waiting. `operator` says whether its peer
    process is recognised as an operator's. It is called only when there are too many connections."""

    close: Callable[[], object]
    operator: Callable[[], bool]
    _state: _State = field(default=_State.UNAUTHENTICATED, init=False)
    _is_operator: bool | None = field(default=None, init=False)

    @property
    def is_operator(self) -> bool:
        if self._is_operator is None:
            self._is_operator = self.operator()
        return self._is_operator


class Admission:
    """The admitted connections. A connection calls `arrive` and `authenticate`. Then it calls `begin` and `end` around
    each request, or `watch`. At its end it calls `leave`."""

    def __init__(self, limits: PlaceLimits) -> None:
        self.limits = limits
        # Ordered by entry into the state: the first one is the oldest, or the longest idle.
        self._places: dict[_State, dict[int, Place]] = {state: {} for state in _State}

    def __len__(self) -> int:
        return sum(len(places) for places in self._places.values())

    def arrive(self, close: Callable[[], object], operator: Callable[[], bool] = lambda: False) -> Place:
        """Return a place for a new connection; this never fails. If necessary, the oldest one without the token is
        closed, an operator's last."""
        waiting = self._places[_State.UNAUTHENTICATED]
        if len(waiting) >= self.limits.unauthenticated:
            places = list(waiting.values())
            self._evict(next((place for place in places if not place.is_operator), places[0]))
        place = Place(close, operator)
        waiting[id(place)] = place
        return place

    def authenticate(self, place: Place) -> bool:
        """Whether there is room for a connection that has sent the token. It then counts as busy.

        If there is no room, the connection that was idle longest is closed. One of an operator is closed only for
        another operator's.
        """
        if place._state is not _State.UNAUTHENTICATED:
            return True
        idle = self._places[_State.IDLE]
        taken = len(idle) + len(self._places[_State.BUSY])
        if taken >= self.limits.shared and not (
            taken < self.limits.shared + self.limits.reserved and place.is_operator
        ):
            given = next((other for other in idle.values() if not other.is_operator), None)
            if given is None and place.is_operator:
                given = next(iter(idle.values()), None)
            if given is None:
                return False
            self._evict(given)
        self._move(place, _State.BUSY)
        return True

    def begin(self, place: Place) -> None:
        """Mark a request as running. The connection is not closed before the answer."""
        self._move(place, _State.BUSY)

    def end(self, place: Place) -> None:
        """Mark the request as answered."""
        self._move(place, _State.IDLE)

    def watch(self, place: Place) -> bool:
        """Whether one more connection may watch. Watches have their own places, and are never closed for others."""
        watching = len(self._places[_State.WATCHING])
        most = self.limits.watching
        if watching >= most and not (watching < most + self.limits.reserved_watching and place.is_operator):
            return False
        self._move(place, _State.WATCHING)
        return True

    def leave(self, place: Place) -> None:
        """Remove a connection that has ended. A second call, or a call after eviction, has no effect."""
        self._places[place._state].pop(id(place), None)

    def _move(self, place: Place, state: _State) -> None:
        self.leave(place)
        place._state = state
        self._places[state][id(place)] = place

    def _evict(self, place: Place) -> None:
        self.leave(place)
        place.close()
