"""Which processes descend from which."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from intercom.local.peers import descends_from, started_at


@pytest.fixture
def grandchild() -> Iterator[tuple[int, int]]:
    """Process ids of a child and of the child's child."""
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        try:
            yield child.pid, pid
        finally:
            for each in (pid, child.pid):
                os.kill(each, 9)


def test_a_process_descends_from_itself_its_parent_and_theirs(grandchild: tuple[int, int]) -> None:
    child, pid = grandchild
    for ancestor in (pid, child, os.getpid()):
        assert descends_from(pid, {ancestor})
    assert not descends_from(child, {pid})
    assert not descends_from(os.getpid(), {child, pid})
    assert not descends_from(pid, set())


def test_a_process_that_merely_has_an_ancestors_number_is_none(grandchild: tuple[int, int]) -> None:
    child, pid = grandchild
    started = started_at(child)
    assert started is not None
    assert descends_from(pid, {child: started})
    assert not descends_from(pid, {child: started - 100})


def test_who_can_not_be_examined_counts_as_descending(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert descends_from(gone.pid, {1})
    assert started_at(gone.pid) is None
    assert descends_from(0, {1})
    assert descends_from(-1, {1})

    def refuse(self: psutil.Process) -> list[psutil.Process]:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "parents", refuse)
    assert descends_from(os.getpid(), {-2})
