"""Agents that people started, held up and woken: processes stand still while their session is paused, and one that has
ended is started again for words that it did not hear.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from attrs import evolve

from intercom.model.config import Config, SpawnRestart, SpawnSettings
from intercom.model.process import Exit
from intercom.model.session import SessionStatus
from intercom.sessions.messages import Deliver, Delivery
from intercom.sessions.processes import agent_process, command
from intercom.sessions.processes.agent_process import Decision, Runs, Then
from intercom.sessions.tools.ping import Ping
from tests.sessions.spawning.yard import House, Yard, real, yard

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD, BAD = Exit(code=0), Exit(code=1)
RESUMING = SpawnSettings(resume_args=("--resume", "{session_id}"), max_restarts=2)
#: Each run says what it was given, and goes once it is let go.
RUNS = """
import json, os, sys, time
number = sum(name.startswith("run-") for name in os.listdir("."))
open("next", "w").write(json.dumps(sys.argv[1:]))
os.rename("next", f"run-{number}")
while not os.path.exists(f"go-{number}"):
    time.sleep(0.01)
"""


@pytest.fixture
def at() -> Iterator[Yard]:
    with yard() as made:
        yield made


@pytest.mark.parametrize(
    ("ended", "settings", "before", "given", "then", "after"),
    [
        (GOOD, RESUMING, 0, 5, Then.AGAIN, 1),
        # However often it was woken for others: it has not been told of these.
        (GOOD, RESUMING, 2, 5, Then.AGAIN, 1),
        (GOOD, RESUMING, 1, -5, Then.AGAIN, 2),
        (GOOD, RESUMING, 2, -5, Then.OVER, 2),
        (GOOD, RESUMING, 0, None, Then.OVER, 0),
        (BAD, RESUMING, 0, 5, Then.OVER, 0),
        (GOOD, SpawnSettings(), 0, 5, Then.OVER, 0),
    ],
)
def test_an_agent_that_ended_well_is_woken_for_words_it_did_not_hear(
    ended: Exit, settings: SpawnSettings, before: int, given: int | None, then: Then, after: int
) -> None:
    began = NOW - timedelta(seconds=10)
    words_at = None if given is None else began + timedelta(seconds=given)
    runs, decided = agent_process.step(Runs(began, before), ended, NOW, settings, words_at)
    assert decided == Decision(then, NOW if then is Then.AGAIN else None)
    assert runs.restarts == after


def test_the_session_stands_in_the_arguments_and_never_in_the_prompt() -> None:
    config = Config(host_cli="sh", host_cli_args=("--session-id", "{session_id}"), spawn=RESUMING)
    first = command.build_command(config, "say {session_id}", {"PATH": "/bin:/usr/bin"}, "s-1")
    assert first.arguments[1:] == ("--session-id", "s-1", "say {session_id}")
    woken = command.build_command(config, "say {session_id}", {"PATH": "/bin:/usr/bin"}, "s-1", resumes=True)
    assert woken.arguments[1:] == ("--resume", "s-1", command.WAKE)


def let_go(at: Yard, run: int) -> None:
    (at.workspace / f"go-{run}").touch()


async def given(house: House, run: int) -> list[str]:
    found: list[str] = json.loads(await house.until_written(f"run-{run}"))
    return found


@real
async def test_words_that_came_while_it_worked_wake_it_once_it_has_ended(at: Yard) -> None:
    at.agent(RUNS)
    script = at.config.host_cli_args
    at.settings(resume_args=(*script, "--resume", "{session_id}"))
    async with at.serving() as house:
        session = await house.start("tidy up")
        assert await given(house, 0) == ["tidy up"]
        card = await house.app.service.steering.steer(session.id, "mind the gap", "kim", "ctl")
        let_go(at, 0)
        assert await given(house, 1) == ["--resume", session.id, command.WAKE]
        assert (await house.session(session.id)).status is SessionStatus.ACTIVE
        told = await house.ask(f"session/{session.id}", Ping(call="c-1"))
        assert [word.text for word in told.instructions] == ["mind the gap"]
        await house.ask(f"session/{session.id}", Deliver((Delivery("c-1", (), (card.id,)),)))
        let_go(at, 1)
        child = await house.until_over(session.id)
        assert (child.run, child.exit) == (2, GOOD)
        assert (await house.session(session.id)).status is SessionStatus.TERMINATED


@real
async def test_one_that_does_not_ask_what_there_is_for_it_is_let_go(at: Yard) -> None:
    at.agent(RUNS)
    at.settings(resume_args=at.config.host_cli_args, max_restarts=1, restart=SpawnRestart.NEVER)
    async with at.serving() as house:
        session = await house.start("tidy up")
        await given(house, 0)
        card = await house.app.service.steering.steer(session.id, "mind the gap", "kim", "ctl")
        for run in range(3):
            let_go(at, run)
        child = await house.until_over(session.id)
        assert child.run == 2
        assert (await house.app.service.card(card.id)).state.value == "closed"


@real
async def test_its_processes_stand_still_while_the_session_is_paused(at: Yard) -> None:
    at.agent(RUNS)
    async with at.serving() as house:
        session = await house.start("tidy up")
        await given(house, 0)
        child = await house.child(session.id)
        assert child.process is not None
        process = psutil.Process(child.process.pid)

        async def stands() -> bool:
            return bool(process.status() == psutil.STATUS_STOPPED)

        await house.app.service.steering.pause(session.id, "kim", "ctl")
        await house.until(stands)
        let_go(at, 0)
        assert await stands()
        assert (await house.child(session.id)).exit is None
        await house.app.service.steering.unpause(session.id, "kim", "ctl")
        assert (await house.until_over(session.id)).exit == GOOD


def test_a_first_run_is_given_its_prompt_and_not_woken() -> None:
    config = evolve(Config(host_cli="sh"), spawn=RESUMING)
    assert command.build_command(config, "go", {"PATH": "/bin:/usr/bin"}).arguments[1:] == ("go",)
