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
from tests.sessions.spawning.yard import House, Yard
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
GOING = ("child.recorded", "child.monitor_recorded", "child.told")
ENDED = ("child.ended", "child.settled")
CLEARED = "child.cleared"


@pytest.fixture(autouse=True)
def waits(at: Yard) -> Iterator[None]:
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


async def falling(at: Yard, point: str, do: Any) -> None:
    """A server that falls at `point`, which `do(house)` leads to."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(pytest.raises(KeyboardInterrupt))
        # Some points are passed while a server starts.
        house = await stack.enter_async_context(at.serving(partial(fall_at, point=point)))
        await do(house)
        await trio.sleep(20)
    crash_points.hook = None


async def start(house: House) -> None:
    await house.start(act=str(house.yard.root))


async def only(house: House) -> str:
    (session,) = await house.app.service.sessions(everything=True)
    return session.id


def test_every_crash_point_of_an_agents_life_is_met() -> None:
    assert {*GOING, *ENDED, CLEARED} == {*SPAWN_NAMES}


@pytest.mark.parametrize("point", GOING)
async def test_a_server_that_falls_while_it_starts_one_has_started_one(at: Yard, point: str) -> None:
    await falling(at, point, start)
    async with at.serving() as house:
        # Asking again, as whoever lost the answer does, starts no other.
        session = await house.start(act=str(house.yard.root))
        assert session.id == await only(house)
        pid = int(await house.until_written("starts"))
        assert psutil.pid_exists(pid)
        assert (await house.session(session.id)).status is SessionStatus.ACTIVE
        at.end("3")
        assert (await house.until_over(session.id)).exit == Exit(code=3)
        assert at.written("starts").count("\n") == 1
        assert at.living(session.id) == []
        assert monitors(at) == []


async def test_a_monitor_that_is_told_nothing_ends(at: Yard) -> None:
    before = set(psutil.Process().children())
    await falling(at, "child.monitor_recorded", start)
    assert set(psutil.Process().children()) == before


@pytest.mark.parametrize("point", ENDED)
async def test_one_that_ends_is_settled_once_wherever_the_server_falls(at: Yard, point: str) -> None:
    async def run(house: House) -> None:
        await start(house)
        at.end("7")

    await falling(at, point, run)
    async with at.serving() as house:
        id = await only(house)
        assert (await house.until_over(id)).exit == Exit(code=7)
        assert (await house.session(id)).status is SessionStatus.INTERRUPTED
        failures = [entry for entry in await house.app.service.audit(100, id) if entry.kind == "process_failed"]
        assert len(failures) == 1
        assert monitors(at) == []


async def test_one_that_is_cleared_is_gone_although_the_server_falls(at: Yard) -> None:
    async def run(house: House) -> None:
        await start(house)
        await house.app.service.end(await only(house), "kim", "ctl", "enough")

    await falling(at, CLEARED, run)
    async with at.serving() as house:
        id = await only(house)
        assert (await house.until_over(id)).why is Why.CLEARED
        assert (await house.session(id)).status is SessionStatus.TERMINATED
        assert at.living(id) == []
        assert monitors(at) == []


async def test_a_later_server_finds_its_agent_and_hears_of_its_end_although_it_is_no_child_of_its_own(
    at: Yard,
) -> None:
    async with at.serving() as house:
        await start(house)
        await house.until_written("starts")
        house.app.hands_over = True
    async with at.serving() as house:
        id = await only(house)
        await house.until(lambda: is_running(house, id))
        at.end("0")
        with trio.fail_after(20):
            assert (await house.until_over(id)).exit == Exit(code=0)
        assert "here I am" in (await house.app.service.children.output(id)).text


async def test_one_that_ended_while_no_server_was_there_is_settled_by_the_next(at: Yard) -> None:
    async with at.serving() as house:
        await start(house)
        id = await only(house)
        house.app.hands_over = True
    at.end("9")
    await until_gone(at, id)
    async with at.serving() as house:
        assert (await house.until_over(id)).exit == Exit(code=9)
        assert (await house.session(id)).status is SessionStatus.INTERRUPTED


async def test_one_whose_monitor_is_killed_is_ended_and_nobody_knows_how_it_would_have(at: Yard) -> None:
    async with at.serving() as house:
        await start(house)
        id = await only(house)
        await house.until_written("starts")
        child = await house.child(id)
        assert child.monitor is not None
        os.kill(child.monitor.pid, signal.SIGKILL)
        assert (await house.until_over(id)).exit == Exit()
        assert at.living(id) == []
        assert "nobody saw how it ended" in (await house.people.notice("process ended")).text


async def test_what_was_killed_with_its_monitor_and_its_server_is_buried(at: Yard) -> None:
    async with at.serving() as house:
        await start(house)
        id = await only(house)
        pid = int(await house.until_written("starts"))
        child = await house.child(id)
        assert child.monitor is not None
        house.app.hands_over = True
    # Its own process is left behind, and has to be found by its mark.
    os.kill(child.monitor.pid, signal.SIGKILL)
    async with at.serving() as house:
        assert (await house.until_over(id)).exit == Exit()
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_the_actor_that_looks_after_one_may_fall_and_the_agent_does_not_notice(at: Yard) -> None:
    async with at.serving() as house:
        await start(house)
        id = await only(house)
        pid = int(await house.until_written("starts"))
        await house.crash(f"child/{id}")
        name = house.app.system.named(f"child/{id}")
        assert await ask(name, Suspend(), timeout=5, retry=True) == 1
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        assert await ask(name, Continue(), timeout=5) == 1
        at.end("0")
        assert (await house.until_over(id)).exit == Exit(code=0)
        assert at.written("starts").count("\n") == 1


async def test_a_server_that_stops_takes_its_agents_along_and_leaves_what_waits(at: Yard) -> None:
    async with at.serving() as house:
        await start(house)
        id = await only(house)
        await house.until_written("starts")
    assert at.living(id) == []
    assert monitors(at) == []
    async with at.serving() as house:
        assert (await house.session(id)).status is SessionStatus.INTERRUPTED
        child = await house.child(id)
        assert (child.state, child.why) == (AgentProcessState.OVER, Why.SHUTDOWN)


async def test_one_that_ends_with_a_server_that_falls_at_it_is_settled_by_the_next(at: Yard) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        async with at.serving() as house:
            await start(house)
            id = await only(house)
            await house.until_written("starts")
            fallen = fall_at(house.app, "child.settled")
    crash_points.hook = None
    assert fallen == ["child.settled"]
    async with at.serving() as house:
        with trio.fail_after(20):
            assert (await house.until_over(id)).why is Why.SHUTDOWN
        assert (await house.session(id)).status is SessionStatus.INTERRUPTED
        assert monitors(at) == []


async def test_one_that_stands_still_is_ended_without_being_killed(at: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_client, "GRACE_SECONDS", 25)
    async with at.serving() as house:
        await start(house)
        id = await only(house)
        await house.until_written("starts")
        assert await ask(house.app.system.named(f"child/{id}"), Suspend(), timeout=5) == 1
        with trio.fail_after(15):
            await house.app.service.end(id, "kim", "ctl", "enough")
            await house.until_over(id)
        assert at.living(id) == []


async def is_running(house: House, id: str) -> bool:
    return (await house.child(id)).state is AgentProcessState.RUNNING


async def until_gone(at: Yard, id: str) -> None:
    while at.living(id) or monitors(at):  # noqa: ASYNC110 - processes tell nobody but their parents
        await trio.sleep(0.02)


def monitors(at: Yard) -> list[int]:
    """The process monitors of this yard that are there."""
    found = []
    for pid in psutil.pids():
        try:
            line = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        if any(each.startswith(str(at.root)) for each in line) and any("processes/monitor.py" in each for each in line):
            found += [pid] if monitor_client.identify(pid) is not None else []
    return found
