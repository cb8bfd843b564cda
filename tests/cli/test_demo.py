"""The demo as a newcomer meets it: a real run, with and without answers, and left in the middle."""

from __future__ import annotations

import os
import pty
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp.client
import psutil
import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from intercom.cli import demo

COMMAND = [sys.executable, "-P", "-m", "intercom.cli.main", "demo"]


@frozen
class Stage:
    """`name` begins that of the demo's server; all it makes is below `temporary`."""

    name: str
    temporary: Path

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}

    def command(self, *more: str) -> list[str]:
        return [*COMMAND, "--ipc-name", self.name, *more]

    def play(self, *more: str, typed: str = "") -> str:
        done = subprocess.run(
            self.command(*more), input=typed, capture_output=True, text=True, timeout=120, env=self.environ, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def running(self) -> list[str]:
        lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        return [line for line in lines if f"{self.name}-" in line]

    def left(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.temporary.rglob("*") if file.is_file()}


@pytest.fixture
def stage() -> Iterator[Stage]:
    # Not pytest's own directory, whose path is long for a socket.
    with tempfile.TemporaryDirectory(prefix="ix-") as directory:
        yield Stage(f"demo-test-{secrets.token_hex(3)}", Path(directory))


def test_with_yes_it_goes_through_and_leaves_the_approved_file_alone_behind(stage: Stage) -> None:
    said = stage.play("--yes")
    are_short(said, stage)
    assert re.findall(r"^\d", said, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    killed, started = re.search(r"kill -9 (\d+).*?process (\d+):", said, re.DOTALL).groups()  # type: ignore[union-attr]
    assert killed != started
    shown = [line.strip() for line in said.splitlines()]
    added = [line for line in demo.patch(demo.FIRST, demo.SECOND).splitlines() if line[0] == "+"]
    first = [f"+{line}" for line in demo.FIRST.splitlines()]
    assert [line for line in [*first, *added] if line.strip() not in shown] == []
    assert said.count("with status approved") + said.count("with status\n   approved") == 2
    assert said.count("The request is applied.") == 2
    assert stage.left() == {demo.FILE: demo.SECOND}
    assert re.search(rf"file +({re.escape(str(stage.temporary))}\S+)", said)
    assert stage.running() == []


def are_short(said: str, stage: Stage) -> None:
    """No line but one to be copied is longer than a terminal is wide, and none ends in blanks."""
    lines = said.splitlines()
    told = [line for line in lines if str(stage.temporary) not in line and not line.startswith("      ")]
    assert [line for line in told if len(line) > 80] == []
    assert [line for line in lines if line.strip() and line != line.rstrip()] == []


def test_who_rejects_is_asked_why_and_the_agent_told_and_nothing_written(stage: Stage) -> None:
    said = stage.play(typed="d\nno\nnot like this\nperhaps\nn\n\n")
    assert "It was told why: not like this" in said
    assert said.count("So it wrote nothing.") == 2
    assert "y approves, n rejects" in said
    assert "No file, since you approved none." in said
    assert stage.left() == {}
    assert list(stage.temporary.iterdir()) == []


def test_where_nobody_can_answer_it_goes_on_by_itself_also_in_a_deep_directory(stage: Stage) -> None:
    deep = stage.temporary / ("d" * 90)
    deep.mkdir()
    said = Stage(stage.name, deep).play()
    assert said.count("Nobody is there to answer") == 1
    assert stage.left() == {demo.FILE: demo.SECOND}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGKILL, -9), (None, 130)])
def test_whoever_leaves_in_the_middle_leaves_nothing_running(stage: Stage, number: int | None, code: int) -> None:
    with asked(stage) as (process, terminal):
        assert len(stage.running()) >= 3, "the agent, its shim and the server"
        if number is None:
            # The end of typing.
            os.write(terminal, b"\x04")
        else:
            process.send_signal(number)
        assert process.wait(30) == code
    if number == signal.SIGKILL:
        # It could not clear up; its agent does, when it notices.
        gone, alive = psutil.wait_procs(
            [each for each in psutil.process_iter(["cmdline"]) if f"{stage.name}-" in str(each.info["cmdline"])], 30
        )
        assert alive == [], gone
    else:
        assert list(stage.temporary.iterdir()) == []
    assert stage.running() == []


class Client:
    """The agent's MCP client, with nothing behind it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.closed = False

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def list_tools(self) -> Any:
        return SimpleNamespace(tools=[])


def test_an_agent_that_has_finished_stays_and_its_server_with_it_until_it_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def propose(*_: object) -> None: ...

    async def left_alone() -> tuple[str, bool]:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(demo._until_left_alone, tmp_path, "nobody")
                await wait_all_tasks_blocked()
                said, stays = capsys.readouterr().out, not client.closed
                os.close(ours)
        return said, stays

    client = Client()
    theirs, ours = os.pipe()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(mcp.client, "Client", lambda *_, **__: client)
        monkeypatch.setattr(demo, "_propose", propose)
        said, stays = trio.run(left_alone)
    assert '"finished"' in said
    assert stays, "what it did is still to be asked of the server"
    assert client.closed


@contextmanager
def asked(stage: Stage) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The demo on a terminal, at the point where it asks for the first answer."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        stage.command(), stdin=theirs, stdout=theirs, stderr=theirs, env=stage.environ, start_new_session=True
    )
    os.close(theirs)
    said = b""
    try:
        while b"etails:" not in said:
            said += os.read(ours, 65536)
        assert re.findall(rb"\x1b\[(?:[\d;]*;)?[34]\d", said) == [], "NO_COLOR is set"
        yield process, ours
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def test_a_configuration_has_no_place_in_it(stage: Stage) -> None:
    done = subprocess.run([*COMMAND, "--config", "x"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "leave --config out" in done.stderr
