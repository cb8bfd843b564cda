"""A process that puts files back and kills itself at a named crash point.

Arguments: a directory with `work`, `then` and `contents.db`, the crash point and which passing of it kills.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from intercom.model import crash_points
from intercom.store.contents import Contents
from intercom.workspace import put_back_plan, putting_back
from intercom.workspace.diverging import divergences
from intercom.workspace.put_back_plan import PutBack
from intercom.workspace.snapshot import snapshot


def main() -> None:
    base, point, left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    root, journal = base / "work", base / "committed"

    def die(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = die
    if not journal.exists():
        then = snapshot(base / "then")
        now = snapshot(root, also=then.files)
        then = then.__class__({path: _kept(state) for path, state in then.files.items()})
        steps = put_back_plan.plan(then, now, divergences(then, now), (), exact=True).steps
        with Contents(base / "contents.db", 2**30).open() as held:
            putting_back.stage(root, "r1", steps, held.read)
        (base / "new").write_text(json.dumps([step.to_json() for step in steps]))
        (base / "new").rename(journal)
        crash_points.reach("test.committed")
    steps = tuple(PutBack.from_json(step) for step in json.loads(journal.read_text()))
    putting_back.roll_forward(root, "r1", steps)


def _kept(state: object) -> object:
    import attrs

    return attrs.evolve(state, kept=True)  # type: ignore[arg-type,misc]


if __name__ == "__main__":
    main()
