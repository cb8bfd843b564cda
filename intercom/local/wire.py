"""The client's end of a local socket, and the JSON lines sent over it. Standard library only.

A client connects only to a server of the same user. A line is one JSON value, UTF-8, ended by a line feed, with a size
limit.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import sys
from typing import NamedTuple

from intercom.local.places import check_socket_path
from intercom.model.errors import IpcError
from intercom.model.json_types import Json

MEBIBYTE = 1024 * 1024


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
        raise IpcError(f"{path} is not a socket: remove it and start again")
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


class LineTooLong(ValueError):
    """A line exceeded the limit. The part received so far is dropped, and its rest will be skipped."""


class LineBuffer:
    """Splits a stream of bytes into lines.

    `limit` is the maximum number of bytes in a line, without its line feed. Add received bytes with `feed`, then call
    `next_line` until it returns None.
    """

    __slots__ = ("_buffer", "_limit", "_scanned", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skipping = False

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next_line(self) -> bytes | None:
        """Return the next complete line without its end, or None if there is none yet.

        Blank lines are skipped. Raises LineTooLong once for each line over the limit; the next call continues after it.
        """
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end < 0:
                self._keep_looking()
                return None
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            if self._skipping:
                self._skipping = False
                continue
            if len(line) > self._limit:
                raise LineTooLong(f"a line has more than {self._limit} bytes")
            line = line.removesuffix(b"\r")
            if line and not line.isspace():
                return line

    def _keep_looking(self) -> None:
        if self._skipping:
            self._buffer.clear()
        self._scanned = len(self._buffer)
        if self._scanned > self._limit:
            self._buffer.clear()
            self._scanned = 0
            self._skipping = True
            raise LineTooLong(f"a line has more than {self._limit} bytes")

    @property
    def partial(self) -> bytes:
        """The bytes after the last complete line."""
        return b"" if self._skipping else bytes(self._buffer)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# Made once: `json.dumps` and `json.loads` would make one for each value that has options.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def encode(value: object) -> bytes:
    """Encode one value as a line.

    Raises ValueError for what JSON cannot represent: not-a-number, infinities, and text with half a surrogate pair.
    """
    try:
        return _ENCODER.encode(value).encode() + b"\n"
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair") from None
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def decode(line: bytes) -> Json:
    """Decode one line. Raises ValueError with a message for invalid JSON, which includes NaN and Infinity."""
    try:
        value: Json = _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
        return value
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
