"""A stall, from the first silence to its end, in a whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from actors import Request
from actors.testing import inject
from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, StallSettings
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided
from intercom.model.request import PromptType, RiskLevel
from intercom.model.session import SessionStatus
from intercom.sessions.messages import Activity
from intercom.sessions.registry import GRACE_SECONDS
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.store import sessions
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
CONFIG = Config(
    stall=StallSettings(
        inactivity_threshold_seconds=300, escalation_threshold_seconds=120, max_retries=2, default_nudge_message="go on"
    )
)


def stalls(server: VirtualServer) -> list[Card]:
    return [card for card in server.operator.cards if card.kind is CardKind.STALL]


def act(server: VirtualServer, agent: AgentClient) -> None:
    """What a door tells the detector with every call."""
    server.app.system.named(f"stall/{agent.session_id}").tell(Activity())


@pytest.mark.server(CONFIG)
async def test_silence_is_nudged_then_escalated(server: VirtualServer, agent: AgentClient) -> None:
    await server.later(299)
    assert stalls(server) == []
    await server.later(1)
    alert = await server.operator.card(kind=CardKind.STALL)
    assert alert.title.startswith("Quiet for 5 min")
    assert alert.state is CardState.PENDING
    await server.later(120)
    await server.later(120)
    await server.operator.card(id=alert.id, note='"go on": goes with the agent\'s next call')
    await server.later(120)
    escalated = await server.operator.card(lambda card: card.title == "Still quiet after 2 nudges", id=alert.id)
    assert escalated.state is CardState.PENDING
    # However often it was nudged, it is told once.
    answered = await agent.ask(Ping())
    assert [word.text for word in answered.instructions] == ["go on"]


@pytest.mark.server(CONFIG)
async def test_an_agent_that_comes_back_closes_its_alert_by_itself(server: VirtualServer, agent: AgentClient) -> None:
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    act(server, agent)
    closed = await server.operator.card(lambda card: card.state is CardState.CLOSED, id=alert.id)
    assert closed.note == "the agent is back"
    await server.later(300)
    again = await server.operator.card(lambda card: card.id != alert.id, kind=CardKind.STALL)
    assert again.state is CardState.PENDING


@pytest.mark.parametrize("minutes", [0, 20])
async def test_an_agent_that_goes_quiet_again_is_noticed_in_time(clock: Clock, root: Path, minutes: int) -> None:
    """Also after its alert was escalated, and where nudges come more seldom than alerts."""
    rules = StallSettings(inactivity_threshold_seconds=60, escalation_threshold_seconds=300, max_retries=1)
    async with virtual_server(root.parent, clock, Config(stall=rules)) as server:
        agent = await server.arrive(root)
        await server.later(60)
        for _ in range(minutes):
            await server.later(60)
        alert = (await server.operator.card(lambda card: card.escalated is (minutes > 0), kind=CardKind.STALL)).id
        assert {card.id for card in stalls(server)} == {alert}
        act(server, agent)
        await server.operator.card(lambda card: card.state is CardState.CLOSED, id=alert)
        await server.later(60)
        await server.operator.card(lambda card: card.id != alert, kind=CardKind.STALL, state=CardState.PENDING)


@pytest.mark.server(CONFIG)
async def test_a_person_dismisses_an_alert_once(server: VirtualServer, root: Path) -> None:
    await server.arrive(root)
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    assert (await server.decide(alert.id, Decision.DISMISS)).state is CardState.CLOSED
    with pytest.raises(AlreadyDecided):
        await server.decide(alert.id, Decision.NUDGE)
    await server.later(299)
    assert {card.id for card in stalls(server)} == {alert.id}


@pytest.mark.server(CONFIG)
async def test_the_same_nudge_given_again_nudges_once(server: VirtualServer, agent: AgentClient) -> None:
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    for _ in range(3):
        assert (await server.decide(alert.id, Decision.NUDGE, "look", "act-1")).state is CardState.PENDING
    assert [entry.kind for entry in await server.app.service.audit(50)].count("nudged") == 1
    await server.decide(alert.id, Decision.NUDGE, "listen", "act-2")
    answered = await agent.ask(Ping())
    assert [word.text for word in answered.instructions] == ["look", "listen"]
    # Also when the agent has it, and the alert is over.
    act(server, agent)
    await server.operator.card(lambda card: card.state is CardState.CLOSED, id=alert.id)
    await server.decide(alert.id, Decision.NUDGE, "listen", "act-2")
    assert (await agent.ask(Ping())).instructions == ()


@pytest.mark.server(CONFIG)
@pytest.mark.parametrize(("given", "told"), [(None, "go on"), ("look", "look")])
async def test_a_nudged_card_says_what_the_agent_is_told(
    server: VirtualServer, agent: AgentClient, given: str | None, told: str
) -> None:
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    nudged = await server.decide(alert.id, Decision.NUDGE, given, "act-1")
    assert (nudged.note or "").startswith(f'"{told}": ')
    assert [word.text for word in (await agent.ask(Ping())).instructions] == [told]


@pytest.mark.parametrize("way", ["alert", "session", "steer"])
@pytest.mark.server(CONFIG)
async def test_the_automatic_nudge_never_discards_what_a_person_said(
    server: VirtualServer, root: Path, way: str
) -> None:
    """Words that a person had given for the agent were replaced by the default words, unread."""
    agent = await server.arrive(root)
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    if way == "alert":
        await server.decide(alert.id, Decision.NUDGE, "use the other file")
    elif way == "session":
        await server.app.service.nudge(agent.session_id, "use the other file", "kim", "ctl")
    else:
        await server.app.service.steering.steer(agent.session_id, "use the other file", "kim", "ctl")
    await server.later(300)
    for _ in range(3):
        await server.later(120)
    await server.operator.card(lambda card: card.escalated, id=alert.id)
    answered = await agent.ask(Ping())
    # Of the automatic ones the last says it all.
    assert [(word.text, word.by) for word in answered.instructions] == [
        ("use the other file", "kim"),
        ("go on", "intercom"),
    ]


@pytest.mark.server(CONFIG)
async def test_a_persons_nudge_gives_the_agent_time_and_the_automatic_ones_begin_again(
    server: VirtualServer, root: Path
) -> None:
    """The automatic nudge came a moment after a person's, and the escalation as if nobody had seen to it."""
    await server.arrive(root)
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    await server.later(119)
    await server.decide(alert.id, Decision.NUDGE, "look")
    await server.later(299)
    nudged = [entry for entry in await server.app.service.audit(50) if entry.kind == "nudged"]
    assert [entry.who for entry in nudged] == ["kim"]
    await server.later(1)
    for _ in range(2):
        assert not any(card.escalated for card in stalls(server))
        await server.later(120)
    await server.operator.card(lambda card: card.escalated, id=alert.id)
    nudged = [entry for entry in await server.app.service.audit(50) if entry.kind == "nudged"]
    assert [entry.who for entry in nudged] == ["kim", "intercom", "intercom"]
    # And once more after the escalation.
    await server.decide(alert.id, Decision.NUDGE, "look again")
    await server.later(300)
    nudged = [entry for entry in await server.app.service.audit(50) if entry.kind == "nudged"]
    assert [entry.who for entry in nudged] == ["kim", "intercom", "intercom", "kim", "intercom"]


