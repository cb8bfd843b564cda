"""Run every benchmark beside this file, each in a process of its own: `python -m tests.bench [part of a name]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    worst = 0
    for script in sorted(Path(__file__).parent.glob("*_bench.py")):
        if wanted and not any(each in script.name for each in wanted):
            continue
        print(f"== {script.stem}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-m", f"tests.bench.{script.stem}"]).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
