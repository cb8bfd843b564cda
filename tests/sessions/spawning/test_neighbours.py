"""What the rest of the server makes of a session whose agent people started."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio.testing
from attrs import evolve

from actors import ask
from intercom.local.processes import examine
from intercom.model.config import SpawnRestart
from intercom.model.process import AgentProcess, AgentProcessState, Process, Why
from intercom.model.session import SessionStatus
from intercom.sessions.housekeeping import PURGE_SECONDS
from intercom.sessions.messages import (
    Admit,
    Adopt,
    Agent,
    AgentLeft,
    Describe,
    ProcessEnded,
    ProcessStarted,
    Suspend,
    key_of,
)
from intercom.sessions.processes import monitor_client, spawner
from intercom.sessions.processes.agent_process import AgentProcessActor, MonitorAnswer
from intercom.sessions.processes.monitor_program import segment_name
from intercom.store import sessions
from intercom.store.processes import agent_processes
from intercom.store.writer_messages import Database, Transact
from tests.sessions.spawning.spawning_server import SpawningHome
from tests.support.virtual_server import virtual_server

pytestmark = pytest.mark.real_time

#: Runs until it is told to go.
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


def stands_still(pid: int) -> bool:
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)


@pytest.fixture(autouse=True)
def waits(request: pytest.FixtureRequest) -> None:
    if "at" in request.fixturenames:
        request.getfixturevalue("at").agent(WAITS)


async def test_a_connection_that_is_gone_proves_nothing_while_the_process_lives(at: SpawningHome) -> None:
    async with at.serving() as server:
        session = await server.start()
        name = server.app.system.named(f"session/{session.id}")
        name.tell(AgentLeft())
        assert (await server.ask(name.label, Describe())).status is SessionStatus.ACTIVE


async def test_no_other_agent_of_the_workspace_is_given_its_session_unasked(at: SpawningHome) -> None:
    async with at.serving() as server:
        session = await server.start()
        other = Agent("other", None, str(at.workspace))
        own = await server.ask("registry", Admit(other))
        assert await server.ask("registry", Adopt(other)) == own != session.id


async def test_its_processes_count_as_an_agents_as_long_as_any_is_there(at: SpawningHome) -> None:
    async with at.serving() as server:
        session = await server.start()
        child = await server.child(session.id)
        recorded = {examine(child.monitor.pid).key, examine(child.process.pid).key}
        assert recorded <= server.app.processes.known().processes
        (at.workspace / "go").touch()
        await server.until_over(session.id)
        await server.until(lambda: not server.app.processes.connected)
        server.app.system.named("housekeeping").tell("prune")
        await server.until(lambda: not recorded & server.app.processes.known().processes)


async def test_its_processes_count_as_an_agents_whoever_asks_for_it_again_and_whatever_falls(at: SpawningHome) -> None:
    async with at.serving() as server:
        session = await server.start(act="one-act")
        known = server.app.processes.connected[f"agent-process/{session.id}"]
        assert len(known) == 2
        assert (await server.start(act="one-act")).id == session.id
        assert server.app.processes.connected[f"agent-process/{session.id}"] == known
        await server.crash("spawner")
        # Answered once the new one has brought back all there is.
        await server.start(act="one-act")
        assert server.app.processes.connected[f"agent-process/{session.id}"] == known
        server.app.hands_over = True
    async with at.serving() as server:
        came: list[frozenset[int]] = []
        spawning = server.app._spawning()
        (child,) = (await server.app.service.agent_processes.everyone()).values()
        later = evolve(spawning, came=lambda _door, _session_id, pids: came.append(pids))
        later.note_first(child)
        later.note_first(evolve(child, monitor=None, process=None))
        later.note(evolve(child, process=Process(os.getpid(), 1.0)))
        assert came == [known, {child.monitor.pid}]


async def test_only_monitors_that_live_are_kept_apart_from_its_processes(at: SpawningHome) -> None:
    async with at.serving() as server:
        session = await server.start()
        actor = server.app.system.named(f"agent-process/{session.id}").ref
        assert actor is not None
        own = await server.child(session.id)
        gone, living = Process(os.getpid(), 1.0), monitor_client.identify(os.getpid())
        for monitor, spared in ((gone, set()), (living, {os.getpid()})):
            spawning = server.app._spawning()
            spawning.note(AgentProcess("another", AgentProcessState.WAITING, own.created_at, "kim", monitor=monitor))
            looked = AgentProcessActor(session.id, spawning)
            looked._row = own
            assert set(looked._family().spared) == spared


async def test_one_that_is_paused_while_it_is_started_starts_and_is_held_then(at: SpawningHome) -> None:
    at.settings(restart=SpawnRestart.ALWAYS, restart_backoff_seconds=0.01)
    at.agent("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nos.remove('go')\n")
    async with at.serving() as server:
        session = await server.start()
        name = server.app.system.named(f"agent-process/{session.id}")
        told: list[object] = []

        async def tell_monitor(*given: Any) -> MonitorAnswer:
            # The session is paused just now.
            await server.app.service.steering.pause(session.id, "kim", "ctl")
            told.append(await ask(name, Suspend()))
            return await original(*given)

        original = AgentProcessActor._tell_monitor
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AgentProcessActor, "_tell_monitor", tell_monitor)
            patch.setattr(monitor_client, "reach", None)
            (at.workspace / "go").touch()
            await server.until(lambda: bool(told))
        assert told == [0]

        async def stands() -> bool:
            child = await server.child(session.id)
            return child.run == 2 and child.process is not None and stands_still(child.process.pid)

        await server.until(stands)


async def test_the_actors_around_it_may_fall(at: SpawningHome) -> None:
    async with at.serving() as server:
        session = await server.start()
        for label in ("spawner", "agent-processes"):
            await server.crash(label)
        (at.workspace / "go").touch()
        assert (await server.until_over(session.id)).exit is not None
        assert (await server.start("another")).status is SessionStatus.ACTIVE


async def test_a_start_that_takes_long_is_waited_for(at: SpawningHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawner, "START_SECONDS", 0.001)
    async with at.serving() as server:
        before = server.app.system.named("spawner").ref
        assert (await server.start()).status is SessionStatus.ACTIVE
        assert server.app.system.named("spawner").ref is before


async def test_the_end_of_a_process_whose_session_is_interrupted_already_changes_nothing(
    clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with virtual_server(tmp_path, clock) as at:
        (tmp_path / "ws").mkdir()
        agent = await at.arrive(tmp_path / "ws")
        agent.tell(AgentLeft())
        news = ProcessEnded(1, Why.SHUTDOWN, None, "", None, None)
        assert [(await agent.ask(news)).status for _ in range(2)] == [SessionStatus.INTERRUPTED] * 2


async def test_a_session_that_was_there_before_waits_for_another_where_its_agent_can_not_be_started(
    clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with virtual_server(tmp_path, clock) as at:
        (tmp_path / "ws").mkdir()
        agent = await at.arrive(tmp_path / "ws")
        opened = await agent.propose()
        agent.tell(AgentLeft())
        news = ProcessEnded(1, Why.NOT_STARTED, None, "", "agent: exec format error", None)
        assert [(await agent.ask(news)).status for _ in range(2)] == [SessionStatus.INTERRUPTED] * 2
        assert [card.id for card in await at.app.service.pending()] == [opened.request_id]
        await at.operator.notice("waits for another: agent: exec format error")


async def test_a_start_that_is_told_after_the_end_is_no_news(clock: trio.testing.MockClock, tmp_path: Path) -> None:
    async with virtual_server(tmp_path, clock) as at:
        (tmp_path / "ws").mkdir()
        agent = await at.arrive(tmp_path / "ws")
        await at.app.service.end(agent.session_id, "kim", "ctl", "enough")
        assert (await agent.ask(ProcessStarted(1, 7, "kim"))).status is SessionStatus.TERMINATED
        await at.later(0)
        assert not [notice for notice in at.operator.notices if "agent started" in notice.text]


@pytest.mark.parametrize("state", AgentProcessState)
async def test_what_it_writes_is_read_in_whole_characters_until_its_end(
    clock: trio.testing.MockClock, tmp_path: Path, state: AgentProcessState
) -> None:
    async with virtual_server(tmp_path, clock) as at:
        (tmp_path / "ws").mkdir()
        id = (await at.arrive(tmp_path / "ws")).session_id
        outputs = at.app.service.agent_processes
        await at.ask("store", Transact(lambda db: agent_processes.insert(db, AgentProcess(id, state, at.now(), "kim"))))
        (outputs.root / id).mkdir(parents=True)
        log = outputs.root / id / segment_name("stdout", 0)
        log.write_bytes("abé".encode()[:-1])
        for start in (None, 0):
            said = await outputs.output(id, start=start)
            over = ("ab\N{REPLACEMENT CHARACTER}", 3, False)
            assert (said.text, said.end, said.is_going) == (
                over if state is AgentProcessState.OVER else ("ab", 2, True)
            )
        log.write_text("abé", "utf-8")
        assert (await outputs.output(id, start=2)).text == "é"


async def test_what_it_wrote_goes_with_its_session(clock: trio.testing.MockClock, tmp_path: Path) -> None:
    async with virtual_server(tmp_path, clock) as at:
        outputs = at.app.service.agent_processes.root
        long_ago = at.now() - timedelta(days=at.app.config.retention_days + 1)

        def put(db: Database) -> None:
            for id, ended in (("old", long_ago), ("new", at.now())):
                agent = sessions.get(db, own)
                assert agent is not None
                row = evolve(agent, id=id, agent_key=key_of(id), status=SessionStatus.TERMINATED, terminated_at=ended)
                sessions.insert(db, row)
                agent_processes.insert(db, AgentProcess(id, AgentProcessState.OVER, ended, "kim"))

        root = tmp_path / "ws"
        root.mkdir()
        own = (await at.arrive(root)).session_id
        await at.ask("store", Transact(put))
        for id in ("old", "new"):
            (outputs / id).mkdir(parents=True)
            (outputs / id / "stdout-0.log").write_text("words")
        await at.later(PURGE_SECONDS)
        while set(await at.app.service.agent_processes.everyone()) != {"new"}:
            await trio.testing.wait_all_tasks_blocked()
        assert not (outputs / "old").exists()
        assert (outputs / "new").exists()
