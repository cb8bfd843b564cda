"""Whatever falls, and wherever: an agent that people started runs once, is found again, and ends when it should."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest
import trio
import trio.lowlevel

from actors import ask
from intercom.app import App
from intercom.model import crash_points
from intercom.model.process import AgentProcessState, Exit, Why
from intercom.model.session import SessionStatus
from intercom.sessions.messages import Continue, Suspend
from intercom.sessions.processes import monitor_client
from tests.sessions.spawning.spawning_server import SpawningHome, SpawningServer
from tests.support.crash_points import SPAWN_NAMES

pytestmark = pytest.mark.real_time

#: Notes each start in its workspace, and goes when it is told to, with the code that stands in `go`.
WAITS = """
import os, sys, time
with open("starts", "a") as starts:
    starts.write(f"{os.getpid()}\\n")
print("here I am", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
sys.exit(int(open("go").read()))
"""

#: What a server falls at that lets an agent go on, and what only follows an agent's end, or a person's word.
GOING = ("agent_process.recorded", "agent_process.monitor_recorded", "agent_process.told")
ENDED = ("agent_process.ended", "agent_process.settled")
CLEARED = "agent_process.cleared"


@pytest.fixture(autouse=True)
def waits(at: SpawningHome) -> Iterator[None]:
    at.agent(WAITS)
    yield
    crash_points.hook = None


def fall_at(app: App, point: str) -> list[str]:
    """Let this server fall as if killed, at this point: nothing of it does anything more for its agents. What is
    returned names the point once it has fallen there."""
    fallen: list[str] = []

    def hook(name: str) -> None:
        if name == point and not app.hands_over:
            app.hands_over = True
            fallen.append(name)
            raise KeyboardInterrupt

    crash_points.hook = hook
    return fallen


async def falling(at: SpawningHome, point: str, do: Any) -> None:
    """A server that falls at `point`, which `do(house)` leads to."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(pytest.raises(KeyboardInterrupt))
        # Some points are passed while a server starts.
        home = await stack.enter_async_context(at.serving(partial(fall_at, point=point)))
        await do(home)
        await trio.sleep(20)
    crash_points.hook = None


async def start(home: SpawningServer) -> None:
    await home.start(act=str(home.home.root))


async def only(home: SpawningServer) -> str:
    (session,) = await home.app.service.sessions(everything=True)
    return session.id


def test_every_crash_point_of_an_agents_life_is_met() -> None:
    assert {*GOING, *ENDED, CLEARED} == {*SPAWN_NAMES}


@pytest.mark.parametrize("point", GOING)
async def test_a_server_that_falls_while_it_starts_one_has_started_one(at: SpawningHome, point: str) -> None:
    await falling(at, point, start)
    async with at.serving() as home:
        # Asking again, as whoever lost the answer does, starts no other.
        session = await home.start(act=str(home.home.root))
        assert session.id == await only(home)
        pid = int(await home.until_written("starts"))
        assert psutil.pid_exists(pid)
        assert (await home.session(session.id)).status is SessionStatus.ACTIVE
        at.end("3")
        assert (await home.until_over(session.id)).exit == Exit(code=3)
        assert at.written("starts").count("\n") == 1
        assert at.living(session.id) == []
        assert monitors(at) == []


async def test_a_monitor_that_is_told_nothing_ends(at: SpawningHome) -> None:
    before = set(psutil.Process().children())
    await falling(at, "agent_process.monitor_recorded", start)
    assert set(psutil.Process().children()) == before


@pytest.mark.parametrize("point", ENDED)
async def test_one_that_ends_is_settled_once_wherever_the_server_falls(at: SpawningHome, point: str) -> None:
    async def run(home: SpawningServer) -> None:
        await start(home)
        at.end("7")

    await falling(at, point, run)
    async with at.serving() as home:
        id = await only(home)
        assert (await home.until_over(id)).exit == Exit(code=7)
        assert (await home.session(id)).status is SessionStatus.INTERRUPTED
        failures = [entry for entry in await home.app.service.audit(100, id) if entry.kind == "process_failed"]
        assert len(failures) == 1
        assert monitors(at) == []


async def test_one_that_is_cleared_is_gone_although_the_server_falls(at: SpawningHome) -> None:
    async def run(home: SpawningServer) -> None:
        await start(home)
        await home.app.service.end(await only(home), "kim", "ctl", "enough")

    await falling(at, CLEARED, run)
    async with at.serving() as home:
        id = await only(home)
        assert (await home.until_over(id)).why is Why.CLEARED
        assert (await home.session(id)).status is SessionStatus.TERMINATED
        assert at.living(id) == []
        assert monitors(at) == []


async def test_a_later_server_finds_its_agent_and_hears_of_its_end_although_it_is_no_child_of_its_own(
    at: SpawningHome,
) -> None:
    async with at.serving() as home:
        await start(home)
        await home.until_written("starts")
        home.app.hands_over = True
    async with at.serving() as home:
        id = await only(home)
        await home.until(lambda: is_running(home, id))
        at.end("0")
        with trio.fail_after(120):
            assert (await home.until_over(id)).exit == Exit(code=0)
        assert "here I am" in (await home.app.service.agent_processes.output(id)).text


async def test_one_that_ended_while_no_server_was_there_is_settled_by_the_next(at: SpawningHome) -> None:
    async with at.serving() as home:
        await start(home)
        id = await only(home)
        home.app.hands_over = True
    at.end("9")
    await until_gone(at, id)
    async with at.serving() as home:
        assert (await home.until_over(id)).exit == Exit(code=9)
        assert (await home.session(id)).status is SessionStatus.INTERRUPTED


async def test_one_whose_monitor_is_killed_is_ended_and_nobody_knows_how_it_would_have(at: SpawningHome) -> None:
    async with at.serving() as home:
        await start(home)
        id = await only(home)
        await home.until_written("starts")
        child = await home.child(id)
        os.kill(child.monitor.pid, signal.SIGKILL)
        assert (await home.until_over(id)).exit == Exit()
        assert at.living(id) == []
        assert "its end was not observed" in (await home.operator.notice("process ended")).text


async def test_what_was_killed_with_its_monitor_and_its_server_is_buried(at: SpawningHome) -> None:
    async with at.serving() as home:
        await start(home)
        id = await only(home)
        pid = int(await home.until_written("starts"))
        child = await home.child(id)
        assert child.monitor is not None
        home.app.hands_over = True
    # Its own process is left behind, and has to be found by its mark.
    os.kill(child.monitor.pid, signal.SIGKILL)
    async with at.serving() as home:
        assert (await home.until_over(id)).exit == Exit()
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_the_actor_that_looks_after_one_may_fall_and_the_agent_does_not_notice(at: SpawningHome) -> None:
    async with at.serving() as home:
        await start(home)
        id = await only(home)
        pid = int(await home.until_written("starts"))
        await home.crash(f"agent-process/{id}")
        name = home.app.system.named(f"agent-process/{id}")
        assert await ask(name, Suspend(), timeout=5, retry=True) == 1
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        assert await ask(name, Continue(), timeout=5) == 1
        at.end("0")
        assert (await home.until_over(id)).exit == Exit(code=0)
        assert at.written("starts").count("\n") == 1


async def test_a_server_that_stops_takes_its_agents_along_and_leaves_what_waits(at: SpawningHome) -> None:
    async with at.serving() as home:
        await start(home)
        id = await only(home)
        await home.until_written("starts")
    assert at.living(id) == []
    assert monitors(at) == []
    async with at.serving() as home:
        assert (await home.session(id)).status is SessionStatus.INTERRUPTED
        child = await home.child(id)
        assert (child.state, child.why) == (AgentProcessState.OVER, Why.SHUTDOWN)


async def test_one_that_ends_with_a_server_that_falls_at_it_is_settled_by_the_next(at: SpawningHome) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        async with at.serving() as home:
            await start(home)
            id = await only(home)
            await home.until_written("starts")
            fallen = fall_at(home.app, "agent_process.settled")
    crash_points.hook = None
    assert fallen == ["agent_process.settled"]
    async with at.serving() as home:
        with trio.fail_after(120):
            assert (await home.until_over(id)).why is Why.SHUTDOWN
        assert (await home.session(id)).status is SessionStatus.INTERRUPTED
        assert monitors(at) == []


async def test_one_that_stands_still_is_ended_without_being_killed(
    at: SpawningHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_client, "GRACE_SECONDS", 25)
    async with at.serving() as home:
        await start(home)
        id = await only(home)
        await home.until_written("starts")
        assert await ask(home.app.system.named(f"agent-process/{id}"), Suspend(), timeout=5) == 1
        with trio.fail_after(15):
            await home.app.service.end(id, "kim", "ctl", "enough")
            await home.until_over(id)
        assert at.living(id) == []


async def is_running(home: SpawningServer, id: str) -> bool:
    return (await home.child(id)).state is AgentProcessState.RUNNING


async def until_gone(at: SpawningHome, id: str) -> None:
    while at.living(id) or monitors(at):  # noqa: ASYNC110 - processes tell nobody but their parents
        await trio.sleep(0.02)


def monitors(at: SpawningHome) -> list[int]:
    """The process monitors of this yard that are there."""
    found = []
    for pid in psutil.pids():
        try:
            line = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        if any(each.startswith(str(at.root)) for each in line) and any("monitor_program.py" in each for each in line):
            found += [pid] if monitor_client.identify(pid) is not None else []
    return found
