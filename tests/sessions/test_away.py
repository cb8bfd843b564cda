"""Cards say whether anybody waits for the answer, also after a restart; and a nudge knows whom it is for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio.testing

from actors.testing import inject
from intercom.model.card import CardKind
from intercom.model.config import Config, StallSettings
from intercom.model.decision import Decision
from intercom.model.errors import Ambiguous, NotFound
from intercom.model.session import StallAlert, StallStatus
from intercom.operators.messages import Channel, Subscribe
from intercom.sessions.messages import RETURN_SECONDS, SHOW_SECONDS, Unattended
from intercom.store.messages import Transact
from intercom.store.sessions import stalls
from tests.sessions.house import Guest, House, house

Clock = trio.testing.MockClock
CALM = Config(stall=StallSettings(enabled=False))


async def away(at: House, id: str) -> bool:
    """What a channel is told that looks, which must be what it was shown last."""
    (listed,) = [card.away for card in await at.app.service.pending() if card.id == id]
    assert (await at.app.service.card(id)).away == listed
    return listed


def shown(at: House, id: str) -> list[bool]:
    return [card.away for card in at.people.cards if card.id == id]


@pytest.mark.server(CALM)
async def test_a_card_says_whether_a_call_waits(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    assert not await away(at, id)
    await at.later(SHOW_SECONDS)
    assert await away(at, id)
    await at.wait(guest, id)
    assert not await away(at, id)
    assert shown(at, id) == [True, False]
    await at.decide(id, Decision.APPROVE)
    assert not (await at.app.service.card(id)).away
    assert await guest.ask(Unattended()) == frozenset()


async def test_after_a_restart_cards_say_whose_agents_have_not_come_back(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, CALM) as at:
        guest, other = await at.arrive(root), await at.arrive(root, "other")
        mine, theirs = (await guest.propose()).request_id, (await other.propose("b.txt")).request_id
    async with house(root.parent, clock, CALM) as at:
        # Nobody knows yet, and nobody is told anything.
        assert not await away(at, mine)
        back = await at.arrive(root)
        await at.wait(back, mine, "the call")
        await at.later(RETURN_SECONDS)
        assert (await away(at, mine), await away(at, theirs)) == (False, True)
        assert (shown(at, mine), shown(at, theirs)) == ([False], [True])
        # Later than that is not too late.
        late = await at.arrive(root, "other")
        await at.wait(late, theirs, "the other call")
        assert not await away(at, theirs)


@pytest.mark.server(CALM)
async def test_after_a_sessions_fall_a_call_that_was_given_up_meanwhile_is_missed(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id)
    waiting.scope.cancel()
    inject(at.app.system, f"session/{guest.session_id}", RuntimeError("a fault was asked for"), "now")
    async with at.restarting():
        await guest.settled()
    assert not await away(at, id)
    await at.later(RETURN_SECONDS)
    assert await away(at, id)
    assert shown(at, id)[-1] is True


@pytest.mark.server(CALM)
async def test_a_router_that_was_restarted_says_whether_a_call_waits(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    await at.later(SHOW_SECONDS)
    inject(at.app.system, "operators", RuntimeError("a fault was asked for"), "now")
    async with at.restarting():
        cards = await at.ask("operators", Subscribe("people", Channel.CTL))
    assert [(card.id, card.away) for card in cards] == [(id, True)]


# --- whom a nudge is for ----------------------------------------------------------------------------------------------


async def alert(at: House, guest: Guest, id: str) -> None:
    raised = StallAlert(
        id=id,
        session_id=guest.session_id,
        status=StallStatus.PENDING,
        created_at=at.now(),
        last_tool=None,
        last_activity_at=at.now(),
        idle_seconds=300,
    )
    await at.ask("store", Transact(partial(stalls.insert, value=raised)))


@pytest.mark.server(CALM)
async def test_a_nudge_with_a_prefix_that_fits_several_says_so(at: House, root: Path) -> None:
    guest, other = await at.arrive(root), await at.arrive(root, "other")
    await alert(at, guest, "alert-1")
    await alert(at, other, "alert-12")
    with pytest.raises(Ambiguous, match="fits 2 session or stall alerts"):
        await at.app.service.nudge("alert", None, "kim", "ctl")
    # A whole id is nobody else's, although another begins with it.
    card = await at.app.service.nudge("alert-1", None, "kim", "ctl")
    assert getattr(card, "kind", None) is CardKind.STALL
    with pytest.raises(NotFound, match="no session or stall alert"):
        await at.app.service.nudge("zzz", None, "kim", "ctl")
    session = await at.app.service.nudge(other.session_id[:30], "go on", "kim", "ctl")
    assert session.id == other.session_id
