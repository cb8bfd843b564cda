"""Sessions whose agents did not come back: they end after a while, people are told once, and retention reaches them."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.model.card import CardState
from intercom.model.config import Config
from intercom.model.request import PromptType
from intercom.model.session import Session, SessionStatus
from intercom.sessions.context import Chat, thread_key
from intercom.sessions.housekeeping import PRUNE_SECONDS, PURGE_SECONDS
from intercom.sessions.messages import Adopt
from intercom.sessions.tools.transmit import Transmit
from intercom.store import outbox, sessions
from intercom.store.messages import Transact
from intercom.store.outbox import Urgency
from tests.sessions.house import Guest, House, house

Clock = trio.testing.MockClock
DAY = 86400.0


async def stand(at: House) -> dict[str, SessionStatus]:
    return {session.id: session.status for session in await at.app.service.sessions(everything=True)}


async def rounds(at: House, days: float) -> None:
    """So many days pass; the housekeeping has looked at their end."""
    await at.later(60)
    for seconds in (days * DAY, PURGE_SECONDS):
        await at.later(seconds)
        # Each of them is asked in turn, and may have to be woken for it.
        for _ in range(10):
            await at.later(0)


def told(at: House) -> list[str]:
    return [notice.text for notice in at.people.notices if "ended" in notice.text]


async def test_they_end_after_a_week_are_told_of_in_one_line_and_go_with_the_others(at: House, root: Path) -> None:
    """They stayed for ever, and retention reached nothing that belonged to them."""
    guests = [await at.arrive(root, key) for key in ("one", "two", "three")]
    # Held: it waits as long as its session is there.
    question = Transmit("What now?", PromptType.ERROR_RECOVERY, call=guests[0].call())
    asked = (await guests[0].ask(question)).request_id
    at.gone("one", "two", "three", for_good=True)
    await rounds(at, 6)
    assert set((await stand(at)).values()) == {SessionStatus.INTERRUPTED}
    assert told(at) == []
    await rounds(at, 1)
    assert set((await stand(at)).values()) == {SessionStatus.TERMINATED}
    # The card is closed, and nobody hears of each session by itself.
    await at.people.card(id=asked, state=CardState.INTERRUPTED)
    (line,) = told(at)
    assert line.startswith("3 sessions (")
    assert "were ended: away for more than 7 days; what waited there is closed" in line
    await rounds(at, 1)
    assert len(told(at)) == 1
    await rounds(at, 30)
    assert await stand(at) == {}


async def test_the_top_of_its_thread_says_that_it_ended(clock: Clock, root: Path) -> None:
    woken: list[None] = []
    chat = Chat(
        channel_for=lambda session: "C11",
        draw_notice=lambda notice: {"text": notice.text},
        draw_root=lambda session: {"text": f"the session is {session.status.value}"},
        wake=lambda: woken.append(None),
    )
    async with house(root.parent, clock, chat=chat) as at:
        guest = await at.arrive(root)
        top = thread_key(guest.session_id)
        shown = {"text": "the session is interrupted"}
        put = partial(outbox.put, key=top, content=shown, at=at.now(), channel="C11", urgency=Urgency.LOG, open=True)
        await at.ask("store", Transact(put))
        at.gone("agent", for_good=True)
        await rounds(at, 7)
        row = await at.ask("store", Transact(partial(outbox.by_key, key=top)))
        assert row is not None
        assert (row.content, row.open) == ({"text": "the session is terminated"}, False)
        assert woken


async def test_until_then_another_agent_may_take_them_up(at: House, root: Path) -> None:
    old = await at.arrive(root, "old")
    at.gone("old", for_good=True)
    await rounds(at, 6)
    new = await at.arrive(root, "new")
    assert await at.ask("registry", Adopt(new.agent)) == old.session_id
    await rounds(at, 9)
    assert (await stand(at))[old.session_id] is SessionStatus.ACTIVE
    assert told(at) == []


async def test_one_whose_agent_is_here_or_was_here_since_does_not_end(at: House, root: Path) -> None:
    quiet, back = await at.arrive(root, "quiet"), await at.arrive(root, "back")
    at.gone("back", for_good=True)
    await rounds(at, 5)
    at.back("back")
    await at.arrive(root, "back")
    at.gone("back", for_good=True)
    await rounds(at, 4)
    assert await stand(at) == {quiet.session_id: SessionStatus.ACTIVE, back.session_id: SessionStatus.INTERRUPTED}


@pytest.mark.server(Config(interrupted_retention_days=2))
async def test_one_that_nobody_ever_came_to_ends_too_and_the_time_is_a_setting(at: House, guest: Guest) -> None:
    mine = (await at.app.service.sessions())[0]
    empty: Session = evolve(mine, id="never-came", agent_key=None, status=SessionStatus.CREATED)
    assert await at.ask("store", Transact(partial(sessions.insert, session=empty)))
    await rounds(at, 3)
    assert await stand(at) == {guest.session_id: SessionStatus.ACTIVE, "never-came": SessionStatus.TERMINATED}
    assert told(at) == ["session never-ca was ended: away for more than 2 days; what waited there is closed"]


async def test_after_a_restart_they_end_too(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        asked = (await guest.ask(Transmit("What now?", PromptType.ERROR_RECOVERY))).request_id
        at.gone("agent", for_good=True)
        await at.later(60)
    clock.jump(8 * DAY)
    async with house(root.parent, clock) as at:
        await rounds(at, 0)
        assert await stand(at) == {guest.session_id: SessionStatus.TERMINATED}
        await at.people.card(id=asked, state=CardState.INTERRUPTED)
        assert len(told(at)) == 1


def waiting() -> subprocess.Popen[bytes]:
    """A process in a session of its own, until it is sent a line."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)


async def test_processes_that_are_gone_are_forgotten_while_the_server_runs(at: House) -> None:
    """Nothing ever asked for it: a server knew every process of every agent that had connected since its start."""
    done = waiting()
    await at.app.processes.came("one", [done.pid])
    at.app.processes.left("one")
    assert done.pid in {key.pid for key in at.app.processes.known().processes}
    done.communicate(b"\n")
    await at.later(PRUNE_SECONDS)
    assert done.pid not in {key.pid for key in at.app.processes.known().processes}
