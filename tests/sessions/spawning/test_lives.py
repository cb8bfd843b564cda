"""Agents that people start: from the first word to the last, with real processes."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest
import trio
from attrs import evolve

from actors import ask
from intercom.embedding import EmbeddedOperator
from intercom.model.card import CardState
from intercom.model.checkpoint import Files
from intercom.model.config import SpawnRestart
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import IntercomError, SpawnFailed
from intercom.model.process import AgentProcessState, Exit, Why
from intercom.model.session import SessionStatus
from intercom.sessions.messages import Admit, Agent, Suspend, key_of
from intercom.sessions.processes import monitor_client
from intercom.sessions.processes.agent_process import RunAgain
from intercom.sessions.processes.monitor_client import Family, Stream
from intercom.sessions.tools.check_clearance import CheckClearance
from tests.sessions.spawning.spawning_server import SpawningHome

pytestmark = pytest.mark.real_time

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


async def test_an_agent_that_does_its_work_ends_its_session_well(at: SpawningHome) -> None:
    at.agent(NOTE + "print('all done')\n")
    async with at.serving() as home:
        session = await home.start("tidy up")
        child = await home.until_over(session.id)
        assert (child.exit, child.why) == (Exit(code=0), Why.ENDED)
        assert (await home.session(session.id)).status is SessionStatus.TERMINATED
        notice = await home.operator.notice("session ended")
        assert "its agent is done; its last output: all done" in notice.text
        assert (await home.app.service.agent_processes.output(session.id)).text == "all done\n"


async def test_a_restored_session_is_active_while_its_agent_runs(at: SpawningHome) -> None:
    """It stayed interrupted until the agent called a tool, however long its program ran."""
    at.agent(STAYS)
    async with at.serving() as home:
        session = await home.start("tidy up")
        checkpoints = home.app.service.checkpoints
        taken = await checkpoints.take(session.id, "before", "kim", "ctl")
        restore = await checkpoints.ask_restore(taken.checkpoint.id, Files.EXACT, "kim", "ctl")
        await home.app.service.decide(restore.id, Verdict("v", Decision.PROCEED, "kim", "ctl", datetime.now(UTC)))
        told = await home.operator.notice("its agent was started")
        assert told.session_id == restore.successor_id
        await home.operator.card(id=restore.id, state=CardState.APPLIED)
        assert (await home.session(restore.successor_id)).status is SessionStatus.ACTIVE


async def test_one_that_fails_leaves_its_session_interrupted_with_its_exit_code(at: SpawningHome) -> None:
    at.agent("import sys; print('half', flush=True); sys.exit('no such thing')")
    async with at.serving() as home:
        session = await home.start()
        assert (await home.until_over(session.id)).exit == Exit(code=1)
        assert (await home.session(session.id)).status is SessionStatus.INTERRUPTED
        notice = await home.operator.notice("process ended")
        assert (notice.level, notice.text) == (
            "error",
            "the agent's process ended (exit code 1); its last output: no such thing",
        )


async def test_a_program_that_is_not_there_is_refused_before_anything_is_on_record(at: SpawningHome) -> None:
    at.config = evolve(at.config, host_cli="no-such-program")
    async with at.serving() as home:
        with pytest.raises(IntercomError, match="not found in the server's PATH"):
            await home.start()
        assert await home.app.service.sessions(everything=True) == ()
        assert await home.app.service.agent_processes.everyone() == {}


async def test_a_program_that_can_not_be_run_ends_its_session_and_says_why(at: SpawningHome) -> None:
    broken = at.root / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    at.config = evolve(at.config, host_cli=str(broken))
    async with at.serving() as home:
        with pytest.raises(SpawnFailed, match="broken: no such file"):
            await home.start()
        (session,) = await home.app.service.sessions(everything=True)
        await home.until_over(session.id)
        assert (await home.session(session.id)).status is SessionStatus.TERMINATED


async def test_clearing_ends_all_that_the_agent_ever_started(at: SpawningHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_client, "GRACE_SECONDS", 0.5)
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
    async with at.serving() as home:
        session = await home.start()
        await home.until_written("ready")
        child = await home.child(session.id)
        assert child.monitor is not None
        family = Family(session.id, child.monitor, None)
        members = family.members()
        assert len(members) >= 7
        await home.app.service.end(session.id, "kim", "ctl", "enough")
        assert (await home.until_over(session.id)).why is Why.CLEARED
        for pid in [*members, child.monitor.pid]:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


async def test_one_that_is_killed_from_outside_is_noticed_and_said_so(at: SpawningHome) -> None:
    at.agent(STAYS)
    async with at.serving() as home:
        session = await home.start()
        os.kill(int(await home.until_written("pid")), signal.SIGKILL)
        with trio.fail_after(120):
            assert (await home.until_over(session.id)).exit == Exit(signal=signal.SIGKILL)
        assert "killed by SIGKILL" in (await home.operator.notice("process ended")).text


HOSTILE = [
    "$(touch pwned) `touch pwned` ; touch pwned",
    "' ; touch pwned ; '",
    '" && touch pwned || "',
    "a\nb\r\n\ttouch pwned",
    "%s %n {0} ${IFS}",
    "../../etc/passwd",
    "\u202e\u200b grün 🎉",
    "x" * 90_000,
    "@file !history ~root *",
]


async def test_no_shell_ever_sees_a_prompt(at: SpawningHome) -> None:
    at.environ = {"API_KEY": "k", "SLACK_BOT_TOKEN": "xoxb-1"}
    at.agent(NOTE)
    at.settings(environment=("API_KEY",))
    async with at.serving() as home:
        for prompt in HOSTILE:
            session = await home.start(prompt)
            await home.until_over(session.id)
            seen = json.loads(at.written("seen.json"))
            assert seen["arguments"] == [prompt]
            assert (seen["cwd"], seen["sid"]) == (str(at.workspace), True)
            environ = seen["environ"]
            assert (environ["INTERCOM_SESSION_ID"], environ["API_KEY"]) == (session.id, "k")
            assert environ["INTERCOM_WORKSPACE_ROOT"] == str(at.workspace)
            assert "SLACK_BOT_TOKEN" not in environ
            assert sorted(each.name for each in at.workspace.iterdir()) == ["seen.json"]


async def test_a_prompt_that_is_refused_leaves_nothing_behind(at: SpawningHome) -> None:
    at.agent(NOTE)
    async with at.serving() as home:
        for prompt in ("--dangerously-skip-permissions", "a\0b", "", "x" * 200_000, "\ud800"):
            with pytest.raises(IntercomError) as refused:
                await home.start(prompt)
            assert refused.value.error_code == "invalid_arguments"
        assert await home.app.service.sessions(everything=True) == ()
        assert [*at.workspace.iterdir()] == []


async def test_one_that_fails_is_started_again_until_it_has_failed_too_often(at: SpawningHome) -> None:
    at.agent("open('runs', 'a').write('x'); print('try', flush=True); raise SystemExit(2)")
    at.settings(restart=SpawnRestart.ON_FAILURE, max_restarts=2, restart_backoff_seconds=0.05)
    async with at.serving() as home:
        session = await home.start()
        child = await home.until_over(session.id)
        assert (child.run, child.restarts, at.written("runs")) == (3, 2, "xxx")
        assert "it starts again in" in (await home.operator.notice("process ended")).text
        assert "for the 3rd time" in (await home.operator.notice("3rd")).text
        # Their output is one.
        assert (await home.app.service.agent_processes.output(session.id)).text == "try\n" * 3
        assert (await home.session(session.id)).status is SessionStatus.INTERRUPTED


async def test_one_that_is_due_to_be_started_again_while_its_session_is_paused_is_once_that_goes_on(
    at: SpawningHome,
) -> None:
    at.agent("open('starts', 'a').write('1'); import sys; sys.exit(1)")
    at.settings(restart=SpawnRestart.ALWAYS, max_restarts=1, restart_backoff_seconds=60)
    ahead = timedelta()
    at.now = lambda: datetime.now(UTC) + ahead
    async with at.serving() as home:
        session = await home.start()
        await home.operator.notice("it starts again in")
        steering = home.app.service.steering
        await steering.pause(session.id, "kim", "ctl")
        ahead = timedelta(seconds=90)
        child = home.app.system.named(f"agent-process/{session.id}")
        # What its timer would say now, and what is heard only after that.
        child.tell(RunAgain())
        await ask(child, Suspend(), timeout=20, retry=True)
        assert (await home.child(session.id)).state is AgentProcessState.WAITING
        assert at.written("starts") == "1"
        await steering.unpause(session.id, "kim", "ctl")
        await home.until_over(session.id)
        assert at.written("starts") == "11"


async def test_one_that_waits_to_be_started_again_is_not_once_its_session_is_cleared(at: SpawningHome) -> None:
    at.agent("open('runs', 'a').write('x'); raise SystemExit(2)")
    at.settings(restart=SpawnRestart.ALWAYS, restart_backoff_seconds=30)
    async with at.serving() as home:
        session = await home.start()
        await home.operator.notice("it starts again in")
        # It counts among those that run, and so does one that a server finds in this state.
        assert (await home.child(session.id)).is_going
        home.app.hands_over = True
    async with at.serving() as home:
        await home.app.service.end(session.id, "kim", "ctl", "enough")
        assert (await home.until_over(session.id)).why is Why.CLEARED
        assert at.written("runs") == "x"


async def test_no_more_are_started_than_may_run_at_once(at: SpawningHome) -> None:
    at.agent(STAYS)
    at.config = evolve(at.config, max_concurrent_sessions=2)
    async with at.serving() as home:
        assert home.app.is_idle()
        first, _ = await home.start(), await home.start()
        assert not home.app.is_idle()
        with pytest.raises(IntercomError, match="max_concurrent_sessions is 2") as refused:
            await home.start()
        assert refused.value.error_code == "too_many_sessions"
        await home.app.service.end(first.id, "kim", "ctl", "enough")
        await home.until_over(first.id)
        last = await home.start()
        for session in await home.app.service.sessions():
            await home.app.service.end(session.id, "kim", "ctl", "enough")
        await home.until_over(last.id)
        await home.until(home.app.is_idle)


async def test_its_requests_end_with_it_unless_it_is_started_again(at: SpawningHome) -> None:
    at.agent("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nraise SystemExit(1)")
    for restart, state in ((SpawnRestart.NEVER, "interrupted"), (SpawnRestart.ON_FAILURE, "pending")):
        at.settings(restart=restart, restart_backoff_seconds=60)
        async with at.serving() as home:
            session = await home.start(restart.value)
            agent = Agent(key_of(session.id), "client", "", None, session.id)
            assert await home.ask("registry", Admit(agent)) == session.id
            opened = await home.ask(f"session/{session.id}", CheckClearance("change", "a\n", "a.txt", call="c"))
            (at.workspace / "go").touch()
            await home.operator.notice("process ended")
            card = await home.app.service.card(opened.request_id)
            assert card.state.value == state
            (at.workspace / "go").unlink()
            await home.app.service.end(session.id, "kim", "ctl", "enough")


async def test_what_it_writes_is_bounded_private_and_read_as_it_comes(at: SpawningHome) -> None:
    at.agent("import sys\nfor n in range(20000): print(n)\nprint('x' * 10, file=sys.stderr)")
    at.settings(output_limit_bytes=8192)
    async with at.serving() as home:
        session = await home.start()
        await home.until_over(session.id)
        children = home.app.service.agent_processes
        found = await children.output(session.id, lines=2)
        assert (found.text, found.is_going) == ("19998\n19999\n", False)
        assert (await children.output(session.id[:8], Stream.STDERR)).text == "x" * 10 + "\n"
        first = await children.output(session.id, start=0)
        assert first.start > 0
        assert first.text.endswith("19999\n")
        files = [*(children.root / session.id).iterdir()]
        assert sum(each.stat().st_size for each in files if each.name.startswith("stdout")) <= 8192
        assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
        assert (children.root / session.id).stat().st_mode & 0o777 == 0o700


async def test_a_workspace_that_is_none_is_refused(at: SpawningHome) -> None:
    at.agent(STAYS)
    async with at.serving() as home:
        for workspace in ("/", str(at.root / "nothing")):
            with pytest.raises(IntercomError) as refused:
                await home.start(workspace=workspace)
            assert refused.value.error_code == "workspace_refused"
        with pytest.raises(IntercomError, match="default_workspace_root"):
            await home.start(workspace=None)


async def test_a_program_that_embeds_the_server_starts_reads_and_ends_one(at: SpawningHome) -> None:
    at.agent(STAYS)
    at.config = evolve(at.config, default_workspace_root=at.workspace)
    async with at.serving() as home:
        ann = EmbeddedOperator(home.app, "ann")
        session = await ann.start("go", act="one", label="mine")
        assert (await ann.start("go", act="one")).id == session.id
        await home.until_written("pid")
        child = (await ann.children())[session.id]
        assert (child.label, child.started_by, child.is_going) == ("mine", "ann", True)

        async def is_read() -> bool:
            return (await ann.output(session.id)).text == "here I am\n"

        await home.until(is_read)  # its monitor writes down what it said in its own time
        await ann.end(session.id)
        await home.until_over(session.id)
