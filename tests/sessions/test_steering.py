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
from intercom.agents.tool_call import ToolCall
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
    TakeInstructions,
    Undeliver,
    Withdraw,
    Written,
)
from intercom.sessions.operator_service import Steering
from intercom.sessions.registry import GRACE_SECONDS, SWEEP_SECONDS
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.tool_table import BY_NAME
from tests.support.crash_points import calling
from tests.support.virtual_server import AgentClient, Pending, VirtualServer, partial_ask, virtual_server

Clock = trio.testing.MockClock


def desk(server: VirtualServer) -> Steering:
    return server.app.service.steering


async def steer(server: VirtualServer, agent: AgentClient, text: str, act: str | None = None) -> Card:
    return await desk(server).steer(agent.session_id, text, "kim", "ctl", act)


async def task(server: VirtualServer, text: str, act: str | None = None, **where: str) -> Card:
    return await desk(server).add_task(text, "kim", "ctl", act_id=act, **where)


async def beat(agent: AgentClient) -> list[str]:
    """The instructions that one ping is told; they are not confirmed."""
    return [each.text for each in (await agent.ask(Ping())).instructions]


async def heard(agent: AgentClient) -> list[str]:
    """The instructions that one ping is told, and the agent has."""
    call = agent.call()
    instructions = (await agent.ask(Ping(call=call))).instructions
    await agent.ask(Deliver((Delivery(call, (), tuple(each.id for each in instructions)),)))
    return [each.text for each in instructions]


async def stand_by(server: VirtualServer, agent: AgentClient) -> tuple[str, Pending[Answered[Any]]]:
    """The agent stands by, and waits when this returns."""
    call = agent.call()
    opened = await agent.ask(Standby("idle", call=call))
    assert opened.answered is None
    waiting = server.begin(partial_ask(agent, AwaitDecision(call, opened.request_id)))
    await server.later(0)
    return opened.request_id, waiting


async def kinds(server: VirtualServer) -> list[str]:
    return [entry.kind for entry in await server.app.service.audit(100)]


async def test_instructions_are_shown_queued_then_delivered_and_are_told_once(
    server: VirtualServer, agent: AgentClient
) -> None:
    card = await steer(server, agent, "mind the gap\nand the step")
    assert (card.kind, card.state, card.title) == (CardKind.STEER, CardState.QUEUED, "To the agent: mind the gap")
    assert (card.body, card.detail) == ("mind the gap\nand the step", "from kim")
    await server.operator.card(id=card.id, state=CardState.QUEUED)
    assert await heard(agent) == ["mind the gap\nand the step"]
    shown = await server.operator.card(id=card.id, state=CardState.DELIVERED)
    assert (shown.note or "").startswith("the agent has it since 2026-01-01")
    assert (await server.app.service.card(card.id)).state is CardState.DELIVERED
    assert await beat(agent) == []
    assert (await kinds(server))[-2:] == ["steer", "steer_delivered"]
    (instruction,) = await desk(server).instructions(agent.session_id)
    assert (instruction.delivered_at is not None, instruction.by, instruction.channel) == (True, "kim", "ctl")


async def test_instructions_whose_result_was_lost_ride_again_and_those_on_their_way_do_not(
    server: VirtualServer, agent: AgentClient
) -> None:
    card = await steer(server, agent, "one")
    call = agent.call()
    assert len((await agent.ask(Ping(call=call))).instructions) == 1
    assert await beat(agent) == []
    with pytest.raises(AlreadyDecided, match="on its way"):
        await desk(server).take_back(card.id, "kim", "ctl")
    agent.tell(Undeliver((call,)))
    assert await heard(agent) == ["one"]
    with pytest.raises(AlreadyDecided, match="already"):
        await desk(server).take_back(card.id, "kim", "ctl")


