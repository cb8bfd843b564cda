"""What all tasks of a Trio run wait for: for a test that does not come to its end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

#: Of each task so many frames are told, the innermost.
_FRAMES = 12


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """End this process if the block takes longer, in real seconds, and say on stderr where each task of the Trio run
    was. Nothing less helps where something waits shielded: it cannot be cancelled."""
    token = trio.lowlevel.current_trio_token()
    watch = threading.Timer(seconds, token.run_sync_soon, [_give_up, seconds])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _give_up(seconds: float) -> None:
    lines = [f"not over after {seconds:g} s; the tasks:", *_told(trio.lowlevel.current_root_task(), 0)]
    print(*lines, sep="\n", file=sys.__stderr__, flush=True)
    os._exit(70)


def _told(task: trio.lowlevel.Task | None, depth: int) -> Iterator[str]:
    if task is None:
        return
    yield f"{'  ' * depth}{task.name}: {' > '.join(_frames(task.coro)[-_FRAMES:])}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _told(child, depth + 1)


def _frames(awaiting: Any) -> list[str]:
    """Where a coroutine is, and what it awaits, from the outside in."""
    found = []
    while awaiting is not None:
        kind = next((each for each in ("cr", "ag", "gi") if hasattr(awaiting, f"{each}_frame")), None)
        if kind is None:
            break
        frame = getattr(awaiting, f"{kind}_frame")
        if frame is not None:
            file = "/".join(frame.f_code.co_filename.rsplit("/", 2)[-2:])
            found.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
        awaiting = getattr(awaiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return found
