"""Patches that git makes, applied here, give git's own result byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from intercom.workspace import change_plan, proposal, transaction

GIT = shutil.which("git")
assert GIT is not None, "these tests hold patches to git's own results: install git"

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "LC_ALL": "C",
}

LINE = st.sampled_from(
    [
        "", " ", "a", "b", "c", "-- sql", "++ i", "@@ -1 +1 @@", "diff --git a/x b/x", "\\ No newline", "é", "tab\tx",
        "--- a/x",
    ]
)  # fmt: skip
END = st.sampled_from(["\n", "\n", "\n", "\r\n"])
NAMES = st.sampled_from(["a.txt", "dir/b.txt", "with space.txt", "é.txt", 'quo"te', "x/y/z", "run.sh", "-dash"])


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(LINE, max_size=25))
    end = draw(END) if draw(st.booleans()) else None
    text = "".join(line + (end or draw(END)) for line in lines)
    text += draw(st.sampled_from(["", "", "last"]))
    return (draw(st.sampled_from(["", "", "", "\ufeff"])) + text).encode()


@st.composite
def edits(draw: st.DrawFn, before: bytes) -> bytes:
    lines = before.splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 3))] = draw(contents()).splitlines(keepends=True)[:3]
    return b"".join(lines)


File = tuple[bytes, bool]


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, File], dict[str, File]]:
    before = draw(st.dictionaries(NAMES, st.tuples(contents(), st.booleans()), max_size=4))
    after: dict[str, File] = {}
    for name, (content, executable) in before.items():
        fate = draw(st.sampled_from(["keep", "edit", "edit", "mode", "remove", "rename"]))
        if fate == "keep":
            after[name] = (content, executable)
        elif fate == "edit":
            after[name] = (draw(edits(content)), executable)
        elif fate == "mode":
            after[name] = (content, not executable)
        elif fate == "rename":
            target = draw(NAMES)
            after[target if target not in before and target not in after else name] = (content, executable)
    for name in draw(st.lists(NAMES, max_size=2)):
        if name not in before and name not in after:
            after[name] = (draw(contents()), draw(st.booleans()))
    return before, after


def write(root: Path, files: dict[str, File]) -> None:
    root.mkdir(parents=True)
    for name, (content, executable) in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if executable else 0o644)


def read(root: Path) -> dict[str, File]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in root.rglob("*")
        if path.is_file()
    }


def git_diff(base: Path, context: int) -> str:
    assert GIT is not None
    options = ["--no-index", "--no-color", "-M90%", f"-U{context}"]
    command = [GIT, "-c", "core.quotePath=true", "diff", *options, "old", "new"]
    done = subprocess.run(command, cwd=base, env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.decode()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees=trees(), context=st.sampled_from([3, 3, 0, 1, 10]))
def test_what_git_diff_says_is_what_gets_applied(
    tmp_path_factory: pytest.TempPathFactory, trees: tuple[dict[str, File], dict[str, File]], context: int
) -> None:
    before, after = trees
    # Without context there is no telling what line ends an added line is meant to have; git takes it as it stands.
    assume(context or not any(b"\r" in content for content, _ in (*before.values(), *after.values())))
    base = tmp_path_factory.mktemp("git")
    write(base / "old", before)
    write(base / "new", after)
    # As in a repository: the same names below a/ and b/.
    diff = git_diff(base, context)
    diff = diff.replace("a/old/", "a/").replace("b/new/", "b/").replace("a/new/", "a/")
    diff = diff.replace("b/old/", "b/")
    diff = diff.replace("rename from old/", "rename from ").replace("rename to new/", "rename to ")
    diff = diff.replace('rename from "old/', 'rename from "').replace('rename to "new/', 'rename to "')
    assume(diff)
    work = base / "work"
    write(work, before)
    work.chmod(0o755)

    touched = sorted((before.keys() | after.keys()) - {n for n in before if before.get(n) == after.get(n)})
    proposed = proposal.parse(diff, touched[0])
    plan = change_plan.plan(work, proposed)
    steps = transaction.prepare(work, "git", change_plan.steps(work, plan), plan.root_id)
    transaction.stage(work, steps, plan.contents.get)
    transaction.roll_forward(work, steps)

    assert sorted(proposed.paths) == touched
    assert read(work) == after
    shutil.rmtree(base)
