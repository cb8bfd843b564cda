"""Clearances in a session: asked once, answered by the first verdict, ended at the second."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing

from intercom.model.card import CardState
from intercom.model.config import Config, TimeoutSettings
from intercom.model.errors import AlreadyDecided
from intercom.model.verdict import Decision
from tests.sessions.house import house, in_house

Clock = trio.testing.MockClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    return made


@in_house
async def test_the_same_proposal_asked_again_joins_the_request_that_waits(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        first = await guest.propose()
        again = await guest.propose()
        assert again.request_id == first.request_id
        waiting = [await at.wait(guest, first.request_id) for _ in range(3)]
        await at.decide(first.request_id, Decision.APPROVE)
        assert {(await each()).answer.status for each in waiting} == {"approved"}
        assert {card.id for card in at.people.cards} == {first.request_id}
        other = await guest.propose(diff="b\n")
        assert other.request_id != first.request_id


@in_house
async def test_a_request_expires_at_its_second_and_not_before(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, Config(timeouts=TimeoutSettings(approval_seconds=100))) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        waiting = await at.wait(guest, id)
        await at.later(99)
        await guest.settled()
        assert waiting.outcome is None
        await at.later(1)
        assert (await waiting()).answer.status == "timeout"
        assert (await at.people.card(id=id)).state is CardState.EXPIRED
        with pytest.raises(AlreadyDecided, match="no longer open"):
            await at.decide(id, Decision.APPROVE)
