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
from intercom.sessions.messages import Adopt, AwaitDecision, AwaitUnpaused, Describe, Detach, Resume, TakeWords
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
from tests.sessions.house import Guest, House, house, partial_ask

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
    TakeWords,
]


async def pause(at: House, guest: Guest) -> None:
    assert (await at.app.service.steering.pause(guest.session_id, "kim", "ctl")).is_paused


async def unpause(at: House, guest: Guest, act: str | None = None) -> None:
    assert not (await at.app.service.steering.unpause(guest.session_id, "kim", "ctl", act)).is_paused


async def status(guest: Guest) -> SessionStatus:
    return (await guest.ask(Describe())).status


async def kinds(at: House) -> list[str]:
    return [entry.kind for entry in await at.app.service.audit(50)]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked("c")).__name__)
async def test_nothing_an_agent_asks_anew_is_done(at: House, guest: Guest, asked: Any) -> None:
    await pause(at, guest)
    before = await kinds(at)
    with pytest.raises(Paused, match="paused by kim"):
        await guest.ask(asked(guest.call()))
    assert await kinds(at) == before
    await unpause(at, guest)
    try:
        await guest.ask(asked(guest.call()))
    except NotFound:
        # There is nothing to be applied, but it was looked for.
        assert isinstance(asked("c"), CheckDiff)


async def test_a_paused_agent_that_pings_is_known_to_be_alive_and_told(at: House, guest: Guest) -> None:
    await at.app.service.steering.steer(guest.session_id, "mind the gap", "kim", "ctl")
    await pause(at, guest)
    beat = await guest.ask(Ping())
    assert (beat.answer.acknowledged, beat.answer.status) == (True, "paused")
    assert "change nothing" in (beat.answer.message or "")
    assert beat.instructions == ()
    await unpause(at, guest)
    beat = await guest.ask(Ping())
    assert (beat.answer.status, beat.answer.message) == (None, None)
    assert [word.text for word in beat.instructions] == ["mind the gap"]


async def test_who_waits_to_go_on_goes_on(at: House, guest: Guest) -> None:
    await guest.ask(AwaitUnpaused())
    await pause(at, guest)
    waiting = [at.begin(partial_ask(guest, AwaitUnpaused())) for _ in range(3)]
    await at.later(3600)
    waiting[0].scope.cancel()
    assert all(each.outcome is None for each in waiting)
    await unpause(at, guest)
    for each in waiting[1:]:
        await each()
    assert guest.session_id == (await guest.ask(Describe())).id


