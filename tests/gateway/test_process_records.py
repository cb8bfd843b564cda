"""The processes that a killed server has left: the next one ends exactly these."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.gateway import process_records
from intercom.gateway.process_records import ProcessRecords
from intercom.local import processes
from tests.gateway.programs import is_alive, program, until_dead

pytestmark = pytest.mark.real_time

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
#: Ends itself, and leaves a process in its session.
WITH_CHILD = "import os, signal\nchild = os.fork()\nif child: print(child, flush=True); input()\nelse: signal.pause()\n"


class Started:
    """Processes that tests start as a server does, and the first line that each has written."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def __call__(self, code: str) -> tuple[int, str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.all.append(process)
        assert process.stdout is not None
        return process.pid, process.stdout.readline().strip()

    def reap(self, pid: int) -> None:
        """Let a process end at the end of its input."""
        (process,) = [each for each in self.all if each.pid == pid]
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait(20)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setattr(process_records, "GRACE_SECONDS", 0.3)
    started = Started()
    yield started
    for each in started.all:
        for stream in (each.stdin, each.stdout):
            assert stream is not None
            stream.close()
        each.kill()
        each.wait(20)


def record(directory: Path, pid: int) -> Path:
    """Record a process as a server does that is killed then."""
    with ProcessRecords(directory).running(pid):
        (file,) = directory.iterdir()
    file.touch()
    return file


async def test_a_process_that_ignores_the_end_of_its_server_is_ended_by_the_next_one(
    tmp_path: Path, start: Started
) -> None:
    pid, _ = start(STUBBORN)
    file = record(tmp_path / "left", pid)
    await ProcessRecords(tmp_path / "left").end_left()
    assert not is_alive(pid)
    assert not file.exists()


async def test_what_is_left_of_the_session_of_a_process_that_ended_is_ended_too(tmp_path: Path, start: Started) -> None:
    pid, child = start(WITH_CHILD)
    record(tmp_path / "left", pid)
    start.reap(pid)
    assert is_alive(int(child))
    await ProcessRecords(tmp_path / "left").end_left()
    await until_dead(int(child))


async def test_no_other_process_is_ended(tmp_path: Path, start: Started) -> None:
    pid, _ = start(STUBBORN)
    key = processes.examine(pid).key
    directory = tmp_path / "left"
    directory.mkdir(mode=0o700)
    own = (f"{pid}.{key.started + 1}.{key.boot}", f"{pid}.{key.started}.another-boot")
    hostile = (
        "0.1.x",
        "1.1.x",
        "-1.1.x",
        f"0{pid}.{key.started}.{key.boot}",
        "notes.txt",
        f"{pid}",
        f"{pid}..",
        "٣.1.x",
    )
    for name in (*own, *hostile):
        (directory / name).touch()
    await ProcessRecords(directory).end_left()
    assert is_alive(pid)
    # What names an older process is done with; what is no record stays as it is.
    assert sorted(os.listdir(directory)) == sorted((*hostile,))


async def test_a_server_does_not_end_its_own(tmp_path: Path, start: Started) -> None:
    pid, _ = start(STUBBORN)
    records = ProcessRecords(tmp_path / "left")
    with records.running(pid):
        await records.end_left()
        assert is_alive(pid)
        assert len(os.listdir(tmp_path / "left")) == 1
    assert os.listdir(tmp_path / "left") == []


async def test_a_server_does_not_end_those_of_another_server_that_runs(tmp_path: Path, start: Started) -> None:
    pid, _ = start(STUBBORN)
    with ProcessRecords(tmp_path / "left").running(pid):
        await ProcessRecords(tmp_path / "left").end_left()
        assert is_alive(pid)
        assert len(os.listdir(tmp_path / "left")) == 1


async def test_a_directory_that_is_not_private_stops_nothing(
    tmp_path: Path, start: Started, caplog: pytest.LogCaptureFixture
) -> None:
    pid, _ = start(STUBBORN)
    (tmp_path / "left").mkdir(mode=0o777)
    (tmp_path / "left").chmod(0o777)
    records = ProcessRecords(tmp_path / "left")
    with records.running(pid):
        await records.end_left()
    assert is_alive(pid)
    assert f"the process {pid} of a downstream could not be recorded" in caplog.text


async def test_a_running_carrier_is_recorded_and_an_ended_one_is_not(tmp_path: Path) -> None:
    from intercom.gateway.stdio_carrier import open_process
    from tests.gateway.programs import environ

    records = ProcessRecords(tmp_path / "left")
    async with open_process(
        program("for message in messages(): put(**message)"), environ(), records=records
    ) as carrier:
        pid = carrier.detail().pid
        assert pid is not None
        assert [each.partition(".")[0] for each in os.listdir(tmp_path / "left")] == [str(pid)]
    assert os.listdir(tmp_path / "left") == []
    assert not is_alive(pid)
