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
from intercom.operators.slack.commands import custom, once
from intercom.operators.slack.draw.output import Run
from intercom.operators.slack.means import NotRecorded
from intercom.store import command_runs
from intercom.store.messages import Database
from tests.operators.desk import START
from tests.operators.slack.commands.house import CHANNEL, open_house, session
from tests.support.trio_case import trio_test

HOLD = "echo begun; cat gate"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(custom, "EVERY_SECONDS", 0.1)


async def open_gate(root: Path, text: str = "") -> None:
    """Let a command that holds at the gate go on."""

    def write() -> None:
        (root / "gate").write_text(text)

    await trio.to_thread.run_sync(write)


@trio_test(real_time=True)
async def test_a_command_runs_in_the_workspace_and_its_end_is_told(tmp_path: Path) -> None:
    async with open_house(tmp_path, commands={"where": "pwd", "fail": "echo 'hush-1' >&2; exit 3"}) as house:
        assert await house.type("where", act="slack/1") is None
        shown = await house.until("done", "command/slack/1")
        assert str(tmp_path / "work") in shown
        assert "exit code 0" in shown
        assert "anna: /intercom where" in shown
        await house.type("fail", act="slack/2")
        shown = await house.until("failed", "command/slack/2")
        assert "exit code 3" in shown
        assert "****" in shown
        assert "hush-1" not in shown
        entries = await house.store(lambda db: db.execute("select kind, summary from audit").fetchall())
        assert entries == [("command", "/intercom where"), ("command", "/intercom fail")]


@trio_test(real_time=True)
async def test_the_acknowledgement_does_not_wait_and_output_is_shown_as_it_comes(tmp_path: Path) -> None:
    async with open_house(tmp_path, commands={"hold": HOLD}) as house:
        os.mkfifo(tmp_path / "work" / "gate")
        with trio.fail_after(custom.EVERY_SECONDS * 100):
            assert await house.type("hold") is None
            shown = await house.until("begun")
            assert "running" in shown
        await open_gate(tmp_path / "work", "ended\n")
        assert "begun\nended" in await house.until("done")
        row = await house.row()
        assert row is not None
        assert row.version >= 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("status; rm -rf /", "there is no command"),
        ("status rm -rf /", "status takes no arguments"),
        ("status --force", "there is no option --force"),
        ("status ''", "status takes no arguments"),
        ("STATUS", "did you mean /intercom status or"),
        ("git status", "there is no command 'git'"),
        ("$(touch pwned)", "there is no command"),
    ],
)
def test_only_an_alias_by_itself_runs_anything(tmp_path: Path, text: str, says: str) -> None:
    @trio_test(real_time=True)
    async def check() -> None:
        async with open_house(tmp_path, commands={"status": "touch ran"}) as house:
            assert says in await house.told(text)
            assert not (tmp_path / "work" / "ran").exists()
            assert await house.row() is None
            assert await house.store(partial(command_runs.known, act_id="slack/1.2.3")) is None

    check()


@trio_test(real_time=True)
async def test_a_command_typed_once_runs_once_however_often_it_is_delivered(tmp_path: Path) -> None:
    async with open_house(tmp_path, commands={"count": "echo x >> count"}) as house:
        assert await house.type("count") is None
        await house.until("done")
        assert await house.type("count") is None
        assert (tmp_path / "work" / "count").read_text() == "x\n"
        os.mkfifo(tmp_path / "work" / "gate")
    async with open_house(tmp_path, commands={"count": "echo x >> count", "hold": HOLD}) as house:
        assert await house.type("count") is None
        await house.type("hold", act="slack/5")
        await house.until("begun", "command/slack/5")
        assert "under way already" in await house.told("hold", act="slack/5")
        await open_gate(tmp_path / "work")
        await house.until("done", "command/slack/5")
        assert (tmp_path / "work" / "count").read_text() == "x\n"


@trio_test(real_time=True)
async def test_time_up_is_told_and_the_process_is_gone(tmp_path: Path) -> None:
    times = TimeoutSettings(command_timeout_seconds=0.5)
    async with open_house(tmp_path, commands={"long": "echo $$ > pid; sleep 60"}, timeouts=times) as house:
        await house.type("long")
        shown = await house.until("timed out")
        assert "ran longer than 0.5 s" in shown
        assert not psutil.pid_exists(int((tmp_path / "work" / "pid").read_text()))


@trio_test(real_time=True)
async def test_much_output_is_cut_and_goes_beside_the_message(tmp_path: Path) -> None:
    async with open_house(tmp_path, commands={"much": "seq 5000"}, command_output_limit_bytes=8000) as house:
        await house.type("much")
        shown = await house.until("done")
        assert "the output limit was reached" in shown
        assert "4999\n5000" in shown
        file = await house.row("command/slack/1.2.3/file")
        assert file is not None
        assert "bytes left out" in file.content["text"]
        assert file.content["text"].startswith("1\n2\n")


