"""Commands as processes: bounded, without a shell where one is not needed, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import FileError
from intercom.workspace import command_runner
from intercom.workspace.command_runner import Ending, Output, Ran, Started, end_left, environment, plain, program, run

pytestmark = pytest.mark.real_time

ENVIRON = {"PATH": os.environ["PATH"]}

#: Ignores TERM, and leaves a grandchild that does so too, in the same group, with its parent gone.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    if os.fork() == 0:
        open("grandchild", "w").write(str(os.getpid()))
        os.rename("grandchild", "grandchild.pid")
        while True:
            time.sleep(60)
    os._exit(0)
open("child", "w").write(str(os.getpid()))
os.rename("child", "child.pid")
while not os.path.exists("grandchild.pid"):
    time.sleep(0.01)
print("up", flush=True)
{after}
"""

#: Leaves a child in a session of its own, which holds the pipe for a while.
ESCAPING = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(40)
    os._exit(0)
print("out", flush=True)
"""


async def result(command: str, root: Path, *, timeout: float = 20, limit: int = 65536, **more: Any) -> tuple[Ran, str]:
    output = Output(limit)
    ran = await run(command, root, output, timeout=timeout, environ=ENVIRON | more.pop("environ", {}), **more)
    return ran, output.text()


def stubborn(root: Path, after: str) -> str:
    (root / "stubborn.py").write_text(STUBBORN.replace("{after}", after))
    return f"{sys.executable} stubborn.py"


def gone(root: Path) -> bool:
    for name in ("child.pid", "grandchild.pid"):
        pid = int((root / name).read_text())
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return False
    return True


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git log -1 --oneline", ("git", "log", "-1", "--oneline")),
        ('git commit -m "two words"', ("git", "commit", "-m", "two words")),
        ("git status --color=never", ("git", "status", "--color=never")),
        ("./scripts/deploy.sh staging", ("./scripts/deploy.sh", "staging")),
        ("git status | head", None),
        ("git status && git log", None),
        ("git log > out", None),
        ("ls *.py", None),
        ("ls ~", None),
        ("echo $HOME", None),
        ("X=1 git status", None),
        ("cd src", None),
        ("no-such-program-anywhere", None),
        ("git 'unclosed", None),
        ("git status\ngit log", None),
    ],
)
def test_a_shell_runs_only_what_needs_one(command: str, expected: tuple[str, ...] | None) -> None:
    assert program(command, ENVIRON) == (expected or ("/bin/sh", "-c", command))


def test_a_command_gets_what_programs_need_and_no_token() -> None:
    given = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_MEMBER_IDS": "U1",
        "INTERCOM_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "k",
        "GITHUB_TOKEN": "g",
        "LD_PRELOAD": "x.so",
        "https_proxy": "http://p",
    }
    kept = environment(given)
    assert {"PATH", "LC_ALL", "https_proxy"} < kept.keys()
    assert not {name for name in kept if "TOKEN" in name or name.startswith(("SLACK", "INTERCOM", "AWS", "LD_"))}


def test_a_program_is_never_looked_up_in_the_workspace() -> None:
    assert environment({"PATH": f".:/usr/bin::bin{os.pathsep}/bin"})["PATH"] == "/usr/bin:/bin"


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that would run for a while."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_what_a_killed_server_left_is_ended_by_the_next_and_nobody_else_is(left: subprocess.Popen[bytes]) -> None:
    started = Started(left.pid, psutil.Process(left.pid).create_time())
    assert not await end_left(Started(left.pid, started.at - 1))
    assert left.poll() is None
    assert await end_left(started)
    assert left.wait(5) == -signal.SIGTERM
    assert not await end_left(started)


async def test_whoever_asks_is_told_the_process_at_once(tmp_path: Path) -> None:
    told: list[Started] = []

    async def note(started: Started) -> None:
        told.append(started)

    _, text = await result("echo $$", tmp_path, on_start=note)
    assert [each.pid for each in told] == [int(text)]


async def test_both_streams_are_heard_in_order_and_the_exit_code_told(tmp_path: Path) -> None:
    ran, text = await result("echo one; echo two >&2; pwd; exit 3", tmp_path)
    assert text == f"one\ntwo\n{tmp_path}\n"
    assert (ran.ending, ran.exit_code) == (Ending.EXITED, 3)


async def test_a_plain_program_runs_as_itself_with_no_input_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(
        "import os, sys\nprint(repr(sys.stdin.read()), os.getsid(0) == os.getpid(), 'SLACK_BOT_TOKEN' in os.environ)"
    )
    ran, text = await result(f"{sys.executable} look.py", tmp_path, environ={"SLACK_BOT_TOKEN": "xoxb-1"})
    assert (ran.exit_code, text) == (0, "'' True False\n")


async def test_what_can_not_be_started_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be run: no such file"):
        await result("./missing.sh", tmp_path)
    (tmp_path / "plain").write_text("text")
    with pytest.raises(FileError, match="permission denied"):
        await result("./plain", tmp_path)


async def test_output_is_told_as_it_comes(tmp_path: Path) -> None:
    """Only when its first line was heard is the command let go on."""
    os.mkfifo(tmp_path / "go")
    seen = trio.Event()
    heard: list[str] = []

    def note() -> None:
        heard.append("piece")
        seen.set()

    async with trio.open_nursery() as nursery:

        async def let_go_on() -> None:
            await seen.wait()
            async with await trio.open_file(tmp_path / "go", "w") as go:
                await go.write("on\n")

        nursery.start_soon(let_go_on)
        _, text = await result("echo first; cat go", tmp_path, on_output=note)
    assert text == "first\non\n"
    assert len(heard) >= 2


async def test_a_chatty_command_ends_well_and_its_output_is_cut(tmp_path: Path) -> None:
    ran, text = await result("seq 100000; exit 5", tmp_path, limit=1000)
    assert (ran.ending, ran.exit_code) == (Ending.EXITED, 5)
    assert text.startswith("1\n2\n")
    assert text.endswith("\n99999\n100000\n")
    assert "bytes left out" in text
    assert len(text) < 1100


async def test_a_command_that_only_writes_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runner, "FLOOD_BYTES", 1_000_000)
    ran, _ = await result("yes", tmp_path, limit=100)
    assert ran.ending is Ending.FLOODED
    assert ran.exit_code == -signal.SIGTERM


async def test_time_up_ends_it_politely_first(tmp_path: Path) -> None:
    ran, text = await result("trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done", tmp_path, timeout=3)
    assert (ran.ending, ran.exit_code) == (Ending.TIMED_OUT, 9)
    assert text.startswith("up\n")
    assert text.endswith("bye\n")


async def test_time_up_leaves_nothing_behind_that_ignores_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_runner, "GRACE_SECONDS", 0.3)
    ran, text = await result(stubborn(tmp_path, "time.sleep(60)"), tmp_path, timeout=3)
    assert (ran.ending, ran.exit_code, text) == (Ending.TIMED_OUT, -signal.SIGKILL, "up\n")
    assert gone(tmp_path)


async def test_an_ordinary_end_leaves_nothing_behind_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runner, "GRACE_SECONDS", 0.3)
    ran, _ = await result(stubborn(tmp_path, "sys.exit(4)"), tmp_path)
    assert (ran.ending, ran.exit_code) == (Ending.EXITED, 4)
    assert gone(tmp_path)


async def test_a_member_of_the_session_with_a_group_of_its_own_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_runner, "GRACE_SECONDS", 0.3)
    own_group = "os.setpgid(0, 0)\n        open("
    script = STUBBORN.replace("open(", own_group, 1).replace("{after}", "sys.exit(0)")
    (tmp_path / "own.py").write_text(script)
    await result(f"{sys.executable} own.py", tmp_path)
    assert gone(tmp_path)


async def test_cancelling_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runner, "GRACE_SECONDS", 0.3)
    with trio.CancelScope() as scope:
        await result(stubborn(tmp_path, "time.sleep(60)"), tmp_path, on_output=scope.cancel)
    assert scope.cancelled_caught
    assert gone(tmp_path)


async def test_a_process_that_escaped_with_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "escape.py").write_text(ESCAPING)
    started = time.monotonic()
    ran, text = await result(f"{sys.executable} escape.py", tmp_path)
    assert (ran.exit_code, text) == (0, "out\n")
    assert time.monotonic() - started < 30


# --- the output ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 on", "link on"),
        (b"\x1b]0;title\x07rest", "rest"),
        (b"\x1b(Bascii\x1b7\x1b=", "ascii"),
        (b"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        (b"a\x08\x07b\tc", "ab\tc"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        ("a\u202eb".encode(), "ab"),
    ],
)
def test_text_is_plain(data: bytes, text: str) -> None:
    assert plain(data) == text


def test_little_is_kept_whole() -> None:
    output = Output(10)
    output.add(b"12345")
    output.add(b"67890")
    assert output.text() == "1234567890"
    assert not output.is_cut


def test_one_byte_that_is_left_out_is_one_byte() -> None:
    output = Output(2)
    output.add(b"abc")
    assert output.text() == "a\n… 1 byte left out …\nc"


def test_of_much_the_beginning_and_the_end_are_kept_in_whole_lines() -> None:
    output = Output(40)
    for i in range(1000):
        output.add(b"line %d\n" % i)
    text = output.text()
    assert text.startswith("line 0\nline 1\n… ")
    assert text.endswith(" bytes left out …\nline 998\nline 999\n")
    assert output.is_cut
    assert output.total == 8890


def test_a_line_without_its_end_waits() -> None:
    output = Output(1000)
    output.add(b"whole\ntoken=abc")
    assert output.text(whole_lines=True) == "whole\n"
    assert output.text() == "whole\ntoken=abc"


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 100))
def test_never_more_than_the_limit_is_held_and_what_is_left_out_is_counted(pieces: list[bytes], limit: int) -> None:
    output = Output(limit)
    for piece in pieces:
        output.add(piece)
    whole = b"".join(pieces)
    assert output.total == len(whole)
    assert len(output._head) + len(output._tail) <= 3 * limit + 50
    if not output.is_cut:
        assert output.text() == plain(whole)
    else:
        assert re.search(r"… [\d,]+ bytes? left out …", output.text())
