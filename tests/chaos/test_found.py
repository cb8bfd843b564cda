"""What the chaos runs found, each shown by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing

from actors.testing import inject
from intercom.model.verdict import Decision
from intercom.sessions.messages import AwaitStandby, Beat, Deliver, Delivery, StandBy
from tests.sessions.house import Guest, House, house, in_house, partial_ask

Clock = trio.testing.MockClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    return made


@in_house
async def test_a_verdict_repeated_after_its_delivery_is_neither_delivered_nor_recorded_again(
    clock: Clock, root: Path
) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id, call = (await guest.propose()).request_id, guest.call()
        waiting = await at.wait(guest, id, call)
        await at.decide(id, Decision.REJECT, "no", verdict_id="v")
        assert (await waiting()).answer.reason == "no"
        await guest.ask(Deliver((Delivery(call, (id,)),)))
        await at.decide(id, Decision.REJECT, "no", verdict_id="v")
        assert (await guest.ask(Beat(guest.call()))).late_verdicts == ()
        assert [entry.kind for entry in await at.app.desk.audit(50)].count("decided") == 1


@in_house
async def test_an_agent_that_stands_by_is_told_to_stop_when_it_shall_stop(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert await _stopped(at, guest, None) == "stop"
        assert await _stopped(at, guest, "enough for today") == "stop: enough for today"


async def _stopped(at: House, guest: Guest, text: str | None) -> str | None:
    opened = await guest.ask(StandBy(guest.call(), "nothing to do"))
    waiting = at.begin(partial_ask(guest, AwaitStandby(guest.call(), opened.request_id)))
    await trio.testing.wait_all_tasks_blocked()
    await at.decide(opened.request_id, Decision.STOP, text)
    instruction: str | None = (await waiting()).answer.instruction
    return instruction


@pytest.mark.parametrize("fallen", ["sessions", "policies"])
@in_house
async def test_sessions_are_brought_back_when_what_held_them_falls(clock: Clock, root: Path, fallen: str) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        began = trio.current_time()
        inject(at.app.system, fallen, RuntimeError("a fault was asked for"), "now")
        async with at.restarting():
            assert (await guest.propose()).request_id == id
            assert (await guest.propose("b.txt")).answered is None
        assert trio.current_time() - began < 4, "nobody waited for a deadline"


@in_house
async def test_a_reception_that_starts_does_not_keep_its_sister_from_starting(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        await guest.propose()
        # The one that has fallen before stays down for longer.
        for fallen in (["sessions"], ["sessions"], ["sessions"], ["sessions", "reception"]):
            began = trio.current_time()
            for name in fallen:
                inject(at.app.system, name, RuntimeError("a fault was asked for"), "now")
            async with at.restarting():
                await guest.ask(Beat(guest.call()))
            assert trio.current_time() - began < 4, "nobody waited for a deadline"