@pytest.mark.parametrize("fault", ["session", "server"])
async def test_instructions_outlive_what_falls(clock: Clock, root: Path, fault: str) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await steer(server, agent, "one")
        if fault == "session":
            inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
            async with server.restarting():
                assert await heard(agent) == ["one"]
            return
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert await heard(agent) == ["one"]
    async with virtual_server(root.parent, clock) as server:
        assert await heard(await server.arrive(root)) == []


async def test_the_same_act_steers_once_and_another_under_its_name_is_refused(
    server: VirtualServer, agent: AgentClient
) -> None:
    first = await steer(server, agent, "one", "act-1")
    assert (await steer(server, agent, "one", "act-1")).id == first.id
    with pytest.raises(AlreadyDecided):
        await steer(server, agent, "two", "act-1")
    assert await heard(agent) == ["one"]
    assert (await steer(server, agent, "one", "act-1")).state is CardState.DELIVERED
    assert await heard(agent) == []
    assert (await kinds(server)).count("steer") == 1


async def test_only_so_much_waits_for_one_agent(clock: Clock, root: Path) -> None:
    limits = SteeringSettings(max_queued=3, max_queued_bytes=100)
    async with virtual_server(root.parent, clock, Config(steering=limits)) as server:
        agent = await server.arrive(root)
        for text, error in (("", "message is empty"), (" \n", "message is empty"), ("ö" * 51, "102 bytes")):
            with pytest.raises(InvalidArguments, match=error):
                await steer(server, agent, text)
            with pytest.raises(InvalidArguments, match=error):
                await task(server, text, workspace=str(root))
        await steer(server, agent, "ö" * 30)
        with pytest.raises(SteerQueueFull, match=r"1 message \(60 bytes\) waits .* of 3 \(100 bytes\)"):
            await steer(server, agent, "ö" * 30)
        for text in ("b", "c"):
            await steer(server, agent, text)
        with pytest.raises(SteerQueueFull):
            await steer(server, agent, "d")
        card = (await desk(server).instructions())[-1]
        assert (await desk(server).take_back(card.id[:20], "kim", "ctl")).state is CardState.CLOSED
        await steer(server, agent, "d")
        assert await heard(agent) == ["ö" * 30, "b", "d"]
        for text in ("x", "y", "z"):
            await task(server, text, workspace=str(root))
        with pytest.raises(SteerQueueFull):
            await task(server, "full", workspace=str(root))


async def test_an_ended_session_is_not_steered_and_what_waited_is_never_told(
    server: VirtualServer, agent: AgentClient
) -> None:
    card = await steer(server, agent, "one")
    own = await task(server, "own", session=agent.session_id)
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    await server.operator.card(id=card.id, state=CardState.CLOSED)
    await server.operator.card(id=own.id, state=CardState.CLOSED)
    with pytest.raises(InvalidState, match="was ended"):
        await steer(server, agent, "two")
    with pytest.raises(InvalidState, match="was ended"):
        await task(server, "two", session=agent.session_id)


