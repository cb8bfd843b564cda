"""A server's threads keep no memory that they gave back, and what it starts is not told so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from intercom.local import tunables

GLIBC = platform.libc_ver()[0] == "glibc"
#: Gives back seven pieces; says how much of it the thread did not keep, and what children would be told.
KEEPS = """
import ctypes, os, sys
from intercom.local import tunables
tunables.heed()

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "_1", "_2", "_3", "_4", "_5", "_6", "used", "_8", "_9")]

libc = ctypes.CDLL(None)
if not hasattr(libc, "mallinfo2"):
    print(0, os.environ.get("GLIBC_TUNABLES"), *sys.argv[1:])
    sys.exit()
libc.mallinfo2.restype = Info
blocks = [bytes(900) for _ in range(7)]
before = libc.mallinfo2().used
del blocks[:]
print(before - libc.mallinfo2().used, os.environ.get("GLIBC_TUNABLES"), *sys.argv[1:])
"""


def run(*words: str, **environment: str) -> list[str]:
    here = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", KEEPS, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=here | environment).stdout.split()


def test_it_begins_anew_with_threads_that_keep_nothing() -> None:
    freed, told, *words = run("one", "two")
    assert int(freed) >= 7 * 900 or not GLIBC
    assert (told, words) == ("None", ["one", "two"])


def test_who_was_started_so_does_not_begin_anew() -> None:
    freed, told = run(**tunables.added({}))
    assert int(freed) >= 7 * 900 or not GLIBC
    assert told == "None"


def test_what_the_environment_says_is_left_alone() -> None:
    own = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7", "A": "b"}
    assert tunables.added(own) == own
    if GLIBC:
        freed, told = run(**own)
        assert int(freed) < 7 * 900
        assert told == own["GLIBC_TUNABLES"]


@pytest.mark.parametrize("failure", [AttributeError, OSError, ValueError])
def test_another_c_library_is_told_nothing(monkeypatch: pytest.MonkeyPatch, failure: type[Exception]) -> None:
    def confstr(name: str) -> str:
        raise failure(name)

    monkeypatch.setattr(os, "confstr", confstr)
    assert tunables.added({"A": "b"}) == {"A": "b"}


def test_who_can_not_begin_anew_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def execve(*command: object) -> None:
        tried.append(command)
        raise OSError

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(os, "execve", execve)
    tunables.heed()
    assert len(tried) == GLIBC
    assert "GLIBC_TUNABLES" not in os.environ


def test_it_begins_anew_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, str]] = []
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(os, "execve", lambda *command: begun.append(command[2]))
    tunables.heed()
    for name, value in (begun[0] if begun else {}).items():
        if name != "GLIBC_TUNABLES":  # as glibc does for programs with rights of their own
            monkeypatch.setenv(name, value)
    tunables.heed()
    assert len(begun) == GLIBC
    assert "AGENT_INTERCOM_BEGUN_ANEW" not in os.environ
