"""The processes at the other end of a process's standard input and output. Linux only; elsewhere none is found.

An MCP client speaks to its relay over pipes or socket pairs, whatever programs are between them. So the holder of the
other end is the client, even if a wrapper has put the relay into its own session.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterable

_STREAMS = (0, 1)
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_UDIAG_SHOW_PEER = 4
_UNIX_DIAG_PEER = 2
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
#: struct nlmsghdr, struct unix_diag_req, struct unix_diag_msg, struct nlattr.
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_MESSAGE = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")


def holders(pid: int, likely: Iterable[int], streams: Iterable[int] = _STREAMS) -> frozenset[int]:
    """Return the processes that hold the other end of the given `streams` of process `pid`. `likely` processes are
    examined first, and all others only if none of those matches. This reads many small files, so run it in a thread."""
    if not sys.platform.startswith("linux"):
        return frozenset()
    wanted = {end for stream in streams if (end := _other_end(pid, stream)) is not None}
    if not wanted:
        return frozenset()
    found = frozenset(each for each in likely if each != pid and wanted & _ends(each))
    if found:
        return found
    return frozenset(each for each in _processes() if each != pid and wanted & _ends(each))


#: One end of a pipe (its inode, and whether it is the write end), or a socket (its inode, None).
End = tuple[int, bool | None]


def _other_end(pid: int, stream: int) -> End | None:
    end = _end(pid, str(stream))
    if end is None:
        return None
    inode, writes = end
    if writes is not None:
        return inode, not writes
    peer = _socket_peer(inode)
    return None if peer is None else (peer, None)


def _ends(pid: int) -> set[End]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        # The process is gone, or another user's.
        return set()
    return {end for name in names if (end := _end(pid, name)) is not None}


def _end(pid: int, name: str) -> End | None:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        if target.startswith("socket:["):
            return int(target[8:-1]), None
        if target.startswith("pipe:["):
            # The link's mode says whether the descriptor is open for reading or writing.
            mode = os.lstat(f"/proc/{pid}/fd/{name}").st_mode
            return (int(target[6:-1]), bool(mode & 0o200)) if bool(mode & 0o200) != bool(mode & 0o400) else None
    except (OSError, ValueError):
        return None
    return None


def _socket_peer(inode: int) -> int | None:
    """Return the inode of the peer of a connected Unix socket, or None if the system does not report it."""
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _UDIAG_SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as diag:
            diag.settimeout(1.0)
            diag.send(header + request)
            told = diag.recv(8192)
    except OSError:
        return None
    if len(told) < _HEADER.size or _HEADER.unpack_from(told)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    at = _HEADER.size + _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(told):
        length, kind = _ATTRIBUTE.unpack_from(told, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == _UNIX_DIAG_PEER:
            return int(struct.unpack_from("=I", told, at + _ATTRIBUTE.size)[0])
        at += (length + 3) & ~3
    return None


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
