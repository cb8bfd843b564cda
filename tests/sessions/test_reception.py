"""Who is here: agents come, go, come back, and leave their sessions behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trio.testing

from actors import Event, StopOverran
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState
from intercom.model.policy import PolicyAnswer
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionStatus
from intercom.sessions.messages import Admit, Adopt, Agent, Describe, Wanted
from intercom.sessions.registry import GRACE_SECONDS, START_GRACE_SECONDS, RunningSessions
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.store.client import Store
from intercom.store.messages import Database
from intercom.workspace.policy_watcher import Evaluate, watcher_name
from tests.sessions.house import Guest, House, house, partial_ask

Clock = trio.testing.MockClock


async def fall(at: House, who: str, *until_gone: str) -> None:
    """Let an actor crash; these are gone when this returns."""
    ref = at.app.system.ref(who)
    assert ref is not None
    ref._crash(RuntimeError("as a test wants it"))
    while any(at.app.system.ref(name) for name in until_gone):
        await trio.testing.wait_all_tasks_blocked()


async def status(guest: Guest) -> SessionStatus:
    return (await guest.ask(Describe())).status


async def test_first_calls_that_race_open_one_session(at: House, root: Path) -> None:
    agent = Agent("agent", "client", str(root))
    asked = [at.begin(lambda: at.ask("registry", Admit(agent))) for _ in range(10)]
    assert len({await each() for each in asked}) == 1
    assert len(await at.app.service.sessions()) == 1


async def test_a_new_agent_takes_one_transaction(clock: Clock, root: Path) -> None:
    works: list[object] = []
    transact = Store.transact

    async def noted(store: Store, work: Callable[[Database], object], **more: Any) -> object:
        works.append(work)
        return await transact(store, work, **more)

    async with house(root.parent, clock) as at:
        await at.arrive(root, "first")
        await at.later(0)
        with patch.object(Store, "transact", noted):
            at.back("second")
            guest = await at.arrive(root, "second")
            assert (await guest.ask(Ping(call="b"))).answer.acknowledged
        assert len(works) == 1
        assert await status(guest) is SessionStatus.ACTIVE
        kinds = [entry.kind for entry in await at.app.service.audit(50) if entry.session_id == guest.session_id]
        assert kinds == ["session_opened", "session_active"]


async def test_a_session_is_interrupted_when_its_agent_stays_away(at: House, guest: Guest, root: Path) -> None:
    id = (await guest.propose()).request_id
    assert await status(guest) is SessionStatus.ACTIVE
    at.gone("agent")
    await at.later(GRACE_SECONDS - 0.1)
    assert await status(guest) is SessionStatus.ACTIVE
    await at.later(0.1)
    assert await status(guest) is SessionStatus.INTERRUPTED
    # What waits in it waits on, and the agent finds it when it is back.
    await at.decide(id, Decision.APPROVE)
    back = await at.arrive(root)
    assert back.session_id == guest.session_id
    assert [late.request_id for late in (await back.ask(Ping(call="b"))).late_verdicts] == [id]
    assert await status(back) is SessionStatus.ACTIVE


async def test_a_connection_that_comes_back_in_time_was_never_gone(at: House, guest: Guest) -> None:
    for _ in range(3):
        at.gone("agent")
        await at.later(GRACE_SECONDS - 1)
        at.back("agent")
        await at.later(GRACE_SECONDS)
        assert await status(guest) is SessionStatus.ACTIVE
    kinds = [entry.kind for entry in await at.app.service.audit(50)]
    assert "session_interrupted" not in kinds


async def test_after_a_restart_agents_have_a_minute_to_come_back(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        other = await at.arrive(root, "other")
    async with house(root.parent, clock) as at:
        at.back("agent")
        # Time counts from when everybody has been brought back.
        await at.ask("registry", Wanted(guest.session_id))
        # Up to the last sweep before it, which else is all that is done in one leap of time.
        await at.later(START_GRACE_SECONDS - 1)
        await at.later(1)
        stand = {session.id: session.status for session in await at.app.service.sessions()}
        assert stand[guest.session_id] is SessionStatus.ACTIVE
        assert stand[other.session_id] is SessionStatus.INTERRUPTED


async def test_people_are_told_what_a_restart_found(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        await guest.propose()
    async with house(root.parent, clock) as at:
        (entry,) = [e for e in await at.app.service.audit(50) if e.kind == "clearance_asked"]
        assert entry.session_id == guest.session_id
        assert len(await at.app.service.pending()) == 1


async def test_progress_that_was_told_is_found_again(clock: Clock, root: Path) -> None:
    items = (ProgressItem("one", ProgressStatus.DONE), ProgressItem("two", ProgressStatus.IN_PROGRESS))
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert (await guest.ask(Reboot(call="r"))).answer.status == "clean"
        await guest.ask(Ping(None, items, call="b"))
    async with house(root.parent, clock) as at:
        back = await at.arrive(root)
        recalled = (await back.ask(Reboot(call="r"))).answer
        assert (recalled.status, recalled.progress_snapshot) == ("recovered", items)


async def test_an_agent_with_work_of_its_own_keeps_it(at: House, root: Path) -> None:
    await at.arrive(root, "gone")
    at.gone("gone")
    await at.later(GRACE_SECONDS)
    busy = await at.arrive(root, "busy")
    await busy.propose()
    assert await at.ask("registry", Adopt(busy.agent)) == busy.session_id


async def test_a_session_that_was_ended_is_not_taken_up_again(at: House, guest: Guest, root: Path) -> None:
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    again = await at.arrive(root)
    assert again.session_id != guest.session_id
    with pytest.raises(InvalidState, match="was ended"):
        await at.ask("registry", Adopt(again.agent, guest.session_id))


async def test_a_session_without_an_agent_can_still_be_answered_after_a_restart(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        at.gone("agent")
        await at.later(GRACE_SECONDS)
    async with house(root.parent, clock) as at:
        assert await at.ask("registry", Wanted(guest.session_id)) == guest.session_id
        assert (await at.decide(id, Decision.REJECT, "no")).decided is not None


async def test_after_a_restart_a_verdict_waits_for_its_own_session_and_not_for_all(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        for number in range(5):
            await at.arrive(root, f"idle {number}")
    started: list[str] = []
    held = trio.Event()
    start = RunningSessions.run

    async def slowly(running: RunningSessions, session: Session) -> None:
        if started:
            # All the others take for ever.
            await held.wait()
        started.append(session.id)
        await start(running, session)

    with patch.object(RunningSessions, "run", slowly):
        async with house(root.parent, clock) as at:
            assert (await at.decide(id, Decision.REJECT, "no")).decided is not None
            assert started == [guest.session_id]
            held.set()
            await at.ask("registry", Wanted(guest.session_id))
            assert len(set(started)) == 6


async def test_a_session_that_waits_for_its_policy_holds_up_nobody_who_would_bring_that_back(
    clock: Clock, root: Path
) -> None:
    happened: list[Event] = []
    waits, judge = trio.Event(), SessionActor.judge

    async def noted(session: SessionActor, question: Evaluate) -> PolicyAnswer:
        waits.set()
        return await judge(session, question)

    (elsewhere := root.parent / "elsewhere").mkdir()
    async with house(root.parent, clock) as at:
        await at.arrive(root, "another")
        guest = await at.arrive(elsewhere)
        at.app.on_event = happened.append
        await fall(at, "policies", watcher_name(elsewhere), watcher_name(root))
        with patch.object(SessionActor, "judge", noted):
            asked = at.begin(partial_ask(guest, AutoCheck("write", CheckContext("a"))))
            await waits.wait()
        await fall(at, "sessions", "sessions")
        async with at.restarting():
            assert not (await asked()).answer.auto_approved
        assert clock.current_time() < 2
    assert not [event for event in happened if isinstance(event, StopOverran)]
