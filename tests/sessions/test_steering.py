"""Words for an agent reach it once, with its next result; tasks wait for an agent to take them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from actors.testing import inject
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.call import Call
from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, SteeringSettings
from intercom.model.decision import Decision
from intercom.model.errors import (
    AlreadyDecided,
    InvalidArguments,
    InvalidState,
    NotFound,
    SteerQueueFull,
    WorkspaceRefused,
)
from intercom.model.process import Exit, Why
from intercom.model.session import SessionStatus
from intercom.sessions.messages import (
    Adopt,
    Answered,
    AwaitDecision,
    Deliver,
    Delivery,
    Describe,
    ProcessEnded,
    TakeWords,
    Undeliver,
    Withdraw,
    Written,
)
from intercom.sessions.operator_service import Steering
from intercom.sessions.registry import GRACE_SECONDS, SWEEP_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.table import BY_NAME
from tests.sessions.house import Guest, House, Pending, house, partial_ask
from tests.support.crash_points import calling

Clock = trio.testing.MockClock


def desk(at: House) -> Steering:
    return at.app.service.steering


async def steer(at: House, guest: Guest, text: str, act: str | None = None) -> Card:
    return await desk(at).steer(guest.session_id, text, "kim", "ctl", act)


async def task(at: House, text: str, act: str | None = None, **where: str) -> Card:
    return await desk(at).add_task(text, "kim", "ctl", act_id=act, **where)


async def beat(guest: Guest) -> list[str]:
    """The words that one ping is told; they are not confirmed."""
    return [word.text for word in (await guest.ask(Ping())).instructions]


async def heard(guest: Guest) -> list[str]:
    """The words that one ping is told, and the agent has."""
    call = guest.call()
    words = (await guest.ask(Ping(call=call))).instructions
    await guest.ask(Deliver((Delivery(call, (), tuple(word.id for word in words)),)))
    return [word.text for word in words]


async def stand_by(at: House, guest: Guest) -> tuple[str, Pending[Answered[Any]]]:
    """The agent stands by, and waits when this returns."""
    call = guest.call()
    opened = await guest.ask(Standby("idle", call=call))
    assert opened.answered is None
    waiting = at.begin(partial_ask(guest, AwaitDecision(call, opened.request_id)))
    await at.later(0)
    return opened.request_id, waiting


async def kinds(at: House) -> list[str]:
    return [entry.kind for entry in await at.app.service.audit(100)]


async def test_words_are_shown_queued_then_delivered_and_are_told_once(at: House, guest: Guest) -> None:
    card = await steer(at, guest, "mind the gap\nand the step")
    assert (card.kind, card.state, card.title) == (CardKind.STEER, CardState.QUEUED, "To the agent: mind the gap")
    assert (card.body, card.detail) == ("mind the gap\nand the step", "from kim")
    await at.people.card(id=card.id, state=CardState.QUEUED)
    assert await heard(guest) == ["mind the gap\nand the step"]
    shown = await at.people.card(id=card.id, state=CardState.DELIVERED)
    assert (shown.note or "").startswith("the agent has it since 2026-01-01")
    assert (await at.app.service.card(card.id)).state is CardState.DELIVERED
    assert await beat(guest) == []
    assert (await kinds(at))[-2:] == ["steer", "steer_delivered"]
    (word,) = await desk(at).words(guest.session_id)
    assert (word.delivered_at is not None, word.by, word.channel) == (True, "kim", "ctl")


async def test_words_whose_result_was_lost_ride_again_and_those_on_their_way_do_not(at: House, guest: Guest) -> None:
    card = await steer(at, guest, "one")
    call = guest.call()
    assert len((await guest.ask(Ping(call=call))).instructions) == 1
    assert await beat(guest) == []
    with pytest.raises(AlreadyDecided, match="on their way"):
        await desk(at).take_back(card.id, "kim", "ctl")
    guest.tell(Undeliver((call,)))
    assert await heard(guest) == ["one"]
    with pytest.raises(AlreadyDecided, match="already"):
        await desk(at).take_back(card.id, "kim", "ctl")


@pytest.mark.parametrize("fault", ["session", "server"])
async def test_words_outlive_what_falls(clock: Clock, root: Path, fault: str) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        await steer(at, guest, "one")
        if fault == "session":
            inject(at.app.system, f"session/{guest.session_id}", ValueError("boom"), "now")
            async with at.restarting():
                assert await heard(guest) == ["one"]
            return
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert await heard(guest) == ["one"]
    async with house(root.parent, clock) as at:
        assert await heard(await at.arrive(root)) == []


async def test_the_same_act_steers_once_and_another_under_its_name_is_refused(at: House, guest: Guest) -> None:
    first = await steer(at, guest, "one", "act-1")
    assert (await steer(at, guest, "one", "act-1")).id == first.id
    with pytest.raises(AlreadyDecided):
        await steer(at, guest, "two", "act-1")
    assert await heard(guest) == ["one"]
    assert (await steer(at, guest, "one", "act-1")).state is CardState.DELIVERED
    assert await heard(guest) == []
    assert (await kinds(at)).count("steer") == 1


async def test_only_so_much_waits_for_one_agent(clock: Clock, root: Path) -> None:
    limits = SteeringSettings(max_queued=3, max_queued_bytes=100)
    async with house(root.parent, clock, Config(steering=limits)) as at:
        guest = await at.arrive(root)
        for text, error in (("", "no words"), (" \n", "no words"), ("ö" * 51, "102 bytes")):
            with pytest.raises(InvalidArguments, match=error):
                await steer(at, guest, text)
            with pytest.raises(InvalidArguments, match=error):
                await task(at, text, workspace=str(root))
        await steer(at, guest, "ö" * 30)
        with pytest.raises(SteerQueueFull, match=r"1 messages \(60 bytes\) wait .* of 3 \(100 bytes\)"):
            await steer(at, guest, "ö" * 30)
        for text in ("b", "c"):
            await steer(at, guest, text)
        with pytest.raises(SteerQueueFull):
            await steer(at, guest, "d")
        card = (await desk(at).words())[-1]
        assert (await desk(at).take_back(card.id[:20], "kim", "ctl")).state is CardState.CLOSED
        await steer(at, guest, "d")
        assert await heard(guest) == ["ö" * 30, "b", "d"]
        for text in ("x", "y", "z"):
            await task(at, text, workspace=str(root))
        with pytest.raises(SteerQueueFull):
            await task(at, "full", workspace=str(root))


async def test_an_ended_session_is_not_steered_and_what_waited_is_never_told(at: House, guest: Guest) -> None:
    card = await steer(at, guest, "one")
    own = await task(at, "own", session=guest.session_id)
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    await at.people.card(id=card.id, state=CardState.CLOSED)
    await at.people.card(id=own.id, state=CardState.CLOSED)
    with pytest.raises(InvalidState, match="was ended"):
        await steer(at, guest, "two")
    with pytest.raises(InvalidState, match="was ended"):
        await task(at, "two", session=guest.session_id)


async def test_a_session_at_rest_is_steered_and_says_that_its_agent_is_away(
    at: House, guest: Guest, root: Path
) -> None:
    at.gone("agent", for_good=True)
    await at.later(SWEEP_SECONDS)
    assert at.app.system.ref(f"session/{guest.session_id}") is None
    card = await steer(at, guest, "one")
    assert card.note == "the agent is away: it is told when it is back"
    assert await heard(await at.arrive(root)) == ["one"]


# --- standing by -----------------------------------------------------------------------------------------------------


async def test_words_end_a_standby_and_ride_on_its_result(at: House, guest: Guest) -> None:
    id, waiting = await stand_by(at, guest)
    await steer(at, guest, "now the docs")
    answered = await waiting()
    assert (answered.answer.status, answered.answer.instruction) == ("resumed", None)
    assert [word.text for word in answered.instructions] == ["now the docs"]
    card = await at.people.card(id=id, state=CardState.ANSWERED)
    assert card.decided is not None
    assert (card.decided.by, card.decided.decision) == ("kim", "resume")
    assert await at.app.service.pending() == ()


async def test_an_agent_that_has_words_to_heed_does_not_stand_by(at: House, guest: Guest) -> None:
    await steer(at, guest, "one")
    recorded = []

    def hook(place: str) -> None:
        if place == "request.recorded":
            with contextlib.closing(sqlite3.connect(at.app.database)) as db:
                recorded.extend(db.execute("select status from wait").fetchall())

    # A crash leaves no standby that waits although there are words.
    with calling(hook):
        opened = await guest.ask(Standby("idle", call="c1"))
    assert recorded == [("decided",)]
    assert opened.answered is not None
    assert opened.answered.answer.status == "resumed"
    assert [word.text for word in opened.answered.instructions] == ["one"]
    await at.later(5)
    assert [card for card in at.people.cards if card.kind is CardKind.STANDBY] == []
    # Asked again, as by a shim whose server fell: the same answer.
    again = await guest.ask(Standby("idle", call="c1"))
    assert again.request_id == opened.request_id
    assert again.answered is not None


async def test_a_standby_that_nobody_waits_in_is_ended_when_it_is_waited_in_again(at: House, guest: Guest) -> None:
    id, waiting = await stand_by(at, guest)
    waiting.scope.cancel()
    guest.tell(Withdraw("agent/1", id))
    await guest.settled()
    await steer(at, guest, "one")
    assert (await at.app.service.card(id)).state is CardState.PENDING
    opened = await guest.ask(Standby("", request_id=id))
    assert opened.answered is not None
    assert [word.text for word in opened.answered.instructions] == ["one"]
    await at.people.card(id=id, state=CardState.ANSWERED)


async def test_words_whose_result_was_lost_end_the_standby_that_came_after(at: House, guest: Guest) -> None:
    await steer(at, guest, "one")
    call = guest.call()
    await guest.ask(Ping(call=call))
    _, waiting = await stand_by(at, guest)
    guest.tell(Undeliver((call,)))
    assert [word.text for word in (await waiting()).instructions] == ["one"]


async def test_words_wait_out_a_pause_also_where_the_agent_stands_by(at: House, guest: Guest) -> None:
    _, waiting = await stand_by(at, guest)
    await desk(at).pause(guest.session_id, "kim", "ctl")
    assert (await steer(at, guest, "one")).note == "the session is paused: the agent is told when it goes on"
    await at.later(1)
    assert waiting.outcome is None
    await desk(at).unpause(guest.session_id, "kim", "ctl")
    assert [word.text for word in (await waiting()).instructions] == ["one"]


# --- the end of a turn -----------------------------------------------------------------------------------------------


async def test_an_agent_that_would_end_its_turn_is_told_what_waits_for_it(at: House, guest: Guest) -> None:
    await steer(at, guest, "one")
    id = (await guest.propose()).request_id
    await at.decide(id, Decision.REJECT, "no")
    taken = await guest.ask(TakeWords("hook-1"))
    assert [word.text for word in taken.instructions] == ["one"]
    assert [late.request_id for late in taken.late_verdicts] == [id]
    assert (await guest.ask(TakeWords("hook-2"))).instructions == ()
    await guest.ask(Deliver((Delivery("hook-1", (id,), tuple(word.id for word in taken.instructions)),)))
    assert await beat(guest) == []


async def test_an_agent_whose_turn_is_over_is_not_stalled_and_no_road_leads_to_it(at: House, guest: Guest) -> None:
    await guest.ask(TakeWords("hook-1"))
    for _ in range(10):
        await at.later(300)
    assert [card for card in at.people.cards if card.kind is CardKind.STALL] == []
    assert (await steer(at, guest, "one")).note == "the agent has ended its turn: it is told with its next call"
    assert await heard(guest) == ["one"]
    # It works again, and may stall.
    await at.later(300)
    await at.people.card(kind=CardKind.STALL)


async def test_the_card_of_a_stall_says_by_which_road_a_nudge_travels(at: House, root: Path) -> None:
    guest, idle = await at.arrive(root), await at.arrive(root, "idle")
    await steer(at, guest, "one")
    await guest.ask(TakeWords("hook-1"))
    await at.later(300)
    alerts = {
        each.session_id: await at.people.card(kind=CardKind.STALL, session_id=each.session_id) for each in (guest, idle)
    }
    for each, road in (
        (guest, "goes with the agent's next call, or is told before it ends its turn"),
        (idle, "goes with the agent's next call"),
    ):
        assert str((await at.decide(alerts[each.session_id].id, Decision.NUDGE)).note).endswith(f'": {road}')
    await idle.ask(TakeWords("hook-2"))
    assert str((await at.decide(alerts[idle.session_id].id, Decision.NUDGE)).note).endswith(
        "goes with the agent's next call, or is told before it ends its turn"
    )
    await idle.ask(Deliver((Delivery("hook-2", (), (next(iter(await queued(at, idle))),)),)))
    await idle.ask(TakeWords("hook-3"))
    last = await at.decide(alerts[idle.session_id].id, Decision.NUDGE)
    assert str(last.note).endswith("not delivered: no road leads to an idle agent")


async def queued(at: House, guest: Guest) -> list[str]:
    return [word.id for word in await desk(at).words(guest.session_id) if word.is_open]


# --- the inbox -------------------------------------------------------------------------------------------------------


async def test_a_task_is_handed_over_once_to_the_next_agent_that_reboots(at: House, root: Path) -> None:
    card = await task(at, "write the tests", workspace=str(root))
    assert (card.kind, card.state, card.session_id) == (CardKind.TASK, CardState.QUEUED, "")
    assert card.note == "waits until an agent of this workspace calls reboot or standby"
    elsewhere = root.parent / "other"
    elsewhere.mkdir()
    stranger = await at.arrive(elsewhere, "stranger")
    assert (await stranger.ask(Reboot())).instructions == ()
    guest, late = await at.arrive(root), await at.arrive(root, "late")
    assert await beat(guest) == []
    call = guest.call()
    (word,) = (await guest.ask(Reboot(call=call))).instructions
    assert (word.kind, word.text, word.by) == ("task", "write the tests", "kim")
    assert (await late.ask(Reboot())).instructions == ()
    await guest.ask(Deliver((Delivery(call, (), (word.id,)),)))
    done = await at.people.card(id=card.id, state=CardState.DELIVERED)
    assert done.session_id == guest.session_id
    assert await desk(at).tasks() == ()
    assert [each.session_id for each in await desk(at).tasks(everything=True)] == [guest.session_id]
    assert (await kinds(at))[-2:] == ["task_taken", "task_delivered"]


async def test_a_task_that_did_not_reach_its_agent_rides_again_or_is_anothers(at: House, root: Path) -> None:
    card = await task(at, "one", workspace=str(root))
    guest = await at.arrive(root)
    call = guest.call()
    assert len((await guest.ask(Reboot(call=call))).instructions) == 1
    guest.tell(Undeliver((call,)))
    call = guest.call()
    assert len((await guest.ask(Reboot(call=call))).instructions) == 1
    guest.tell(Undeliver((call,)))
    with pytest.raises(NotFound, match="no message or task"):
        await desk(at).take_back("zz", "kim", "ctl")
    at.gone("agent", for_good=True)
    await at.later(0)
    (free,) = await desk(at).tasks()
    assert (free.session_id, free.taken_at) == (None, None)
    assert (await at.app.service.card(card.id)).note == card.note
    other = await at.arrive(root, "other")
    (word,) = (await other.ask(Reboot(call="o1"))).instructions
    await other.ask(Deliver((Delivery("o1", (), (word.id,)),)))
    # Its first agent had it after all, it turns out; that changes nothing.
    await guest.ask(Deliver((Delivery(call, (), (word.id,)),)))
    assert (await kinds(at)).count("task_delivered") == 1


async def test_a_task_that_was_written_to_an_agent_is_no_others_until_its_session_is_ended(
    at: House, root: Path
) -> None:
    guest, other = [await at.arrive(root, key) for key in ("a", "b")]
    await task(at, "one", workspace=str(root))
    door = AgentConnection(at.app.system, at.app.config, at.app.presence, "a", str(root), None)
    door.opened()
    call = guest.call()
    (word,) = (await guest.ask(Reboot(call=call))).instructions
    # It has its result, works for long without a call, and counts as gone.
    told = Call(call, BY_NAME["reboot"], guest.session_id, at.app.system.named(f"session/{guest.session_id}"), None)
    told.delivery = Delivery(call, (), (word.id,))
    door.close_call(told)
    door.deliveries.written(call)
    door.closed()
    at.gone("a", for_good=True)
    await at.later(0)
    assert (await guest.ask(Describe())).status is SessionStatus.INTERRUPTED
    assert await desk(at).tasks() == (await desk(at).tasks(guest.session_id)) != ()
    assert (await other.ask(Reboot(call="b1"))).instructions == ()
    # Should it not have read it, it is told again.
    await at.arrive(root, "a")
    assert await beat(guest) == ["one"]
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    assert [each.text for each in (await other.ask(Reboot(call="b2"))).instructions] == ["one"]


GONE: dict[str, Callable[[House, Guest], Awaitable[object]]] = {
    "its connection is gone": lambda at, guest: leave(at, guest),
    "its process failed": lambda _, guest: guest.ask(ProcessEnded(1, Why.ENDED, Exit(code=1), "", None, None)),
    "it was ended with the server": lambda _, guest: guest.ask(ProcessEnded(1, Why.SHUTDOWN, None, "", None, None)),
    "its work is done": lambda _, guest: guest.ask(ProcessEnded(1, Why.ENDED, Exit(code=0), "", None, None)),
    "a person ended it": lambda at, guest: at.app.service.end(guest.session_id, "kim", "ctl", "enough"),
}


async def leave(at: House, guest: Guest) -> None:
    at.gone(guest.agent.key, for_good=True)


@pytest.mark.parametrize("why", GONE)
@pytest.mark.parametrize("is_written", [False, True])
async def test_the_task_of_an_agent_that_is_gone_wakes_another(
    at: House, root: Path, why: str, is_written: bool
) -> None:
    guest, other = [await at.arrive(root, key) for key in ("a", "b")]
    await task(at, "one", workspace=str(root))
    (word,) = (await guest.ask(Reboot())).instructions
    if is_written:
        guest.tell(Written((word.id,)))
    _, waiting = await stand_by(at, other)
    await GONE[why](at, guest)
    await at.later(0)
    if is_written and why != "a person ended it":
        # It may have read it.
        assert waiting.outcome is None
        (held,) = await desk(at).tasks(everything=True)
        assert (held.session_id, held.is_open) == (guest.session_id, why != "its work is done")
    else:
        assert [each.text for each in (await waiting()).instructions] == ["one"]


async def test_agents_that_stand_by_take_one_task_each(at: House, root: Path) -> None:
    for text in ("one", "two"):
        await task(at, text, workspace=str(root))
    guest, other, third = [await at.arrive(root, key) for key in ("a", "b", "c")]
    for each, text in ((guest, "one"), (other, "two")):
        opened = await each.ask(Standby("idle"))
        assert opened.answered is not None
        assert [word.text for word in opened.answered.instructions] == [text]
    _, waiting = await stand_by(at, third)
    await task(at, "three", workspace=str(root))
    assert [word.text for word in (await waiting()).instructions] == ["three"]


async def test_a_task_for_a_session_is_its_agents_alone(at: House, root: Path) -> None:
    guest, other = await at.arrive(root), await at.arrive(root, "other")
    card = await task(at, "one", session=guest.session_id[:13])
    assert card.note == "waits until this session's agent calls reboot or standby"
    assert (await other.ask(Reboot(call="o1"))).instructions == ()
    assert [word.text for word in (await guest.ask(Reboot(call="g1"))).instructions] == ["one"]


async def test_a_task_is_left_for_the_workspace_that_a_directory_lies_in(at: House, root: Path) -> None:
    await at.arrive(root)
    (root / "src" / "deep").mkdir(parents=True)
    assert (await task(at, "one", workspace=str(root / "src"))).workspace_root == str(root)
    project = root.parent / "project"
    (project / ".git").mkdir(parents=True)
    (project / "lib").mkdir()
    assert (await task(at, "one", workspace=str(project / "lib"))).workspace_root == str(project)
    with pytest.raises(WorkspaceRefused):
        await task(at, "one", workspace="/")
    with pytest.raises(InvalidArguments):
        await task(at, "one")


async def test_a_task_is_taken_back_until_an_agent_takes_it(at: House, root: Path) -> None:
    card = await task(at, "one", "act-1", workspace=str(root))
    assert (await task(at, "one", "act-1", workspace=str(root))).id == card.id
    with pytest.raises(AlreadyDecided):
        await task(at, "two", "act-1", workspace=str(root))
    for _ in range(2):
        assert (await desk(at).take_back(card.id[:20], "kim", "ctl")).state is CardState.CLOSED
    guest = await at.arrive(root)
    assert (await guest.ask(Reboot(call="g1"))).instructions == ()
    card = await task(at, "two", workspace=str(root))
    await guest.ask(Reboot(call="g2"))
    with pytest.raises(AlreadyDecided, match="on their way"):
        await desk(at).take_back(card.id, "kim", "ctl")


async def test_words_follow_an_agent_into_the_session_it_takes_over(at: House, root: Path) -> None:
    old = await at.arrive(root, "old")
    await old.propose()
    at.gone("old", for_good=True)
    await at.later(GRACE_SECONDS)
    await steer(at, old, "left before")
    guest = await at.arrive(root, "new")
    await steer(at, guest, "one")
    call = guest.call()
    (riding,) = (await guest.ask(Ping(call=call))).instructions
    await steer(at, guest, "two")
    assert await at.ask("registry", Adopt(guest.agent)) == old.session_id
    heir = Guest(at, guest.agent, old.session_id)
    assert (await guest.ask(Describe())).status is SessionStatus.TERMINATED
    # What rode on a result of the session that was given up arrives after all.
    await guest.ask(Deliver((Delivery(call, (), (riding.id,)),)))
    assert sorted(await heard(heir)) == ["left before", "two"]
    assert await heard(heir) == []


async def test_a_session_that_is_not_there_has_nothing_that_waits(at: House, guest: Guest) -> None:
    for look in (at.app.service.pending, at.app.service.steering.words, at.app.service.steering.tasks):
        with pytest.raises(NotFound, match="nope"):
            await look("nope")
    assert await at.app.service.pending(guest.session_id[:8]) == ()
