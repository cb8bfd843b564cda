"""The process at the other end of a connection, and its ancestors."""

from __future__ import annotations

from collections.abc import Collection

import psutil
import trio

from intercom.local.dial import Peer, peer_of


def peer(stream: trio.SocketStream) -> Peer:
    """Return the process (`pid`, 0 if unknown) and user (`uid`) that opened a Unix stream.

    The system records this at connect time; the process may have ended since. Raises OSError if the stream is not a
    connected Unix socket.
    """
    # Only getsockopt is used, and Trio's wrapper has it with the same signature.
    return peer_of(stream.socket)  # type: ignore[arg-type]


def started_at(pid: int) -> float | None:
    """Return the start time of a process, in seconds since the epoch, or None if it does not exist.

    Pids are reused; pid and start time together identify a process.
    """
    try:
        return psutil.Process(pid).create_time()
    except (psutil.NoSuchProcess, ValueError):
        return None


def descends_from(pid: int, ancestors: Collection[int]) -> bool:
    """Whether process `pid` is one of `ancestors` or was started, directly or indirectly, by one of them.

    `ancestors` may be a dict from pid to its `started_at`. Then a process that later got an ancestor's pid does not
    count. The walk never takes a younger process for a parent.

    A process that cannot be examined (gone, pid 0, or hidden) counts as a descendant: this protects decisions, and a
    hidden process must not pass. A process whose parents exited on purpose (a daemon) is not detected.
    """
    if not ancestors:
        return False
    try:
        process = psutil.Process(pid)
        line = [process, *process.parents()] if pid > 0 else []
        return not line or any(_is_one_of(each, ancestors) for each in line)
    except (psutil.Error, ValueError):
        return True


def _is_one_of(process: psutil.Process, ancestors: Collection[int]) -> bool:
    if process.pid not in ancestors:
        return False
    if not isinstance(ancestors, dict):
        return True
    known: float | None = ancestors[process.pid]
    return known is None or abs(process.create_time() - known) < 0.05
