"""Agents that people started, held up and woken: processes stand still while their session is paused, and one that has
ended is started again for instructions that it did not hear.
"""

from __future__ import annotations

import json

import psutil
import pytest

from intercom.model.config import SpawnRestart
from intercom.model.process import Exit
from intercom.model.session import SessionStatus
from intercom.sessions.messages import Deliver, Delivery
from intercom.sessions.processes import agent_process as command
from intercom.sessions.tools.ping import Ping
from tests.sessions.spawning.spawning_server import SpawningHome, SpawningServer

pytestmark = pytest.mark.real_time

GOOD = Exit(code=0)
#: Each run says what it was given, and goes once it is let go.
RUNS = """
import json, os, sys, time
number = sum(name.startswith("run-") for name in os.listdir("."))
open("next", "w").write(json.dumps(sys.argv[1:]))
os.rename("next", f"run-{number}")
while not os.path.exists(f"go-{number}"):
    time.sleep(0.01)
"""


def let_go(at: SpawningHome, run: int) -> None:
    (at.workspace / f"go-{run}").touch()


async def given(home: SpawningServer, run: int) -> list[str]:
    found: list[str] = json.loads(await home.until_written(f"run-{run}"))
    return found


async def test_instructions_that_came_while_it_worked_wake_it_once_it_has_ended(at: SpawningHome) -> None:
    at.agent(RUNS)
    script = at.config.host_cli_args
    at.settings(resume_args=(*script, "--resume", "{session_id}"))
    async with at.serving() as home:
        session = await home.start("tidy up")
        assert await given(home, 0) == ["tidy up"]
        card = await home.app.service.steering.steer(session.id, "mind the gap", "kim", "ctl")
        let_go(at, 0)
        assert await given(home, 1) == ["--resume", session.id, command.WAKE]
        assert (await home.session(session.id)).status is SessionStatus.ACTIVE
        told = await home.ask(f"session/{session.id}", Ping(call="c-1"))
        assert [each.text for each in told.instructions] == ["mind the gap"]
        await home.ask(f"session/{session.id}", Deliver((Delivery("c-1", (), (card.id,)),)))
        let_go(at, 1)
        child = await home.until_over(session.id)
        assert (child.run, child.exit) == (2, GOOD)
        assert (await home.session(session.id)).status is SessionStatus.TERMINATED


async def test_one_that_does_not_ask_what_there_is_for_it_is_let_go(at: SpawningHome) -> None:
    at.agent(RUNS)
    at.settings(resume_args=at.config.host_cli_args, max_restarts=1, restart=SpawnRestart.NEVER)
    async with at.serving() as home:
        session = await home.start("tidy up")
        await given(home, 0)
        card = await home.app.service.steering.steer(session.id, "mind the gap", "kim", "ctl")
        for run in range(3):
            let_go(at, run)
        child = await home.until_over(session.id)
        assert child.run == 2
        assert (await home.app.service.card(card.id)).state.value == "closed"


async def test_its_processes_stand_still_while_the_session_is_paused(at: SpawningHome) -> None:
    at.agent(RUNS)
    async with at.serving() as home:
        session = await home.start("tidy up")
        await given(home, 0)
        child = await home.child(session.id)
        process = psutil.Process(child.process.pid)
        await home.app.service.steering.pause(session.id, "kim", "ctl")
        await home.until(lambda: process.status() == psutil.STATUS_STOPPED)
        let_go(at, 0)
        assert process.status() == psutil.STATUS_STOPPED
        assert (await home.child(session.id)).exit is None
        await home.app.service.steering.unpause(session.id, "kim", "ctl")
        assert (await home.until_over(session.id)).exit == GOOD
