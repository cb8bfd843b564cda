"""The listener for local connections. A different transport (a named pipe) would replace only this module.

Its interface is `listen(path)`, a `trio.abc.Listener` of byte streams from processes of this user.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat

import trio

from intercom.local import receive
from intercom.local.dial import peer_of
from intercom.local.places import SOCKET_PATH_LIMIT, check_socket_path, private_directory
from intercom.model.errors import IpcError

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
                # Trio's socket wrapper has the same getsockopt.
                if peer_of(stream.socket).uid == os.geteuid():  # type: ignore[arg-type]
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
        receive.tell_writers(sock)
        sock.listen(_BACKLOG)
        return trio.socket.from_stdlib_socket(sock)
    except BaseException:
        sock.close()
        raise
