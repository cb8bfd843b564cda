"""Reads and writes of the shim's streams that never block, with bounded memory."""

from __future__ import annotations

import os
import select
import socket
import stat
from collections import deque

_CHUNK = 256 * 1024
# A pipe that polls writable has room for this much, in blocking mode too.
_PIPE_ROOM = min(select.PIPE_BUF, 4096)


class Outlet:
    """The queue of lines for one descriptor, written in order. The descriptor's mode is not changed because others may
    share it: a client's terminal, a log. `write` must be called only if the system reports room."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = 0
        self._lines: deque[tuple[memoryview, str | None]] = deque()
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        self._socket = socket.socket(fileno=os.dup(descriptor)) if is_socket else None

    def put(self, line: bytes, receipt: str | None = None) -> None:
        """Queue a line; `write` returns the `receipt` once the line was written."""
        self._lines.append((memoryview(line), receipt))
        self.waiting += len(line)

    def clear(self) -> None:
        """Drop the queued lines: the reader is gone."""
        self._lines.clear()
        self.waiting = 0

    def write(self) -> list[str]:
        """Write as much as there is room for. Returns the receipts of written lines; raises OSError."""
        done: list[str] = []
        while self._lines:
            view, receipt = self._lines[0]
            sent = self._send(view)
            self.waiting -= sent
            if sent < len(view):
                self._lines[0] = (view[sent:], receipt)
                break
            self._lines.popleft()
            if receipt is not None:
                done.append(receipt)
            if self._socket is None:
                break  # a pipe's room is known for one write only
        return done

    def _send(self, view: memoryview) -> int:
        try:
            if self._socket is not None:
                return self._socket.send(view[:_CHUNK], socket.MSG_DONTWAIT)
            return os.write(self.descriptor, view[:_PIPE_ROOM])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the duplicate of the descriptor; the caller closes the descriptor itself."""
        if self._socket is not None:
            self._socket.close()


def has_room(descriptor: int) -> bool:
    """Whether the descriptor can be written to now."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))


def read(descriptor: int) -> bytes | None:
    """Read from a descriptor that polled readable. Returns b"" at its end, None if there was nothing."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
