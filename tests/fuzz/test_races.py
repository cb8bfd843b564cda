"""A process that turns directories and files into links out of the workspace, and back, while changes are applied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from intercom.model.errors import PathViolation
from intercom.workspace import files
from tests.fuzz.canary import Grounds
from tests.fuzz.harm import is_fair_error
from tests.fuzz.rig import Rig, sound
from tests.fuzz.values import LONG

#: Flips the name given first between what it is and a link to the second, as fast as it can, until its input ends.
FLIPPER = """
import os, random, select, sys, time
name, target = sys.argv[1:]
kept, link = name + ".kept", name + ".link"

def stay():
    # About as long as the server takes from its look to its act.
    end = time.perf_counter() + random.uniform(0, 0.003)
    while time.perf_counter() < end:
        pass

print("flipping", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        if not os.path.islink(link):
            os.symlink(target, link)
        os.rename(name, kept)
        os.rename(link, name)
        stay()
        os.unlink(name)
        os.rename(kept, name)
        stay()
    except OSError:
        # An apply came in between: put things back as far as they can be.
        if os.path.islink(name):
            os.unlink(name)
        if os.path.lexists(kept) and not os.path.lexists(name):
            os.rename(kept, name)
        elif os.path.isfile(kept):
            os.unlink(kept)
"""

#: What is flipped, and what it points to meanwhile -> the proposals made at the same time, path and diff.
RACES = {
    "a directory": (
        "src",
        "outside",
        [
            ("src/main.c", "new {n}\n"),
            ("src/deep/er.txt", "new {n}\n"),
            ("src/made/{n}", "new\n"),
            ("src/new{n}", "x\n"),
        ],
    ),
    "a deeper directory": (
        "src/deep",
        "outside/sub",
        [("src/deep/er.txt", "new {n}\n"), ("src/deep/secret", "x{n}\n")],
    ),
    "a file": ("notes.txt", "outside/notes.txt", [("notes.txt", "new {n}\n")]),
    "the source of a rename": (
        "src",
        "outside",
        [
            (
                "src/x{n}",
                "diff --git a/notes{n} b/src/x{n}\nsimilarity index 100%\nrename from notes{n}\nrename to src/x{n}\n",
            )
        ],
    ),
    "what is deleted": (
        "src",
        "outside",
        [("src/d{n}", "--- a/src/d{n}\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n")],
    ),
}


@contextmanager
def flipping(name: Path, target: Path) -> Iterator[None]:
    command = [sys.executable, "-c", FLIPPER, str(name), str(target)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@pytest.mark.parametrize("race", RACES)
def test_nothing_outside_is_written_while_links_come_and_go(on: Rig, race: str) -> None:
    flipped, target, proposals = RACES[race]
    grounds = Grounds(on.home.root / f"race-{list(RACES).index(race)}")
    agent, ctl = on.agent(workspace=grounds.workspace), on.ctl()
    rounds = 400 if LONG else 12
    for n in range(rounds):
        for name in (f"notes{n}", f"src/d{n}"):
            (grounds.workspace / name).write_bytes(b"one\ntwo\nthree\n")
        # As bait: what a deletion or a rename would hit if it were led outside.
        (grounds.root / "outside" / f"d{n}").write_bytes(b"one\ntwo\nthree\n")
    around = grounds.outside()
    said = {"applied": 0, "error": 0, "pending": 0}
    with flipping(grounds.workspace / flipped, grounds.root / target):
        for n in range(rounds):
            path, diff = (text.replace("{n}", str(n)) for text in proposals[n % len(proposals)])
            asked = agent.does("check_clearance", title=f"{n}", diff=diff, file_path=path)
            if asked["status"] == "error":
                is_fair_error(asked)
                continue
            ctl.do("approve", id=asked["request_id"])
            applied = agent.does("check_diff", request_id=asked["request_id"], force=n % 2 == 0)
            said[applied["status"]] += 1
            if applied["status"] == "error":
                is_fair_error(applied)
            assert grounds.outside() == around, (path, applied)
    assert grounds.outside() == around
    on.done_with(agent)
    on.done_with(ctl)
    sound(on)


def test_a_link_that_vanishes_while_it_is_followed_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").symlink_to("src")
    read = os.readlink

    def vanished(path: str) -> str:
        os.unlink(path)
        return read(path)

    monkeypatch.setattr(os, "readlink", vanished)
    with pytest.raises(PathViolation, match="changed while"):
        files.relative(tmp_path, "in/main.c")
