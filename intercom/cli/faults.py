"""Faults on demand, for the chaos runs: they show that what the architecture promises holds when anything falls.

Nothing here does anything unless the server is started with `INTERCOM_FAULT` in its environment.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

from actors import System
from intercom.model import crash_points

VARIABLE = "INTERCOM_FAULT"


def arm(system: System) -> None:
    """Set up the fault that the environment asks for.

    `kill:POINT:N` kills this process when it passes the crash point POINT for the Nth time; a file named
    `<path>` in `once:<path>:kill:POINT:N` is removed first, so that a server started again does not fall there again.
    """
    wish = os.environ.get(VARIABLE, "")
    if not wish:
        return
    once = None
    if wish.startswith("once:"):
        _, once, wish = wish.split(":", 2)
        if not os.path.exists(once):
            return
    kind, point, count = wish.split(":")
    if kind != "kill":
        return
    seen: Counter[str] = Counter()

    def hook(name: str) -> None:
        seen[name] += 1
        if name == point and seen[name] == int(count):
            if once is not None:
                os.unlink(once)
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = hook
