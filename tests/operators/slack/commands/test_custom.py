"""Commands of the configuration, run as real processes: shown as they come, bounded, once, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from intercom.model.config import TimeoutSettings
from intercom.operators.slack.commands import command_call, runner
from intercom.operators.slack.draw.answers import Run
from intercom.store import idempotency
from intercom.store.store_and_reader import StoreUnavailable
from intercom.store.writer_messages import Database
from tests.operators.slack.payloads import CHANNEL
from tests.operators.slack.server import command_server
from tests.operators.stand_in_service import START, session

pytestmark = pytest.mark.real_time

HOLD = "echo begun; cat gate"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(runner, "EVERY_SECONDS", 0.1)


async def open_gate(root: Path, text: str = "") -> None:
    """Let a command that holds at the gate go on."""

    def write() -> None:
        (root / "gate").write_text(text)

    await trio.to_thread.run_sync(write)


async def test_a_command_runs_in_the_workspace_and_its_end_is_told(tmp_path: Path) -> None:
    async with command_server(tmp_path, commands={"where": "pwd", "fail": "echo 'hush-1' >&2; exit 3"}) as server:
        assert await server.type("where", act="slack/1") is None
        shown = await server.until_shown("done", "command/slack/1")
        assert str(tmp_path / "work") in shown
        assert "exit code 0" in shown
        assert "anna: /intercom where" in shown
        await server.type("fail", act="slack/2")
        shown = await server.until_shown("failed", "command/slack/2")
        assert "exit code 3" in shown
        assert "[masked: test secret]" in shown
        assert "hush-1" not in shown
        entries = await server.store(lambda db: db.execute("select kind, summary from audit").fetchall())
        assert entries == [("command", "/intercom where"), ("command", "/intercom fail")]


async def test_the_acknowledgement_does_not_wait_and_output_is_shown_as_it_comes(tmp_path: Path) -> None:
    async with command_server(tmp_path, commands={"hold": HOLD}) as server:
        os.mkfifo(tmp_path / "work" / "gate")
        with trio.fail_after(runner.EVERY_SECONDS * 100):
            assert await server.type("hold") is None
            shown = await server.until_shown("begun")
            assert "running" in shown
        await open_gate(tmp_path / "work", "ended\n")
        assert "begun\nended" in await server.until_shown("done")
        row = await server.find()
        assert row is not None
        assert row.version >= 2


async def test_the_session_is_told_that_a_command_runs_in_its_workspace(tmp_path: Path) -> None:
    async with command_server(tmp_path, commands={"hold": HOLD}) as server:
        server.service.all_sessions = {"s-1": session("s-1", workspace_root=str(tmp_path / "work"))}
        os.mkfifo(tmp_path / "work" / "gate")
        assert await server.type("hold --session s-1", act="slack/1") is None
        await server.until_shown("begun", "command/slack/1")
        limit = TimeoutSettings().command_timeout_seconds + runner.ENDING_SECONDS
        assert server.service.acts == [("command", "s-1", "slack/1", limit)]
        await open_gate(tmp_path / "work")
        await server.until_shown("done", "command/slack/1")
        assert server.service.acts[1:] == [("command", "s-1", "slack/1", 0.0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("status; rm -rf /", "there is no command"),
        ("status rm -rf /", "status takes no arguments"),
        ("status --force", "there is no option --force"),
        ("status ''", "status takes no arguments"),
        ("STATUS", "did you mean /intercom status, /intercom task or"),
        ("git status", "there is no command 'git'"),
        ("$(touch pwned)", "there is no command"),
    ],
)
async def test_only_an_alias_by_itself_runs_anything(tmp_path: Path, text: str, says: str) -> None:
    async with command_server(tmp_path, commands={"status": "touch ran"}) as server:
        assert says in await server.told(text)
        assert not (tmp_path / "work" / "ran").exists()
        assert await server.find() is None
        assert await server.store(partial(idempotency.known, act_id="slack/1.2.3")) is None


async def test_a_command_typed_once_runs_once_however_often_it_is_delivered(tmp_path: Path) -> None:
    async with command_server(tmp_path, commands={"count": "echo x >> count"}) as server:
        assert await server.type("count") is None
        await server.until_shown("done")
        assert await server.type("count") is None
        assert (tmp_path / "work" / "count").read_text() == "x\n"
        os.mkfifo(tmp_path / "work" / "gate")
    async with command_server(tmp_path, commands={"count": "echo x >> count", "hold": HOLD}) as server:
        assert await server.type("count") is None
        await server.type("hold", act="slack/5")
        await server.until_shown("begun", "command/slack/5")
        assert "in progress" in await server.told("hold", act="slack/5")
        await open_gate(tmp_path / "work")
        await server.until_shown("done", "command/slack/5")
        assert (tmp_path / "work" / "count").read_text() == "x\n"


async def test_time_up_is_told_and_the_process_is_gone(tmp_path: Path) -> None:
    times = TimeoutSettings(command_timeout_seconds=0.5)
    async with command_server(tmp_path, commands={"long": "echo $$ > pid; sleep 60"}, timeouts=times) as server:
        await server.type("long")
        shown = await server.until_shown("timed out")
        assert "ran longer than 0.5 s" in shown
        assert not psutil.pid_exists(int((tmp_path / "work" / "pid").read_text()))


async def test_much_output_is_cut_and_goes_beside_the_message(tmp_path: Path) -> None:
    async with command_server(tmp_path, commands={"much": "seq 5000"}, command_output_limit_bytes=8000) as server:
        await server.type("much")
        shown = await server.until_shown("done")
        assert "the output limit was reached" in shown
        assert "4999\n5000" in shown
        file = await server.find("command/slack/1.2.3/file")
        assert file is not None
        assert "bytes left out" in file.content["text"]
        assert file.content["text"].startswith("1\n2\n")


async def test_what_ends_by_a_signal_or_can_not_start_says_so(tmp_path: Path) -> None:
    commands = {"killed": "kill -9 $$", "missing": "./missing.sh"}
    async with command_server(tmp_path, commands=commands) as server:
        await server.type("killed", act="slack/1")
        assert f"ended by signal {signal.SIGKILL:d}" in await server.until_shown("failed", "command/slack/1")
        await server.type("missing", act="slack/2")
        assert "cannot be run: no such file" in await server.until_shown("failed", "command/slack/2")


async def test_no_token_of_the_server_reaches_a_command(tmp_path: Path) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "INTERCOM_TOKEN": "t"}
    async with command_server(tmp_path, commands={"env": "env"}, environ=tokens) as server:
        await server.type("env")
        shown = await server.until_shown("done")
        assert "PATH=" in shown
        assert "SLACK" not in shown
        assert "INTERCOM" not in shown


async def test_a_command_runs_in_the_workspace_of_the_session_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    mine = session("s-mine", workspace_root=str(tmp_path / "mine"), channel_id="C0OTHER")
    async with command_server(tmp_path, mine, commands={"touch": "touch here"}) as server:
        await server.type("touch --session s-m")
        await server.until_shown("done")
        assert (tmp_path / "mine" / "here").exists()


async def test_only_a_few_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "AT_ONCE", 1)
    async with command_server(tmp_path, commands={"hold": HOLD}) as server:
        os.mkfifo(tmp_path / "work" / "gate")
        await server.type("hold", act="slack/1")
        await server.until_shown("begun", "command/slack/1")
        assert "try again when one has ended" in await server.told("hold", act="slack/2")
        await open_gate(tmp_path / "work")
        await server.until_shown("done", "command/slack/1")
        await server.type("hold", act="slack/3")
        await open_gate(tmp_path / "work")
        await server.until_shown("done", "command/slack/3")


async def test_a_server_that_stops_kills_what_runs_and_the_next_one_says_so(tmp_path: Path) -> None:
    commands = {"hold": f"echo $$ > pid; {HOLD}"}
    async with command_server(tmp_path, commands=commands) as server:
        os.mkfifo(tmp_path / "work" / "gate")
        await server.type("hold", channel="C0STRANGE")
        await server.until_shown("begun")
    assert not psutil.pid_exists(int((tmp_path / "work" / "pid").read_text()))
    async with command_server(tmp_path, commands=commands) as server:
        shown = await server.until_shown("interrupted by a restart of the server; run it again")
        assert "running" not in shown
        assert "anna: /intercom hold" in shown
        row = await server.find()
        assert row is not None
        assert row.channel == CHANNEL
        told = command_call.UNDER_WAY
        while told.startswith(command_call.UNDER_WAY):
            told = await server.told("hold")
        assert "run it again" in told
        assert await server.store(idempotency.unfinished) == ()


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that would run for a while."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_what_a_killed_server_left_running_is_ended_by_the_next_one(
    tmp_path: Path, left: subprocess.Popen[bytes]
) -> None:
    """As if it had been killed: what it knew is on record, and the process is there."""
    began = psutil.Process(left.pid).create_time()

    def as_left(db: Database) -> None:
        note = {"line": "/intercom hold", "row": "command/slack/7", "to": CHANNEL, "name": "hold", "asked": "anna"}
        idempotency.begin(db, "slack/7", note, START, who="anna", session_id=None)
        idempotency.started(db, "slack/7", left.pid, began, START)

    async with command_server(tmp_path) as server:
        await server.store(as_left)
    async with command_server(tmp_path) as server:
        await server.until_shown("interrupted by a restart", "command/slack/7")
        assert left.poll() == -signal.SIGTERM


async def test_of_a_command_without_a_recorded_answer_it_is_not_claimed_that_it_runs(tmp_path: Path) -> None:
    def as_left(db: Database) -> None:
        note = {"line": "/intercom count", "row": "command/slack/7", "to": CHANNEL, "name": "count", "asked": "anna"}
        idempotency.begin(db, "slack/7", note, START, who="anna", session_id=None)

    async with command_server(tmp_path, commands={"count": "echo x >> count"}) as server:
        # It has ended, and its answer could not be recorded.
        await server.store(as_left)
        told = await server.told("count", act="slack/7")
        assert "it is in progress, or its answer could not be recorded: check before you do it again" in told
        assert not (tmp_path / "work" / "count").exists()


async def test_a_store_that_is_away_for_a_moment_does_not_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = runner._CustomRun._show, 0

    async def draw(self: Any, run: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal failures
        if run is Run.RUNNING and failures == 0:
            failures += 1
            raise StoreUnavailable("away")
        await real(self, run, *args, **kwargs)

    monkeypatch.setattr(runner._CustomRun, "_show", draw)
    async with command_server(tmp_path, commands={"hold": f"{HOLD}; cat gate"}) as server:
        os.mkfifo(tmp_path / "work" / "gate")
        await server.type("hold")
        await open_gate(tmp_path / "work", "more\n")
        await server.until_shown("more")
        await open_gate(tmp_path / "work", "end\n")
        assert "begun\nmore\nend" in await server.until_shown("done")
        assert failures == 1
