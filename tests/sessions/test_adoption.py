"""Taking over what an agent that is gone left behind, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.local import shim_process
from intercom.model.card import CardKind
from intercom.model.errors import InvalidState, Unauthorized
from intercom.model.process import AgentProcess, AgentProcessState, Why
from intercom.model.session import SessionStatus
from intercom.sessions import registry
from intercom.sessions.messages import Adopt, Agent
from intercom.sessions.registry import RETURN_SECONDS
from intercom.store.messages import Transact
from intercom.store.processes import agent_processes
from tests.sessions.house import House, house

Clock = trio.testing.MockClock
LINUX = sys.platform == "linux"


async def gone(at: House, key: str) -> None:
    at.gone(key, for_good=True)
    await at.later(1)


def partial_reboot(at: House, agent: Agent, session_id: str | None = None) -> Callable[[], Awaitable[str]]:
    return partial(at.ask, "registry", Adopt(agent, session_id))


async def test_the_session_that_was_given_up_for_another_is_over_and_never_stalls(at: House, root: Path) -> None:
    old = await at.arrive(root, "old")
    await old.propose()
    await gone(at, "old")
    new = await at.arrive(root, "new")
    assert await at.ask("registry", Adopt(new.agent)) == old.session_id
    await at.later(0)
    await gone(at, "new")
    for _ in range(5):
        await at.later(at.app.config.stall.inactivity_threshold_seconds)
    assert not [card for card in at.people.cards if card.kind is CardKind.STALL]
    stand = {session.id: session.status for session in await at.app.service.sessions(everything=True)}
    assert stand[new.session_id] is SessionStatus.TERMINATED


async def test_after_a_restart_an_agent_that_comes_back_finds_its_session_although_another_wanted_it(
    clock: Clock, root: Path
) -> None:
    async with house(root.parent, clock) as at:
        first = await at.arrive(root, "first")
        id = (await first.propose(call="c1")).request_id
    async with house(root.parent, clock) as at:
        quick = await at.arrive(root, "quick")
        wanted = at.begin(partial_reboot(at, quick.agent))
        named = at.begin(partial_reboot(at, quick.agent, first.session_id))
        await at.later(RETURN_SECONDS / 2)
        assert wanted.outcome is None
        at.back("first")
        back = await at.arrive(root, "first")
        assert (await back.propose(call="c1")).request_id == id
        await at.later(RETURN_SECONDS)
        assert await wanted() == quick.session_id
        with pytest.raises(InvalidState, match="live agent"):
            await named()


async def test_after_a_restart_the_session_of_an_agent_that_does_not_come_back_is_taken_over_soon(
    clock: Clock, root: Path
) -> None:
    async with house(root.parent, clock) as at:
        first = await at.arrive(root, "first")
        await first.propose()
    async with house(root.parent, clock) as at:
        second = await at.arrive(root, "second")
        wanted = at.begin(partial_reboot(at, second.agent))
        await at.later(RETURN_SECONDS)
        assert await wanted() == first.session_id


async def test_a_session_that_is_kept_for_its_own_agent_is_not_to_be_had_by_its_id(at: House, root: Path) -> None:
    named = await at.arrive(root, f"{registry.NAMED}one")
    await named.propose()
    started = await at.arrive(root, "started")
    child = AgentProcess(started.session_id, AgentProcessState.RUNNING, at.now(), "kim")
    await at.ask("store", Transact(partial(agent_processes.insert, value=child)))
    for guest in (named, started):
        await gone(at, guest.agent.key)
    other = await at.arrive(root, "other")
    for guest in (named, started):
        with pytest.raises(Unauthorized, match="its own agent"):
            await at.ask("registry", Adopt(other.agent, guest.session_id))
    ending = evolve(child, state=AgentProcessState.ENDING, why=Why.ENDED)
    await at.ask("store", Transact(partial(agent_processes.change, process=ending, expect={AgentProcessState.RUNNING})))
    with pytest.raises(Unauthorized, match="its own agent"):
        await at.ask("registry", Adopt(other.agent, started.session_id))
    # Once its process is over for good, nobody else comes for it.
    over = evolve(child, state=AgentProcessState.OVER, why=Why.CLEARED)
    await at.ask("store", Transact(lambda db: agent_processes.change(db, over, {AgentProcessState.ENDING})))
    assert await at.ask("registry", Adopt(other.agent, started.session_id)) == started.session_id


async def test_for_a_shim_that_is_dead_nobody_waits(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        fallen = await at.arrive(root, dead_shim())
        request = await fallen.propose()
        began = trio.current_time()
        # Its connection has not been heard to end yet.
        second = await at.arrive(root, next_fallen := dead_shim())
        assert await at.ask("registry", Adopt(second.agent)) == (fallen if LINUX else second).session_id
    async with house(root.parent, clock) as at:
        # A server that never lives for longer than others may take to come back must not keep everybody waiting.
        third = await at.arrive(root, "third")
        assert await at.ask("registry", Adopt(third.agent, fallen.session_id)) == fallen.session_id
        # Elsewhere nobody can tell that a shim is dead, and all wait until those that live are back.
        assert (trio.current_time() - began) == (0 if LINUX else RETURN_SECONDS)
        assert [card.id for card in await at.app.service.pending()] == [request.request_id]
        assert next_fallen not in {session.agent_key for session in await at.app.service.sessions()}


def dead_shim() -> str:
    """The id of a shim whose process is no more."""
    chance, namespace, *_ = [*shim_process.make_id().split("-"), "1"]
    # More than Linux ever gives out.
    return f"{chance}-{namespace}-{2**22 + 1}-1"
