"""Measures `actors` against plain Pykka and its nearest rivals: CPU time, the least of several rounds, one run.

    python tests/bench/actors_bench.py [--rounds N] [--venv DIR]

The rivals are installed from PyPI into an environment of their own (kept in DIR if given). Every round of every library
is a process of its own, and rounds take turns, so that a noisy moment hits all alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REQUIREMENTS = ("tapio-py==0.18.0", "fauxtp==0.3.1", "pykka>=4.5,<5", "trio>=0.35", "attrs>=26.1")
LIBRARIES = {"actors": "ours", "pykka": "threads", "tapio-py": "tapio_py", "fauxtp": "fauxtp_"}
# For the others every ask is from async code and of a coroutine handler.
LONE = ("actors", "pykka")
ROWS = (
    ("ask", "ask, round trip", "us"),
    ("ask_async", "ask, from async code", "us"),
    ("ask_switch", "ask of a coroutine handler", "us"),
    ("tell", "tell and handle", "us"),
    ("start_few", "start + first ask, of 1,000", "us"),
    ("start_many", "start + first ask, of 20,000*", "us"),
    ("stop_few", "stop, of 1,000", "us"),
    ("stop_many", "stop, of 20,000*", "us"),
    ("bytes_many", "memory, each of 20,000*", "B"),
    ("restart", "restart, each of 1,000", "us"),
)


def main() -> int:
    """Measure, print the table, and say which targets were met; 0 if all were."""
    options = argparse.ArgumentParser(description="Measure actors against its rivals.")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--venv", type=Path)
    chosen = options.parse_args()
    with environment(chosen.venv) as python:
        figures = measure(python, chosen.rounds)
    print_table(figures)
    return print_targets(figures)


@contextlib.contextmanager
def environment(place: Path | None) -> Iterator[Path]:
    """An environment with the rivals; its Python."""
    with contextlib.ExitStack() as stack:
        if place is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        python = place / "bin" / "python"
        if not python.exists():
            venv.create(place, with_pip=True)
            command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
            subprocess.run(command, check=True)
        yield python


def measure(python: Path, rounds: int) -> dict[str, dict[str, float]]:
    """The least figure of each kind, by library."""
    least: dict[str, dict[str, float]] = {name: {} for name in LIBRARIES}
    # The thread stacks of thousands of Pykka actors are address space only.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(rounds):
        for name, module in LIBRARIES.items():
            script = HERE / "rivals" / f"{module}.py"
            done = subprocess.run([python, script], check=True, capture_output=True, text=True, env=environ)
            for kind, value in json.loads(done.stdout.splitlines()[-1]).items():
                least[name][kind] = min(value, least[name].get(kind, value))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return least


def print_table(figures: dict[str, dict[str, float]]) -> None:
    """One row a job, one column a library, with how many times ours each rival's figure is."""
    print(f"{'':32}" + "".join(f"{name:>20}" for name in LIBRARIES))
    for kind, label, unit in ROWS:
        ours = figures["actors"][kind]
        cells = []
        for name in LIBRARIES:
            value = figures[name].get(
                kind, figures[name]["ask"] if kind.startswith("ask") and name not in LONE else None
            )
            ratio = "" if value is None or name == "actors" else f" ({value / ours:.1f}x)"
            cells.append("-" if value is None else f"{value:,.1f} {unit}{ratio}")
        print(f"{label:32}" + "".join(f"{cell:>20}" for cell in cells))
    print("* Pykka, a thread an actor: of 4,000. fauxtp: restart of 100. CPU time of the process, all threads.")


def print_targets(figures: dict[str, dict[str, float]]) -> int:
    """Say how each target stands; 1 if one was missed."""
    ours, pykka, tapio, fauxtp = (figures[name] for name in LIBRARIES)
    targets = (
        ("ask at least 4x faster than Pykka from async code", pykka["ask_async"] / ours["ask"], 4, True),
        ("ask at least 3x faster than tapio-py", tapio["ask"] / ours["ask"], 3, True),
        ("ask at least 3x faster than fauxtp", fauxtp["ask"] / ours["ask"], 3, True),
        ("at least 2x Pykka's tells", pykka["tell"] / ours["tell"], 2, True),
        ("at most 8 KB an actor, of 20,000", ours["bytes_many"] / 1024, 8, False),
        ("start of 20,000 at most 1.5x that of 1,000", ours["start_many"] / ours["start_few"], 1.5, False),
        ("stop of 20,000 at most 1.5x that of 1,000", ours["stop_many"] / ours["stop_few"], 1.5, False),
    )
    missed = 0
    for label, value, bound, more in targets:
        met = value >= bound if more else value <= bound
        missed += not met
        print(f"{'met   ' if met else 'MISSED'}  {label}: {value:.2f}")
    return min(missed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
