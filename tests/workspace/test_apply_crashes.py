"""The apply journal, killed at every step: all files or none, each with its bytes and its mode."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from intercom.model import crash_points
from intercom.workspace import apply, patching, proposal
from tests.workspace import crash_child

REPOSITORY = Path(__file__).parents[2]

PATCH = """\
diff --git a/edit.txt b/edit.txt
old mode 100644
new mode 100755
--- a/edit.txt
+++ b/edit.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-to be removed
diff --git a/old/name.txt b/new/deep/name.txt
similarity index 60%
rename from old/name.txt
rename to new/deep/name.txt
--- a/old/name.txt
+++ b/new/deep/name.txt
@@ -1,2 +1,2 @@
-before
+after
 same
diff --git a/new/tool.sh b/new/tool.sh
new file mode 100755
--- /dev/null
+++ b/new/tool.sh
@@ -0,0 +1 @@
+#!/bin/sh
diff --git a/dos.txt b/dos.txt
--- a/dos.txt
+++ b/dos.txt
@@ -1,2 +1,3 @@
 left\r
+middle\r
 right\r
"""

Tree = dict[str, tuple[int, bytes]]


def make(root: Path) -> Tree:
    root.mkdir()
    root.chmod(0o755)
    (root / "old").mkdir()
    for name, content, mode in (
        ("edit.txt", b"one\ntwo\nthree\n", 0o644),
        ("gone.txt", b"to be removed\n", 0o644),
        ("old/name.txt", b"before\nsame\n", 0o600),
        ("dos.txt", b"left\r\nright\r\n", 0o664),
        ("untouched.txt", b"\x00\xff\n", 0o640),
    ):
        (root / name).write_bytes(content)
        (root / name).chmod(mode)
    return tree(root)


def tree(root: Path) -> Tree:
    return {
        str(path.relative_to(root)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


AFTER: Tree = {
    "edit.txt": (0o755, b"one\nTWO\nthree\n"),
    "new/deep/name.txt": (0o600, b"after\nsame\n"),
    "new/tool.sh": (0o755, b"#!/bin/sh\n"),
    "dos.txt": (0o664, b"left\r\nmiddle\r\nright\r\n"),
    "untouched.txt": (0o640, b"\x00\xff\n"),
}


def passings(tmp: Path) -> Counter[str]:
    """How often each crash point is passed when nothing goes wrong."""
    seen: Counter[str] = Counter()
    root = tmp / "counted"
    make(root)
    crash_points.hook = lambda name: seen.update([name])
    try:
        plan = patching.plan(root, proposal.parse(PATCH, "edit.txt"))
        steps = apply.prepare(root, plan, "request-1")
        apply.stage(root, plan, steps)
        crash_points.reach("test.committed")
        apply.roll_forward(root, steps)
    finally:
        crash_points.hook = None
    return seen


def run_child(root: Path, journal: Path, patch: Path, point: str, occurrence: int) -> int:
    command = [sys.executable, "-m", "tests.workspace.crash_child", root, journal, patch, point, str(occurrence)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode


def test_every_step_of_the_apply_is_a_crash_point(tmp_path: Path) -> None:
    assert passings(tmp_path) == {
        "apply.staged_one": 4,
        "apply.staged_all": 1,
        "test.committed": 1,
        "apply.renamed_one": 6,
        "apply.renamed_all": 1,
    }


POINTS = [
    *(("apply.staged_one", n) for n in range(1, 5)),
    ("apply.staged_all", 1),
    ("test.committed", 1),
    *(("apply.renamed_one", n) for n in range(1, 7)),
    ("apply.renamed_all", 1),
]


@pytest.mark.parametrize(("point", "occurrence"), POINTS)
def test_an_apply_killed_anywhere_leaves_all_files_or_none(tmp_path: Path, point: str, occurrence: int) -> None:
    root, journal, patch = tmp_path / "work", tmp_path / "journal.json", tmp_path / "change.patch"
    before = make(root)
    patch.write_text(PATCH, newline="")

    assert run_child(root, journal, patch, point, occurrence) == -signal.SIGKILL
    state, steps = crash_child.read_journal(journal)
    if state == "staging":
        apply.discard(root, steps)
        assert tree(root) == before
        assert not (root / "new").exists()
        return
    written = apply.roll_forward(root, steps)
    assert tree(root) == AFTER
    assert {file.path: file.bytes for file in written}["new/deep/name.txt"] == 11
    assert apply.roll_forward(root, steps) == written
    assert tree(root) == AFTER


@pytest.mark.parametrize("second", range(1, 4))
def test_a_recovery_that_is_killed_too_is_finished_by_the_next(tmp_path: Path, second: int) -> None:
    root, journal, patch = tmp_path / "work", tmp_path / "journal.json", tmp_path / "change.patch"
    make(root)
    patch.write_text(PATCH, newline="")

    assert run_child(root, journal, patch, "apply.renamed_one", 2) == -signal.SIGKILL
    assert run_child(root, journal, patch, "apply.renamed_one", second) == -signal.SIGKILL
    _, steps = crash_child.read_journal(journal)
    apply.roll_forward(root, steps)
    assert tree(root) == AFTER


def test_an_apply_killed_before_any_call_that_changes_files_leaves_all_or_none(tmp_path: Path) -> None:
    patch = tmp_path / "change.patch"
    patch.write_text(PATCH, newline="")
    kills, outcomes = 0, Counter[str]()
    while True:
        kills += 1
        root, journal = tmp_path / f"work{kills}", tmp_path / f"journal{kills}.json"
        before = make(root)
        code = run_child(root, journal, patch, "any", kills)
        state, steps = crash_child.read_journal(journal)
        outcomes[state] += 1
        if state in ("none", "staging"):
            apply.discard(root, steps)
            assert tree(root) == before
            assert not (root / "new").exists()
        else:
            apply.roll_forward(root, steps)
            assert tree(root) == AFTER
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert outcomes["staging"] > 20
    assert outcomes["committed"] > 20
    assert state == "done"