@trio_test(real_time=True)
async def test_what_ends_by_a_signal_or_can_not_start_says_so(tmp_path: Path) -> None:
    commands = {"killed": "kill -9 $$", "missing": "./missing.sh"}
    async with open_house(tmp_path, commands=commands) as house:
        await house.type("killed", act="slack/1")
        assert f"ended by signal {signal.SIGKILL:d}" in await house.until("failed", "command/slack/1")
        await house.type("missing", act="slack/2")
        assert "can not be run: no such file" in await house.until("failed", "command/slack/2")


@trio_test(real_time=True)
async def test_no_token_of_the_server_reaches_a_command(tmp_path: Path) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "INTERCOM_TOKEN": "t"}
    async with open_house(tmp_path, commands={"env": "env"}, environ=tokens) as house:
        await house.type("env")
        shown = await house.until("done")
        assert "PATH=" in shown
        assert "SLACK" not in shown
        assert "INTERCOM" not in shown


@trio_test(real_time=True)
async def test_a_command_runs_in_the_workspace_of_the_session_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    mine = session("s-mine", workspace_root=str(tmp_path / "mine"), channel_id="C0OTHER")
    async with open_house(tmp_path, mine, commands={"touch": "touch here"}) as house:
        await house.type("touch --session s-m")
        await house.until("done")
        assert (tmp_path / "mine" / "here").exists()


@trio_test(real_time=True)
async def test_only_a_few_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "AT_ONCE", 1)
    async with open_house(tmp_path, commands={"hold": HOLD}) as house:
        os.mkfifo(tmp_path / "work" / "gate")
        await house.type("hold", act="slack/1")
        await house.until("begun", "command/slack/1")
        assert "try again when one has ended" in await house.told("hold", act="slack/2")
        await open_gate(tmp_path / "work")
        await house.until("done", "command/slack/1")
        await house.type("hold", act="slack/3")
        await open_gate(tmp_path / "work")
        await house.until("done", "command/slack/3")


@trio_test(real_time=True)
async def test_a_server_that_stops_kills_what_runs_and_the_next_one_says_so(tmp_path: Path) -> None:
    commands = {"hold": f"echo $$ > pid; {HOLD}"}
    async with open_house(tmp_path, commands=commands) as house:
        os.mkfifo(tmp_path / "work" / "gate")
        await house.type("hold", channel="C0STRANGE")
        await house.until("begun")
    assert not psutil.pid_exists(int((tmp_path / "work" / "pid").read_text()))
    async with open_house(tmp_path, commands=commands) as house:
        shown = await house.until("interrupted by a restart of the server; run it again")
        assert "running" not in shown
        assert "anna: /intercom hold" in shown
        row = await house.row()
        assert row is not None
        assert row.channel == CHANNEL
        told = once.UNDER_WAY
        while told.startswith(once.UNDER_WAY):
            told = await house.told("hold")
        assert "run it again" in told
        assert await house.store(command_runs.unfinished) == ()


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that would run for a while."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


@trio_test(real_time=True)
async def test_what_a_killed_server_left_running_is_ended_by_the_next_one(
    tmp_path: Path, left: subprocess.Popen[bytes]
) -> None:
    """As if it had been killed: what it knew is on record, and the process is there."""
    began = psutil.Process(left.pid).create_time()

    def as_left(db: Database) -> None:
        note = {"line": "/intercom hold", "row": "command/slack/7", "to": CHANNEL, "name": "hold", "asked": "anna"}
        command_runs.begin(db, "slack/7", note, START, who="anna", session_id=None)
        command_runs.started(db, "slack/7", left.pid, began, START)

    async with open_house(tmp_path) as house:
        await house.store(as_left)
    async with open_house(tmp_path) as house:
        await house.until("interrupted by a restart", "command/slack/7")
        assert left.poll() == -signal.SIGTERM


@trio_test(real_time=True)
async def test_a_store_that_is_away_for_a_moment_does_not_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = custom._Shown.draw, 0

    async def draw(self: Any, run: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal failures
        if run is Run.RUNNING and failures == 0:
            failures += 1
            raise NotRecorded("away")
        await real(self, run, *args, **kwargs)

    monkeypatch.setattr(custom._Shown, "draw", draw)
    async with open_house(tmp_path, commands={"hold": f"{HOLD}; cat gate"}) as house:
        os.mkfifo(tmp_path / "work" / "gate")
        await house.type("hold")
        await open_gate(tmp_path / "work", "more\n")
        await house.until("more")
        await open_gate(tmp_path / "work", "end\n")
        assert "begun\nmore\nend" in await house.until("done")
        assert failures == 1
