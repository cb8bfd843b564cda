"""Who is here: agents come, go, come back, and leave their sessions behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trio.testing

from actors import Event, StopOverran
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.model.errors import InvalidState
from intercom.model.policy import PolicyAnswer
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionStatus
from intercom.sessions.messages import Admit, Adopt, Agent, Describe, Wanted
from intercom.sessions.registry import GRACE_SECONDS, START_GRACE_SECONDS, Recovery, RunningSessions
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.store.requests import Counts, Waiting
from intercom.store.store_and_reader import Store
from intercom.store.writer_messages import Database
from intercom.workspace.policy_watcher import Evaluate, watcher_name
from tests.support.virtual_server import AgentClient, VirtualServer, partial_ask, virtual_server

Clock = trio.testing.MockClock


async def fall(server: VirtualServer, who: str, *until_gone: str) -> None:
    """Let an actor crash; these are gone when this returns."""
    ref = server.app.system.ref(who)
    ref._crash(RuntimeError("as a test wants it"))
    while any(server.app.system.ref(name) for name in until_gone):
        await trio.testing.wait_all_tasks_blocked()


async def status(agent: AgentClient) -> SessionStatus:
    return (await agent.ask(Describe())).status


@pytest.mark.parametrize(
    ("standing_by", "told"),
    [
        (0, "0 pending prompts, 0 sessions without an agent at the moment"),
        (1, "0 pending prompts, 1 agent standing by, 0 sessions without an agent at the moment"),
    ],
)
def test_the_notice_of_a_restart_counts_only_agents_that_stand_by(standing_by: int, told: str) -> None:
    waiting = {kind: Waiting() for kind in CardKind} | {CardKind.STANDBY: Waiting(standing_by)}
    counts = Counts(waiting, waiting, dict.fromkeys(SessionStatus, 0), {})
    assert (
        Recovery((), (), frozenset(), counts, ())
        .sentence()
        .endswith(f"{told}: an agent that comes back resumes with its tool reboot")
    )


@pytest.mark.parametrize(
    ("waiting", "has_unfinished", "level"),
    [
        (None, False, "info"),
        (CardKind.STANDBY, False, "info"),
        (CardKind.APPROVAL, False, "warning"),
        (CardKind.PROMPT, False, "warning"),
        (None, True, "warning"),
    ],
)
def test_the_notice_of_a_restart_warns_only_of_what_a_person_has_to_look_at(
    waiting: CardKind | None, has_unfinished: bool, level: str
) -> None:
    pending = {kind: Waiting(int(kind is waiting)) for kind in CardKind}
    away = dict.fromkeys(SessionStatus, 0) | {SessionStatus.INTERRUPTED: 3}
    found = Recovery((), (), frozenset(), Counts(pending, pending, away, {}), (), has_unfinished)
    assert found.level == level
    assert "3 sessions without an agent at the moment" in found.sentence()


async def test_first_calls_that_race_open_one_session(server: VirtualServer, root: Path) -> None:
    agent = Agent("agent", "client", str(root))
    asked = [server.begin(lambda: server.ask("registry", Admit(agent))) for _ in range(10)]
    assert len({await each() for each in asked}) == 1
    assert len(await server.app.service.sessions()) == 1


async def test_a_new_agent_takes_one_transaction(server: VirtualServer, root: Path) -> None:
    works: list[object] = []
    transact = Store.transact

    async def noted(store: Store, work: Callable[[Database], object], **more: Any) -> object:
        works.append(work)
        return await transact(store, work, **more)

    await server.arrive(root, "first")
    await server.later(0)
    with patch.object(Store, "transact", noted):
        server.back("second")
        agent = await server.arrive(root, "second")
        assert (await agent.ask(Ping(call="b"))).answer.acknowledged
    assert len(works) == 1
    assert await status(agent) is SessionStatus.ACTIVE
    kinds = [entry.kind for entry in await server.app.service.audit(50) if entry.session_id == agent.session_id]
    assert kinds == ["session_opened", "session_active"]


async def test_a_session_is_interrupted_when_its_agent_stays_away(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    assert await status(agent) is SessionStatus.ACTIVE
    server.gone("agent")
    await server.later(GRACE_SECONDS - 0.1)
    assert await status(agent) is SessionStatus.ACTIVE
    await server.later(0.1)
    assert await status(agent) is SessionStatus.INTERRUPTED
    # What waits in it waits on, and the agent finds it when it is back.
    await server.decide(id, Decision.APPROVE)
    back = await server.arrive(root)
    assert back.session_id == agent.session_id
    assert [late.request_id for late in (await back.ask(Ping(call="b"))).late_verdicts] == [id]
    assert await status(back) is SessionStatus.ACTIVE


async def test_a_connection_that_comes_back_in_time_was_never_gone(server: VirtualServer, agent: AgentClient) -> None:
    for _ in range(3):
        server.gone("agent")
        await server.later(GRACE_SECONDS - 1)
        server.back("agent")
        await server.later(GRACE_SECONDS)
        assert await status(agent) is SessionStatus.ACTIVE
    kinds = [entry.kind for entry in await server.app.service.audit(50)]
    assert "session_interrupted" not in kinds


async def test_after_a_restart_agents_have_a_minute_to_come_back(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        other = await server.arrive(root, "other")
    async with virtual_server(root.parent, clock) as server:
        server.back("agent")
        # Time counts from when everybody has been brought back.
        await server.ask("registry", Wanted(agent.session_id))
        # Up to the last sweep before it, which else is all that is done in one leap of time.
        await server.later(START_GRACE_SECONDS - 1)
        await server.later(1)
        stand = {session.id: session.status for session in await server.app.service.sessions()}
        assert stand[agent.session_id] is SessionStatus.ACTIVE
        assert stand[other.session_id] is SessionStatus.INTERRUPTED


async def test_people_are_told_what_a_restart_found(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await agent.propose()
    async with virtual_server(root.parent, clock) as server:
        (entry,) = [e for e in await server.app.service.audit(50) if e.kind == "clearance_asked"]
        assert entry.session_id == agent.session_id
        assert len(await server.app.service.pending()) == 1


async def test_progress_that_was_told_is_found_again(clock: Clock, root: Path) -> None:
    items = (ProgressItem("one", ProgressStatus.DONE), ProgressItem("two", ProgressStatus.IN_PROGRESS))
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert (await agent.ask(Reboot(call="r"))).answer.status == "clean"
        await agent.ask(Ping(None, items, call="b"))
    async with virtual_server(root.parent, clock) as server:
        back = await server.arrive(root)
        recalled = (await back.ask(Reboot(call="r"))).answer
        assert (recalled.status, recalled.progress_snapshot) == ("recovered", items)


async def test_an_agent_with_work_of_its_own_keeps_it(server: VirtualServer, root: Path) -> None:
    await server.arrive(root, "gone")
    server.gone("gone")
    await server.later(GRACE_SECONDS)
    busy = await server.arrive(root, "busy")
    await busy.propose()
    assert await server.ask("registry", Adopt(busy.identity)) == busy.session_id


async def test_a_session_that_was_ended_is_not_taken_up_again(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    again = await server.arrive(root)
    assert again.session_id != agent.session_id
    with pytest.raises(InvalidState, match="was ended"):
        await server.ask("registry", Adopt(again.identity, agent.session_id))


async def test_a_session_without_an_agent_can_still_be_answered_after_a_restart(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        server.gone("agent")
        await server.later(GRACE_SECONDS)
    async with virtual_server(root.parent, clock) as server:
        assert await server.ask("registry", Wanted(agent.session_id)) == agent.session_id
        assert (await server.decide(id, Decision.REJECT, "no")).decided is not None


async def test_after_a_restart_a_verdict_waits_for_its_own_session_and_not_for_all(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        for number in range(5):
            await server.arrive(root, f"idle {number}")
    started: list[str] = []
    held = trio.Event()
    start = RunningSessions.run

    async def slowly(running: RunningSessions, session: Session, *, is_new: bool) -> None:
        if started:
            # All the others take for ever.
            await held.wait()
        started.append(session.id)
        await start(running, session, is_new=is_new)

    with patch.object(RunningSessions, "run", slowly):
        async with virtual_server(root.parent, clock) as server:
            assert (await server.decide(id, Decision.REJECT, "no")).decided is not None
            assert started == [agent.session_id]
            held.set()
            await server.ask("registry", Wanted(agent.session_id))
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
    async with virtual_server(root.parent, clock) as server:
        await server.arrive(root, "another")
        agent = await server.arrive(elsewhere)
        server.app.on_event = happened.append
        await fall(server, "policies", watcher_name(elsewhere), watcher_name(root))
        with patch.object(SessionActor, "judge", noted):
            asked = server.begin(partial_ask(agent, AutoCheck("write", CheckContext("a"))))
            await waits.wait()
        await fall(server, "sessions", "sessions")
        async with server.restarting():
            assert not (await asked()).answer.auto_approved
        assert clock.current_time() < 2
    assert not [event for event in happened if isinstance(event, StopOverran)]
