"""Keeping a process's memory to itself while it holds a secret: best effort, what the system refuses stays as it is."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4
_MCL_CURRENT = 1


def keep_private(*, lock: bool = False) -> None:
    """No core dump, and no other process of this user may attach or read the memory; with `lock`, none of what is
    loaded now is swapped out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if lock:
        libc.mlockall(_MCL_CURRENT)
