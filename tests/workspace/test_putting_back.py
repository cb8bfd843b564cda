"""A checkpoint's files put back are the files there were: bytes, modes and links; all or none, whatever dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intercom.model import crash_points
from intercom.model.checkpoint import DivergenceKind
from intercom.model.errors import ApplyStuck, FileError
from intercom.model.manifest import Manifest, manifest_of
from intercom.store.contents import Contents, Held
from intercom.workspace import put_back_plan, putting_back
from intercom.workspace.diverging import digest, divergences
from intercom.workspace.put_back_plan import PutBackPlan
from intercom.workspace.snapshot import snapshot
from tests.workspace import trees
from tests.workspace.trees import Thing, Tree

REPOSITORY = Path(__file__).parents[2]
MODIFIED, DELETED, ADDED = DivergenceKind.MODIFIED, DivergenceKind.DELETED, DivergenceKind.ADDED


def checkpoint(root: Path, held: Held) -> Manifest:
    made = snapshot(root, keeper=held)
    held.flush()
    return manifest_of(made.hashes(), made.facts())


@contextmanager
def changed(base: Path, before: Tree, data: st.DataObject) -> Iterator[tuple[Path, Held, Manifest, Tree]]:
    """A workspace with a checkpoint of how it was `before`, and other files since."""
    root = base / "work"
    with Contents(base / "contents.db", 2**30).open() as held:
        trees.put(root, before)
        then = checkpoint(root, held)
        after = data.draw(trees.changed(before))
        trees.put(root, after)
        yield root, held, then, after


def planned(root: Path, then: Manifest, held: Held, *, exact: bool) -> PutBackPlan:
    now = snapshot(root, also=then.files)
    wanted = {state.hash for state in then.files.values() if state.link is None}
    return put_back_plan.plan(then, now, divergences(then, now), held.missing(wanted), exact=exact)


def restore(root: Path, then: Manifest, held: Held, *, exact: bool) -> PutBackPlan:
    plan = planned(root, then, held, exact=exact)
    putting_back.stage(root, "r1", plan.steps, held.read)
    putting_back.roll_forward(root, "r1", plan.steps)
    return plan


def expected(before: Tree, after: Tree) -> dict[str, DivergenceKind]:
    found = dict.fromkeys(after.keys() - before.keys(), ADDED)
    found |= dict.fromkeys(before.keys() - after.keys(), DELETED)
    return found | {path: MODIFIED for path in before.keys() & after.keys() if before[path] != after[path]}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=trees.trees(), data=st.data())
def test_what_a_checkpoint_held_is_there_again(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, data: st.DataObject
) -> None:
    with changed(tmp_path_factory.mktemp("trees"), before, data) as (root, held, then, after):
        found = divergences(then, snapshot(root, also=then.files))
        assert {each.path: each.kind for each in found} == expected(before, after)

        plan = restore(root, then, held, exact=True)
        assert not plan.blocked
        assert trees.found(root) == before
        assert not divergences(then, snapshot(root))
        assert not list(root.glob(".intercom*"))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=trees.trees(), data=st.data())
def test_what_was_added_stays_where_it_may_and_what_it_blocks_is_named(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, data: st.DataObject
) -> None:
    with changed(tmp_path_factory.mktemp("added"), before, data) as (root, held, then, after):
        plan = restore(root, then, held, exact=False)
        blocked = {each.path for each in plan.blocked}
        wanted = {path: thing for path, thing in before.items() if path not in blocked}
        added = {path: thing for path, thing in after.items() if path not in before}
        assert trees.found(root) == wanted | added
        assert all(
            any(f"{path}/".startswith(f"{one}/") or f"{one}/".startswith(f"{path}/") for one in added)
            for path in blocked
        )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=trees.trees(), data=st.data())
def test_stopped_before_any_call_that_changes_files_it_is_all_or_none(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, data: st.DataObject
) -> None:
    with changed(tmp_path_factory.mktemp("stopped"), before, data) as (root, held, then, after):
        plan = planned(root, then, held, exact=True)
        stops = data.draw(st.integers(1, 40))
        try:
            with Stopping(stops):
                putting_back.stage(root, "r1", plan.steps, held.read)
        except Stopped:
            putting_back.discard(root, "r1")
            assert trees.found(root) == after
            putting_back.stage(root, "r1", plan.steps, held.read)
        for more in (data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))):
            try:
                with Stopping(more):
                    putting_back.roll_forward(root, "r1", plan.steps)
            except Stopped:
                continue
        putting_back.roll_forward(root, "r1", plan.steps)
        assert trees.found(root) == before


class Stopped(BaseException):
    """As good as a kill: nothing catches it."""


class Stopping:
    """Stops this thread at the n-th call that changes files, as long as it is entered."""

    left = 0
    hooked = False

    def __init__(self, left: int) -> None:
        self._left = left

    def __enter__(self) -> None:
        if not Stopping.hooked:
            sys.addaudithook(Stopping.heard)
            Stopping.hooked = True
        Stopping.left = self._left

    def __exit__(self, *_: object) -> None:
        Stopping.left = 0

    @staticmethod
    def heard(event: str, _: object) -> None:
        if Stopping.left and event in {"os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir", "os.symlink"}:
            Stopping.left -= 1
            if Stopping.left == 0:
                raise Stopped


BEFORE: Tree = {
    "edit.txt": Thing(b"old\n", 0o755),
    "gone/deep/one.txt": Thing(b"1\n", 0o600),
    "was-a-file": Thing(b"file\n", 0o644),
    "was-a-directory/x": Thing(b"x\n", 0o644),
    "link": Thing(b"edit.txt", 0),
    "same.txt": Thing(b"same\n", 0o640),
}
AFTER: Tree = {
    "edit.txt": Thing(b"new\n", 0o644),
    "was-a-file/y": Thing(b"y\n", 0o644),
    "was-a-directory": Thing(b"d\n", 0o644),
    "link": Thing(b"same.txt", 0),
    "same.txt": Thing(b"same\n", 0o640),
    "added/z": Thing(b"z\n", 0o644),
}


def kill(base: Path, point: str, occurrence: int) -> int:
    command = [sys.executable, "-m", "tests.workspace.restore_child", base, point, str(occurrence)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode


def prepare(base: Path) -> None:
    with Contents(base / "contents.db", 2**30).open() as held:
        trees.put(base / "work", BEFORE)
        checkpoint(base / "work", held)
    trees.put(base / "then", BEFORE)
    trees.put(base / "work", AFTER)


def test_every_step_is_a_crash_point(tmp_path: Path) -> None:
    prepare(tmp_path)
    seen: Counter[str] = Counter()
    crash_points.hook = lambda name: seen.update([name])
    try:
        with Contents(tmp_path / "contents.db", 2**30).open() as held:
            restore(tmp_path / "work", snapshot(tmp_path / "then", keeper=held), held, exact=True)
    finally:
        crash_points.hook = None
    assert seen == {
        "restore.staged_one": 5,
        "restore.staged_all": 1,
        "restore.placed_one": 8,
        "restore.placed_all": 1,
    }


@pytest.mark.parametrize(
    ("point", "occurrence"),
    [
        ("restore.staged_one", 3),
        ("restore.staged_all", 1),
        *(("restore.placed_one", n) for n in (1, 4, 8)),
        ("restore.placed_all", 1),
    ],
)
def test_killed_anywhere_it_leaves_all_files_or_none(tmp_path: Path, point: str, occurrence: int) -> None:
    prepare(tmp_path)
    assert kill(tmp_path, point, occurrence) == -signal.SIGKILL
    root = tmp_path / "work"
    if not (tmp_path / "committed").exists():
        putting_back.discard(root, "r1")
        assert trees.found(root) == AFTER
        return
    assert kill(tmp_path, "none", 1) == 0
    assert trees.found(root) == BEFORE


def test_a_file_that_changes_after_it_was_looked_at_stops_it_before_anything_is_touched(tmp_path: Path) -> None:
    prepare(tmp_path)
    root = tmp_path / "work"
    with Contents(tmp_path / "contents.db", 2**30).open() as held:
        plan = planned(root, snapshot(tmp_path / "then", keeper=held), held, exact=True)
        putting_back.stage(root, "r1", plan.steps, held.read)
    (root / "edit.txt").write_text("newer\n")
    (root / "was-a-file/y2").write_text("newer\n")
    with pytest.raises(ApplyStuck, match=r"edit\.txt changed in between.*was-a-file is a directory with files in it"):
        putting_back.roll_forward(root, "r1", plan.steps)
    assert (root / "was-a-directory").is_file()
    (root / "edit.txt").write_bytes(b"new\n")
    (root / "was-a-file/y2").unlink()
    putting_back.roll_forward(root, "r1", plan.steps)
    assert trees.found(root) == BEFORE


@pytest.mark.parametrize(
    ("meddled", "held"), [("edit.txt", "old\n"), ("added/z", None)], ids=["one to overwrite", "one to remove"]
)
def test_a_file_that_changes_while_others_are_put_back_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddled: str, held: str | None
) -> None:
    root = tmp_path / "work"
    trees.put(root, {"a": Thing(b"a\n", 0o644), "edit.txt": Thing(b"old\n", 0o644)})
    with Contents(tmp_path / "contents.db", 2**30).open() as contents:
        then = checkpoint(root, contents)
        added = {f"{name}/z": Thing(b"z\n", 0o644) for name in ("added", "added2/deeper")}
        trees.put(root, {"a": Thing(b"b\n", 0o644), "edit.txt": Thing(b"new\n", 0o644)} | added)
        plan = planned(root, then, contents, exact=True)
        putting_back.stage(root, "r1", plan.steps, contents.read)

    def late(point: str) -> None:
        if point == "restore.placed_one":
            (root / meddled).write_text("late\n")

    monkeypatch.setattr(crash_points, "hook", late)
    with pytest.raises(ApplyStuck, match=f"{meddled} changed in between"):
        putting_back.roll_forward(root, "r1", plan.steps)
    monkeypatch.setattr(crash_points, "hook", None)
    assert (root / meddled).read_text() == "late\n"
    (root / meddled).write_text("new\n" if held else "z\n")
    putting_back.roll_forward(root, "r1", plan.steps)
    assert trees.found(root) == {"a": Thing(b"a\n", 0o644), "edit.txt": Thing(b"old\n", 0o644)}


def test_a_content_that_is_gone_or_damaged_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    prepare(tmp_path)
    root = tmp_path / "work"
    with Contents(tmp_path / "contents.db", 2**30).open() as held:
        then = snapshot(tmp_path / "then", keeper=held)
        held.flush()
        held.db.execute("update content set data = x'00'")
        plan = planned(root, then, held, exact=True)
        with pytest.raises(FileError, match="is not kept any more"):
            putting_back.stage(root, "r1", plan.steps, held.read)
        putting_back.discard(root, "r1")
        held.db.execute("delete from content")
        assert {each.why for each in planned(root, then, held, exact=True).blocked} == {"its content was not kept"}
    assert trees.found(root) == AFTER


def test_no_link_leads_out_of_the_workspace(tmp_path: Path) -> None:
    root, outside = tmp_path / "work", tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("mine\n")
    trees.put(root, {"d/x": Thing(b"x\n", 0o644)})
    with Contents(tmp_path / "contents.db", 2**30).open() as held:
        then = checkpoint(root, held)
        trees.put(root, {"d": Thing(bytes(outside), 0)})
        found = divergences(then, snapshot(root, also=then.files))
        assert [(each.path, each.kind) for each in found] == [("d", ADDED), ("d/x", DELETED)]
        assert [each.why for each in planned(root, then, held, exact=False).blocked] == ["d is a file or link now"]
        restore(root, then, held, exact=True)
    assert (outside / "x").read_text() == "mine\n"
    assert (root / "d/x").read_text() == "x\n"


def test_the_digest_changes_with_what_a_diverged_file_holds(tmp_path: Path) -> None:
    prepare(tmp_path)
    then, root = snapshot(tmp_path / "then"), tmp_path / "work"

    def of() -> str:
        now = snapshot(root, also=then.files)
        return digest(divergences(then, now), now)

    first = of()
    assert of() == first
    (root / "edit.txt").write_text("newer\n")
    assert of() != first
