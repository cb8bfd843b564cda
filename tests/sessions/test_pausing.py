"""While a session is paused its agent's calls do nothing, and nothing is told to it; nothing is lost by it either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from actors import Request
from actors.testing import inject
from intercom.model.card import CardKind, CardState
from intercom.model.config import Config, StallSettings
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState, NotFound, Paused
from intercom.model.session import SessionMode, SessionStatus
from intercom.sessions.messages import Adopt, AwaitDecision, AwaitUnpaused, Describe, Detach, Resume, TakeInstructions
from intercom.sessions.registry import GRACE_SECONDS, RETURN_SECONDS
from intercom.sessions.tools.auto_check import AutoCheck
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.sessions.tools.transmit import Transmit
from tests.support.virtual_server import AgentClient, VirtualServer, partial_ask, virtual_server

Clock = trio.testing.MockClock

ASKED: list[Callable[[str], Request[Any]]] = [
    lambda call: CheckClearance("t", "a\n", "a.txt", call=call),
    lambda call: Transmit("well?", call=call),
    lambda call: Standby("idle", call=call),
    lambda call: CheckDiff("r", call=call),
    lambda call: AutoCheck("make", call=call),
    lambda call: Broadcast("done", call=call),
    lambda call: Reboot(call=call),
    lambda call: SwitchFreq(SessionMode.LOCAL, by="agent", channel="mcp", call=call),
    TakeInstructions,
]


async def pause(server: VirtualServer, agent: AgentClient) -> None:
    assert (await server.app.service.steering.pause(agent.session_id, "kim", "ctl")).is_paused


async def unpause(server: VirtualServer, agent: AgentClient, act: str | None = None) -> None:
    assert not (await server.app.service.steering.unpause(agent.session_id, "kim", "ctl", act)).is_paused


async def status(agent: AgentClient) -> SessionStatus:
    return (await agent.ask(Describe())).status


async def kinds(server: VirtualServer) -> list[str]:
    return [entry.kind for entry in await server.app.service.audit(50)]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked("c")).__name__)
async def test_nothing_an_agent_asks_anew_is_done(server: VirtualServer, agent: AgentClient, asked: Any) -> None:
    await pause(server, agent)
    before = await kinds(server)
    with pytest.raises(Paused, match="paused by kim"):
        await agent.ask(asked(agent.call()))
    assert await kinds(server) == before
    await unpause(server, agent)
    try:
        await agent.ask(asked(agent.call()))
    except NotFound:
        # There is nothing to be applied, but it was looked for.
        assert isinstance(asked("c"), CheckDiff)


async def test_a_paused_agent_that_pings_is_known_to_be_alive_and_told(
    server: VirtualServer, agent: AgentClient
) -> None:
    await server.app.service.steering.steer(agent.session_id, "mind the gap", "kim", "ctl")
    await pause(server, agent)
    beat = await agent.ask(Ping())
    assert (beat.answer.acknowledged, beat.answer.status) == (True, "paused")
    assert "change nothing" in (beat.answer.message or "")
    assert beat.instructions == ()
    await unpause(server, agent)
    beat = await agent.ask(Ping())
    assert (beat.answer.status, beat.answer.message) == (None, None)
    assert [each.text for each in beat.instructions] == ["mind the gap"]


async def test_who_waits_to_go_on_goes_on(server: VirtualServer, agent: AgentClient) -> None:
    await agent.ask(AwaitUnpaused())
    await pause(server, agent)
    waiting = [server.begin(partial_ask(agent, AwaitUnpaused())) for _ in range(3)]
    await server.later(3600)
    waiting[0].scope.cancel()
    assert all(each.outcome is None for each in waiting)
    await unpause(server, agent)
    for each in waiting[1:]:
        await each()
    assert agent.session_id == (await agent.ask(Describe())).id


async def test_an_unpause_that_is_sent_again_after_a_new_pause_lets_nothing_go_on(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    await pause(server, agent)
    await unpause(server, agent, "ctl/one")
    await pause(server, agent)
    waiting = await server.wait(agent, id)
    await server.decide(id, Decision.APPROVE)
    assert (await server.app.service.steering.unpause(agent.session_id, "kim", "ctl", "ctl/one")).is_paused
    await server.later(60)
    assert waiting.outcome is None
    await unpause(server, agent, "ctl/two")
    assert (await waiting()).answer.status == "approved"


async def test_a_verdict_given_meanwhile_is_kept_until_the_session_goes_on(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    prompt = (await agent.ask(Transmit("well?"))).request_id
    answer = server.begin(partial_ask(agent, AwaitDecision(agent.call(), prompt)))
    await pause(server, agent)
    assert (await server.decide(id, Decision.APPROVE)).state is CardState.APPROVED
    await server.later(1)
    assert waiting.outcome is None
    # Its connection breaks, and it comes back to wait: it may, and hears nothing yet.
    again = (await agent.ask(CheckClearance(request_id=id))).answered
    assert again is None
    back = await server.wait(agent, id)
    await unpause(server, agent)
    assert (await waiting()).answer.status == (await back()).answer.status == "approved"
    await server.decide(prompt, Decision.CONTINUE)
    assert (await answer()).answer.decision == "continue"


async def test_a_call_that_can_wait_no_longer_hears_of_the_pause_and_not_of_the_verdict(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    call = agent.call()
    waiting = await server.wait(agent, id, call)
    await pause(server, agent)
    await server.decide(id, Decision.REJECT, "no")
    waiting.scope.cancel()
    with pytest.raises(Paused):
        await agent.ask(Detach(call, id))
    assert (await agent.ask(Ping())).late_verdicts == ()
    await unpause(server, agent)
    (late,) = (await agent.ask(Ping())).late_verdicts
    assert late.request_id == id


async def test_a_pause_outlives_the_server_the_session_and_the_agents_connection(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await pause(server, agent)
        inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
        async with server.restarting():
            with pytest.raises(Paused):
                await agent.propose()
        server.gone("agent")
        await server.later(GRACE_SECONDS)
        assert await status(agent) is SessionStatus.INTERRUPTED
        back = await server.arrive(root)
        assert await status(back) is SessionStatus.PAUSED
        with pytest.raises(Paused):
            await back.propose()
    async with virtual_server(root.parent, clock) as server:
        back = await server.arrive(root)
        with pytest.raises(Paused):
            await back.propose()
        await unpause(server, back)
        assert await status(back) is SessionStatus.ACTIVE


async def test_an_agent_does_not_get_free_by_taking_another_session(server: VirtualServer, root: Path) -> None:
    old = await server.arrive(root, "old")
    id = (await old.propose()).request_id
    server.gone("old", for_good=True)
    await server.later(RETURN_SECONDS + GRACE_SECONDS)
    agent = await server.arrive(root, "new")
    await pause(server, agent)
    assert await server.ask("registry", Adopt(agent.identity)) == agent.session_id
    with pytest.raises(Paused):
        await server.ask("registry", Adopt(agent.identity, old.session_id))
    await unpause(server, agent)
    assert await server.ask("registry", Adopt(agent.identity)) == old.session_id
    assert (await server.app.service.card(id)).state is CardState.PENDING


async def test_a_paused_agent_is_not_stalled(clock: Clock, root: Path) -> None:
    stall = StallSettings(inactivity_threshold_seconds=300, escalation_threshold_seconds=100, max_retries=1)
    async with virtual_server(root.parent, clock, Config(stall=stall)) as server:
        agent = await server.arrive(root)
        await server.later(300)
        alert = await server.operator.card(kind=CardKind.STALL)
        await pause(server, agent)
        await server.operator.card(id=alert.id, state=CardState.CLOSED)
        for _ in range(5):
            await server.later(300)
        assert {card.id for card in server.operator.cards if card.kind is CardKind.STALL} == {alert.id}
        await unpause(server, agent)
        await server.later(300)
        await server.operator.card(lambda card: card.id != alert.id, kind=CardKind.STALL)


async def test_pausing_and_letting_go_on_are_done_once(server: VirtualServer, agent: AgentClient) -> None:
    with pytest.raises(InvalidState, match="not paused"):
        await unpause(server, agent)
    await pause(server, agent)
    await server.later(5)
    await pause(server, agent)
    await unpause(server, agent, "act-1")
    await unpause(server, agent, "act-1")
    assert (await kinds(server)).count("session_paused") == (await kinds(server)).count("session_resumed") == 1
    await server.operator.notice("resumed by kim")
    assert [notice.text for notice in server.operator.notices if "kim" in notice.text] == [
        "paused by kim: the agent's calls wait, and decisions reach it when it is resumed",
        "resumed by kim",
    ]
    # The same act, after the session was paused again, is not a second one.
    await pause(server, agent)
    assert (await server.app.service.steering.unpause(agent.session_id, "kim", "ctl", "act-1")).is_paused


async def test_an_act_without_a_name_that_is_sent_again_means_the_same_session(
    server: VirtualServer, root: Path
) -> None:
    steering, resumed = server.app.service.steering, server.verdict(Decision.RESUME, None, "act-3")
    agent = await server.arrive(root)
    await agent.settled()
    for _ in range(2):
        assert (await steering.pause(None, "kim", "ctl", "act-1")).id == agent.session_id
    for _ in range(2):
        assert (await steering.unpause(None, "kim", "ctl", "act-2")).id == agent.session_id
    await pause(server, agent)
    assert (await server.app.service.resume(None, None, resumed)).id == agent.session_id
    assert not (await agent.ask(Describe())).is_paused
    queued = await steering.steer(None, "slowly", "kim", "ctl", "act-4")
    # Another that could be meant by now is not.
    other = await server.arrive(root, "other")
    await pause(server, other)
    assert (await server.app.service.resume(None, None, resumed)).id == agent.session_id
    assert (await steering.steer(None, "slowly", "kim", "ctl", "act-4")).id == queued.id
    assert [each.session_id for each in await steering.instructions()] == [agent.session_id]
    assert (await other.ask(Describe())).is_paused


async def test_without_a_name_the_only_session_that_can_be_meant(server: VirtualServer, root: Path) -> None:
    steering = server.app.service.steering
    with pytest.raises(NotFound, match="there is no session that could be paused"):
        await steering.pause(None, "kim", "ctl")
    agent, other = await server.arrive(root), await server.arrive(root, "other")
    assert (await steering.pause(agent.session_id[:13], "kim", "ctl")).id == agent.session_id
    assert (await steering.pause(None, "kim", "ctl")).id == other.session_id
    await steering.unpause(other.session_id, "kim", "ctl")
    assert (await steering.unpause(None, "kim", "ctl")).id == agent.session_id
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    with pytest.raises(InvalidState, match="was ended"):
        await steering.pause(agent.session_id, "kim", "ctl")


async def test_the_end_of_a_paused_session_lets_go_who_waited(server: VirtualServer, agent: AgentClient) -> None:
    prompt = (await agent.ask(Transmit("well?"))).request_id
    answer = server.begin(partial_ask(agent, AwaitDecision(agent.call(), prompt)))
    await server.later(0)
    await pause(server, agent)
    held = server.begin(partial_ask(agent, AwaitUnpaused()))
    await server.decide(prompt, Decision.STOP)
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    await held()
    assert (await answer()).answer.decision == "stop"
    with pytest.raises(InvalidState, match="was ended"):
        await agent.propose()


@pytest.mark.parametrize("stands_by", [False, True])
async def test_resume_lifts_the_pause_and_gives_word_once(
    server: VirtualServer, agent: AgentClient, stands_by: bool
) -> None:
    if stands_by:
        id = (await agent.ask(Standby("idle"))).request_id
        waiting = server.begin(partial_ask(agent, AwaitDecision(agent.call(), id)))
        await server.later(0)
    await pause(server, agent)
    verdict = server.verdict(Decision.RESUME, "now the docs", "act-1")
    for _ in range(2):
        await agent.ask(Resume(verdict))
    assert await status(agent) is SessionStatus.ACTIVE
    instructions = (await agent.ask(Ping())).instructions
    if stands_by:
        assert (await waiting()).answer.instruction == "now the docs"
    assert [each.text for each in instructions] == ([] if stands_by else ["now the docs"])


async def test_resume_gives_its_word_also_to_one_that_has_others_to_hear(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.ask(Standby("idle"))).request_id
    waiting = server.begin(partial_ask(agent, AwaitDecision(agent.call(), id)))
    await server.later(0)
    await pause(server, agent)
    await server.app.service.steering.steer(agent.session_id, "mind the gap", "kim", "ctl")
    await agent.ask(Resume(server.verdict(Decision.RESUME, "now the docs", "act-1")))
    answered = await waiting()
    assert answered.answer.instruction == "now the docs"
    assert [each.text for each in answered.instructions] == ["mind the gap"]
