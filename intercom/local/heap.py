"""The C library's heaps: what nobody uses any more can go back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> bool:
    """Give the system back the memory that is free in the C library's heaps; True where it was asked to.

    Each thread may have a heap of its own, and each heap keeps what it needed at its busiest, so that without this a
    server of many threads grows for hours while what it holds stays the same. Takes some milliseconds, in which other
    threads go on. Only glibc can be asked.
    """
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return False
    return True
