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
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState, Unauthorized
from intercom.model.process import AgentProcess, AgentProcessState, Why
from intercom.model.session import SessionStatus
from intercom.sessions import agent_keys
from intercom.sessions.messages import Adopt, Agent, Deliver, Delivery
from intercom.sessions.registry import RETURN_SECONDS
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.store.processes import agent_processes
from intercom.store.writer_messages import Transact
from tests.support.virtual_server import VirtualServer, virtual_server

Clock = trio.testing.MockClock
LINUX = sys.platform == "linux"


async def gone(server: VirtualServer, key: str) -> None:
    server.gone(key, for_good=True)
    await server.later(1)


def partial_reboot(server: VirtualServer, agent: Agent, session_id: str | None = None) -> Callable[[], Awaitable[str]]:
    return partial(server.ask, "registry", Adopt(agent, session_id))


async def test_the_session_that_was_given_up_for_another_is_over_and_never_stalls(
    server: VirtualServer, root: Path
) -> None:
    old = await server.arrive(root, "old")
    await old.propose()
    await gone(server, "old")
    new = await server.arrive(root, "new")
    assert await server.ask("registry", Adopt(new.identity)) == old.session_id
    await server.later(0)
    await gone(server, "new")
    for _ in range(5):
        await server.later(server.app.config.stall.inactivity_threshold_seconds)
    assert not [card for card in server.operator.cards if card.kind is CardKind.STALL]
    stand = {session.id: session.status for session in await server.app.service.sessions(everything=True)}
    assert stand[new.session_id] is SessionStatus.TERMINATED
    last = (await server.app.service.audit(1, new.session_id))[-1]
    assert (last.kind, last.summary) == (
        "session_terminated",
        f"it held nothing, and its agent took over {old.session_id}",
    )


async def test_an_agent_with_an_approval_that_it_has_not_applied_keeps_its_session(
    server: VirtualServer, root: Path
) -> None:
    old = await server.arrive(root, "old")
    await old.propose()
    await gone(server, "old")
    new = await server.arrive(root, "new")
    id = (await new.propose("b.txt")).request_id
    await server.decide(id, Decision.APPROVE)
    (late,) = (await new.ask(Ping(call="told"))).late_verdicts
    await new.ask(Deliver((Delivery("told", (late.request_id,)),)))
    assert await server.ask("registry", Adopt(new.identity)) == new.session_id
    assert (await new.ask(CheckDiff(id))).answered.answer.status == "applied"
    # Then nothing is left in it.
    assert await server.ask("registry", Adopt(new.identity)) == old.session_id


async def test_after_a_restart_an_agent_that_comes_back_finds_its_session_although_another_wanted_it(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        first = await server.arrive(root, "first")
        id = (await first.propose(call="c1")).request_id
    async with virtual_server(root.parent, clock) as server:
        quick = await server.arrive(root, "quick")
        wanted = server.begin(partial_reboot(server, quick.identity))
        named = server.begin(partial_reboot(server, quick.identity, first.session_id))
        await server.later(RETURN_SECONDS / 2)
        assert wanted.outcome is None
        server.back("first")
        back = await server.arrive(root, "first")
        assert (await back.propose(call="c1")).request_id == id
        await server.later(RETURN_SECONDS)
        assert await wanted() == quick.session_id
        with pytest.raises(InvalidState, match="live agent"):
            await named()


async def test_after_a_restart_the_session_of_an_agent_that_does_not_come_back_is_taken_over_soon(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        first = await server.arrive(root, "first")
        await first.propose()
    async with virtual_server(root.parent, clock) as server:
        second = await server.arrive(root, "second")
        wanted = server.begin(partial_reboot(server, second.identity))
        await server.later(RETURN_SECONDS)
        assert await wanted() == first.session_id


async def test_a_session_that_is_kept_for_its_own_agent_is_not_to_be_had_by_its_id(
    server: VirtualServer, root: Path
) -> None:
    named = await server.arrive(root, f"{agent_keys.NAMED}one")
    await named.propose()
    started = await server.arrive(root, "started")
    child = AgentProcess(started.session_id, AgentProcessState.RUNNING, server.now(), "kim")
    await server.ask("store", Transact(partial(agent_processes.insert, value=child)))
    for agent in (named, started):
        await gone(server, agent.identity.key)
    other = await server.arrive(root, "other")
    for agent in (named, started):
        with pytest.raises(Unauthorized, match="its own agent"):
            await server.ask("registry", Adopt(other.identity, agent.session_id))
    ending = evolve(child, state=AgentProcessState.ENDING, why=Why.ENDED)
    await server.ask(
        "store", Transact(partial(agent_processes.change, process=ending, expect={AgentProcessState.RUNNING}))
    )
    with pytest.raises(Unauthorized, match="its own agent"):
        await server.ask("registry", Adopt(other.identity, started.session_id))
    # Once its process is over for good, nobody else comes for it.
    over = evolve(child, state=AgentProcessState.OVER, why=Why.CLEARED)
    await server.ask("store", Transact(lambda db: agent_processes.change(db, over, {AgentProcessState.ENDING})))
    assert await server.ask("registry", Adopt(other.identity, started.session_id)) == started.session_id


async def test_for_a_shim_that_is_dead_nobody_waits(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        fallen = await server.arrive(root, dead_shim())
        request = await fallen.propose()
        began = trio.current_time()
        # Its connection has not been heard to end yet.
        second = await server.arrive(root, next_fallen := dead_shim())
        assert await server.ask("registry", Adopt(second.identity)) == (fallen if LINUX else second).session_id
    async with virtual_server(root.parent, clock) as server:
        # A server that never lives for longer than others may take to come back must not keep everybody waiting.
        third = await server.arrive(root, "third")
        assert await server.ask("registry", Adopt(third.identity, fallen.session_id)) == fallen.session_id
        # Elsewhere nobody can tell that a shim is dead, and all wait until those that live are back.
        assert (trio.current_time() - began) == (0 if LINUX else RETURN_SECONDS)
        assert [card.id for card in await server.app.service.pending()] == [request.request_id]
        assert next_fallen not in {session.agent_key for session in await server.app.service.sessions()}


def dead_shim() -> str:
    """The id of a shim whose process is no more."""
    chance, namespace, *_ = [*shim_process.make_id().split("-"), "1"]
    # More than Linux ever gives out.
    return f"{chance}-{namespace}-{2**22 + 1}-1"
