"""Putting files back changes nothing outside of the workspace, whatever link comes up in it, and whenever."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from attrs import frozen

from intercom.model import crash_points
from intercom.model.errors import ApplyStuck, FileError
from intercom.store.contents import Contents
from intercom.workspace import put_back_plan, putting_back
from intercom.workspace.diverging import divergences
from intercom.workspace.put_back_plan import PutBack
from intercom.workspace.snapshot import snapshot
from tests.workspace import trees
from tests.workspace.trees import Thing, Tree

BEFORE: Tree = {
    "gone/deep/one.txt": Thing(b"1\n", 0o644),
    "there/edit.txt": Thing(b"old\n", 0o644),
}
#: What lies deepest is removed first.
AFTER: Tree = {
    "there/edit.txt": Thing(b"new\n", 0o644),
    "added/z": Thing(b"z\n", 0o644),
    "also/added/z": Thing(b"z\n", 0o644),
    "very/deep/down/first": Thing(b"f\n", 0o644),
}
#: Holds what a step would look for, were it to come here through any of the links.
OUTSIDE: Tree = {
    "z": Thing(b"z\n", 0o644),
    "added/z": Thing(b"z\n", 0o644),
    "edit.txt": Thing(b"new\n", 0o644),
    "0": Thing(b"mine\n", 0o644),
}
STAGING = ".intercom-restore-r1"


@frozen
class Scene:
    """A workspace that is to be put back, and what lies beside it."""

    root: Path
    outside: Path
    steps: tuple[PutBack, ...]
    read: Callable[[str], bytes | None]

    def stage(self) -> None:
        putting_back.stage(self.root, "r1", self.steps, self.read)

    def roll_forward(self) -> None:
        putting_back.roll_forward(self.root, "r1", self.steps)

    def plant(self, path: str) -> None:
        """Let a link to the outside stand at this path."""
        link = self.root / path
        if link.is_dir():
            shutil.rmtree(link)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(self.outside)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "work"
    trees.put(tmp_path / "outside", OUTSIDE)
    trees.put(root, BEFORE)
    with Contents(tmp_path / "contents.db", 2**30).open() as held:
        then = snapshot(root, keeper=held)
        held.flush()
        trees.put(root, AFTER)
        now = snapshot(root, also=then.files)
        steps = put_back_plan.plan(then, now, divergences(then, now), (), exact=True).steps
        yield Scene(root, tmp_path / "outside", steps, held.read)


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    crash_points.hook = None


def stuck() -> AbstractContextManager[object]:
    return pytest.raises(ApplyStuck)


@pytest.mark.parametrize(
    ("path", "comes"),
    [
        ("gone/deep", stuck),
        ("gone", stuck),
        ("there", stuck),
        ("added", nullcontext),
        ("also", nullcontext),
    ],
    ids=["where a file goes", "where directories go", "where a file is replaced", "where one is removed", "above it"],
)
@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_a_directory_that_became_a_link_is_not_followed(
    scene: Scene, path: str, comes: Callable[[], AbstractContextManager[object]], *, meanwhile: bool
) -> None:
    scene.stage()
    reached: list[str] = []

    def after_the_first(point: str) -> None:
        if point == "restore.placed_one" and not reached:
            assert not (scene.root / "very/deep/down/first").exists()
            reached.append(point)
            scene.plant(path)

    if meanwhile:
        crash_points.hook = after_the_first
    else:
        scene.plant(path)
    with comes():
        scene.roll_forward()
    assert bool(reached) is meanwhile
    assert (scene.root / path).is_symlink()
    assert trees.found(scene.outside) == OUTSIDE
    (scene.root / path).unlink()
    scene.roll_forward()
    assert trees.found(scene.root) == BEFORE
    assert trees.found(scene.outside) == OUTSIDE


def test_a_link_where_files_are_to_be_staged_is_neither_filled_nor_emptied(scene: Scene) -> None:
    # Files alone, as what is staged would be: a directory among them would stop whatever empties it.
    shutil.rmtree(scene.outside / "added")
    held = trees.found(scene.outside)
    scene.plant(STAGING)
    for attempt in (scene.stage, lambda: putting_back.discard(scene.root, "r1")):
        with pytest.raises(FileError, match="can not be removed"):
            attempt()
        assert trees.found(scene.outside) == held
    (scene.root / STAGING).unlink()
    assert trees.found(scene.root) == AFTER


def test_nothing_is_taken_from_where_a_link_in_the_place_of_what_was_staged_leads(scene: Scene) -> None:
    scene.stage()
    elsewhere = scene.outside / "staged"
    (scene.root / STAGING).rename(elsewhere)
    (scene.root / STAGING).symlink_to(elsewhere)
    held = trees.found(elsewhere)
    assert held
    with stuck():
        scene.roll_forward()
    with pytest.raises(FileError, match="can not be removed"):
        putting_back.discard(scene.root, "r1")
    assert trees.found(elsewhere) == held
    (scene.root / STAGING).unlink()
    assert trees.found(scene.root) == AFTER


def test_a_workspace_that_was_swapped_for_another_gets_no_files(scene: Scene) -> None:
    # It holds just what the steps start from, so that nothing but its identity tells it apart.
    other = scene.root.with_name("other")
    shutil.copytree(scene.root, other)
    scene.root.rename(scene.root.with_name("aside"))
    other.rename(scene.root)
    with pytest.raises(FileError, match="another directory"):
        scene.stage()
    shutil.copytree(scene.root.with_name("aside"), other)
    shutil.rmtree(scene.root)
    scene.root.with_name("aside").rename(scene.root)
    scene.stage()
    shutil.copytree(scene.root / STAGING, other / STAGING)
    scene.root.rename(scene.root.with_name("aside"))
    other.rename(scene.root)
    with pytest.raises(FileError, match="another directory"):
        scene.roll_forward()
    assert {path: thing for path, thing in trees.found(scene.root).items() if not path.startswith(STAGING)} == AFTER
