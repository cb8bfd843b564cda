"""Limits on the memory of the C library's heaps in a process with many threads.

By default each thread gets its own heap; glibc allows eight per core. Each heap keeps the memory of its busiest time,
in fragments. A server with short-lived threads then grows for hours with constant data. Large short-lived blocks
between small long-lived ones have the same effect. glibc first puts them into separate pages, but then adapts its
threshold.
"""

from __future__ import annotations

import ctypes
import os

#: From glibc's malloc.h.
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_HEAPS = 2
#: Blocks of this size (bytes) or more are large. It is below the 64 KiB of Trio's receive buffers. Trio shrinks each
#: buffer to the received size, and the rest would remain as a hole in the heap. A block in its own pages costs a
#: microsecond at most, and its memory returns to the system.
LARGE = 32 * 1024


def share() -> bool:
    """Make all threads share two heaps, the main thread's and another. Call it before other threads start.

    With only one heap, short-lived data of worker threads would lie between the loop's long-lived data. The cost is
    close to zero, because Python threads take turns anyway. Returns False if the C library has no such option, or if
    the environment already sets it (`MALLOC_ARENA_MAX`, `GLIBC_TUNABLES`).
    """
    return _set(_M_ARENA_MAX, _HEAPS, "MALLOC_ARENA_MAX", "arena_max")


def keep_large_apart() -> bool:
    """Put large blocks that fit no hole into their own pages, permanently. Returns False as `share` does
    (`MALLOC_MMAP_THRESHOLD_`)."""
    return _set(_M_MMAP_THRESHOLD, LARGE, "MALLOC_MMAP_THRESHOLD_", "mmap_threshold")


def _set(what: int, value: int, variable: str, tunable: str) -> bool:
    if variable in os.environ or tunable in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(what, value))
    except (AttributeError, OSError, TypeError):
        return False


def give_back() -> bool:
    """Return free heap memory to the system. Takes some milliseconds. Returns False if the C library is not glibc."""
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return False
    return True
