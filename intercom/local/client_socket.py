"""The client's end of a local socket: it connects only to a server of the same user. Standard library only."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from typing import NamedTuple

from intercom.local.places import check_socket_path
from intercom.model.errors import IpcError


class Peer(NamedTuple):
    """The process at the other end of a socket. `pid` is 0 if the system does not report it."""

    pid: int
    uid: int


# From <sys/un.h> on macOS; Python has no constants for them.
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_XUCRED = struct.Struct("=IIh2x16I")


def connect(path: str, *, timeout: float | None = 5.0) -> socket.socket:
    """Connect to the server at `path`.

    `timeout` (seconds, None for no limit) applies to the connect, and stays set on the socket.

    Raises IpcError if the path or the listener is not this user's. Raises FileNotFoundError or ConnectionRefusedError
    if there is no listener, and another OSError for other failures.
    """
    check_socket_path(path)
    found = os.lstat(path)
    if not stat.S_ISSOCK(found.st_mode):
        raise IpcError(f"{path} is no socket: remove it and start again")
    if found.st_uid != os.geteuid():
        raise IpcError(f"{path} belongs to uid {found.st_uid}, not to you: remove it, or choose another ipc_name")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
        peer = peer_of(sock)
        if peer.uid != os.geteuid():
            raise IpcError(f"the server at {path} runs as uid {peer.uid}, not as you: choose another ipc_name")
    except BaseException:
        sock.close()
        raise
    return sock


def peer_of(sock: socket.socket) -> Peer:
    """Return the process at the other end of a connected Unix socket. Raises OSError for any other socket."""
    if sys.platform == "darwin":
        uid = _XUCRED.unpack(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))[1]
        (pid,) = struct.unpack("=i", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))
        return Peer(pid, uid)
    pid, uid, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)
