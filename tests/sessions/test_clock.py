"""A clock that is set, corrected or slept through: every request is open with a timer that lives, or settled, and its
card says the same.
"""

from __future__ import annotations

import functools
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.model.card import CardState
from intercom.model.config import Config, OnTimeout, StallSettings, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided
from intercom.sessions.housekeeping import LAPSE_SECONDS, PURGE_SECONDS, Clocks, Jump, jump
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.store import requests, rows
from intercom.store.messages import Transact
from tests.sessions.house import BEGAN, Guest, House, house
from tests.sessions.test_checkpoints import ask, take
from tests.support.async_tests import bounded

Clock = trio.testing.MockClock
HOUR = 3600.0
DAY = 24 * HOUR
CONFIG = Config(
    timeouts=TimeoutSettings(approval_seconds=HOUR, prompt_seconds=HOUR, wait_seconds=HOUR),
    # Its alerts wait for people too, and have no deadline.
    stall=StallSettings(enabled=False),
)


async def ask_all(at: House, guest: Guest) -> list[str]:
    """One request of each kind that waits for a person."""
    prompt = await guest.ask(Transmit("go on?"))
    wait = await guest.ask(Standby("done"))
    return [(await guest.propose()).request_id, prompt.request_id, wait.request_id]


@pytest.mark.parametrize("forward", [2 * HOUR, 2 * DAY])
@pytest.mark.server(CONFIG)
async def test_what_a_clock_set_forward_leaves_behind_expires_at_once(at: House, guest: Guest, forward: float) -> None:
    ids = await ask_all(at, guest)
    waiting = await at.wait(guest, ids[0])
    await at.set_clock(forward)
    await guest.settled()
    assert (await waiting()).answer.status == "timeout"
    for id in ids:
        await at.people.card(lambda card: card.state is not CardState.PENDING, id=id)
        with pytest.raises(AlreadyDecided, match=r"no longer open|answered before"):
            await at.decide(id, Decision.APPROVE if id == ids[0] else Decision.CONTINUE)
    assert await at.app.service.pending() == ()


@pytest.mark.parametrize("back", [2 * HOUR, 2 * DAY])
@pytest.mark.server(CONFIG)
async def test_what_a_clock_set_back_gives_more_time_has_it(at: House, guest: Guest, back: float) -> None:
    ids = await ask_all(at, guest)
    await at.set_clock(-back)
    # Its hour is over by the steady clock, and not by the one on the card.
    await at.later(HOUR + 60)
    assert {card.id for card in await at.app.service.pending()} == set(ids)
    card = await at.decide(ids[0], Decision.APPROVE)
    assert card.state is CardState.APPROVED
    await at.later(back)
    await guest.settled()
    assert await at.app.service.pending() == ()
    assert (await at.people.card(id=ids[1])).state is not CardState.PENDING


@pytest.mark.server(CONFIG)
async def test_a_decision_that_comes_before_the_jump_is_noticed_finds_no_request_half_open(
    at: House, guest: Guest
) -> None:
    for number, id in enumerate(await ask_all(at, guest)):
        at.shifted[0] += 2 * DAY
        with pytest.raises(AlreadyDecided) as late:
            await at.decide(id, Decision.CONTINUE if number else Decision.APPROVE)
        assert "pending" not in str(late.value)
        await at.people.card(lambda card: card.state is not CardState.PENDING, id=id)
        at.shifted[0] -= 2 * DAY


async def test_a_question_that_is_held_since_can_be_answered_after_its_time(clock: Clock, root: Path) -> None:
    """Its server asked it with a deadline, and the next one's configuration holds such questions."""
    async with house(root.parent, clock, CONFIG) as at:
        guest = await at.arrive(root)
        id = (await ask_all(at, guest))[1]
    held = evolve(CONFIG, timeouts=evolve(CONFIG.timeouts, prompt_on_timeout=OnTimeout.HOLD))
    async with house(root.parent, clock, held) as at:
        await at.arrive(root)
        await at.later(2 * HOUR)
        card = await at.decide(id, Decision.CONTINUE)
        assert card.state is not CardState.PENDING


