"""What people are told of acts and refusals at the local socket, in virtual time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from attrs import evolve, frozen

from intercom.local.processes import KnownAgents, known_agents, lineage
from intercom.model.errors import Unauthorized
from intercom.model.process import Origin
from intercom.operators.authorization import COALESCE_SECONDS, RESTART_SECONDS, Authorization, Connected, connected
from intercom.operators.ctl.connection import CtlRequest
from tests.operators.stand_in_service import StandInService
from tests.support.person_shell import PersonShell, person_shell

APPROVE = CtlRequest("approve", {"id": "a"})


@pytest.fixture(scope="module")
def window() -> Iterator[PersonShell]:
    with person_shell() as made:
        yield made


@frozen
class Known:
    """The agents are the processes with these pids."""

    pids: frozenset[int] = frozenset()
    awaited: int = 0
    is_restart: bool = False

    def known(self) -> KnownAgents:
        return known_agents(entry for pid in self.pids for entry in lineage(pid))


class Told:
    """What was recorded and told."""

    def __init__(self, agents: Known = Known()) -> None:
        self.told: list[str] = []
        self.service = StandInService()
        self.authorization = Authorization(
            agents, self.service.security_event, self.told.append, self.service.is_new_terminal, whole_id=self.whole
        )

    async def whole(self, id: str) -> str:
        return f"{id}-whole"

    async def tries(self, by: Connected, request: CtlRequest = APPROVE, *, signed: bool = False) -> Origin:
        return await self.authorization.require(request, by, "kim", lambda: signed)

    async def is_refused(self, by: Connected) -> str:
        with pytest.raises(Unauthorized) as refused:
            await self.tries(by)
        return str(refused.value)


async def test_refusals_of_one_source_are_told_of_together() -> None:
    at = Told(Known(frozenset({os.getpid()})))
    me = connected(os.getpid())
    for _ in range(100):
        await at.is_refused(me)
    assert len(at.told) == len(at.service.events) == 1
    await trio.sleep(COALESCE_SECONDS)
    await at.authorization.flush()
    assert len(at.told) == len(at.service.events) == 2
    assert at.told[1].startswith("99 more like it in 60 s, the last of them: refused approve of a")
    # What goes on is told of once a minute, and no more when it is over.
    await at.is_refused(me)
    assert len(at.told) == 2
    await trio.sleep(COALESCE_SECONDS)
    await at.authorization.flush()
    assert len(at.told) == 3
    await trio.sleep(2 * COALESCE_SECONDS)
    await at.authorization.flush()
    assert len(at.told) == 3


async def test_many_sources_of_refusals_are_told_of_as_one_in_the_end() -> None:
    at = Told()
    for pid in range(2**22 + 1, 2**22 + 101):
        await at.is_refused(Connected(pid, None))
    assert len(at.told) < 20


async def test_a_decision_signed_with_a_pin_may_come_from_anywhere(window: PersonShell) -> None:
    at = Told()
    me = connected(os.getpid())
    assert "has no terminal" in await at.is_refused(me)
    assert (await at.tries(me, signed=True)).pid == os.getpid()
    # Also from a terminal in which an agent runs, as an editor's: the PIN is the proof.
    at = Told(Known(frozenset({window.pid})))
    assert "is an agent's" in await at.is_refused(connected(window.pid))
    assert (await at.tries(connected(window.pid), signed=True)).pid == window.pid


async def test_only_the_process_that_opened_a_connection_may_use_it(window: PersonShell) -> None:
    at = Told()
    by = connected(window.pid)
    assert (await at.tries(by)).pid == window.pid
    assert (await at.tries(evolve(by, writers=frozenset({window.pid})))).pid == window.pid
    for writers in (frozenset({os.getpid()}), frozenset({window.pid, os.getpid()}), frozenset({0})):
        assert "is used by another" in await at.is_refused(evolve(by, writers=writers))


async def test_a_pid_that_is_another_process_by_now_is_refused(window: PersonShell) -> None:
    at = Told()
    by = connected(window.pid)
    assert by.key is not None
    assert "has ended" in await at.is_refused(evolve(by, key=evolve(by.key, started=by.key.started - 1)))
    assert "has ended" in await at.is_refused(evolve(by, key=None))


async def test_the_first_decision_from_a_terminal_is_told_of(window: PersonShell) -> None:
    at = Told()
    for _ in range(3):
        await at.tries(connected(window.pid))
    [told] = at.told
    assert told.startswith("kim used approve on a-whole for the first time from this terminal: ")
    assert len(at.service.events) == 1


async def test_a_look_at_a_part_of_a_proposal_is_no_act_to_tell_of(window: PersonShell) -> None:
    at = Told()
    await at.tries(connected(window.pid), evolve(APPROVE, command="amend"))
    assert at.told == []
    await at.tries(connected(window.pid))
    assert len(at.told) == 1


async def test_a_decision_soon_after_a_restart_is_told_of(window: PersonShell) -> None:
    at = Told(Known(is_restart=True))
    at.service.terminals.add(window.device)
    await trio.sleep(3)
    await at.tries(connected(window.pid))
    [told] = at.told
    assert "kim used approve on a-whole 3 s after the server started again" in told
    await trio.sleep(RESTART_SECONDS)
    await at.tries(connected(window.pid))
    assert len(at.told) == 1


async def test_a_refusal_stands_and_is_told_also_when_it_cannot_be_recorded() -> None:
    at = Told()

    async def broken(summary: str, data: dict[str, Any]) -> None:
        raise OSError("the store is gone")

    at.authorization.record = broken
    await at.is_refused(connected(os.getpid()))
    assert len(at.told) == 1