async def test_a_session_at_rest_is_steered_and_says_that_its_agent_is_away(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    server.gone("agent", for_good=True)
    await server.later(SWEEP_SECONDS)
    assert server.app.system.ref(f"session/{agent.session_id}") is None
    card = await steer(server, agent, "one")
    assert card.note == "the agent is away: it is told when it is back"
    assert await heard(await server.arrive(root)) == ["one"]


# --- standing by -----------------------------------------------------------------------------------------------------


async def test_instructions_end_a_standby_and_ride_on_its_result(server: VirtualServer, agent: AgentClient) -> None:
    id, waiting = await stand_by(server, agent)
    await steer(server, agent, "now the docs")
    answered = await waiting()
    assert (answered.answer.status, answered.answer.instruction) == ("resumed", None)
    assert [each.text for each in answered.instructions] == ["now the docs"]
    card = await server.operator.card(id=id, state=CardState.ANSWERED)
    assert (card.decided.by, card.decided.decision) == ("kim", "resume")
    assert await server.app.service.pending() == ()


async def test_an_agent_that_has_words_to_heed_does_not_stand_by(server: VirtualServer, agent: AgentClient) -> None:
    await steer(server, agent, "one")
    recorded = []

    def hook(place: str) -> None:
        if place == "request.recorded":
            with contextlib.closing(sqlite3.connect(server.app.database)) as db:
                recorded.extend(db.execute("select status from wait").fetchall())

    # A crash leaves no standby that waits although there are instructions.
    with calling(hook):
        opened = await agent.ask(Standby("idle", call="c1"))
    assert recorded == [("decided",)]
    assert opened.answered.answer.status == "resumed"
    assert [each.text for each in opened.answered.instructions] == ["one"]
    await server.later(5)
    assert [card for card in server.operator.cards if card.kind is CardKind.STANDBY] == []
    # Asked again, as by a shim whose server fell: the same answer.
    again = await agent.ask(Standby("idle", call="c1"))
    assert again.request_id == opened.request_id
    assert again.answered is not None


async def test_a_standby_that_nobody_waits_in_is_ended_when_it_is_waited_in_again(
    server: VirtualServer, agent: AgentClient
) -> None:
    id, waiting = await stand_by(server, agent)
    waiting.scope.cancel()
    agent.tell(Withdraw("agent/1", id))
    await agent.settled()
    await steer(server, agent, "one")
    assert (await server.app.service.card(id)).state is CardState.PENDING
    opened = await agent.ask(Standby("", request_id=id))
    assert [each.text for each in opened.answered.instructions] == ["one"]
    await server.operator.card(id=id, state=CardState.ANSWERED)


async def test_instructions_whose_result_was_lost_end_the_standby_that_came_after(
    server: VirtualServer, agent: AgentClient
) -> None:
    await steer(server, agent, "one")
    call = agent.call()
    await agent.ask(Ping(call=call))
    _, waiting = await stand_by(server, agent)
    agent.tell(Undeliver((call,)))
    assert [each.text for each in (await waiting()).instructions] == ["one"]


async def test_instructions_wait_out_a_pause_also_where_the_agent_stands_by(
    server: VirtualServer, agent: AgentClient
) -> None:
    _, waiting = await stand_by(server, agent)
    await desk(server).pause(agent.session_id, "kim", "ctl")
    assert (await steer(server, agent, "one")).note == "the session is paused: the agent is told when it is resumed"
    await server.later(1)
    assert waiting.outcome is None
    await desk(server).unpause(agent.session_id, "kim", "ctl")
    assert [each.text for each in (await waiting()).instructions] == ["one"]


# --- the end of a turn -----------------------------------------------------------------------------------------------


async def test_an_agent_that_would_end_its_turn_is_told_what_waits_for_it(
    server: VirtualServer, agent: AgentClient
) -> None:
    await steer(server, agent, "one")
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.REJECT, "no")
    taken = await agent.ask(TakeInstructions("hook-1"))
    assert [each.text for each in taken.instructions] == ["one"]
    assert [late.request_id for late in taken.late_verdicts] == [id]
    assert (await agent.ask(TakeInstructions("hook-2"))).instructions == ()
    await agent.ask(Deliver((Delivery("hook-1", (id,), tuple(each.id for each in taken.instructions)),)))
    assert await beat(agent) == []


async def test_an_agent_whose_turn_is_over_is_not_stalled_and_no_road_leads_to_it(
    server: VirtualServer, agent: AgentClient
) -> None:
    await agent.ask(TakeInstructions("hook-1"))
    for _ in range(10):
        await server.later(300)
    assert [card for card in server.operator.cards if card.kind is CardKind.STALL] == []
    assert (await steer(server, agent, "one")).note == "the agent has ended its turn: it is told with its next call"
    assert await heard(agent) == ["one"]
    # It works again, and may stall.
    await server.later(300)
    await server.operator.card(kind=CardKind.STALL)


