"""The examples that are programs run, and say what their own words promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own, whose paths are long for a socket.
    with tempfile.TemporaryDirectory(prefix="ix-") as directory:
        for name in ("run", "config", "state", "project"):
            (Path(directory) / name).mkdir(mode=0o700)
        yield Path(directory)


def run(home: Path, program: str, *arguments: str, typed: str = "") -> tuple[int, list[str]]:
    environ = {f"XDG_{name}": str(home / part) for name, part in PLACES.items()}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


PLACES = {"RUNTIME_DIR": "run", "CONFIG_HOME": "config", "STATE_HOME": "state"}


def test_a_trio_program_approves_a_bump_of_the_version_by_itself(home: Path) -> None:
    assert run(home, "embed_in_trio.py", str(home / "project"), "1.2.4") == (0, ["wrote VERSION, 6 bytes"])
    assert (home / "project/VERSION").read_text() == "1.2.4\n"


def test_a_synchronous_program_asks_and_writes_what_was_approved(home: Path) -> None:
    code, said = run(home, "embed_in_sync.py", str(home / "project"), typed="y\n")
    assert (code, said) == (0, ["Leave a note, NOTE.md? [y/n] wrote NOTE.md, 14 bytes"])
    assert (home / "project/NOTE.md").read_text() == "Back at noon.\n"


def test_a_synchronous_program_writes_nothing_that_was_rejected(home: Path) -> None:
    code, said = run(home, "embed_in_sync.py", str(home / "project"), typed="n\n")
    assert (code, said) == (1, ["Leave a note, NOTE.md? [y/n] rejected: not now"])
    assert list((home / "project").iterdir()) == []


@pytest.mark.parametrize(("typed", "code", "end"), [("y", 0, "wrote NOTE.md, 14 bytes"), ("n", 1, "rejected: not now")])
def test_an_asyncio_program_writes_only_what_was_approved(home: Path, typed: str, code: int, end: str) -> None:
    assert run(home, "embed_in_asyncio.py", str(home / "project"), typed=f"{typed}\n") == (
        code,
        [f"Leave a note, NOTE.md? [y/n] {end}"],
    )
    assert (home / "project/NOTE.md").exists() is (code == 0)


def test_a_supervised_actor_crashes_and_goes_on_with_what_it_had_counted(home: Path) -> None:
    code, said = run(home, "supervised_actor.py")
    assert code == 0
    heads = [line.partition(":")[0] for line in said]
    # The next incarnation may answer before its start is told.
    assert (heads[:3], sorted(heads[3:])) == (["counted 4", "refused", "crashed"], ["restarted", "still 4"])


def test_every_program_among_the_examples_is_run_here() -> None:
    tested = Path(__file__).read_text()
    assert [file.name for file in EXAMPLES.glob("*.py") if f'"{file.name}"' not in tested] == []


@pytest.mark.parametrize("page", ["tutorial/supervised-actors.md", "how-to/tune-actors.md"])
def test_the_code_on_a_page_prints_what_the_page_says(page: str) -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    code, printed = ("\n".join(text for kind, text in blocks if kind == wanted) for wanted in ("python", "text"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (printed, "")
