"""Who comes and goes while the registry is down, and sessions whose actors have nothing left to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from actors.testing import inject
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.session import SessionStatus
from intercom.sessions.messages import Describe, Wanted
from intercom.sessions.registry import ANONYMOUS, GRACE_SECONDS, SWEEP_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.store.messages import Transact
from intercom.store.processes import agent_processes
from tests.sessions.house import Guest, House


@asynccontextmanager
async def registry_down(at: House, guest: Guest) -> AsyncIterator[None]:
    """The registry is down meanwhile, and up when this is left."""
    inject(at.app.system, "registry", RuntimeError("a fault was asked for"), "now")
    await trio.testing.wait_all_tasks_blocked()
    assert at.app.system.ref("registry") is None
    yield
    async with at.restarting():
        await at.ask("registry", Wanted(guest.session_id))


def runs(at: House, guest: Guest) -> bool:
    return at.app.system.ref(f"session/{guest.session_id}") is not None


async def leave(at: House, guest: Guest) -> None:
    at.gone(guest.agent.key, for_good=True)
    await at.later(0)


async def status(guest: Guest) -> SessionStatus:
    return (await guest.ask(Describe())).status


async def test_an_agent_that_left_while_the_reception_was_down_is_gone(at: House, root: Path) -> None:
    guest, other = await at.arrive(root), await at.arrive(root, "other")
    async with registry_down(at, guest):
        at.gone("agent")
    await at.later(GRACE_SECONDS)
    assert await status(guest) is SessionStatus.INTERRUPTED
    assert await status(other) is SessionStatus.ACTIVE
    assert at.app.presence.here.keys() == {"other"}


async def test_an_agent_that_came_back_while_the_reception_was_down_is_here(at: House, guest: Guest) -> None:
    at.gone("agent")
    await at.later(GRACE_SECONDS)
    assert await status(guest) is SessionStatus.INTERRUPTED
    async with registry_down(at, guest):
        at.back("agent")
    await at.later(GRACE_SECONDS)
    assert await status(guest) is SessionStatus.ACTIVE
    assert at.app.presence.here.keys() == {"agent"}


async def test_a_session_that_was_left_and_holds_nothing_rests_until_its_agent_is_back(at: House, root: Path) -> None:
    guest, other = await at.arrive(root), await at.arrive(root, "other")
    await leave(at, guest)
    await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)
    assert runs(at, other)
    back = await at.arrive(root)
    assert back.session_id == guest.session_id
    assert await status(back) is SessionStatus.ACTIVE


async def test_a_session_of_one_call_is_not_ended_while_that_is_in(at: House, root: Path) -> None:
    guest = await at.arrive(root, f"{ANONYMOUS}1")
    await at.later(SWEEP_SECONDS)
    assert await status(guest) is SessionStatus.ACTIVE
    await leave(at, guest)
    assert not runs(at, guest)


async def test_a_session_in_which_something_waits_does_not_rest(at: House, guest: Guest, root: Path) -> None:
    id = (await guest.propose()).request_id
    await leave(at, guest)
    await at.later(SWEEP_SECONDS)
    assert runs(at, guest)
    await at.decide(id, Decision.REJECT, "no")
    await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)
    # What it owes its agent is not forgotten.
    back = await at.arrive(root)
    assert [late.request_id for late in (await back.ask(Ping(call="b"))).late_verdicts] == [id]


async def test_people_reach_a_session_that_rests(at: House, guest: Guest, root: Path) -> None:
    await leave(at, guest)
    await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)
    with trio.fail_after(1):
        await at.app.service.nudge(guest.session_id, "go on", "kim", "ctl")
    assert runs(at, guest)
    # Whoever wanted it may be about to ask it more.
    await at.later(SWEEP_SECONDS)
    assert runs(at, guest)
    await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)
    back = await at.arrive(root)
    assert [word.text for word in (await back.ask(Ping(call="b"))).instructions] == ["go on"]


async def test_a_session_that_was_ended_says_so_for_as_long_as_its_agent_is_here(at: House, guest: Guest) -> None:
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    for _ in range(2):
        await at.later(SWEEP_SECONDS)
    with pytest.raises(InvalidState, match="was ended"):
        await guest.propose()
    await leave(at, guest)
    for _ in range(2):
        await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)


async def test_the_session_of_a_process_that_is_over_rests_although_nobody_heard_its_agent_leave(
    at: House, guest: Guest
) -> None:
    child = AgentProcess(guest.session_id, AgentProcessState.RUNNING, at.now(), "kim")
    await at.ask("store", Transact(partial(agent_processes.insert, value=child)))
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    for _ in range(2):
        await at.later(SWEEP_SECONDS)
    assert runs(at, guest)
    over = evolve(child, state=AgentProcessState.OVER)
    await at.ask("store", Transact(partial(agent_processes.change, process=over, expect={AgentProcessState.RUNNING})))
    await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)
    # Who comes by once more is told all the same.
    await at.ask("registry", Wanted(guest.session_id))
    with pytest.raises(InvalidState, match="was ended"):
        await guest.propose()


async def test_a_reception_that_fell_knows_which_sessions_run(at: House, guest: Guest) -> None:
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    async with registry_down(at, guest):
        at.gone("agent")
    await at.later(GRACE_SECONDS)
    for _ in range(2):
        await at.later(SWEEP_SECONDS)
    assert not runs(at, guest)
