"""The scene of an attack: one user's server, an agent with a shell of its own, and a person on a terminal elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from intercom.local import operator_keys
from tests.faults.hosted import Hosted, ctl
from tests.support.server_process import Home, user_home
from tests.support.terminal import on_terminal

PIN = "correct horse"
PROGRAMS = Path(__file__).with_name("programs")
#: As the user's agents find it; keys that they make leave nothing in the home of who runs the tests.
CTL = Path(__file__).parents[1] / "support" / "ctl_at_home.py"
PACKAGE = Path(__file__).resolve().parents[2] / "intercom"
#: What an attack prints that did not take place, because it names something that is not there.
_BROKEN = re.compile(
    r"^(ImportError|ModuleNotFoundError|NameError|AttributeError|TypeError|KeyError|sqlite3\.\w+)\b"
    r"|No module named|: cannot create |: not found$",
    re.MULTILINE,
)


@contextmanager
def served_home(*, with_key: bool) -> Iterator[Home]:
    """A user's home whose server runs, with an operator key or without."""
    with user_home("") as made:
        if with_key:
            operator_keys.create(made.places, PIN, "kim", "2026-11-23T08:00:00.000000+00:00")
        with made.serving():
            yield made


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
    """Run an attack's command in the agent's shell; what it printed. Fails if the attack itself is broken: it would
    then prove nothing."""
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
    said = f"{done['out']}{done['err']}"
    assert not _BROKEN.search(said), said
    return said


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


def end_attempt(id: str) -> None:
    """End what an attack on this request left behind, such as a ctl that waits for its PIN."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and any(id in word for word in process.cmdline()):
                process.kill()