async def test_the_card_of_a_stall_says_by_which_road_a_nudge_travels(server: VirtualServer, root: Path) -> None:
    agent, idle = await server.arrive(root), await server.arrive(root, "idle")
    await steer(server, agent, "one")
    await agent.ask(TakeInstructions("hook-1"))
    await server.later(300)
    alerts = {
        each.session_id: await server.operator.card(kind=CardKind.STALL, session_id=each.session_id)
        for each in (agent, idle)
    }
    for each, route in (
        (agent, "goes with the agent's next call, or is told before it ends its turn"),
        (idle, "goes with the agent's next call"),
    ):
        assert str((await server.decide(alerts[each.session_id].id, Decision.NUDGE)).note).endswith(f'": {route}')
    await idle.ask(TakeInstructions("hook-2"))
    assert str((await server.decide(alerts[idle.session_id].id, Decision.NUDGE)).note).endswith(
        "goes with the agent's next call, or is told before it ends its turn"
    )
    await idle.ask(Deliver((Delivery("hook-2", (), (next(iter(await queued(server, idle))),)),)))
    await idle.ask(TakeInstructions("hook-3"))
    last = await server.decide(alerts[idle.session_id].id, Decision.NUDGE)
    assert str(last.note).endswith("not delivered: an idle agent cannot be reached")


async def queued(server: VirtualServer, agent: AgentClient) -> list[str]:
    return [each.id for each in await desk(server).instructions(agent.session_id) if each.is_open]


# --- the inbox -------------------------------------------------------------------------------------------------------


async def test_a_task_is_handed_over_once_to_the_next_agent_that_reboots(server: VirtualServer, root: Path) -> None:
    card = await task(server, "write the tests", workspace=str(root))
    assert (card.kind, card.state, card.session_id) == (CardKind.TASK, CardState.QUEUED, "")
    assert card.note == "waits until an agent of this workspace calls reboot or standby"
    elsewhere = root.parent / "other"
    elsewhere.mkdir()
    stranger = await server.arrive(elsewhere, "stranger")
    assert (await stranger.ask(Reboot())).instructions == ()
    agent, late = await server.arrive(root), await server.arrive(root, "late")
    assert await beat(agent) == []
    call = agent.call()
    (instruction,) = (await agent.ask(Reboot(call=call))).instructions
    assert (instruction.kind, instruction.text, instruction.by) == ("task", "write the tests", "kim")
    assert (await late.ask(Reboot())).instructions == ()
    await agent.ask(Deliver((Delivery(call, (), (instruction.id,)),)))
    done = await server.operator.card(id=card.id, state=CardState.DELIVERED)
    assert done.session_id == agent.session_id
    assert await desk(server).tasks() == ()
    assert [each.session_id for each in await desk(server).tasks(everything=True)] == [agent.session_id]
    assert (await kinds(server))[-2:] == ["task_taken", "task_delivered"]


async def test_a_task_that_did_not_reach_its_agent_rides_again_or_is_anothers(
    server: VirtualServer, root: Path
) -> None:
    card = await task(server, "one", workspace=str(root))
    agent = await server.arrive(root)
    call = agent.call()
    assert len((await agent.ask(Reboot(call=call))).instructions) == 1
    agent.tell(Undeliver((call,)))
    call = agent.call()
    assert len((await agent.ask(Reboot(call=call))).instructions) == 1
    agent.tell(Undeliver((call,)))
    with pytest.raises(NotFound, match="no decision, message or task"):
        await desk(server).take_back("zz", "kim", "ctl")
    server.gone("agent", for_good=True)
    await server.later(0)
    (free,) = await desk(server).tasks()
    assert (free.session_id, free.taken_at) == (None, None)
    assert (await server.app.service.card(card.id)).note == card.note
    other = await server.arrive(root, "other")
    (instruction,) = (await other.ask(Reboot(call="o1"))).instructions
    await other.ask(Deliver((Delivery("o1", (), (instruction.id,)),)))
    # Its first agent had it after all, it turns out; that changes nothing.
    await agent.ask(Deliver((Delivery(call, (), (instruction.id,)),)))
    assert (await kinds(server)).count("task_delivered") == 1


