"""Putting files back changes nothing outside of the workspace, whatever link comes up in it, and whenever."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from intercom.model import crash_points
from intercom.model.errors import ApplyStuck, FileError
from tests.workspace import trees
from tests.workspace.transactions import Transaction, checkpoint, of_restore
from tests.workspace.trees import Thing, Tree

BEFORE: Tree = {
    "gone/deep/one.txt": Thing(b"1\n", 0o644),
    "a/first": Thing(b"first\n", 0o644),
    "there/edit.txt": Thing(b"old\n", 0o644),
}
AFTER: Tree = {
    "a/first": Thing(b"second\n", 0o644),
    "there/edit.txt": Thing(b"new\n", 0o644),
    "added/z": Thing(b"z\n", 0o644),
    "also/added/z": Thing(b"z\n", 0o644),
}
#: Holds what a step would look for, were it to come here through any of the links.
OUTSIDE: Tree = {
    "z": Thing(b"z\n", 0o644),
    "added/z": Thing(b"z\n", 0o644),
    "edit.txt": Thing(b"new\n", 0o644),
}


@frozen
class Scene:
    """A workspace that is to be put back, and what lies beside it."""

    made: Transaction
    outside: Path

    @property
    def root(self) -> Path:
        return self.made.root

    def plant(self, path: str) -> None:
        """Let a link to the outside stand at this path."""
        link = self.root / path
        if link.is_dir():
            link.rename(self.root.with_name("aside"))
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(self.outside)

    def put_right(self, path: str) -> None:
        (self.root / path).unlink()
        if (aside := self.root.with_name("aside")).exists():
            aside.rename(self.root / path)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    root, outside = tmp_path / "work", tmp_path / "outside"
    trees.put(outside, OUTSIDE)
    then, contents = checkpoint(root, BEFORE)
    trees.put(root, AFTER)
    yield Scene(of_restore(root, then, contents.get), outside)
    crash_points.hook = None


@pytest.mark.parametrize("path", ["gone/deep", "gone", "there", "added", "also", "also/added"])
@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_a_directory_that_became_a_link_is_not_followed(scene: Scene, path: str, *, meanwhile: bool) -> None:
    scene.made.stage()
    reached: list[str] = []

    def after_the_first(point: str) -> None:
        if point == "files.placed_one" and not reached:
            reached.append(point)
            scene.plant(path)

    if meanwhile:
        crash_points.hook = after_the_first
    else:
        scene.plant(path)
    with pytest.raises(ApplyStuck):
        scene.made.roll_forward()
    assert bool(reached) is meanwhile
    assert (scene.root / path).is_symlink()
    assert trees.found(scene.outside) == OUTSIDE
    crash_points.hook = None
    scene.put_right(path)
    scene.made.roll_forward()
    assert trees.found(scene.root) == BEFORE
    assert trees.found(scene.outside) == OUTSIDE


def test_nothing_is_taken_from_where_a_link_above_what_was_staged_leads(scene: Scene) -> None:
    scene.made.stage()
    elsewhere = scene.outside / "there"
    (scene.root / "there").rename(elsewhere)
    (scene.root / "there").symlink_to(elsewhere)
    held = trees.found(elsewhere)
    assert len(held) == 2, "with what was staged"
    with pytest.raises(ApplyStuck):
        scene.made.roll_forward()
    scene.made.discard()
    assert trees.found(elsewhere) == held


def test_a_workspace_that_was_swapped_for_another_gets_no_files(scene: Scene) -> None:
    # It holds just what the steps start from, so that nothing but its identity tells it apart.
    other = scene.root.with_name("other")

    def swap() -> None:
        scene.root.rename(scene.root.with_name("aside"))
        other.rename(scene.root)

    def swap_back() -> None:
        scene.root.rename(other)
        scene.root.with_name("aside").rename(scene.root)

    shutil.copytree(scene.root, other)
    swap()
    with pytest.raises(FileError, match="another directory"):
        scene.made.stage()
    swap_back()
    scene.made.stage()
    shutil.rmtree(other)
    shutil.copytree(scene.root, other)
    found = trees.found(other)
    swap()
    with pytest.raises(FileError, match="another directory"):
        scene.made.roll_forward()
    assert trees.found(scene.root) == found
