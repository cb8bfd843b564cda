"""A long storm, with its figures."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio
import trio.testing

from intercom.workspace import files
from tests.attack.swaps import storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack.swaps", description=__doc__)
    parser.add_argument("--swaps", type=int, default=1_000_000, help="how many, for all ways together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bad = 0
    has_openat2 = files.has_openat2
    ways = [(way, server) for way in (("openat2", "walk") if has_openat2() else ("walk",)) for server in (False, True)]
    for way, server in ways:
        files.has_openat2 = has_openat2 if way == "openat2" else lambda: False  # type: ignore[assignment]
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory:
            base = Path(directory).resolve()
            result = trio.run(
                partial(storm.run, base, options.swaps // len(ways), options.seed, through_server=server),
                clock=trio.testing.MockClock(),
            )
        bad += len(result.wrong) + result.leaks + result.crashes
        rounds = ", ".join(f"{count} {what}" for what, count in result.said.most_common())
        print(
            f"{way}, {'a server' if server else 'the engine'}: {result.swaps} swaps in"
            f" {time.perf_counter() - began:.0f} s against {result.said.total()} rounds ({rounds});"
            f" {len(result.wrong)} writes elsewhere, {result.leaks} cards that show what lies elsewhere,"
            f" {result.crashes} crashes",
            flush=True,
        )
        for path in result.wrong:
            print(f"  {path}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
