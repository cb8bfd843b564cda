"""Memory that is free goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

SCRIPT = """
import psutil
from intercom.local import heap
blocks = [bytes(10_000) for _ in range(6_000)]
last = bytes(10_000)  # on top of them, so that the C library keeps what is below
blocks.clear()
before = psutil.Process().memory_info().rss
print(heap.give_back(), before - psutil.Process().memory_info().rss)
"""


def test_what_nobody_uses_goes_back_to_the_system() -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.split()
    is_glibc = platform.libc_ver()[0] == "glibc"
    assert told[0] == str(is_glibc)
    assert int(told[1]) > 30 * 2**20 or not is_glibc