@pytest.mark.parametrize("decision", [Decision.DISMISS, Decision.STOP])
@pytest.mark.server(CONFIG)
async def test_the_same_end_of_an_alert_is_no_second_act(server: VirtualServer, root: Path, decision: Decision) -> None:
    await server.arrive(root)
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    for _ in range(2):
        assert (await server.decide(alert.id, decision, None, "act-1")).state is CardState.CLOSED
    kinds = [entry.kind for entry in await server.app.service.audit(50)]
    assert kinds.count("stall_dismissed") == 1
    assert kinds.count("session_terminated") == (decision is Decision.STOP)
    with pytest.raises(AlreadyDecided):
        await server.decide(alert.id, decision, None, "act-2")


@pytest.mark.server(CONFIG)
async def test_a_person_stops_a_stalled_session(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    await server.decide(alert.id, Decision.STOP)
    (session,) = await server.app.service.sessions(everything=True)
    assert session.status is SessionStatus.TERMINATED
    await server.operator.card(id=alert.id, state=CardState.CLOSED)
    await server.operator.card(id=id, state=CardState.INTERRUPTED)
    assert await server.app.service.pending() == ()


@pytest.mark.server(CONFIG)
async def test_an_agent_that_is_gone_is_not_stalled(server: VirtualServer, root: Path) -> None:
    await server.arrive(root)
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    server.gone("agent")
    await server.later(GRACE_SECONDS)
    await server.operator.card(id=alert.id, state=CardState.CLOSED, note="dismissed")
    for _ in range(5):
        await server.later(300)
    assert {card.id for card in stalls(server)} == {alert.id}


@pytest.mark.server(CONFIG)
async def test_a_detector_that_falls_watches_again(server: VirtualServer, agent: AgentClient) -> None:
    await server.later(200)
    inject(server.app.system, f"stall/{agent.session_id}", ValueError("boom"), "now")
    await server.later(5)
    await server.later(299)
    assert stalls(server) == []
    await server.later(1)
    await server.operator.card(kind=CardKind.STALL)


@pytest.mark.server(Config(stall=StallSettings(enabled=False)))
async def test_no_alarm_where_the_configuration_wants_none(server: VirtualServer, root: Path) -> None:
    await server.arrive(root)
    for _ in range(5):
        await server.later(10_000)
    assert stalls(server) == []


@pytest.mark.server(CONFIG)
async def test_the_end_of_a_session_leaves_no_alert_open(server: VirtualServer, agent: AgentClient) -> None:
    await server.later(300)
    alert = await server.operator.card(kind=CardKind.STALL)
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    await server.operator.card(id=alert.id, state=CardState.CLOSED)
    with pytest.raises(AlreadyDecided):
        await server.decide(alert.id, Decision.NUDGE)


@pytest.mark.server(CONFIG)
async def test_an_agent_is_not_taken_for_stalled_while_a_persons_command_runs(
    server: VirtualServer, agent: AgentClient
) -> None:
    async def paused() -> bool:
        [session] = await server.app.service.sessions()
        return session.stall_paused

    service = server.app.service
    await agent.ask(Ping())
    service.command_runs(agent.session_id, "c1", 1000.0)
    service.command_runs(agent.session_id, "c2", 600.0)
    await server.later(500)
    assert await paused()
    service.command_runs(agent.session_id, "c1", 0.0)
    # The end of the other is never told: its time limit ends the pause.
    await server.later(101)
    assert not await paused()
    await server.later(299)
    assert not [card for card in server.operator.cards if card.kind is CardKind.STALL]
    await server.later(1)
    assert (await server.operator.card(kind=CardKind.STALL)).title == "Quiet for 5 min"


@pytest.mark.parametrize(
    ("asked", "tool"),
    [
        (lambda call: CheckClearance("change a", "a\n", "a.txt", None, RiskLevel.LOW, call=call), "check_clearance"),
        (lambda call: Transmit("go on?", PromptType.CLARIFICATION, call=call), "transmit"),
        (lambda call: Standby("idle", call=call), "standby"),
        (lambda call: Ping(call=call), "ping"),
    ],
)
@pytest.mark.server(CONFIG)
async def test_an_alert_and_the_list_name_the_tool_that_was_called_last(
    server: VirtualServer, agent: AgentClient, asked: Callable[[str], Request[Any]], tool: str
) -> None:
    await agent.ask(asked(agent.call()))
    await server.later(300)
    assert (await server.operator.card(kind=CardKind.STALL)).detail == f"last tool: {tool}"
    [session] = await server.app.reader.read(sessions.live)
    assert session.last_tool == tool