@pytest.mark.server(CONFIG)
async def test_a_machine_that_slept_is_as_late_as_its_clock_says(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    await at.later(HOUR - 100)
    # The steady clock stands still meanwhile.
    await at.set_clock(200)
    await at.people.card(id=id, state=CardState.EXPIRED)


@pytest.mark.server(CONFIG)
async def test_people_are_told_of_a_clock_that_was_set_and_not_of_a_small_correction(at: House) -> None:
    await at.set_clock(5)
    await at.set_clock(-2 * HOUR)
    notice = await at.people.notice("clock was set")
    assert "back by 2:00:00" in notice.text
    assert len([each for each in at.people.notices if "clock was set" in each.text]) == 1


async def test_approvals_lapse_by_the_new_clock(clock: Clock, root: Path) -> None:
    config = Config(timeouts=TimeoutSettings(approved_valid_seconds=DAY))
    async with house(root.parent, clock, config) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        await at.decide(id, Decision.APPROVE)
        await at.set_clock(2 * DAY)
        await at.people.card(id=id, state=CardState.EXPIRED)


@pytest.mark.server(Config(retention_days=30))
async def test_nothing_is_purged_by_a_clock_that_was_only_just_set(at: House, guest: Guest) -> None:
    ended = guest.session_id
    await at.app.service.end(ended, "kim", "ctl", "done")
    await at.later(PURGE_SECONDS - 60)
    await at.set_clock(40 * DAY)
    await at.later(120)

    def there(db: Any) -> int:
        return rows.count(db, "select count(*) from session where id = ?", (ended,))

    assert await at.ask("store", Transact(there)) == 1
    # Set right again: it is as old as it was.
    await at.set_clock(-40 * DAY)
    await at.later(PURGE_SECONDS + LAPSE_SECONDS)
    assert await at.ask("store", Transact(there)) == 1
    await at.set_clock(40 * DAY)
    await at.later(PURGE_SECONDS + LAPSE_SECONDS)
    assert await at.ask("store", Transact(there)) == 0


async def test_a_question_about_a_restore_is_judged_by_the_clock_too(clock: Clock, root: Path) -> None:
    (root / "a.txt").write_text("one\n")
    async with house(root.parent, clock, CONFIG) as at:
        guest = await at.arrive(root)
        taken = await take(at, guest)
        asked = await ask(at, taken)
        await at.set_clock(-2 * HOUR)
        await at.later(HOUR + 60)
        assert (await at.people.card(id=asked.id)).state is CardState.PENDING
        await at.set_clock(2 * DAY)
        card = await at.people.card(lambda card: card.state is not CardState.PENDING, id=asked.id)
        assert card.state is CardState.EXPIRED


def test_a_jump_is_what_wall_time_moved_beyond_steady_time() -> None:
    def clocks(wall: float, steady: float, boot: float) -> Clocks:
        return Clocks(BEGAN + timedelta(seconds=wall), steady, boot)

    before = clocks(0, 100, 1000)
    assert jump(before, clocks(2.0, 102, 1002)) is None
    assert jump(before, clocks(2.3, 102, 1002)) is None
    assert jump(before, clocks(3602, 102, 1002)) == Jump(3600, 0)
    assert jump(before, clocks(-3598, 102, 1002)) == Jump(-3600, 0)
    slept = jump(before, clocks(3602, 102, 4602))
    assert slept == Jump(3600, 3600)
    assert slept.set_by == 0
    # Slept, and set back by as much: the timers are late all the same.
    assert jump(before, clocks(2, 102, 4602)) == Jump(0, 3600)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("propose"), st.just(0.0)),
        st.tuples(st.just("pass"), st.sampled_from([1.0, 1800.0, HOUR + 5, DAY])),
        st.tuples(
            st.just("set"),
            st.sampled_from([-2 * DAY, -2 * HOUR, -HOUR, -30.0, 30.0, HOUR - 1, HOUR, 2 * HOUR, 2 * DAY]),
        ),
        st.tuples(st.just("decide"), st.sampled_from([0.0, 1.0, 2.0, 3.0])),
    ),
    min_size=3,
    max_size=12,
)


async def _any_jumps(clock: Clock, steps: list[tuple[str, float]]) -> None:
    with tempfile.TemporaryDirectory(prefix="ic-") as directory:
        root = Path(directory) / "ws"
        root.mkdir()
        async with house(root.parent, clock, CONFIG) as at:
            guest = await at.arrive(root)
            ids: list[str] = []
            for what, amount in steps:
                match what:
                    case "propose":
                        ids.append((await guest.propose(f"{len(ids)}.txt")).request_id)
                    case "pass":
                        await at.later(amount)
                    case "set":
                        await at.set_clock(amount)
                    case "decide" if ids:
                        try:
                            await at.decide(ids[int(amount) % len(ids)], Decision.APPROVE)
                        except AlreadyDecided:
                            pass
                await guest.settled()
                await _agree(at, ids)
            # Whatever is open ends when its time is up: its timer lives.
            left = [
                card.expires_at - at.now() for card in await at.app.service.pending() if card.expires_at is not None
            ]
            for span in sorted(left):
                assert span.total_seconds() > 0
            await at.later(max((span.total_seconds() for span in left), default=0) + 1)
            # Their ends are queued before this.
            await guest.settled()
            assert await at.app.service.pending() == ()
            await _agree(at, ids)


async def _agree(at: House, ids: list[str]) -> None:
    """What is on record and what people are shown are the same, and nothing open is over."""
    await at.later(0)
    open_cards = {card.id for card in await at.app.service.pending()}
    for id in ids:
        request: Any = await at.ask("store", Transact(functools.partial(requests.find, id=id)))
        shown = [card for card in at.people.cards if card.id == id]
        is_pending = request.status.value == "pending"
        assert is_pending == (id in open_cards)
        if shown:
            assert is_pending == (shown[-1].state is CardState.PENDING), (request.status, shown[-1].state)
        if is_pending:
            assert request.expires_at > at.now()


@settings(max_examples=25)
@given(steps=STEPS)
def test_after_any_sequence_of_jumps_every_request_is_open_with_a_live_timer_or_settled(
    steps: list[tuple[str, float]],
) -> None:
    clock = trio.testing.MockClock()
    trio.run(functools.partial(bounded(_any_jumps), clock, steps), clock=clock)
