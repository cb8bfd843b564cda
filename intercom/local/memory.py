"""Protection of a process's memory while it holds a secret. Best effort: what the system refuses is skipped."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4
_MCL_CURRENT = 1


def keep_private(*, lock: bool = False) -> None:
    """Disable core dumps, and prevent other processes of this user from attaching or reading the memory. With `lock`,
    the memory that is loaded now is not swapped out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if lock:
        libc.mlockall(_MCL_CURRENT)
