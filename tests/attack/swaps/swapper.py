"""A process that exchanges names with what is to lead astray, as fast as it can, so many times.

Arguments: the grounds' directory, which names to swap ("above", "beneath" or "root"), how many swaps, and a seed. All
is done from descriptors of the real directories, so that this process itself never follows a link of its own making.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import time
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE
#: Swaps of one burst, and the longest pause after it in seconds: about what the apply needs from its look to its act.
_BURST, _PAUSE = 40, 0.002

#: What is swapped: its directory, its name, and the names of its partners, which lie in `astray`.
TARGETS = {
    "above": ("work", "docs", ("to-hooks", "to-outside", "to-intercom", "plain")),
    "beneath": ("work/docs", "deep", ("to-hooks-deep", "to-outside-deep", "plain-deep")),
    "file": ("work/docs", "file", ("to-claude", "to-secret", "pipe", "twin", "directory")),
    "root": (".", "work", ("to-outside-root", "other-root")),
}


def exchange() -> object:
    """The system call as the C library has it."""
    call = ctypes.CDLL(None, use_errno=True).renameat2
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call


def main(base: Path, which: str, count: int, seed: int) -> None:
    place, name, partners = TARGETS[which]
    flags = os.O_RDONLY | os.O_DIRECTORY
    here, there = os.open(base / place, flags), os.open(base / "astray", flags)
    call: object = exchange()
    assert callable(call)
    dice = random.Random(seed)
    print("swapping", flush=True)
    done = 0
    while done < count:
        partner = dice.choice(partners).encode()
        for _ in range(dice.randint(1, _BURST)):
            # In and out again, so that at the end everything is where it was.
            if call(here, name.encode(), there, partner, _EXCHANGE) != 0:
                # It was removed or renamed by an apply, and comes back.
                time.sleep(_PAUSE)
                break
            if dice.random() < 0.1:
                _stay(dice)
            while call(here, name.encode(), there, partner, _EXCHANGE) != 0:
                time.sleep(_PAUSE)
            done += 2
        _stay(dice)
    print(done, flush=True)


def _stay(dice: random.Random) -> None:
    end = time.perf_counter() + dice.uniform(0, _PAUSE)
    while time.perf_counter() < end:
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
