"""What the chaos runs found, each shown by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing

from actors.testing import inject
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.call import Call
from intercom.model.config import Config
from intercom.model.decision import Decision
from intercom.sessions.messages import AwaitDecision, Deliver, Delivery
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.table import BY_NAME
from tests.sessions.house import Guest, House, partial_ask


async def test_a_verdict_repeated_after_its_delivery_is_neither_delivered_nor_recorded_again(
    at: House, root: Path
) -> None:
    guest = await at.arrive(root)
    id, call = (await guest.propose()).request_id, guest.call()
    waiting = await at.wait(guest, id, call)
    await at.decide(id, Decision.REJECT, "no", verdict_id="v")
    assert (await waiting()).answer.reason == "no"
    await guest.ask(Deliver((Delivery(call, (id,)),)))
    await at.decide(id, Decision.REJECT, "no", verdict_id="v")
    assert (await guest.ask(Ping())).late_verdicts == ()
    assert [entry.kind for entry in await at.app.service.audit(50)].count("decided") == 1


async def test_an_agent_that_stands_by_is_told_to_stop_when_it_shall_stop(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    assert await _stopped(at, guest, None) == "stop"
    assert await _stopped(at, guest, "enough for today") == "stop: enough for today"


async def _stopped(at: House, guest: Guest, text: str | None) -> str | None:
    opened = await guest.ask(Standby("nothing to do"))
    waiting = at.begin(partial_ask(guest, AwaitDecision(guest.call(), opened.request_id)))
    await trio.testing.wait_all_tasks_blocked()
    await at.decide(opened.request_id, Decision.STOP, text)
    instruction: str | None = (await waiting()).answer.instruction
    return instruction


@pytest.mark.parametrize("fallen", ["sessions", "policies"])
async def test_sessions_are_brought_back_when_what_held_them_falls(at: House, root: Path, fallen: str) -> None:
    guest = await at.arrive(root)
    id = (await guest.propose()).request_id
    began = trio.current_time()
    inject(at.app.system, fallen, RuntimeError("a fault was asked for"), "now")
    async with at.restarting():
        assert (await guest.propose()).request_id == id
        assert (await guest.propose("b.txt")).answered is None
    assert trio.current_time() - began < 4, "nobody waited for a deadline"


async def test_a_reception_that_starts_does_not_keep_its_sister_from_starting(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    await guest.propose()
    # The one that has fallen before stays down for longer.
    for fallen in (["sessions"], ["sessions"], ["sessions"], ["sessions", "registry"]):
        began = trio.current_time()
        for name in fallen:
            inject(at.app.system, name, RuntimeError("a fault was asked for"), "now")
        async with at.restarting():
            await guest.ask(Ping())
        assert trio.current_time() - began < 4, "nobody waited for a deadline"


async def test_a_verdict_on_its_way_is_not_told_again_by_a_session_that_fell_meanwhile(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    await at.decide((await guest.propose()).request_id, Decision.REJECT, "no")
    door = AgentConnection(at.app.system, Config(), at.app.presence, guest.agent.key, str(root), None)
    assert await _told(door, guest, "first") == ["no"]
    inject(at.app.system, f"session/{guest.session_id}", RuntimeError("a fault was asked for"), "now")
    async with at.restarting():
        assert await _told(door, guest, "second") == []
    # The first result is lost after all.
    door.deliveries.abandon("first")
    assert await _told(door, guest, "third") == ["no"]


async def _told(door: AgentConnection, guest: Guest, name: str) -> list[str]:
    """What one more call of the agent is told of late verdicts."""

    async def roots() -> list[str]:
        return []

    call: Call = await door.open_call(BY_NAME["ping"], Ping(), Caller("client", None, name, roots, None))
    told = call.finish(await guest.ask(Ping(call=name)))
    door.close_call(call)
    return [late.answer["reason"] for late in told.late_verdicts]
