"""The C library's heaps: threads share two, large pieces stay out of them, and what nobody uses any more goes back to
the system.

As a rule each thread gets a heap of its own (with glibc, up to eight a core), and each heap keeps, in pieces, what it
needed at its busiest: a server of many threads that come and go grows for hours while what it holds stays the same. So
it does where large pieces, which come and go as well, lie in the heap among small ones that stay: glibc puts them into
pages of their own at first, and learns not to.
"""

from __future__ import annotations

import ctypes
import os

#: Of glibc's malloc.h.
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_HEAPS = 2
#: From how many bytes on a piece is large. Below the 64 KiB into which Trio receives, whatever comes: it cuts each such
#: piece down to what came, and among what is kept the rest would lie as holes that fit no next one. Here it costs a
#: microsecond at most, and the pages are the system's again.
LARGE = 32 * 1024


def share() -> bool:
    """Have all threads share two heaps, the main thread's and another; to be called before there are more. False where
    the C library can not be asked to, or the environment says how many there are to be (`MALLOC_ARENA_MAX`,
    `GLIBC_TUNABLES`). With one alone, what worker threads need for a moment lies among what the loop keeps for long.

    It costs next to nothing: threads that run Python take turns all the same.
    """
    return _set(_M_ARENA_MAX, _HEAPS, "MALLOC_ARENA_MAX", "arena_max")


def keep_large_apart() -> bool:
    """Have large pieces that fit no hole lie in pages of their own, for good, which go back to the system with them.
    False as in `share` (`MALLOC_MMAP_THRESHOLD_`)."""
    return _set(_M_MMAP_THRESHOLD, LARGE, "MALLOC_MMAP_THRESHOLD_", "mmap_threshold")


def _set(what: int, value: int, variable: str, tunable: str) -> bool:
    if variable in os.environ or tunable in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(what, value))
    except (AttributeError, OSError, TypeError):
        return False


def give_back() -> bool:
    """Give the system back the memory that is free in the heaps; True where it was asked to, which only glibc can be.
    Takes some milliseconds."""
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return False
    return True
