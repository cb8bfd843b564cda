"""Who acts: operators and agents told apart by real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from intercom.local import processes
from intercom.local.processes import KnownAgents, NotExaminable, ProcessKey, Who, examine, line, recognise
from tests.support.person_shell import PersonShell, person_shell

#: Says its pid, then waits to be ended.
WAITS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@pytest.fixture(scope="module")
def terminal() -> Iterator[PersonShell]:
    with person_shell() as made:
        yield made


@contextlib.contextmanager
def waiting(*command: str, own_session: bool = True) -> Iterator[int]:
    """A command whose last process runs WAITS: that one's pid."""
    with subprocess.Popen(
        [*command, sys.executable, "-c", WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=own_session,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def agents(*pids: int) -> KnownAgents:
    keys = frozenset(examine(pid).key for pid in pids)
    return KnownAgents(keys, keys)


def test_a_process_at_a_terminal_of_its_own_is_an_operator(terminal: PersonShell) -> None:
    found = recognise(terminal.pid, agents(os.getpid()))
    assert found.who is Who.OPERATOR
    assert found.origin.terminal == terminal.device
    assert (found.origin.pid, found.origin.leader) == (terminal.pid, terminal.pid)
    assert found.origin.executable == os.path.realpath(sys.executable)
    assert found.origin.describe().startswith("python")
    assert f"in {terminal.device}" in found.origin.describe()


def test_a_process_without_a_terminal_is_unknown() -> None:
    with waiting() as pid:
        found = recognise(pid, KnownAgents())
    assert found.who is Who.UNKNOWN
    assert "has no terminal" in found.why


def test_whatever_descends_from_a_recorded_process_is_an_agents() -> None:
    with waiting("sh", "-c", '"$0" "$@"; true') as pid:
        shell = examine(pid).parent
        found = recognise(pid, agents(shell))
    assert found.who is Who.AGENT
    assert f"process {shell}" in found.why


def test_an_orphan_in_an_agents_session_is_an_agents_also_when_its_leader_is_gone(terminal: PersonShell) -> None:
    """The shell that put it in the background is gone, so that its parent says nothing; its session does."""
    code = (
        "import os, sys\n"
        "if os.fork():\n    sys.exit()\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.close(); os.close(1)\n"
        "import time; time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    leader = examine(process.pid).key
    pid = int(process.stdout.readline())
    try:
        process.wait()
        found = recognise(pid, KnownAgents(sessions=frozenset({leader})))
        assert found.who is Who.AGENT
        assert f"the session of process {leader.pid}" in found.why
    finally:
        process.stdout.close()
        os.kill(pid, signal.SIGKILL)


def test_a_pseudo_terminal_that_an_agent_opened_is_no_operators() -> None:
    code = f"import pty, sys; pty.spawn([sys.executable, '-c', {WAITS!r}])"
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=slave, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            pid = int(process.stdout.readline())
            assert examine(pid).terminal
            found = recognise(pid, agents(process.pid))
            assert found.who is Who.AGENT
        finally:
            process.kill()
            os.close(master)
            os.close(slave)


def test_a_process_that_merely_has_a_recorded_pid_is_not_that_process(terminal: PersonShell) -> None:
    key = examine(terminal.pid).key
    another = ProcessKey(key.pid, key.started - 1, key.boot)
    before = ProcessKey(key.pid, key.started, "another boot")
    assert recognise(terminal.pid, KnownAgents(frozenset({another, before}))).who is Who.OPERATOR
    assert recognise(terminal.pid, KnownAgents(frozenset({key}))).who is Who.AGENT


def test_descending_from_process_1_says_nothing(terminal: PersonShell) -> None:
    """It adopts everybody's orphans, and may be the leader of an agent's session in a container."""
    try:
        first = examine(1).key
    except NotExaminable:
        pytest.fail("process 1 cannot be examined here")
    assert recognise(terminal.pid, KnownAgents(frozenset({first}), frozenset({first}))).who is Who.OPERATOR


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_a_process_that_cannot_be_examined_is_unknown(pid: int) -> None:
    assert recognise(pid, KnownAgents()).who is Who.UNKNOWN


def test_a_process_that_has_ended_is_unknown() -> None:
    gone = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    # A zombie still has its pid, and nothing more.
    assert recognise(gone.pid, KnownAgents()).who is Who.UNKNOWN
    gone.wait()
    assert recognise(gone.pid, KnownAgents()).who is Who.UNKNOWN


def test_a_process_under_a_debugger_is_unknown(terminal: PersonShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "tracer", lambda pid: 4711 if pid == terminal.pid else 0)
    found = recognise(terminal.pid, KnownAgents())
    assert found.who is Who.UNKNOWN
    assert "debugger (process 4711)" in found.why


def test_the_line_of_a_process_ends_at_the_top() -> None:
    found = line(os.getpid())
    assert found[0].pid == os.getpid()
    assert [each.parent for each in found[:-1]] == [each.pid for each in found[1:]]
    assert found[-1].parent == 0


def test_a_terminal_is_named_as_people_know_it(terminal: PersonShell) -> None:
    told = terminal.run([sys.executable, "-c", "import os; print(os.ctermid(), os.getsid(0))"])
    assert told.stdout.split() == ["/dev/tty", str(terminal.pid)]
    assert processes.terminal_name(examine(terminal.pid).terminal) == terminal.device
    assert processes.terminal_name(0) is None
    assert processes.terminal_name(0x0403) == "/dev/tty3"


def test_an_origin_is_written_and_read_back(terminal: PersonShell) -> None:
    found = processes.origin("ctl", terminal.pid)
    assert type(found).from_text(found.to_text()) == found
    assert "parent_executable" in json.loads(found.to_text()) or found.parent_executable is None
    newer = json.dumps({**json.loads(found.to_text()), "something": "new"})
    assert type(found).from_text(newer) == found
    with pytest.raises(ValueError, match="not the origin"):
        type(found).from_text("[]")
