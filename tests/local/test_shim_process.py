"""A shim's id says which process it is of, and no more than is known."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from intercom.local import shim_process

#: Elsewhere an id is only random, and nobody is ever taken for dead.
LINUX = sys.platform == "linux"
PRINT_ID = "from intercom.local.shim_process import make_id; print(make_id(), flush=True); input()"
MAKE = [sys.executable, "-c", PRINT_ID]


def parts() -> list[str]:
    """Those of an id of this process: a random one, its namespace, its number, when it started."""
    return shim_process.make_id().split("-") if LINUX else ["0" * 32, "1", "2", "3"]


def test_an_id_says_which_process_it_is_of_where_that_can_be_known() -> None:
    assert re.fullmatch(r"[0-9a-f]{32}-\d+-\d+-\d+" if LINUX else r"[0-9a-f]{32}", shim_process.make_id())


def test_who_lives_is_not_dead_and_who_ended_is_also_before_it_is_reaped() -> None:
    assert not shim_process.is_dead(shim_process.make_id())
    with subprocess.Popen(MAKE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        id = process.stdout.readline().strip()
        assert not shim_process.is_dead(id)
        process.kill()
        if LINUX:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert shim_process.is_dead(id), "a zombie asks nothing any more"
        process.wait()
        assert shim_process.is_dead(id) is LINUX


def test_two_ids_of_one_process_differ() -> None:
    assert shim_process.make_id() != shim_process.make_id()


def test_a_process_that_got_the_number_later_is_not_it() -> None:
    chance, namespace, pid, ticks = parts()
    assert shim_process.is_dead(f"{chance}-{namespace}-{pid}-{int(ticks) - 1}") is LINUX


def test_what_can_not_be_told_is_not_taken_for_dead() -> None:
    chance, namespace, _, ticks = parts()
    gone = 2**22 + 1  # more than Linux ever gives out
    assert shim_process.is_dead(f"{chance}-{namespace}-{gone}-{ticks}") is LINUX
    assert not shim_process.is_dead(f"{chance}-{int(namespace) + 1}-{gone}-{ticks}"), "another PID namespace's"
    for other in (None, "", chance, f"codex:{chance}@/home", f"{chance}-{namespace}-{gone}-x"):
        assert not shim_process.is_dead(other)


def test_without_a_proc_of_its_own_nobody_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, namespace, _, ticks = parts()
    gone = f"{chance}-{namespace}-{2**22 + 1}-{ticks}"
    assert shim_process.is_dead(gone) is LINUX
    # In a sandbox with PIDs of its own and the host's /proc, a number there is somebody else's.
    monkeypatch.setattr(os, "getpid", lambda: 2)
    assert not shim_process.is_dead(gone)
    assert "-" not in shim_process.make_id()
    monkeypatch.undo()

    def no_proc(path: object, *args: object, **options: object) -> object:
        raise FileNotFoundError(path)

    for name in ("readlink", "stat"):
        monkeypatch.setattr(os, name, no_proc)
    assert not shim_process.is_dead(gone)
    assert "-" not in shim_process.make_id()


def test_only_who_is_known_to_run_is_alive_also_while_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, namespace, pid, ticks = parts()
    id = f"{chance}-{namespace}-{pid}-{ticks}"
    assert shim_process.is_alive(id) is LINUX
    with subprocess.Popen(MAKE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        other = process.stdout.readline().strip()
        process.send_signal(signal.SIGSTOP)
        assert shim_process.is_alive(other) is LINUX
        process.kill()
        process.wait()
        assert not shim_process.is_alive(other)
    for unknown in (
        None,
        chance,
        f"{chance}-{int(namespace) + 1}-{pid}-{ticks}",
        f"{chance}-{namespace}-{pid}-{int(ticks) - 1}",
    ):
        assert not shim_process.is_alive(unknown)
    monkeypatch.setattr(os, "getpid", lambda: 2)
    assert not shim_process.is_alive(id), "with a /proc that is not its own"
