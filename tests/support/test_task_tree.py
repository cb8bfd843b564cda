"""A run that is stuck ends, and says where."""

from __future__ import annotations

import subprocess
import sys

import trio

from tests.support.task_tree import within

STUCK = """
import trio
from tests.support.task_tree import within

async def waits_in_vain():
    with trio.CancelScope(shield=True):
        await trio.Event().wait()

async def main():
    with within(0.05):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits_in_vain)
            nursery.cancel_scope.cancel()

trio.run(main)
"""


def test_a_run_that_waits_shielded_for_ever_is_ended_and_told_of() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 70
    assert done.stderr.startswith("not over after 0.05 s; the tasks:\n")
    assert "waits_in_vain" in done.stderr
    assert "wait_task_rescheduled" in done.stderr


def test_a_run_that_ends_is_left_alone() -> None:
    async def main() -> str:
        with within(60):
            return "done"

    assert trio.run(main) == "done"
