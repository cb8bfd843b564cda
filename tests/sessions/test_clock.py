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
from intercom.store.writer_messages import Transact
from tests.sessions.test_checkpoints import ask, take
from tests.support.async_tests import bounded
from tests.support.virtual_server import BEGAN, AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
HOUR = 3600.0
DAY = 24 * HOUR
CONFIG = Config(
    timeouts=TimeoutSettings(approval_seconds=HOUR, prompt_seconds=HOUR, wait_seconds=HOUR),
    # Its alerts wait for people too, and have no deadline.
    stall=StallSettings(enabled=False),
)


async def ask_all(server: VirtualServer, agent: AgentClient) -> list[str]:
    """One request of each kind that waits for a person."""
    prompt = await agent.ask(Transmit("go on?"))
    wait = await agent.ask(Standby("done"))
    return [(await agent.propose()).request_id, prompt.request_id, wait.request_id]


@pytest.mark.parametrize("forward", [2 * HOUR, 2 * DAY])
@pytest.mark.server(CONFIG)
async def test_what_a_clock_set_forward_leaves_behind_expires_at_once(
    server: VirtualServer, agent: AgentClient, forward: float
) -> None:
    ids = await ask_all(server, agent)
    waiting = await server.wait(agent, ids[0])
    await server.set_clock(forward)
    await agent.settled()
    assert (await waiting()).answer.status == "timeout"
    for id in ids:
        await server.operator.card(lambda card: card.state is not CardState.PENDING, id=id)
        with pytest.raises(AlreadyDecided, match=r"no longer open|answered before"):
            await server.decide(id, Decision.APPROVE if id == ids[0] else Decision.CONTINUE)
    assert await server.app.service.pending() == ()


@pytest.mark.parametrize("back", [2 * HOUR, 2 * DAY])
@pytest.mark.server(CONFIG)
async def test_what_a_clock_set_back_gives_more_time_has_it(
    server: VirtualServer, agent: AgentClient, back: float
) -> None:
    ids = await ask_all(server, agent)
    await server.set_clock(-back)
    # Its hour is over by the steady clock, and not by the one on the card.
    await server.later(HOUR + 60)
    assert {card.id for card in await server.app.service.pending()} == set(ids)
    card = await server.decide(ids[0], Decision.APPROVE)
    assert card.state is CardState.APPROVED
    await server.later(back)
    await agent.settled()
    assert await server.app.service.pending() == ()
    assert (await server.operator.card(id=ids[1])).state is not CardState.PENDING


@pytest.mark.server(CONFIG)
async def test_a_decision_that_comes_before_the_jump_is_noticed_finds_no_request_half_open(
    server: VirtualServer, agent: AgentClient
) -> None:
    for number, id in enumerate(await ask_all(server, agent)):
        server.shifted[0] += 2 * DAY
        with pytest.raises(AlreadyDecided) as late:
            await server.decide(id, Decision.CONTINUE if number else Decision.APPROVE)
        assert "pending" not in str(late.value)
        await server.operator.card(lambda card: card.state is not CardState.PENDING, id=id)
        server.shifted[0] -= 2 * DAY


async def test_a_question_that_is_held_since_can_be_answered_after_its_time(clock: Clock, root: Path) -> None:
    """Its server asked it with a deadline, and the next one's configuration holds such questions."""
    async with virtual_server(root.parent, clock, CONFIG) as server:
        agent = await server.arrive(root)
        id = (await ask_all(server, agent))[1]
    held = evolve(CONFIG, timeouts=evolve(CONFIG.timeouts, prompt_on_timeout=OnTimeout.HOLD))
    async with virtual_server(root.parent, clock, held) as server:
        await server.arrive(root)
        await server.later(2 * HOUR)
        card = await server.decide(id, Decision.CONTINUE)
        assert card.state is not CardState.PENDING


