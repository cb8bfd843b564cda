"""The agent that tries to approve itself through ctl, from its own shell, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from intercom.local.launchers import is_launcher
from tests.operators.desk import StandInDesk, card
from tests.operators.house import House, open_house
from tests.support.trio_case import trio_test

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

# What an agent's shell may try -> where the answer goes
WAYS = {
    "plainly": "{ctl} > {out}",
    "from a shell in a shell": "sh -c 'sh -c \"{ctl} > {out}\"'",
    "left behind by a shell that is gone": "(sh -c '{ctl} > {out}' &)",
    "with another environment": "env -i $(env | grep -E ^XDG_) sh -c '{ctl} > {out}'",
}


async def attempt(house: House, tmp_path: Path, command: str, script: str = CLIENT) -> dict[str, object]:
    """Have a connected client's shell run `command`; what ctl printed there."""
    # A pipe: reading it waits for whoever writes, however far from here.
    out = tmp_path / "answer.json"
    os.mkfifo(out)
    # A session of its own, as every terminal, and every agent's host, has.
    client = await trio.lowlevel.open_process(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=house.environ,
        start_new_session=True,
    )
    try:
        assert client.stdin is not None
        assert client.stdout is not None
        said = (await client.stdout.receive_some()).split()
        house.desk.clients = frozenset({client.pid} if said == [b"up"] else map(int, said))
        await client.stdin.send_all(command.format(ctl=CTL, out=out).encode() + b"\n")
        answer = json.loads(await trio.Path(out).read_text())
        assert isinstance(answer, dict)
        return answer
    finally:
        # With what it started: its session is its own.
        os.killpg(client.pid, signal.SIGKILL)
        await client.wait()


@pytest.mark.parametrize("way", WAYS)
@trio_test(real_time=True)
async def test_an_agent_can_not_approve_itself(tmp_path: Path, way: str) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        answer = await attempt(house, tmp_path, WAYS[way])
        assert answer["ok"] is False
        assert answer["error_code"] == "unauthorized"
        assert house.desk.acts == []
        assert len(house.desk.events) == 1


@trio_test(real_time=True)
async def test_an_agent_whose_shim_came_through_a_launcher_can_not_approve_itself(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        answer = await attempt(house, tmp_path, WAYS["plainly"], LAUNCHING_CLIENT)
        assert answer["error_code"] == "unauthorized"
        assert house.desk.acts == []


@pytest.mark.parametrize(
    ("line", "launches"),
    [
        ("uvx agent-intercom", True),
        ("/usr/local/bin/uv run agent-intercom", True),
        ("/usr/bin/python3 /usr/bin/pipx run agent-intercom", True),
        ("node /usr/lib/node_modules/npm/bin/npx-cli.js tool", True),
        ("sh -c agent-intercom", True),
        ("/bin/bash -lc agent-intercom", True),
        ("bash", False),
        ("-bash", False),
        ("/bin/zsh -i", False),
        ("node /usr/local/bin/claude", False),
        ("codex exec", False),
        ("/usr/bin/python3 agent.py -c", False),
        ("", False),
    ],
)
def test_a_launcher_is_told_from_an_agents_host(line: str, launches: bool) -> None:
    assert is_launcher(line.split()) is launches
    # As a program that writes its line into the first word shows it.
    assert is_launcher([line] if line else []) is launches


@trio_test(real_time=True)
async def test_a_person_beside_the_agent_approves_as_ever(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        client = await trio.lowlevel.open_process(
            [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            house.desk.clients = frozenset({client.pid})
            done = await trio.run_process(CTL.split(), env=house.environ, capture_stdout=True)
            assert json.loads(done.stdout)["status"] == "approved"
            assert house.desk.events == []
        finally:
            client.kill()
            await client.wait()


@trio_test(real_time=True)
async def test_a_server_that_trusts_agents_lets_them(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a")), trust_agent_processes=True) as house:
        answer = await attempt(house, tmp_path, WAYS["plainly"])
        assert answer["status"] == "approved"


@trio_test(real_time=True)
async def test_an_agent_may_look(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        answer = await attempt(house, tmp_path, WAYS["plainly"].replace("{ctl}", CTL.replace("approve", "show")))
        assert answer["request_id"] == "a"
