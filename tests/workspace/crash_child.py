"""A process that carries out a transaction and kills itself at a named crash point.

Arguments: the workspace, the file with the transaction, the crash point and which passing of it kills. A file beside
the transaction's stands for the journal's mark that it is committed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from intercom.model import crash_points
from tests.workspace.transactions import Transaction


def main() -> None:
    root, file = Path(sys.argv[1]), Path(sys.argv[2])
    point, left = sys.argv[3], int(sys.argv[4])

    def die(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = die
    transaction = Transaction.from_json(root, file.read_text())
    committed = file.with_suffix(".committed")
    if not committed.exists():
        transaction.stage()
        committed.touch()
        crash_points.reach("test.committed")
    transaction.roll_forward()


if __name__ == "__main__":
    main()