async def test_a_task_that_was_written_to_an_agent_is_no_others_until_its_session_is_ended(
    server: VirtualServer, root: Path
) -> None:
    agent, other = [await server.arrive(root, key) for key in ("a", "b")]
    await task(server, "one", workspace=str(root))
    door = AgentConnection(server.app.system, server.app.config, server.app.connected_agents, "a", str(root), None)
    door.opened()
    call = agent.call()
    (instruction,) = (await agent.ask(Reboot(call=call))).instructions
    # It has its result, works for long without a call, and counts as gone.
    told = ToolCall(
        call, BY_NAME["reboot"], agent.session_id, server.app.system.named(f"session/{agent.session_id}"), None
    )
    told.delivery = Delivery(call, (), (instruction.id,))
    door.close_call(told)
    door.sent_results.written(call)
    door.closed()
    server.gone("a", for_good=True)
    await server.later(0)
    assert (await agent.ask(Describe())).status is SessionStatus.INTERRUPTED
    assert await desk(server).tasks() == (await desk(server).tasks(agent.session_id)) != ()
    assert (await other.ask(Reboot(call="b1"))).instructions == ()
    # Should it not have read it, it is told again.
    await server.arrive(root, "a")
    assert await beat(agent) == ["one"]
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    assert [each.text for each in (await other.ask(Reboot(call="b2"))).instructions] == ["one"]


GONE: dict[str, Callable[[VirtualServer, AgentClient], Awaitable[object]]] = {
    "its connection is gone": lambda server, agent: leave(server, agent),
    "its process failed": lambda _, agent: agent.ask(ProcessEnded(1, Why.ENDED, Exit(code=1), "", None, None)),
    "it was ended with the server": lambda _, agent: agent.ask(ProcessEnded(1, Why.SHUTDOWN, None, "", None, None)),
    "its work is done": lambda _, agent: agent.ask(ProcessEnded(1, Why.ENDED, Exit(code=0), "", None, None)),
    "a person ended it": lambda server, agent: server.app.service.end(agent.session_id, "kim", "ctl", "enough"),
}


async def leave(server: VirtualServer, agent: AgentClient) -> None:
    server.gone(agent.identity.key, for_good=True)


@pytest.mark.parametrize("why", GONE)
@pytest.mark.parametrize("is_written", [False, True])
async def test_the_task_of_an_agent_that_is_gone_wakes_another(
    server: VirtualServer, root: Path, why: str, is_written: bool
) -> None:
    agent, other = [await server.arrive(root, key) for key in ("a", "b")]
    await task(server, "one", workspace=str(root))
    (instruction,) = (await agent.ask(Reboot())).instructions
    if is_written:
        agent.tell(Written((instruction.id,)))
    _, waiting = await stand_by(server, other)
    await GONE[why](server, agent)
    await server.later(0)
    if is_written and why != "a person ended it":
        # It may have read it.
        assert waiting.outcome is None
        (held,) = await desk(server).tasks(everything=True)
        assert (held.session_id, held.is_open) == (agent.session_id, why != "its work is done")
    else:
        assert [each.text for each in (await waiting()).instructions] == ["one"]


async def test_agents_that_stand_by_take_one_task_each(server: VirtualServer, root: Path) -> None:
    for text in ("one", "two"):
        await task(server, text, workspace=str(root))
    agent, other, third = [await server.arrive(root, key) for key in ("a", "b", "c")]
    for each, text in ((agent, "one"), (other, "two")):
        opened = await each.ask(Standby("idle"))
        assert [each.text for each in opened.answered.instructions] == [text]
    _, waiting = await stand_by(server, third)
    await task(server, "three", workspace=str(root))
    assert [each.text for each in (await waiting()).instructions] == ["three"]


