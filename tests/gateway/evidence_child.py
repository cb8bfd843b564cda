"""A process that makes calls whose results are kept as evidence, until it is killed.

`python -m tests.gateway.evidence_child DIRECTORY POINT` kills itself at the crash point of the commit that keeps the
evidence ("store.before_commit", "store.after_commit"), or as soon as its agent has an answer ("answered"). It prints
the id of the evidence that the agent was told.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import trio

from intercom.gateway import evidence_records
from intercom.gateway.calls import EVIDENCE
from intercom.model import crash_points
from intercom.model.json_types import part
from intercom.store.gateway import StoredEvidence
from intercom.store.writer_messages import Database
from tests.gateway.test_calls import Agent, running


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(point: str) -> None:
    """Kill this process at the next passage of a crash point after evidence was written."""
    keep = evidence_records._keep

    def keep_and_arm(db: Database, kept: StoredEvidence) -> bool:
        crash_points.hook = lambda name: die() if name == point else None
        return keep(db, kept)

    evidence_records._keep = keep_and_arm


async def main(directory: Path, point: str) -> None:
    async with running(directory, evidence=["read"]) as gateway:
        if point != "answered":
            kill_at(point)
        result = await Agent(gateway).call("read", {"x": 1})
        os.write(1, str(part(result, "_meta")[EVIDENCE]).encode())
        die()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2])
