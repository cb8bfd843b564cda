"""What the measured modules share: CPU time, memory, and the shape of the output. Standard library only."""

from __future__ import annotations

import gc
import json
import os
import time

ASKS = 3_000
TELLS = 60_000
CHUNK = 500
FEW = 1_000
MANY = 20_000
CRASHES = 1_000

cpu = time.process_time


def resident() -> int:
    """Bytes of this process that are in memory, after a full collection."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def emit(figures: dict[str, float]) -> None:
    """Print the figures for the one who started this process."""
    print(json.dumps(figures))
