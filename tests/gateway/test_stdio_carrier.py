"""A child process as a carrier: whatever it does, lines stay whole, and nothing of it is left at the end."""

from __future__ import annotations

import json
import math
import os
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.gateway import stdio_carrier
from intercom.gateway.carrier import CarrierLost
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.stdio_carrier import TAIL_BYTES, ProcessCarrier, open_process, read_env_file
from tests.gateway.programs import environ, is_alive, program, until_dead

pytestmark = pytest.mark.real_time

ECHO = "for message in messages(): put(**message)"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that ignore everything are killed soon."""
    monkeypatch.setattr(stdio_carrier, "GRACE_SECONDS", 0.2)


def opened(code: str, **settings: Any) -> AbstractAsyncContextManager[ProcessCarrier]:
    return open_process(program(code, **settings), environ())


async def lost(carrier: ProcessCarrier) -> str:
    """Read to the end, and return the reason of the loss."""
    while True:
        try:
            await carrier.receive()
        except CarrierLost as lost:
            return lost.reason


async def test_lines_go_both_ways() -> None:
    async with opened(ECHO) as carrier:
        await carrier.send({"id": 1, "method": "é"})

        assert json.loads(await carrier.receive()) == {"jsonrpc": "2.0", "id": 1, "method": "é"}


async def test_blank_lines_are_skipped_and_the_last_line_needs_no_end() -> None:
    async with opened(r"raw(b'\n\n \r\n{}\r\n' + b'\n' * 100_000 + b'{\"last\":1}')") as carrier:
        assert json.loads(await carrier.receive()) == {}
        assert json.loads(await carrier.receive()) == {"last": 1}
        assert await lost(carrier) == "the process exited with status 0"


async def test_a_message_up_to_the_limit_comes_whole_and_a_longer_one_ends_the_carrier() -> None:
    code = r"raw(b'x' * 1_000_000 + b'\n'); raw(b'y' * 1_000_001); time.sleep(900)"
    async with open_process(program(code), environ(), longest=1_000_000) as carrier:
        assert await carrier.receive() == b"x" * 1_000_000
        assert await lost(carrier) == "the process sent a message of more than 0.953674 MiB"


async def test_many_large_messages_at_once_stay_whole_lines() -> None:
    async with opened(ECHO) as carrier, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(carrier.send, {"id": number, "method": "x" * 200_000})

        found = [json.loads(await carrier.receive()) for _ in range(20)]

    assert {message["id"] for message in found} == set(range(20))
    assert all(len(message["method"]) == 200_000 for message in found)


# --- A process that does not read


async def test_a_message_that_waits_is_withdrawn_and_a_begun_one_is_completed() -> None:
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
put(method="waits")
signal.sigwait([signal.SIGUSR1])
for message in messages(): put(id=message["id"])
"""
    async with opened(code) as carrier:
        await carrier.receive()
        async with trio.open_nursery() as nursery:
            for id in (1, 2, 3):
                nursery.start_soon(carrier.send, {"id": id, "method": "x" * 1_000_000})
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        assert [carrier.cancel(id) for id in (1, 3, 3)] == [False, True, False]
        os.kill(carrier.detail().pid or 0, signal.SIGUSR1)
        await carrier.send({"id": 4})

        # The first was begun, and nobody withdrew the second.
        assert [json.loads(await carrier.receive())["id"] for _ in range(3)] == [1, 2, 4]


async def test_a_sender_learns_that_the_process_has_ended() -> None:
    async with opened("sys.stdin.readline(); sys.exit(3)") as carrier, trio.open_nursery() as nursery:
        reasons: list[str] = []

        async def send() -> None:
            with pytest.raises(CarrierLost) as caught:
                await carrier.send({"method": "x" * 1_000_000})
            reasons.append(caught.value.reason)

        for _ in range(3):
            nursery.start_soon(send)
        await carrier.send({})
        assert await lost(carrier) == "the process exited with status 3"
    assert reasons == ["the process exited with status 3"] * 3


async def test_what_is_not_json_is_not_sent() -> None:
    async with opened(ECHO) as carrier:
        for bad in (math.nan, math.inf, "\ud800"):
            with pytest.raises(ValueError):
                await carrier.send({"x": bad})
        await carrier.send({"id": 1})
        assert json.loads(await carrier.receive())["id"] == 1


# --- How it ends


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit(7)", "the process exited with status 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process was ended by SIGKILL"),
        ("os.close(1); time.sleep(900)", "the process closed its output"),
        ("linger(); os._exit(4)", "the process exited with status 4"),
    ],
)
async def test_the_reason_says_how_the_process_ended(code: str, reason: str, impatient: None) -> None:
    async with opened(code) as carrier:
        assert await lost(carrier) == reason
        assert await lost(carrier) == reason
        with pytest.raises(CarrierLost, match=reason):
            await carrier.send({})


async def test_a_process_that_closes_its_input_is_lost_when_something_is_sent(impatient: None) -> None:
    async with opened("os.close(0); put(method='closed'); time.sleep(900)") as carrier:
        await carrier.receive()
        with pytest.raises(CarrierLost, match="the process closed its"):
            await carrier.send({})
        assert (await lost(carrier)).startswith("the process closed its")


async def test_what_was_written_before_the_exit_is_still_read(impatient: None) -> None:
    async with opened("[put(n=n) for n in range(1000)]; linger(); os._exit(0)") as carrier:
        found = [json.loads(await carrier.receive())["n"] for _ in range(1000)]
        assert found == list(range(1000))
        assert await lost(carrier) == "the process exited with status 0"


# --- What is left


async def test_a_process_that_ends_with_its_input_gets_no_signal() -> None:
    code = "signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); sys.stdin.read(); sys.stderr.write('goodbye')"
    async with opened(code) as carrier:
        pass
    assert carrier.detail().stderr == "goodbye"
    assert not is_alive(carrier.detail().pid or 0)


