"""A process that applies a plan and kills itself at a named crash point, for the tests of the apply journal.

Arguments: the workspace, the journal's file, the patch's file, the crash point and which passing of it kills. The crash
point "any" stands for every opening, making, linking, renaming and removing of a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from intercom.model import crash_points
from intercom.workspace import apply, patching, proposal
from intercom.workspace.step import Step

EVENTS = {"open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.chmod"}


def write_journal(path: Path, state: str, steps: tuple[Step, ...]) -> None:
    """Stand in for the store: replace the journal as one step, on disk before the call returns."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump({"state": state, "steps": [step.to_json() for step in steps]}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read_journal(path: Path) -> tuple[str, tuple[Step, ...]]:
    if not path.exists():
        return "none", ()
    data = json.loads(path.read_text())
    return data["state"], tuple(Step.from_json(step) for step in data["steps"])


def main() -> None:
    root, journal, patch = (Path(arg) for arg in sys.argv[1:4])
    point, left = sys.argv[4], int(sys.argv[5])

    def die(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if point == "any":
        sys.addaudithook(lambda event, _: die("any") if event in EVENTS else None)
    crash_points.hook = die
    if journal.exists():
        _, steps = read_journal(journal)
    else:
        plan = patching.plan(root, proposal.parse(patch.read_text(), "edit.txt"))
        steps = apply.prepare(root, plan, "request-1")
        write_journal(journal, "staging", steps)
        apply.stage(root, plan, steps)
        write_journal(journal, "committed", steps)
    crash_points.reach("test.committed")
    apply.roll_forward(root, steps)
    write_journal(journal, "done", steps)


if __name__ == "__main__":
    main()
