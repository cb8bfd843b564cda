"""Whatever crashes or changes on the way of a restore, it comes to its end, once, and people are told."""

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
from intercom.model.card import CardKind, CardState
from intercom.model.checkpoint import Files, RestoreState
from intercom.model.decision import Decision
from intercom.model.request import RiskLevel
from intercom.model.session import SessionStatus
from intercom.sessions.checkpoints import archive, restore
from intercom.sessions.checkpoints import checkpointer as actor
from intercom.store import requests, rows, sessions
from intercom.store.checkpoints import restores
from intercom.store.store_and_reader import Reader
from intercom.store.writer_messages import Transact
from tests.sessions.test_checkpoints import (
    BEFORE,
    ask,
    checkpointed,
    ended,
    files,
    proceed,
    root,
    spoil,
    staged,
    succeed,
    take,
    until_clean,
)
from tests.support.crash_points import CHECKPOINT_NAMES
from tests.support.server_process import TRUSTING, Home, begin, call, user_home
from tests.support.virtual_server import VirtualServer, virtual_server

__all__ = ["root"]

Clock = trio.testing.MockClock

#: ctl with more patience than people have: on a busy machine a server takes a while to start.
PATIENT = """
from intercom.cli.ctl import main
from intercom.operators.ctl import client
client.FIRST_PATIENCE = client.request.__kwdefaults__["patience"] = 45.0
raise SystemExit(main())
"""
CTL = [sys.executable, "-c", PATIENT, "--json"]


#: Where a server is killed for good; at all the others, only the actors crash.
KILLS = ("contents.kept", "restore.handed_over", "files.placed_one")


class Crash(BaseException):
    """Crashes an actor on purpose."""


@pytest.mark.parametrize("point", CHECKPOINT_NAMES)
async def test_an_actor_that_crashes_anywhere_is_carried_on_for(
    server: VirtualServer, root: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = []

    def crash(passed: str) -> None:
        if passed == point and not crashed:
            crashed.append(passed)
            raise Crash(point)

    agent = await server.arrive(root)
    id = (await agent.propose("a.txt", "two\n", RiskLevel.HIGH)).request_id
    monkeypatch.setattr(crash_points, "hook", crash)
    async with server.restarting():
        taken = await take(server, agent)
        spoil(root)
        done = await proceed(server, await ask(server, taken, Files.EXACT))
    monkeypatch.setattr(crash_points, "hook", None)
    assert crashed == [point]
    assert done.state is RestoreState.DONE, done.note
    assert files(root) == BEFORE
    assert not staged(root)
    assert [each.id for each in await server.app.service.sessions()] == [done.successor_id]
    [waiting] = await server.app.reader.read(partial(requests.pending, session_id=done.successor_id))
    assert waiting.id == id
    labels = [line.label for line in await server.app.service.checkpoints.listed()]
    assert labels == ["before restoring before", "before"]


async def alter(server: VirtualServer, sql: str, *values: str) -> None:
    await server.ask("store", Transact(lambda db: rows.changed(db, sql, values)))


async def test_a_question_about_a_session_that_was_restored_since_is_asked_anew_of_the_one_that_follows(
    clock: Clock, root: Path
) -> None:
    async with checkpointed(root, clock) as (server, agent, taken):
        first = await proceed(server, await ask(server, taken))
        second = await ask(server, taken)
        # As where it was asked while the first was accepted.
        await alter(server, "update restore set session_id = ? where id = ?", agent.session_id, second.id)
        outdated = await proceed(server, second)
        assert outdated.state is RestoreState.OUTDATED
        assert "the session was restored since" in (outdated.note or "")
        card = await server.operator.card(
            lambda card: card.id not in (first.id, second.id), kind=CardKind.RESTORE, state=CardState.PENDING
        )
        assert card.session_id == first.successor_id
        done = await succeed(server, await server.app.service.checkpoints.restore(card.id))
        assert [session.id for session in await server.app.service.sessions()] == [done.successor_id]


async def test_what_was_staged_before_a_crash_goes_when_files_have_changed_since(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(point: str) -> None:
        if point == "files.staged" and "spoiled" in (root / "a.txt").read_text():
            (root / "a.txt").write_text("edited\n")
            raise Crash(point)

    async with checkpointed(root, clock) as (server, _, taken):
        spoil(root)
        asked = await ask(server, taken, Files.EXACT)
        monkeypatch.setattr(crash_points, "hook", crash)
        outdated = await proceed(server, asked)
        assert outdated.state is RestoreState.OUTDATED
        assert not staged(root)
        assert files(root)["a.txt"] == "edited\n"


async def test_one_that_was_given_up_when_the_server_crashed_is_seen_to_by_the_next(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(point: str) -> None:
        if point == "restore.handed_over":
            (root / "a.txt").write_text("meddled\n")

    async with checkpointed(root, clock) as (server, _, taken):
        spoil(root)
        monkeypatch.setattr(crash_points, "hook", meddle)
        stuck = await proceed(server, await ask(server, taken, Files.EXACT))
        assert stuck.state is RestoreState.STUCK
        assert staged(root)
        await alter(server, "update restore set state = 'given_up' where id = ?", stuck.id)
    async with virtual_server(root.parent, clock) as server:
        await until_clean(root)
        assert stuck.successor_id in (await server.operator.notice("session restored from checkpoint")).text
        while await server.app.reader.read(restores.to_clean_up):
            await trio.testing.wait_all_tasks_blocked(0.002)
        assert files(root)["a.txt"] == "meddled\n"


@pytest.mark.parametrize(
    ("module", "name", "end", "words"),
    [
        (archive, "compare", RestoreState.FAILED, "nothing was changed: it was tried 3 times"),
        (restore, "_place", RestoreState.STUCK, "it was tried 3 times"),
    ],
)
async def test_what_fails_each_time_is_told_and_not_tried_for_ever(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, end: RestoreState, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(actor, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(actor, "TRIES", 3)
    async with checkpointed(root, clock) as (server, _, taken):
        spoil(root)
        asked = await ask(server, taken, Files.EXACT)
        original = getattr(module, name)
        monkeypatch.setattr(module, name, fail)
        stopped = await proceed(server, asked)
        assert stopped.state is end
        assert words in (stopped.note or "")
        assert files(root)["a.txt"] == "spoiled\n"
        if end is RestoreState.STUCK:
            monkeypatch.setattr(module, name, original)
            await server.decide(asked.id, Decision.PROCEED)
            assert (await ended(server, asked.id)).state is RestoreState.DONE
            assert files(root)["a.txt"] == "one\n"
        await until_clean(root)


@pytest.mark.real_time(seconds=240)
async def test_a_server_that_is_killed_on_the_way_has_its_work_carried_on_by_the_next() -> None:
    with user_home(TRUSTING) as made:
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
    """A server, and after its crash the next."""
    while True:
        try:
            with made.serving(INTERCOM_FAULT=f"queue:{queue}") as process:
                up.set()
                code = await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
                assert code == -signal.SIGKILL
        except AssertionError as failed:
            # It may crash before it says that it is ready.
            if "ready" in str(failed):
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
