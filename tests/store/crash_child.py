"""A process that writes proposals through the store, eight at a time, and says which were answered, until it is killed
as it passes a crash point for the n-th time: `python -m tests.store.crash_child DATABASE POINT N`."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

import trio

from actors import ChildSpec, System, ask
from intercom.model import crash_points
from intercom.model.request import ApprovalStatus, ChangeKind, FileChange
from intercom.store import audit, sessions
from intercom.store.database import Database
from intercom.store.requests import approvals
from intercom.store.writer import Writer
from intercom.store.writer_messages import Transact

from . import cases

#: How many files each proposal has.
FILES = 3


def propose(db: Database, id: str) -> None:
    """A proposal with its files, its verdict and its record, which belong together."""
    files = tuple(FileChange(f"{number}.txt", ChangeKind.CREATE, "new_file", "ab") for number in range(FILES))
    approvals.insert(db, cases.approval(id, files=files))
    approvals.decide(db, id, ApprovalStatus.APPROVED, cases.verdict(f"verdict of {id}", "approve"))
    audit.record(db, cases.NOW, "approved", "s1", "ada", id)


async def propose_on(store: System, task: int) -> None:
    name = store.named("store")
    for number in range(1000):
        id = f"{task}-{number}"
        await ask(name, Transact(partial(propose, id=id)))
        os.write(1, f"{id}\n".encode())


async def main(path: str, point: str, times: int) -> None:
    left = times

    def hook(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async with System([ChildSpec("store", lambda: Writer(path))]) as system:
        await ask(system.named("store"), Transact(lambda db: sessions.insert(db, cases.session("s1"))))
        crash_points.hook = hook
        async with trio.open_nursery() as nursery:
            for task in range(8):
                nursery.start_soon(propose_on, system, task)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