@pytest.mark.server(CONFIG)
async def test_a_machine_that_slept_is_as_late_as_its_clock_says(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.later(HOUR - 100)
    # The steady clock stands still meanwhile.
    await server.set_clock(200)
    await server.operator.card(id=id, state=CardState.EXPIRED)


@pytest.mark.server(CONFIG)
async def test_people_are_told_of_a_clock_that_was_set_and_not_of_a_small_correction(server: VirtualServer) -> None:
    await server.set_clock(5)
    await server.set_clock(-2 * HOUR)
    notice = await server.operator.notice("clock was set")
    assert "back by 2:00:00" in notice.text
    assert len([each for each in server.operator.notices if "clock was set" in each.text]) == 1


@pytest.mark.server(Config(timeouts=TimeoutSettings(approved_valid_seconds=DAY)))
async def test_approvals_lapse_by_the_new_clock(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    await server.set_clock(2 * DAY)
    await server.operator.card(id=id, state=CardState.EXPIRED)


@pytest.mark.server(Config(retention_days=30))
async def test_nothing_is_purged_by_a_clock_that_was_only_just_set(server: VirtualServer, agent: AgentClient) -> None:
    ended = agent.session_id
    await server.app.service.end(ended, "kim", "ctl", "done")
    await server.later(PURGE_SECONDS - 60)
    await server.set_clock(40 * DAY)
    await server.later(120)

    def there(db: Any) -> int:
        return rows.count(db, "select count(*) from session where id = ?", (ended,))

    assert await server.ask("store", Transact(there)) == 1
    # Set right again: it is as old as it was.
    await server.set_clock(-40 * DAY)
    await server.later(PURGE_SECONDS + LAPSE_SECONDS)
    assert await server.ask("store", Transact(there)) == 1
    await server.set_clock(40 * DAY)
    await server.later(PURGE_SECONDS + LAPSE_SECONDS)
    assert await server.ask("store", Transact(there)) == 0


@pytest.mark.server(CONFIG)
async def test_a_question_about_a_restore_is_judged_by_the_clock_too(server: VirtualServer, root: Path) -> None:
    (root / "a.txt").write_text("one\n")
    agent = await server.arrive(root)
    taken = await take(server, agent)
    asked = await ask(server, taken)
    await server.set_clock(-2 * HOUR)
    await server.later(HOUR + 60)
    assert (await server.operator.card(id=asked.id)).state is CardState.PENDING
    await server.set_clock(2 * DAY)
    card = await server.operator.card(lambda card: card.state is not CardState.PENDING, id=asked.id)
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
        async with virtual_server(root.parent, clock, CONFIG) as server:
            agent = await server.arrive(root)
            ids: list[str] = []
            for what, amount in steps:
                match what:
                    case "propose":
                        ids.append((await agent.propose(f"{len(ids)}.txt")).request_id)
                    case "pass":
                        await server.later(amount)
                    case "set":
                        await server.set_clock(amount)
                    case "decide" if ids:
                        try:
                            await server.decide(ids[int(amount) % len(ids)], Decision.APPROVE)
                        except AlreadyDecided:
                            pass
                await agent.settled()
                await _agree(server, ids)
            # Whatever is open ends when its time is up: its timer lives.
            left = [
                card.expires_at - server.now()
                for card in await server.app.service.pending()
                if card.expires_at is not None
            ]
            for span in sorted(left):
                assert span.total_seconds() > 0
            await server.later(max((span.total_seconds() for span in left), default=0) + 1)
            # Their ends are queued before this.
            await agent.settled()
            assert await server.app.service.pending() == ()
            await _agree(server, ids)


async def _agree(server: VirtualServer, ids: list[str]) -> None:
    """What is on record and what people are shown are the same, and nothing open is over."""
    await server.later(0)
    open_cards = {card.id for card in await server.app.service.pending()}
    for id in ids:
        request: Any = await server.ask("store", Transact(functools.partial(requests.find, id=id)))
        shown = [card for card in server.operator.cards if card.id == id]
        is_pending = request.status.value == "pending"
        assert is_pending == (id in open_cards)
        if shown:
            assert is_pending == (shown[-1].state is CardState.PENDING), (request.status, shown[-1].state)
        if is_pending:
            assert request.expires_at > server.now()


@settings(max_examples=25)
@given(steps=STEPS)
def test_after_any_sequence_of_jumps_every_request_is_open_with_a_live_timer_or_settled(
    steps: list[tuple[str, float]],
) -> None:
    clock = trio.testing.MockClock()
    trio.run(functools.partial(bounded(_any_jumps), clock, steps), clock=clock)
