"""The C library's heap: all threads share one, and what nobody uses any more goes back to the system.

As a rule each thread gets a heap of its own (with glibc, up to eight a core), and each heap keeps, in pieces, what it
needed at its busiest: a server of many threads that come and go grows for hours while what it holds stays the same.
"""

from __future__ import annotations

import ctypes
import os

#: Of glibc's malloc.h.
_M_ARENA_MAX = -8


def share() -> bool:
    """Have all threads share one heap; to be called before there are others. False where the C library can not be asked
    to, or the environment says how many heaps there are to be (`MALLOC_ARENA_MAX`, `GLIBC_TUNABLES`).

    It costs next to nothing: threads that run Python take turns all the same.
    """
    if "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1))
    except (AttributeError, OSError, TypeError):
        return False


def give_back() -> bool:
    """Give the system back the memory that is free in the heap; True where it was asked to. Takes some milliseconds, in
    which other threads go on. Only glibc can be asked."""
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return False
    return True
