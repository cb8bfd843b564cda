"""Sessions whose agents did not come back: they end after a while, people are told once, and retention reaches them."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from actors.testing import inject
from intercom.model.card import CardState
from intercom.model.config import Config
from intercom.model.request import PromptType
from intercom.model.session import Session, SessionStatus
from intercom.sessions.chat_messages import ChatOutbox, thread_key
from intercom.sessions.housekeeping import PRUNE_SECONDS, PURGE_SECONDS
from intercom.sessions.messages import Adopt
from intercom.sessions.tools.transmit import Transmit
from intercom.store import outbox, sessions
from intercom.store.outbox import Urgency
from intercom.store.writer_messages import Transact
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
DAY = 86400.0


async def stand(server: VirtualServer) -> dict[str, SessionStatus]:
    return {session.id: session.status for session in await server.app.service.sessions(everything=True)}


async def rounds(server: VirtualServer, days: float) -> None:
    """So many days pass; the housekeeping has looked at their end."""
    await server.later(60)
    for seconds in (days * DAY, PURGE_SECONDS):
        await server.later(seconds)
        # Each of them is asked in turn, and may have to be woken for it.
        for _ in range(10):
            await server.later(0)


def told(server: VirtualServer) -> list[str]:
    return [notice.text for notice in server.operator.notices if "ended" in notice.text]


async def test_they_end_after_a_week_are_told_of_in_one_line_and_go_with_the_others(
    server: VirtualServer, root: Path
) -> None:
    """They stayed for ever, and retention reached nothing that belonged to them."""
    agents = [await server.arrive(root, key) for key in ("one", "two", "three")]
    # Held: it waits as long as its session is there.
    question = Transmit("What now?", PromptType.ERROR_RECOVERY, call=agents[0].call())
    asked = (await agents[0].ask(question)).request_id
    server.gone("one", "two", "three", for_good=True)
    await rounds(server, 6)
    assert set((await stand(server)).values()) == {SessionStatus.INTERRUPTED}
    assert told(server) == []
    await rounds(server, 1)
    assert set((await stand(server)).values()) == {SessionStatus.TERMINATED}
    # The card is closed, and nobody hears of each session by itself.
    await server.operator.card(id=asked, state=CardState.INTERRUPTED)
    (line,) = told(server)
    assert line.startswith("3 sessions (")
    assert "were ended: away for more than 7 days; pending requests there are closed" in line
    await rounds(server, 1)
    assert len(told(server)) == 1
    await rounds(server, 30)
    assert await stand(server) == {}


async def test_a_person_ends_all_whose_agents_are_away_and_no_other(server: VirtualServer, root: Path) -> None:
    agents = [await server.arrive(root, key) for key in ("one", "two", "three")]
    asked = (await agents[0].propose()).request_id
    server.gone("one", "two", for_good=True)
    await server.later(0)
    # Its agent comes back: it goes on.
    server.back("two")
    await server.later(60)
    ended = await server.app.service.end_interrupted("kim", "ctl", "cleared")
    assert [session.id for session in ended] == [agents[0].session_id]
    await server.operator.card(id=asked, state=CardState.INTERRUPTED)
    states = await stand(server)
    assert [states[agent.session_id] for agent in agents] == [
        SessionStatus.TERMINATED,
        SessionStatus.ACTIVE,
        SessionStatus.ACTIVE,
    ]
    (entry,) = [each for each in await server.app.service.audit(50) if each.kind == "session_terminated"]
    assert (entry.who, entry.summary) == ("kim", "cleared")
    assert await server.app.service.end_interrupted("kim", "ctl", "cleared") == ()


async def test_the_top_of_its_thread_says_that_its_agent_went_and_came_back(clock: Clock, root: Path) -> None:
    """It said "active" until the next card, line or comparison, minutes after the agent had gone."""
    woken: list[None] = []
    chat = ChatOutbox(
        channel_for=lambda session: "C11",
        draw_notice=lambda notice: {"text": notice.text},
        draw_root=lambda session: {"text": f"the session is {session.status.value}"},
        wake=lambda: woken.append(None),
    )
    async with virtual_server(root.parent, clock, chat=chat) as server:
        agent = await server.arrive(root)
        top = thread_key(agent.session_id)
        shown = {"text": "the session is active"}
        put = partial(
            outbox.put, key=top, content=shown, at=server.now(), channel="C11", urgency=Urgency.LOG, open=True
        )
        await server.ask("store", Transact(put))
        for status in ("interrupted", "active"):
            woken.clear()
            if status == "interrupted":
                server.gone("agent", for_good=True)
            else:
                await server.arrive(root)
            await server.later(1)
            row = await server.ask("store", Transact(partial(outbox.by_key, key=top)))
            assert (row.content, row.open) == ({"text": f"the session is {status}"}, True)
            assert woken


async def test_the_top_of_its_thread_says_that_it_ended(clock: Clock, root: Path) -> None:
    woken: list[None] = []
    chat = ChatOutbox(
        channel_for=lambda session: "C11",
        draw_notice=lambda notice: {"text": notice.text},
        draw_root=lambda session: {"text": f"the session is {session.status.value}"},
        wake=lambda: woken.append(None),
    )
    async with virtual_server(root.parent, clock, chat=chat) as server:
        agent = await server.arrive(root)
        top = thread_key(agent.session_id)
        shown = {"text": "the session is interrupted"}
        put = partial(
            outbox.put, key=top, content=shown, at=server.now(), channel="C11", urgency=Urgency.LOG, open=True
        )
        await server.ask("store", Transact(put))
        server.gone("agent", for_good=True)
        await rounds(server, 7)
        row = await server.ask("store", Transact(partial(outbox.by_key, key=top)))
        assert (row.content, row.open) == ({"text": "the session is terminated"}, False)
        assert woken


async def test_until_then_another_agent_may_take_them_up(server: VirtualServer, root: Path) -> None:
    old = await server.arrive(root, "old")
    server.gone("old", for_good=True)
    await rounds(server, 6)
    new = await server.arrive(root, "new")
    assert await server.ask("registry", Adopt(new.identity)) == old.session_id
    await rounds(server, 9)
    assert (await stand(server))[old.session_id] is SessionStatus.ACTIVE
    assert told(server) == []


async def test_one_whose_agent_is_here_or_was_here_since_does_not_end(server: VirtualServer, root: Path) -> None:
    quiet, back = await server.arrive(root, "quiet"), await server.arrive(root, "back")
    server.gone("back", for_good=True)
    await rounds(server, 5)
    server.back("back")
    await server.arrive(root, "back")
    server.gone("back", for_good=True)
    await rounds(server, 4)
    assert await stand(server) == {quiet.session_id: SessionStatus.ACTIVE, back.session_id: SessionStatus.INTERRUPTED}


@pytest.mark.server(Config(interrupted_retention_days=1))
async def test_one_that_nobody_ever_came_to_ends_too_and_the_time_is_a_setting(
    server: VirtualServer, agent: AgentClient
) -> None:
    mine = (await server.app.service.sessions())[0]
    empty: Session = evolve(mine, id="never-came", agent_key=None, status=SessionStatus.CREATED)
    assert await server.ask("store", Transact(partial(sessions.insert, session=empty)))
    await rounds(server, 3)
    assert await stand(server) == {agent.session_id: SessionStatus.ACTIVE, "never-came": SessionStatus.TERMINATED}
    assert told(server) == ["session never-ca was ended: away for more than 1 day; pending requests there are closed"]


async def test_after_a_restart_they_end_too(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        asked = (await agent.ask(Transmit("What now?", PromptType.ERROR_RECOVERY))).request_id
        server.gone("agent", for_good=True)
        await server.later(60)
    clock.jump(8 * DAY)
    async with virtual_server(root.parent, clock) as server:
        await rounds(server, 0)
        assert await stand(server) == {agent.session_id: SessionStatus.TERMINATED}
        await server.operator.card(id=asked, state=CardState.INTERRUPTED)
        assert len(told(server)) == 1


def waiting() -> subprocess.Popen[bytes]:
    """A process in a session of its own, until it is sent a line."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)


async def test_processes_that_are_gone_are_forgotten_while_the_server_runs(server: VirtualServer) -> None:
    """Nothing ever asked for it: a server knew every process of every agent that had connected since its start."""
    done = waiting()
    await server.app.processes.came("one", [done.pid])
    server.app.processes.left("one")
    assert done.pid in {key.pid for key in server.app.processes.known().processes}
    done.communicate(b"\n")
    await server.later(PRUNE_SECONDS)
    assert done.pid not in {key.pid for key in server.app.processes.known().processes}


async def test_one_that_cannot_be_started_keeps_no_other_from_ending(server: VirtualServer, root: Path) -> None:
    one, other = [await server.arrive(root, key) for key in ("one", "other")]
    server.gone("one", "other", for_good=True)
    await rounds(server, 6)
    inject(server.app.system, f"session/{one.session_id}", RuntimeError("a row cannot be read"), "next start")
    await rounds(server, 2)
    assert (await stand(server))[other.session_id] is SessionStatus.TERMINATED
    assert "a row cannot be read" in (await server.operator.notice("cannot be started")).text
