"""Receiving from a Unix socket, with the process that wrote each piece. Linux only.

The system reports which process opened a connection, but another process can inherit or receive the connection. With
SO_PASSCRED the system also reports the writer, and never joins data of two writers.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys

import trio

_SO_PASSCRED = getattr(socket, "SO_PASSCRED", 16)
_SCM_CREDENTIALS = 2
_CREDENTIALS = struct.Struct("=iII")
_LINUX = sys.platform.startswith("linux")


def tell_writers(sock: socket.socket) -> None:
    """Make every connection that this listening socket accepts report its writers."""
    if _LINUX:
        sock.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)


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
