"""The C library has two heaps for all threads, without large pieces in them, and gives back what is free."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

GLIBC = platform.libc_ver()[0] == "glibc"
GIVES_BACK = """
import psutil
from intercom.local import heap
blocks = [bytes(10_000) for _ in range(6_000)]
last = bytes(10_000)  # on top of them, so that the C library keeps what is below
blocks.clear()
before = psutil.Process().memory_info().rss
print(heap.give_back(), before - psutil.Process().memory_info().rss)
"""
SHARES = """
import threading, psutil
from intercom.local import heap
print(heap.share())
threading.stack_size(256 * 1024)
before, together = psutil.Process().memory_info().vms, threading.Barrier(9)

def work():
    kept = bytes(10_000)
    together.wait()
    together.wait()

for _ in range(8):
    threading.Thread(target=work).start()
together.wait()
print(psutil.Process().memory_info().vms - before)
together.wait()
"""
LARGE_APART = """
import psutil
from intercom.local import heap
print(heap.keep_large_apart())
once = bytes(2 * heap.LARGE)
del once  # by which the C library learns that such pieces come and go
large, small = [], []
for _ in range(1_600):
    large.append(bytearray(heap.LARGE + 1))
    small.append(bytes(1000))
before = psutil.Process().memory_info().rss
large.clear()
print(before - psutil.Process().memory_info().rss)
"""


def run(script: str, **environment: str) -> tuple[bool, int]:
    command = [sys.executable, "-c", script]
    # What says otherwise on this machine would be heeded.
    here = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=here | environment).stdout.split()
    return told[0] == "True", int(told[1])


def test_what_nobody_uses_goes_back_to_the_system() -> None:
    asked, freed = run(GIVES_BACK)
    assert asked is GLIBC
    assert freed > 30 * 2**20 or not GLIBC


@pytest.mark.parametrize("heaps", [None, "8"])
def test_threads_share_two_heaps_unless_the_environment_says_otherwise(heaps: str | None) -> None:
    # glibc sets aside 64 MiB of addresses for each heap that is not the first.
    environment = {} if heaps is None else {"MALLOC_ARENA_MAX": heaps}
    asked, addresses = run(SHARES, **environment)
    assert asked is (GLIBC and heaps is None)
    assert (addresses < 3 * 64 * 2**20) is (heaps is None) or not GLIBC


@pytest.mark.parametrize("least", [None, "33554432"])
def test_large_pieces_leave_no_holes_unless_the_environment_says_otherwise(least: str | None) -> None:
    environment = {} if least is None else {"MALLOC_MMAP_THRESHOLD_": least}
    asked, freed = run(LARGE_APART, **environment)
    assert asked is (GLIBC and least is None)
    assert (freed > 25 * 2**20) is (least is None) or not GLIBC
