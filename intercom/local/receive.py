"""Receive from a Unix socket, and be told with each piece which process wrote it.

The system says who opened a connection; but a connection can be inherited, or handed on to another process. With
SO_PASSCRED it says as well who wrote, and never joins what two processes wrote. Linux only.
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
    """Have every connection that this listening socket accepts tell who writes."""
    if _LINUX:
        sock.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)


def tells_writers(stream: object) -> bool:
    """Whether this stream tells who writes."""
    if not _LINUX or not isinstance(stream, trio.SocketStream) or stream.socket.family != socket.AF_UNIX:
        return False
    return bool(stream.socket.getsockopt(socket.SOL_SOCKET, _SO_PASSCRED))


async def receive(stream: trio.SocketStream, most: int) -> tuple[bytes, int]:
    """At most so many bytes, empty at the end, and the pid that wrote them (0 where it is out of sight).

    Descriptors that somebody sends along are closed. Raises trio.BrokenResourceError and trio.ClosedResourceError as
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
