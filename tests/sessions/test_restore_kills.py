"""Whatever falls on the way of a checkpoint or a restore, it comes to its end, once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.local.places import private_directory
from intercom.model import crash_points
from intercom.model.checkpoint import Files, RestoreState
from intercom.model.request import RiskLevel
from intercom.model.session import SessionStatus
from intercom.store import requests, sessions
from intercom.store.reader import Reader
from tests.agents.live import TRUSTING, Home, begin, call, home
from tests.sessions.house import house, in_house
from tests.sessions.test_checkpoints import BEFORE, ask, files, proceed, spoil, staged, take
from tests.support.crash_points import CHECKPOINT_NAMES
from tests.support.trio_case import trio_test

#: ctl with more patience than people have: on a busy machine a server takes a while to start.
PATIENT = """
from intercom.cli.ctl import main
from intercom.operators.ctl import client
client.FIRST_PATIENCE = client.request.__kwdefaults__["patience"] = 45.0
raise SystemExit(main())
"""
CTL = [sys.executable, "-c", PATIENT, "--json"]


#: Where a server is killed for good; at all the others, only the actors fall.
KILLS = ("contents.kept", "restore.handed_over", "files.placed_one")


class Fell(BaseException):
    """An actor falls of it, wherever it is."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    (made / "sub").mkdir(parents=True)
    for path, text in BEFORE.items():
        (made / path).write_text(text)
    return made


@pytest.mark.parametrize("point", CHECKPOINT_NAMES)
@in_house
async def test_an_actor_that_falls_anywhere_is_carried_on_for(
    clock: trio.testing.MockClock, root: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallen = []

    def fall(passed: str) -> None:
        if passed == point and not fallen:
            fallen.append(passed)
            raise Fell(point)

    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose("a.txt", "two\n", RiskLevel.HIGH)).request_id
        monkeypatch.setattr(crash_points, "hook", fall)
        async with at.restarting():
            taken = await take(at, guest)
            spoil(root)
            done = await proceed(at, await ask(at, taken, Files.EXACT))
        monkeypatch.setattr(crash_points, "hook", None)
        assert fallen == [point]
        assert done.state is RestoreState.DONE, done.note
        assert files(root) == BEFORE
        assert not staged(root)
        assert [each.id for each in await at.app.service.sessions()] == [done.successor_id]
        [waiting] = await at.app.reader.read(partial(requests.pending, session_id=done.successor_id))
        assert waiting.id == id
        labels = [line.label for line in await at.app.service.checkpoints.listed()]
        assert labels == ["before restoring before", "before"]


@trio_test(real_time=True, seconds=240)
async def test_a_server_that_is_killed_on_the_way_has_its_work_carried_on_by_the_next() -> None:
    with home(TRUSTING) as made:
        queue = made.root / "faults"
        queue.write_text("".join(f"kill:{point}:1\n" for point in KILLS))
        workspace = made.workspace()
        (workspace / "sub").mkdir()
        for path, text in BEFORE.items():
            (workspace / path).write_text(text)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone, made)
            up = trio.Event()
            nursery.start_soon(serve_on, made, queue, up)
            await up.wait()
            async with made.agent(workspace) as agent:
                begin(nursery, agent, "check_clearance", title="T", diff="two\n", file_path="a.txt")
                await call(agent, "ping")
                pending: list[Any] = []
                while not pending:
                    pending = await ctl(made, "pending")
                taken = await ctl(made, "checkpoint", "before")
                assert (taken["status"], taken["files"]) == ("taken", 2)
                spoil(workspace)
                done = await ctl(made, "restore", taken["checkpoint_id"][:8], "--exact", "--yes")
                assert done["state"] == "done", done
                nursery.cancel_scope.cancel()
        assert queue.read_text() == ""
        assert files(workspace) == BEFORE
        assert not staged(workspace)
        reader = Reader(made.places.database)
        live = reader.read_sync(sessions.live)
        assert [(each.id, each.status) for each in live if each.id == done["successor_id"]] == [
            (done["successor_id"], SessionStatus.INTERRUPTED)
        ]
        [waiting] = reader.read_sync(partial(requests.pending, session_id=done["successor_id"]))
        assert waiting.id == pending[0]["request_id"]


async def serve_on(made: Home, queue: Path, up: trio.Event) -> None:
    """A server, and after it fell the next."""
    while True:
        try:
            with made.serving(INTERCOM_FAULT=f"queue:{queue}") as process:
                up.set()
                code = await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
                assert code == -signal.SIGKILL
        except AssertionError as fell:
            # It may fall before it says that it is ready.
            if "ready" in str(fell):
                continue
            raise


async def alone(made: Home) -> None:
    """Nobody else starts a server meanwhile: a shim whose server is gone waits for the one that comes next."""
    private_directory(made.places.runtime_dir)
    held = os.open(made.places.start_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        await trio.sleep_forever()
    finally:
        os.close(held)


async def ctl(made: Home, *words: str) -> Any:
    done = await trio.run_process([*CTL, *words], env=made.environ, capture_stdout=True, check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == 0, answer
    return answer
