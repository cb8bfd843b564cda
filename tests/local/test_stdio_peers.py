"""Who holds the other end of a process's standard streams."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from intercom.local.peer_processes import stdio_holders

WAITS = "import os, sys; os.write(1, b'up\\n'); os.read(0, 1)"


@pytest.mark.parametrize("wrapped", [[], ["setsid", "-w"], ["sh", "-c", '"$0" "$@"; true']])
def test_the_client_is_found_at_the_other_end_of_a_pipe(wrapped: list[str]) -> None:
    said = "import os; os.write(1, b'%d\\n' % os.getpid()); os.read(0, 1)"
    with subprocess.Popen(
        [*wrapped, sys.executable, "-c", said], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        pid = int(process.stdout.readline())
        assert stdio_holders(pid, [os.getppid()]) == {os.getpid()}
        assert stdio_holders(pid, [os.getpid()]) == {os.getpid()}
        process.stdin.close()


def test_the_client_is_found_at_the_other_end_of_a_socket_pair() -> None:
    ours, theirs = socket.socketpair()
    with theirs, ours, subprocess.Popen([sys.executable, "-c", WAITS], stdin=theirs, stdout=theirs) as process:
        assert ours.recv(3) == b"up\n"
        # The child's copies are its own end, as is ours of theirs: let go of it first.
        theirs.close()
        assert stdio_holders(process.pid, []) == {os.getpid()}
        ours.close()


def test_nobody_is_at_the_other_end_of_a_file() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        assert stdio_holders(process.pid, [os.getpid()]) == frozenset()
        process.kill()


def test_a_process_that_is_gone_has_nobody() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert stdio_holders(gone.pid, [os.getpid()]) == frozenset()
