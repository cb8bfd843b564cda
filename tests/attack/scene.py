"""The scene of an attack: one user's server, an agent with a shell of its own, and a person on a terminal elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intercom.local import operator_keys
from tests.agents.live import Home
from tests.faults.hosted import Hosted, ctl
from tests.support.terminal import on_terminal

PIN = "correct horse"
PROGRAMS = Path(__file__).with_name("programs")
#: As the user's agents find it; keys that they make leave nothing in the home of who runs the tests.
CTL = Path(__file__).parents[1] / "support" / "ctl_at_home.py"
PACKAGE = Path(__file__).resolve().parents[2] / "intercom"


@contextmanager
def spare_directory() -> Iterator[Path]:
    """A directory with a short name for sockets, FIFOs and copies of an attempt."""
    made = Path(tempfile.mkdtemp(prefix="atk-", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def run_in_shell(
    agent: Hosted, home: Home, command: str, *, spare: Path, tty: str = "/dev/null", **names: str
) -> str:
    """Run an attack's command in the agent's shell; what it printed."""
    out = spare / "out"
    if not out.exists():
        os.mkfifo(out)
    filled = command.format(
        ctl=f"{sys.executable} {CTL} --json",
        python=sys.executable,
        programs=PROGRAMS,
        package=PACKAGE,
        database=home.places.database,
        config=home.places.config_file,
        spare=spare,
        out=out,
        tty=tty,
        **names,
    )
    done = await agent.shell(filled)
    return f"{done['out']}{done['err']}"


async def person_approves(home: Home, agent: Hosted, workspace: Path, path: str) -> str:
    """The agent asks, and a person approves at a terminal, signed where there is a key; the request."""
    asked = await agent.ask("check_clearance", title="first", diff="x\n", file_path=path)
    async with home.person(workspace) as person:
        card = await person.card(status="pending", detail=path)
    id = str(card["request_id"])
    if operator_keys.private_keys(home.places):
        async with on_terminal([sys.executable, "-m", "intercom.cli.ctl", "approve", id], home.environ) as screen:
            await screen.until("PIN of key")
            screen.type(f"{PIN}\n")
            said = await screen.rest()
            assert f"approved {id}" in said, said
    else:
        code, done = await ctl(home, "approve", id)
        assert code == 0, done
    assert (await agent.answer(asked))["status"] == "approved"
    return id
