"""Who is at the other end of a connection, and which processes it descends from."""

from __future__ import annotations

from collections.abc import Collection

import psutil
import trio

from intercom.local.dial import Peer, peer_of


def peer(stream: trio.SocketStream) -> Peer:
    """Say which process (`pid`, 0 when the system does not tell) of which user (`uid`) opened a Unix stream.

    The system records this when the connection is made: the process may be gone since. Raises OSError when the stream
    is no connected Unix socket.
    """
    # Trio's wrapper offers getsockopt with the standard library's signature, which is all that is used.
    return peer_of(stream.socket)  # type: ignore[arg-type]


def started_at(pid: int) -> float | None:
    """When a process started, in seconds since the epoch; None when there is no such process.

    Together with the pid it names a process for good: pids are used again.
    """
    try:
        return psutil.Process(pid).create_time()
    except (psutil.NoSuchProcess, ValueError):
        return None


def descends_from(pid: int, ancestors: Collection[int]) -> bool:
    """Say whether process `pid` is one of `ancestors` or was started, however indirectly, by one of them.

    `ancestors` may be a dict from pid to what `started_at` said of it: then a process that merely got an ancestor's pid
    later does not count. The walk itself never takes a younger process for a parent.

    A process that can not be examined (gone, pid 0, not ours to see) counts as descending: this guards verdicts, and
    who hides is refused. A process whose parents exited on purpose (a daemon) is out of reach.
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
