"""Listen for local connections: the one seam behind which another transport (a named pipe) can be put.

What the rest of the house sees is `listen(path)`, a `trio.abc.Listener` of byte streams whose peers are this user's.
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
#: What accepting fails with while this process or the system has too much open, and how long it rests then.
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SCARCE_SECONDS = 0.1


class LocalListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts connections of this user's processes; use `listen` to make one and `trio.serve_listeners` to serve it."""

    def __init__(self, path: str, sock: trio.socket.SocketType, lock: int) -> None:
        self.path = path
        self._listener = trio.SocketListener(sock)
        self._lock = lock
        self._file = _identity(path)

    async def accept(self) -> trio.SocketStream:
        """Wait for the next connection of this user; those of others are closed unheard.

        Raises trio.ClosedResourceError once the listener is closed.
        """
        while True:
            listener = self._listener
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                if listener is self._listener:
                    raise
                continue  # renewed meanwhile
            except OSError as error:
                if error.errno not in _SCARCE:
                    raise
                # Some of what is open will be closed; whoever waits meanwhile is in the system's queue.
                await trio.sleep(_SCARCE_SECONDS)
                continue
            try:
                # The socket is Trio's wrapper: same getsockopt.
                if peer_of(stream.socket).uid == os.geteuid():  # type: ignore[arg-type]
                    return stream
            except OSError:
                pass  # gone before it could be looked at
            await trio.aclose_forcefully(stream)

    def renew(self) -> str | None:
        """Make the socket again, and its lock, if they were removed or something else stands in their place; a sentence
        about it, None where nothing had to be done. Connections that were accepted go on.

        As long as the lock's file is ours nobody else may listen here, so what stands in the socket's place is replaced
        in one step. Where another server has locked a new file meanwhile, the place is its own.

        Raises IpcError when another server has it, or the directory is not to be trusted; OSError when the system
        objects.
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
        # Whoever waited there to be accepted connects anew.
        before.socket.close()
        if stood:
            return f"something else stood in the place of the local socket {self.path}; it was replaced"
        return f"the local socket {self.path} was gone; it is there again"

    def _has_lock(self) -> bool:
        return _identity(_lock_path(self.path)) == _identity(self._lock)

    async def aclose(self) -> None:
        """Stop listening and remove the socket file, unless another has taken its place."""
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
    """Listen at `path` with mode 0600, in a directory that is this user's alone (made if need be).

    A socket file left by a dead server is removed: nobody listens, it is ours, and a lock beside it is held for as long
    as the listener lives, so two servers starting at once can not remove each other's.

    Raises IpcError when another server listens there, when the path holds something else, or when the directory is not
    to be trusted; OSError when the system objects.
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
    """Which file this is; None for one that is not there."""
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
            pass  # a full backlog or a slow server: somebody is there
    raise IpcError(f"another program listens at {path}: stop it, or give this server another ipc_name")


def _replaced(path: str) -> trio.socket.SocketType:
    """A socket that listens at `path`, in place of what stands there."""
    draft = path + "~"
    if len(os.fsencode(draft)) > SOCKET_PATH_LIMIT:
        # No room for another name: the place is empty for a moment.
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
        # Between bind and chmod the file would have the umask's mode; connecting needs write permission.
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
