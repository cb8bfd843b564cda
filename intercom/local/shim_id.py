"""A shim's id: random, and with it which process it is of, so that a server can tell that this one is dead.

Starts of shims wait for it: the standard library alone.
"""

from __future__ import annotations

import os
import re

_ID = re.compile(r"[0-9a-f]{32}-(?P<namespace>[0-9]+)-(?P<pid>[0-9]+)-(?P<ticks>[0-9]+)")


def make() -> str:
    """An id for this process. Where the system does not say what it needs (no `/proc`), it is only random."""
    chance = os.urandom(16).hex()
    try:
        namespace, (_, ticks) = _namespace(), _stat(os.getpid())
        return f"{chance}-{namespace}-{os.getpid()}-{ticks}"
    except OSError:
        return chance


def is_dead(id: str | None) -> bool:
    """Whether the process this id is of has ended. False where that can not be told: for other texts, ids that do not
    say, and processes of another PID namespace (a container), whose numbers mean nothing here."""
    read = _ID.fullmatch(id or "")
    if read is None:
        return False
    try:
        if _namespace() != read["namespace"]:
            return False
    except OSError:
        # Without a `/proc` of our own nobody is found there, and nobody is dead for that.
        return False
    try:
        state, ticks = _stat(int(read["pid"]))
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    # Another process may have its number by now. Ticks since the system's start, since its clock can be set.
    return state in "ZX" or ticks != read["ticks"]


def _namespace() -> str:
    """This process's PID namespace. Raises OSError also where `/proc` is of another one, as it may be in a sandbox."""
    if os.readlink("/proc/self") != str(os.getpid()):
        raise OSError("/proc is of another PID namespace")
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _stat(pid: int) -> tuple[str, str]:
    """A process's state, and when it started."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # Its name stands in brackets, and may hold anything.
        told = file.read().rpartition(b")")[2].split()
    return told[0].decode(), told[19].decode()