async def test_an_unpause_that_is_sent_again_after_a_new_pause_lets_nothing_go_on(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    await pause(at, guest)
    await unpause(at, guest, "ctl/one")
    await pause(at, guest)
    waiting = await at.wait(guest, id)
    await at.decide(id, Decision.APPROVE)
    assert (await at.app.service.steering.unpause(guest.session_id, "kim", "ctl", "ctl/one")).is_paused
    await at.later(60)
    assert waiting.outcome is None
    await unpause(at, guest, "ctl/two")
    assert (await waiting()).answer.status == "approved"


async def test_a_verdict_given_meanwhile_is_kept_until_the_session_goes_on(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id)
    prompt = (await guest.ask(Transmit("well?"))).request_id
    answer = at.begin(partial_ask(guest, AwaitDecision(guest.call(), prompt)))
    await pause(at, guest)
    assert (await at.decide(id, Decision.APPROVE)).state is CardState.APPROVED
    await at.later(1)
    assert waiting.outcome is None
    # Its connection breaks, and it comes back to wait: it may, and hears nothing yet.
    again = (await guest.ask(CheckClearance(request_id=id))).answered
    assert again is None
    back = await at.wait(guest, id)
    await unpause(at, guest)
    assert (await waiting()).answer.status == (await back()).answer.status == "approved"
    await at.decide(prompt, Decision.CONTINUE)
    assert (await answer()).answer.decision == "continue"


async def test_a_call_that_can_wait_no_longer_hears_of_the_pause_and_not_of_the_verdict(
    at: House, guest: Guest
) -> None:
    id = (await guest.propose()).request_id
    call = guest.call()
    waiting = await at.wait(guest, id, call)
    await pause(at, guest)
    await at.decide(id, Decision.REJECT, "no")
    waiting.scope.cancel()
    with pytest.raises(Paused):
        await guest.ask(Detach(call, id))
    assert (await guest.ask(Ping())).late_verdicts == ()
    await unpause(at, guest)
    (late,) = (await guest.ask(Ping())).late_verdicts
    assert late.request_id == id


async def test_a_pause_outlives_the_server_the_session_and_the_agents_connection(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        await pause(at, guest)
        inject(at.app.system, f"session/{guest.session_id}", ValueError("boom"), "now")
        async with at.restarting():
            with pytest.raises(Paused):
                await guest.propose()
        at.gone("agent")
        await at.later(GRACE_SECONDS)
        assert await status(guest) is SessionStatus.INTERRUPTED
        back = await at.arrive(root)
        assert await status(back) is SessionStatus.PAUSED
        with pytest.raises(Paused):
            await back.propose()
    async with house(root.parent, clock) as at:
        back = await at.arrive(root)
        with pytest.raises(Paused):
            await back.propose()
        await unpause(at, back)
        assert await status(back) is SessionStatus.ACTIVE


async def test_an_agent_does_not_get_free_by_taking_another_session(at: House, root: Path) -> None:
    old = await at.arrive(root, "old")
    id = (await old.propose()).request_id
    at.gone("old", for_good=True)
    await at.later(RETURN_SECONDS + GRACE_SECONDS)
    guest = await at.arrive(root, "new")
    await pause(at, guest)
    assert await at.ask("registry", Adopt(guest.agent)) == guest.session_id
    with pytest.raises(Paused):
        await at.ask("registry", Adopt(guest.agent, old.session_id))
    await unpause(at, guest)
    assert await at.ask("registry", Adopt(guest.agent)) == old.session_id
    assert (await at.app.service.card(id)).state is CardState.PENDING


async def test_a_paused_agent_is_not_stalled(clock: Clock, root: Path) -> None:
    stall = StallSettings(inactivity_threshold_seconds=300, escalation_threshold_seconds=100, max_retries=1)
    async with house(root.parent, clock, Config(stall=stall)) as at:
        guest = await at.arrive(root)
        await at.later(300)
        alert = await at.people.card(kind=CardKind.STALL)
        await pause(at, guest)
        await at.people.card(id=alert.id, state=CardState.CLOSED)
        for _ in range(5):
            await at.later(300)
        assert {card.id for card in at.people.cards if card.kind is CardKind.STALL} == {alert.id}
        await unpause(at, guest)
        await at.later(300)
        await at.people.card(lambda card: card.id != alert.id, kind=CardKind.STALL)


async def test_pausing_and_letting_go_on_are_done_once(at: House, guest: Guest) -> None:
    with pytest.raises(InvalidState, match="not paused"):
        await unpause(at, guest)
    await pause(at, guest)
    await at.later(5)
    await pause(at, guest)
    await unpause(at, guest, "act-1")
    await unpause(at, guest, "act-1")
    assert (await kinds(at)).count("session_paused") == (await kinds(at)).count("session_resumed") == 1
    await at.people.notice("resumed by kim")
    assert [notice.text for notice in at.people.notices if "kim" in notice.text] == [
        "paused by kim: the agent's calls wait, and verdicts reach it when it goes on",
        "resumed by kim",
    ]
    # The same act, after the session was paused again, is not a second one.
    await pause(at, guest)
    assert (await at.app.service.steering.unpause(guest.session_id, "kim", "ctl", "act-1")).is_paused


async def test_an_act_without_a_name_that_is_sent_again_means_the_same_session(at: House, root: Path) -> None:
    steering, resumed = at.app.service.steering, at.verdict(Decision.RESUME, None, "act-3")
    guest = await at.arrive(root)
    await guest.settled()
    for _ in range(2):
        assert (await steering.pause(None, "kim", "ctl", "act-1")).id == guest.session_id
    for _ in range(2):
        assert (await steering.unpause(None, "kim", "ctl", "act-2")).id == guest.session_id
    await pause(at, guest)
    assert (await at.app.service.resume(None, None, resumed)).id == guest.session_id
    assert not (await guest.ask(Describe())).is_paused
    words = await steering.steer(None, "slowly", "kim", "ctl", "act-4")
    # Another that could be meant by now is not.
    other = await at.arrive(root, "other")
    await pause(at, other)
    assert (await at.app.service.resume(None, None, resumed)).id == guest.session_id
    assert (await steering.steer(None, "slowly", "kim", "ctl", "act-4")).id == words.id
    assert [word.session_id for word in await steering.words()] == [guest.session_id]
    assert (await other.ask(Describe())).is_paused


async def test_without_a_name_the_only_session_that_can_be_meant(at: House, root: Path) -> None:
    steering = at.app.service.steering
    with pytest.raises(NotFound, match="there is no session that could be paused"):
        await steering.pause(None, "kim", "ctl")
    guest, other = await at.arrive(root), await at.arrive(root, "other")
    assert (await steering.pause(guest.session_id[:13], "kim", "ctl")).id == guest.session_id
    assert (await steering.pause(None, "kim", "ctl")).id == other.session_id
    await steering.unpause(other.session_id, "kim", "ctl")
    assert (await steering.unpause(None, "kim", "ctl")).id == guest.session_id
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    with pytest.raises(InvalidState, match="was ended"):
        await steering.pause(guest.session_id, "kim", "ctl")


async def test_the_end_of_a_paused_session_lets_go_who_waited(at: House, guest: Guest) -> None:
    prompt = (await guest.ask(Transmit("well?"))).request_id
    answer = at.begin(partial_ask(guest, AwaitDecision(guest.call(), prompt)))
    await at.later(0)
    await pause(at, guest)
    held = at.begin(partial_ask(guest, AwaitUnpaused()))
    await at.decide(prompt, Decision.STOP)
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    await held()
    assert (await answer()).answer.decision == "stop"
    with pytest.raises(InvalidState, match="was ended"):
        await guest.propose()


@pytest.mark.parametrize("stands_by", [False, True])
async def test_resume_lifts_the_pause_and_gives_word_once(at: House, guest: Guest, stands_by: bool) -> None:
    if stands_by:
        id = (await guest.ask(Standby("idle"))).request_id
        waiting = at.begin(partial_ask(guest, AwaitDecision(guest.call(), id)))
        await at.later(0)
    await pause(at, guest)
    verdict = at.verdict(Decision.RESUME, "now the docs", "act-1")
    for _ in range(2):
        await guest.ask(Resume(verdict))
    assert await status(guest) is SessionStatus.ACTIVE
    words = (await guest.ask(Ping())).instructions
    if stands_by:
        assert (await waiting()).answer.instruction == "now the docs"
    assert [word.text for word in words] == ([] if stands_by else ["now the docs"])


async def test_resume_gives_its_word_also_to_one_that_has_others_to_hear(at: House, guest: Guest) -> None:
    id = (await guest.ask(Standby("idle"))).request_id
    waiting = at.begin(partial_ask(guest, AwaitDecision(guest.call(), id)))
    await at.later(0)
    await pause(at, guest)
    await at.app.service.steering.steer(guest.session_id, "mind the gap", "kim", "ctl")
    await guest.ask(Resume(at.verdict(Decision.RESUME, "now the docs", "act-1")))
    answered = await waiting()
    assert answered.answer.instruction == "now the docs"
    assert [word.text for word in answered.instructions] == ["mind the gap"]