async def test_processes_that_it_leaves_behind_are_ended(impatient: None) -> None:
    async with opened("put(n=linger()); sys.stdin.read()") as carrier:
        child = json.loads(await carrier.receive())["n"]
        assert is_alive(child)
    await until_dead(child)


async def test_a_group_that_ignores_everything_is_killed(impatient: None) -> None:
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); put(n=linger()); time.sleep(900)"
    async with opened(code) as carrier:
        child = json.loads(await carrier.receive())["n"]
    await until_dead(child)
    await until_dead(carrier.detail().pid or 0)


async def test_another_group_of_its_session_is_ended_too() -> None:
    code = """
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(900)"], process_group=0)
put(n=child.pid); sys.stdin.read()
"""
    async with opened(code) as carrier:
        child = json.loads(await carrier.receive())["n"]
    await until_dead(child)


async def test_a_killed_process_takes_its_children_along(impatient: None) -> None:
    async with opened("put(n=linger()); sys.stdin.read()") as carrier:
        child = json.loads(await carrier.receive())["n"]
        os.kill(carrier.detail().pid or 0, signal.SIGKILL)
        assert await lost(carrier) == "the process was ended by SIGKILL"
        assert carrier.detail().exit_status == -signal.SIGKILL
    await until_dead(child)


async def test_it_ends_its_process_when_it_is_cancelled() -> None:
    with trio.CancelScope() as scope:
        async with opened("put(n=1); sys.stdin.read()") as carrier:
            await carrier.receive()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not is_alive(carrier.detail().pid or 0)
    with pytest.raises(CarrierLost, match="the gateway closed it"):
        await carrier.send({})


async def test_no_descriptor_is_left(impatient: None) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with opened("put(n=1)"):
        pass
    before = descriptors()
    for code in ("put(n=1)", "os.close(1); time.sleep(900)", "linger(); os._exit(1)"):
        async with opened(code) as carrier:
            await lost(carrier)
    assert descriptors() == before


# --- Standard error


async def test_the_end_of_standard_error_is_kept_and_a_flood_of_it_stops_nobody() -> None:
    code = "sys.stderr.write('x' * 50 + '\\n' + 'y' * 1_000_000 + '\\n\\x1b[31mlast'); sys.stderr.flush(); put(n=1)"
    async with opened(code) as carrier:
        await carrier.receive()
        await lost(carrier)
    assert carrier.detail().stderr.endswith("\nlast") or carrier.detail().stderr == "last"
    assert len(carrier.detail().stderr) <= TAIL_BYTES


# --- How it is started


async def seen(config: DownstreamConfig) -> dict[str, Any]:
    async with open_process(config, environ()) as carrier:
        found: dict[str, Any] = json.loads(await carrier.receive())
        return found


async def test_it_gets_no_variable_that_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("FROM_FILE=1\nBOTH=file\n")
    config = program(
        "put(env=dict(os.environ), cwd=os.getcwd(), session=os.getsid(0) == os.getpid())",
        env={"OWN": "o", "BOTH": "own"},
        env_vars=("WANTED", "ABSENT"),
        env_file=str(tmp_path / "env"),
        cwd=str(tmp_path),
    )

    found = await seen(config)

    assert found["env"].items() >= {"OWN": "o", "BOTH": "own", "WANTED": "seen", "FROM_FILE": "1"}.items()
    assert found["env"].keys().isdisjoint({"GITHUB_TOKEN", "ABSENT"})
    assert found["cwd"] == str(tmp_path)
    assert found["session"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"command": "/no/such/program-1"}, "the program program-1 does not exist, or the interpreter in its first"),
        ({"command": "no-such-program"}, "the program no-such-program is in no directory of PATH"),
        ({"command": "/"}, "its program cannot be started"),
        ({"command": "/etc/passwd"}, "the program passwd cannot be started"),
        ({"command": "sh", "args": ("secret\0",)}, "have a NUL character"),
        ({"command": "sh", "cwd": "/no/such/directory"}, "the directory that cwd names does not exist"),
        ({"command": "sh", "env_file": "/no/such/file"}, "the file that envFile names cannot be read"),
        ({"command": "sh", "args": ("secret" * 1_000_000,)}, "the program sh cannot be started"),
    ],
)
async def test_a_program_that_cannot_be_started_is_a_named_reason(settings: dict[str, Any], reason: str) -> None:
    config = DownstreamConfig("x", Transport.STDIO, ("x.*",), "1.0.0", **settings)
    with pytest.raises(CarrierLost) as caught:
        async with open_process(config, environ()):
            pass
    assert reason in caught.value.reason
    assert "secret" not in caught.value.reason


def test_a_file_of_variables_is_read_as_a_shell_has_it(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("﻿# comment\n\nexport A=1\nB='two # words'\nC=\"$A\" # comment\nD=x=y #z\nE=\nF_1=a#b\n")

    assert read_env_file(file) == {"A": "1", "B": "two # words", "C": "$A", "D": "x=y", "E": "", "F_1": "a#b"}


@pytest.mark.parametrize("line", ["secret", "=secret", "A B=secret", "A=sec\0ret", "A-B=secret"])
def test_a_line_that_is_no_variable_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "env"
    file.write_text(f"A=1\n{line}\n")
    with pytest.raises(CarrierLost, match=r"^line 2 of the file that envFile names is not NAME=value$"):
        read_env_file(file)


def test_a_pipe_is_no_file_of_variables(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CarrierLost, match="is not a file of at most"):
        read_env_file(tmp_path / "pipe")


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="own"):
        async with opened(ECHO):
            raise KeyError("own")
