"""The agent that tries to approve itself through ctl, from its own shell, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.operators.ctl_server import CtlServer, ctl_server
from tests.operators.stand_in_service import StandInAgents, StandInService, card
from tests.support.person_shell import person_shell

pytestmark = pytest.mark.real_time

CTL = f"{sys.executable} -m intercom.cli.ctl --json approve a"

#: A stand-in for an agent's client: it says that it is up, then runs the shell command it is given, and stays.
CLIENT = """
import subprocess, sys
print("up", flush=True)
command = sys.stdin.readline()
subprocess.run(command, shell=True)
sys.stdin.read()
"""

#: The same, with a shim it started through a launcher; it says what the shim would tell: its own pid, its parent's.
LAUNCHING_CLIENT = """
import subprocess, sys
shim = "import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(600)"
started = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{shim}'; true"])
command = sys.stdin.readline()
subprocess.run(command, shell=True)
sys.stdin.read()
"""

#: What an agent's shell may try -> where the answer goes.
WAYS = {
    "plainly": "{ctl} > {out}",
    "from a shell in a shell": "sh -c 'sh -c \"{ctl} > {out}\"'",
    "left behind by a shell that is gone": "(sh -c '{ctl} > {out}' &)",
    "with another environment": "env -i $(env | grep -E ^XDG_) sh -c '{ctl} > {out}'",
    "in a session of its own": "setsid sh -c '{ctl} > {out}'",
    "in a session of its own, its parent gone": "setsid -f sh -c '{ctl} > {out}'",
    "without regard to hangups": "nohup sh -c '{ctl} > {out}' 2> {out}.log",
    "in the background, its parent gone": "(nohup sh -c '{ctl} > {out}' 2> {out}.log &)",
    "as a daemon": "{python} {daemon} sh -c '{ctl} > {out}'",
    "at a pseudo-terminal of script": "script -qec '{ctl} > {out}' {out}.log < /dev/null",
    "at a pseudo-terminal of Python": "{python} {spawning} sh -c '{ctl} > {out}' < /dev/null",
    "leading a session at its own pseudo-terminal": "{python} {leading} sh -c '{ctl} > {out}'",
}

#: Forks twice, and leads a session in between: nobody above it, no terminal.
DAEMON = """
import os, sys
os.fork() and os._exit(0)
os.setsid()
os.fork() and os._exit(0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
#: Spawns at a pseudo-terminal that it passes on.
SPAWNING = "import pty, sys; pty.spawn(sys.argv[1:])"
#: Leads a session at a new pseudo-terminal, while its parent lives and holds the other end.
LEADING = """
import fcntl, os, sys, termios, time
master, slave = os.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.execvp(sys.argv[1], sys.argv[1:])
time.sleep(600)
"""


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[CtlServer]:
    """A server that knows the service's clients for agents."""
    service = StandInService(card("a"))
    async with ctl_server(tmp_path, service, agents=StandInAgents(service)) as server:
        yield server


async def attempt(server: CtlServer, tmp_path: Path, command: str, script: str = CLIENT) -> dict[str, object]:
    """Have a connected client's shell run `command`; what ctl printed there."""
    # A pipe: reading it waits for whoever writes, however far from here.
    out = tmp_path / "answer.json"
    os.mkfifo(out)
    # A session of its own, as every terminal, and every agent's host, has.
    client = await trio.lowlevel.open_process(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=server.environ,
        start_new_session=True,
    )
    try:
        assert client.stdin is not None
        assert client.stdout is not None
        said = (await client.stdout.receive_some()).split()
        server.service.clients = frozenset({client.pid} if said == [b"up"] else map(int, said))
        scripts = {"daemon": DAEMON, "leading": LEADING, "spawning": SPAWNING}
        for name, text in scripts.items():
            (tmp_path / name).write_text(text)
        named = {name: str(tmp_path / name) for name in scripts}
        words = command.format(ctl=CTL, out=out, python=sys.executable, **named)
        await client.stdin.send_all(words.encode() + b"\n")
        answer = json.loads(await trio.Path(out).read_text())
        assert isinstance(answer, dict)
        return answer
    finally:
        # With what it started: its session is its own.
        os.killpg(client.pid, signal.SIGKILL)
        await client.wait()


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_can_not_approve_itself(tmp_path: Path, way: str) -> None:
    async with guarded(tmp_path) as server:
        answer = await attempt(server, tmp_path, WAYS[way])
        assert answer["ok"] is False
        assert answer["error_code"] == "unauthorized"
        assert server.service.acts == []
        assert len(server.service.events) == 1


async def test_an_agent_whose_shim_came_through_a_launcher_can_not_approve_itself(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        answer = await attempt(server, tmp_path, WAYS["plainly"], LAUNCHING_CLIENT)
        assert answer["error_code"] == "unauthorized"
        assert server.service.acts == []


async def test_a_person_at_another_terminal_approves_as_ever(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        client = await trio.lowlevel.open_process(
            [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            server.service.clients = frozenset({client.pid})
            with person_shell() as window:
                done = await window.run_async(CTL.split(), server.environ)
                assert json.loads(done.stdout)["status"] == "approved"
                # The first time from there is told; it is no refusal.
                [(summary, _)] = server.service.events
                assert summary.count(window.device) == 1
                await window.run_async([*CTL.split()[:-2], "nudge", "s-1"], server.environ)
                assert len(server.service.events) == 1
        finally:
            client.kill()
            await client.wait()


async def test_a_process_without_a_terminal_is_refused_whoever_started_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        with person_shell() as window:
            done = await window.run_async(["setsid", "-w", *CTL.split()], server.environ)
        answer = json.loads(done.stdout)
        assert answer["error_code"] == "unauthorized"
        assert "has no terminal; only an operator at a terminal may do this" in answer["error"]
        assert server.service.acts == []


async def test_a_decision_carries_where_it_came_from(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        with person_shell() as window:
            done = await window.run_async(CTL.split(), server.environ)
        assert json.loads(done.stdout)["status"] == "approved"
        decided = server.service.cards["a"].decided
        assert decided is not None
        assert decided.origin is not None
        assert (decided.origin.terminal, decided.origin.leader) == (window.device, window.pid)
        assert (decided.origin.parent, decided.origin.channel) == (window.pid, "ctl")


async def test_a_server_that_trusts_agents_lets_them(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a")), trust_agent_processes=True) as server:
        answer = await attempt(server, tmp_path, WAYS["plainly"])
        assert answer["status"] == "approved"


async def test_an_agent_may_look(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        answer = await attempt(server, tmp_path, WAYS["plainly"].replace("{ctl}", CTL.replace("approve", "show")))
        assert answer["request_id"] == "a"
