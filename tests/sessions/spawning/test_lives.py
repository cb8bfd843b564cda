"""Agents that people start: from the first word to the last, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import trio

from intercom.model.child import Exit, Why
from intercom.model.errors import IntercomError, SpawnFailed
from intercom.model.session import SessionStatus
from tests.sessions.spawning.yard import Yard, real, yard

NOTE = """
import json, os, sys
said = {"arguments": sys.argv[1:], "cwd": os.getcwd(), "environ": dict(os.environ), "sid": os.getsid(0) == os.getpid()}
open("seen.json", "w").write(json.dumps(said))
"""
#: Runs until it is ended, and says so in its workspace.
STAYS = (
    NOTE
    + """
import time
print("here I am")
open("pid", "w").write(str(os.getpid()))
time.sleep(1000)
"""
)


@pytest.fixture
def at() -> Iterator[Yard]:
    with yard() as made:
        yield made


@real
async def test_an_agent_that_does_its_work_ends_its_session_well(at: Yard) -> None:
    at.agent(NOTE + "print('all done')\n")
    async with at.serving() as house:
        session = await house.start("tidy up")
        child = await house.until_over(session.id)
        assert (child.exit, child.why) == (Exit(code=0), Why.ENDED)
        assert (await house.session(session.id)).status is SessionStatus.TERMINATED
        notice = await house.people.notice("session ended")
        assert "its agent is done; its last words: all done" in notice.text
        assert (await house.app.desk.children.output(session.id)).text == "all done\n"


@real
async def test_one_that_fails_leaves_its_session_interrupted_with_its_exit_code(at: Yard) -> None:
    at.agent("import sys; print('half', flush=True); sys.exit('no such thing')")
    async with at.serving() as house:
        session = await house.start()
        assert (await house.until_over(session.id)).exit == Exit(code=1)
        assert (await house.session(session.id)).status is SessionStatus.INTERRUPTED
        notice = await house.people.notice("process ended")
        assert (notice.level, notice.text) == (
            "error",
            "the agent's process ended (exit code 1); its last words: no such thing",
        )


@real
async def test_a_program_that_is_not_there_is_refused_before_anything_is_on_record(at: Yard) -> None:
    from attrs import evolve

    at.config = evolve(at.config, host_cli="no-such-program")
    async with at.serving() as house:
        with pytest.raises(IntercomError, match="not found in the server's PATH"):
            await house.start()
        assert await house.app.desk.sessions(everything=True) == ()
        assert await house.app.desk.children.everyone() == {}


@real
async def test_a_program_that_can_not_be_run_ends_its_session_and_says_why(at: Yard) -> None:
    from attrs import evolve

    broken = at.root / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    at.config = evolve(at.config, host_cli=str(broken))
    async with at.serving() as house:
        with pytest.raises(SpawnFailed, match="broken: no such file"):
            await house.start()
        (session,) = await house.app.desk.sessions(everything=True)
        await house.until_over(session.id)
        assert (await house.session(session.id)).status is SessionStatus.TERMINATED


@real
async def test_clearing_ends_all_that_the_agent_ever_started(at: Yard) -> None:
    at.agent(
        STAYS.replace(
            "time.sleep",
            """
import subprocess
for how in ({}, {"start_new_session": True}, {"process_group": 0}, {"env": {}, "start_new_session": True}):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], **how)
# One whose parent is gone, and one that does not go when it is asked.
subprocess.run(["sh", "-c", "(trap '' TERM; setsid sleep 1000) & setsid sleep 1000 &"])
open("ready", "w").write("yes")
time.sleep""",
        )
    )
    async with at.serving() as house:
        session = await house.start()
        await house.until_written("ready")
        child = await house.child(session.id)
        assert child.keeper is not None
        from intercom.sessions.spawning.processes import Family

        family = Family(session.id, child.keeper, None)
        members = family.members()
        assert len(members) >= 7
        await house.app.desk.end(session.id, "kim", "ctl", "enough")
        assert (await house.until_over(session.id)).why is Why.CLEARED
        for pid in [*members, child.keeper.pid]:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


@real
async def test_one_that_is_killed_from_outside_is_noticed_and_said_so(at: Yard) -> None:
    at.agent(STAYS)
    async with at.serving() as house:
        session = await house.start()
        os.kill(int(await house.until_written("pid")), signal.SIGKILL)
        with trio.fail_after(5):
            assert (await house.until_over(session.id)).exit == Exit(signal=signal.SIGKILL)
        assert "killed by SIGKILL" in (await house.people.notice("process ended")).text
