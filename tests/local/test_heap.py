"""A background server's memory: two heaps without large blocks in them, no caches, and what is free goes back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from intercom.local.daemon import server_environment

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="these are settings of glibc")

GIVES_BACK = """
import psutil
from intercom.local import daemon
blocks = [bytes(10_000) for _ in range(6_000)]
last = bytes(10_000)  # on top of them, so that the C library keeps what is below
blocks.clear()
before = psutil.Process().memory_info().rss
assert daemon.give_memory_back()
print(before - psutil.Process().memory_info().rss)
"""
#: The addresses that nine threads take which allocate at the same time.
ADDRESSES = """
import threading, psutil
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
#: What goes back to the system of large blocks that lie between small ones.
LARGE_APART = """
import psutil
large = 33 * 1024
once = bytes(2 * large)
del once  # by which the C library learns that such blocks come and go
blocks, small = [], []
for _ in range(1_600):
    blocks.append(bytearray(large))
    small.append(bytes(1000))
before = psutil.Process().memory_info().rss
blocks.clear()
print(before - psutil.Process().memory_info().rss)
"""
#: What is free of seven freed blocks of 900 bytes, and not in a cache.
NO_CACHES = """
import ctypes

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "_1", "_2", "_3", "_4", "_5", "_6", "used", "_8", "_9")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
blocks = [bytes(900) for _ in range(7)]
before = libc.mallinfo2().used
del blocks[:]
print(before - libc.mallinfo2().used)
"""


def run(script: str, environ: dict[str, str]) -> int:
    command = [sys.executable, "-c", script]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout)


@pytest.mark.parametrize(
    ("script", "least", "most"),
    [
        (GIVES_BACK, 30 * 2**20, 2**30),
        (ADDRESSES, 0, 3 * 64 * 2**20),  # 64 MiB for each heap that is not the first
        (LARGE_APART, 25 * 2**20, 2**30),
        (NO_CACHES, 7 * 900, 2**30),
    ],
    ids=["free memory goes back", "threads share two heaps", "large blocks leave no holes", "nothing is cached"],
)
def test_the_memory_of_a_process_that_is_started_as_a_server(script: str, least: int, most: int) -> None:
    environ = server_environment(os.environ)
    assert least <= run(script, environ) < most
    if script is not GIVES_BACK:
        # Without the settings it is otherwise, so the test shows something.
        assert not least <= run(script, {**environ, "GLIBC_TUNABLES": ""}) < most
