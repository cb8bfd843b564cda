"""Listen for local connections: the one seam behind which another transport (a named pipe) can be put.

What the rest of the house sees is `listen(path)`, a `trio.abc.Listener` of byte streams whose peers are this user's.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat

import trio

from intercom.local.dial import peer_of
from intercom.local.places import check_socket_path, private_directory
from intercom.model.errors import IpcError

_BACKLOG = 128


class LocalListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts connections of this user's processes; use `listen` to make one and `trio.serve_listeners` to serve it."""

    def __init__(self, path: str, sock: trio.socket.SocketType, lock: int) -> None:
        self.path = path
        self._listener = trio.SocketListener(sock)
        self._lock = lock
        self._inode = os.lstat(path).st_ino

    async def accept(self) -> trio.SocketStream:
        """Wait for the next connection of this user; those of others are closed unheard.

        Raises trio.ClosedResourceError once the listener is closed.
        """
        while True:
            stream = await self._listener.accept()
            try:
                # The socket is Trio's wrapper: same getsockopt.
                if peer_of(stream.socket).uid == os.geteuid():  # type: ignore[arg-type]
                    return stream
            except OSError:
                pass  # gone before it could be looked at
            await trio.aclose_forcefully(stream)

    async def aclose(self) -> None:
        """Stop listening and remove the socket file, unless another has taken its place."""
        if self._lock < 0:
            return
        try:
            await self._listener.aclose()
        finally:
            try:
                if os.lstat(self.path).st_ino == self._inode:
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


def _lock(path: str) -> int:
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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


def _bound(path: str) -> trio.socket.SocketType:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Between bind and chmod the file would have the umask's mode; connecting needs write permission.
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        sock.listen(_BACKLOG)
        return trio.socket.from_stdlib_socket(sock)
    except BaseException:
        sock.close()
        raise
