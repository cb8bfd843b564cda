"""`serve --replace` ends the server that runs and takes its place; what waits and who is connected stay."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from intercom.agents.shim import launch
from intercom.cli import serve
from intercom.local import lock
from intercom.sessions.request_kinds import APPROVED
from tests.agents.test_server_life import CHANGE, decide, gone, pending
from tests.support.server_process import Home, begin, call

pytestmark = pytest.mark.real_time


async def test_a_call_goes_on_at_the_server_that_took_over(home: Home) -> None:
    root = home.workspace()
    async with home.agent(root) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = await pending(home, root)
        first = home.server()
        assert first is not None
        with home.serving("--replace") as process:
            await gone(first)
            assert home.server() == process.pid
            assert (await call(agent, "ping"))["acknowledged"]
            assert home.server() == process.pid, "the relay has started none of its own"
            assert await pending(home, root) == id
            await decide(home, root, id)
            assert await asked() == {"status": "approved", "request_id": id, "message": APPROVED}
        told = await trio.Path(home.root / "server.log").read_text()
        assert f"this server replaces process {first} (version " in told
        lines = [f"loading; then process {first} ", f"asking process {first} (version ", "this server replaces"]
        assert sorted(lines, key=told.index) == lines, told


async def test_it_takes_over_if_nobody_reads_its_stderr(home: Home) -> None:
    reader, writer = os.pipe()
    hear, tell = os.pipe()
    os.close(reader)
    with home.serving() as first, os.fdopen(hear) as news:
        words = [*home.program, "serve", "--replace", "--ready-fd", str(tell)]
        process = await trio.lowlevel.open_process(words, env=home.environ, pass_fds=[tell], stderr=writer)
        os.close(writer)
        os.close(tell)
        try:
            assert json.loads(await trio.to_thread.run_sync(news.readline) or "{}") == {"ready": True}
            assert first.wait(20) == 0
            assert home.server() == process.pid
        finally:
            process.terminate()
            await process.wait()


async def test_one_that_is_killed_while_it_takes_over_leaves_the_place_to_a_relay(home: Home) -> None:
    root = home.workspace()
    code = (
        "import os; from pathlib import Path; from intercom.cli import serve\n"
        "from intercom.local.places import places\n"
        "serve.take_over(places(), Path(places().database)); os.kill(os.getpid(), 9)"
    )
    async with home.agent(root) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = await pending(home, root)
        done = await trio.run_process([sys.executable, "-c", code], env=home.environ, check=False, capture_stderr=True)
        assert done.returncode == -signal.SIGKILL
        assert (await call(agent, "ping"))["acknowledged"]
        assert await pending(home, root) == id
        await decide(home, root, id)
        assert await asked() == {"status": "approved", "request_id": id, "message": APPROVED}


async def test_without_a_server_it_simply_starts(home: Home) -> None:
    with home.serving("--replace") as process:
        assert home.server() == process.pid
        async with home.agent(home.workspace()) as agent:
            assert (await call(agent, "ping"))["acknowledged"]
    assert "replaces" not in await trio.Path(home.root / "server.log").read_text()
    # The right to start a server was given back.
    assert not launch.is_claimed(home.places)


async def test_two_that_replace_at_once_leave_one_server(home: Home) -> None:
    with home.serving() as first, home.serving("--replace") as second, home.serving("--replace") as third:
        assert first.wait(20) == 0
        assert second.wait(20) == 0
        assert home.server() == third.pid


def app_that_stops(home: Home, waiting: list[object] | None) -> Any:
    """A server of which only the stop is real. `waiting` is what waits for people; None if it cannot be read."""

    async def pending() -> list[object]:
        if waiting is None:
            await trio.sleep_forever()
        return waiting or []

    system = SimpleNamespace(request_stop=lambda: None)
    return SimpleNamespace(places=home.places, hands_over=None, system=system, service=SimpleNamespace(pending=pending))


@pytest.mark.parametrize(("waiting", "is_told"), [([], False), (["a card"], True), (None, True)])
async def test_a_stop_says_that_what_waits_stays_pending_only_if_something_may_wait(
    home: Home, caplog: pytest.LogCaptureFixture, waiting: list[object] | None, is_told: bool
) -> None:
    with caplog.at_level("INFO"), trio.open_signal_receiver(signal.SIGINT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve.until_signal, app_that_stops(home, waiting))
            await trio.testing.wait_all_tasks_blocked()
            os.kill(os.getpid(), signal.SIGINT)
    assert "SIGINT: stopping" in caplog.text
    assert ("stays pending" in caplog.text) is is_told


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_agents_that_the_old_server_started_go_on_only_if_another_takes_over(
    home: Home, is_replaced: bool
) -> None:
    app = app_that_stops(home, [])
    claim = launch.claim(home.places)
    assert claim is not None
    if not is_replaced:
        os.close(claim)
    with trio.open_signal_receiver(signal.SIGTERM):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve.until_signal, app)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(os.getpid(), signal.SIGTERM)
    assert app.hands_over is is_replaced
    if is_replaced:
        os.close(claim)


def test_a_faulty_configuration_ends_no_server(home: Home) -> None:
    with home.serving() as process:
        home.configure("colour = 1\n")
        done = home.command("serve", "--replace")
        assert done.returncode == serve.USAGE
        assert "colour" in done.stderr
        assert process.poll() is None
        assert not launch.is_claimed(home.places)


def holding(database: Path) -> subprocess.Popen[bytes]:
    """A process that holds the lock of this database, and does not stop when it is asked to."""
    database.parent.mkdir(parents=True, exist_ok=True)
    code = (
        "import signal, sys; from intercom.local import lock; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "with lock.acquire(sys.argv[1], version='7'): print(flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(database)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_server_that_does_not_stop_keeps_its_place(tmp_path: Path) -> None:
    with holding(tmp_path / "x.db") as process:
        with pytest.raises(lock.DatabaseLocked, match=f"process {process.pid}.*did not stop within 0 s"):
            lock.end_holder(tmp_path / "x.db", seconds=0.2)
        assert process.poll() is None
        process.kill()


def test_one_that_is_only_starting_is_not_mistaken_for_a_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock's file is empty until its holder has written its process id: 0 would be this very group."""
    killed: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    descriptor = os.open(lock.lock_path(tmp_path / "x.db"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(lock.DatabaseLocked, match="a starting server"):
        lock.end_holder(tmp_path / "x.db", seconds=0.2)
    os.close(descriptor)
    assert killed == []
    assert lock.end_holder(tmp_path / "x.db", seconds=0.2) is None


def test_while_another_server_is_started_it_waits_and_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "STOP_SECONDS", 0.2)
    claim = launch.claim(home.places)
    assert claim is not None
    assert launch.is_claimed(home.places)
    with pytest.raises(lock.DatabaseLocked, match="another server is being started"):
        serve.take_over(home.places, Path(home.places.database))
    os.close(claim)
    assert not launch.is_claimed(home.places)