async def test_a_task_for_a_session_is_its_agents_alone(server: VirtualServer, root: Path) -> None:
    agent, other = await server.arrive(root), await server.arrive(root, "other")
    card = await task(server, "one", session=agent.session_id[:13])
    assert card.note == "waits until this session's agent calls reboot or standby"
    assert (await other.ask(Reboot(call="o1"))).instructions == ()
    assert [each.text for each in (await agent.ask(Reboot(call="g1"))).instructions] == ["one"]


async def test_a_task_is_left_for_the_workspace_that_a_directory_lies_in(server: VirtualServer, root: Path) -> None:
    await server.arrive(root)
    (root / "src" / "deep").mkdir(parents=True)
    assert (await task(server, "one", workspace=str(root / "src"))).workspace_root == str(root)
    project = root.parent / "project"
    (project / ".git").mkdir(parents=True)
    (project / "lib").mkdir()
    assert (await task(server, "one", workspace=str(project / "lib"))).workspace_root == str(project)
    with pytest.raises(WorkspaceRefused):
        await task(server, "one", workspace="/")
    with pytest.raises(InvalidArguments):
        await task(server, "one")


async def test_a_task_is_taken_back_until_an_agent_takes_it(server: VirtualServer, root: Path) -> None:
    card = await task(server, "one", "act-1", workspace=str(root))
    assert (await task(server, "one", "act-1", workspace=str(root))).id == card.id
    with pytest.raises(AlreadyDecided):
        await task(server, "two", "act-1", workspace=str(root))
    for _ in range(2):
        assert (await desk(server).take_back(card.id[:20], "kim", "ctl")).state is CardState.CLOSED
    agent = await server.arrive(root)
    assert (await agent.ask(Reboot(call="g1"))).instructions == ()
    card = await task(server, "two", workspace=str(root))
    await agent.ask(Reboot(call="g2"))
    with pytest.raises(AlreadyDecided, match="on its way"):
        await desk(server).take_back(card.id, "kim", "ctl")


async def test_a_message_that_was_sent_is_not_taken_back_after_a_restart(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        card = await steer(server, agent, "one")
        (instruction,) = (await agent.ask(Ping())).instructions
        agent.tell(Written((instruction.id,)))
        await agent.settled()
    async with virtual_server(root.parent, clock) as server:
        with pytest.raises(AlreadyDecided, match="may have it"):
            await desk(server).take_back(card.id, "kim", "ctl")
        # Should it not have it, it is told again.
        agent = await server.arrive(root)
        assert await beat(agent) == ["one"]


async def test_instructions_follow_an_agent_into_the_session_it_takes_over(server: VirtualServer, root: Path) -> None:
    old = await server.arrive(root, "old")
    await old.propose()
    server.gone("old", for_good=True)
    await server.later(GRACE_SECONDS)
    await steer(server, old, "left before")
    agent = await server.arrive(root, "new")
    await steer(server, agent, "one")
    call = agent.call()
    (riding,) = (await agent.ask(Ping(call=call))).instructions
    await steer(server, agent, "two")
    assert await server.ask("registry", Adopt(agent.identity)) == old.session_id
    heir = AgentClient(server, agent.identity, old.session_id)
    assert (await agent.ask(Describe())).status is SessionStatus.TERMINATED
    # What rode on a result of the session that was given up arrives after all.
    await agent.ask(Deliver((Delivery(call, (), (riding.id,)),)))
    assert sorted(await heard(heir)) == ["left before", "two"]
    assert await heard(heir) == []


async def test_a_session_that_is_not_there_has_nothing_that_waits(server: VirtualServer, agent: AgentClient) -> None:
    for look in (
        server.app.service.pending,
        server.app.service.steering.instructions,
        server.app.service.steering.tasks,
    ):
        with pytest.raises(NotFound, match="nope"):
            await look("nope")
    assert await server.app.service.pending(agent.session_id[:8]) == ()
