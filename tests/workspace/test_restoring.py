"""A checkpoint's files put back are the files there were: bytes, modes and links."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intercom.model import crash_points
from intercom.model.checkpoint import DivergenceKind, Manifest, manifest_of
from intercom.model.errors import ApplyStuck, FileError
from intercom.store.checkpoints import Contents, OpenContents
from intercom.workspace.manifest import digest, divergences, take_manifest
from tests.workspace import trees
from tests.workspace.test_transaction import Stopping
from tests.workspace.transactions import RESTORE, checkpoint, of_restore, planned
from tests.workspace.trees import Thing, Tree

MODIFIED, DELETED, ADDED = DivergenceKind.MODIFIED, DivergenceKind.DELETED, DivergenceKind.ADDED


@contextmanager
def changed(base: Path, before: Tree, data: st.DataObject) -> Iterator[tuple[Path, OpenContents, Manifest, Tree]]:
    """A workspace with a checkpoint of how it was `before`, and other files since."""
    root = base / "work"
    with Contents(base / "contents.db", 2**30).open() as contents:
        trees.put(root, before)
        made = take_manifest(root, store=contents)
        contents.flush()
        after = data.draw(trees.changed(before))
        trees.put(root, after)
        yield root, contents, manifest_of(made.hashes(), made.facts()), after


def expected(before: Tree, after: Tree) -> dict[str, DivergenceKind]:
    found = dict.fromkeys(after.keys() - before.keys(), ADDED)
    found |= dict.fromkeys(before.keys() - after.keys(), DELETED)
    return found | {path: MODIFIED for path in before.keys() & after.keys() if before[path] != after[path]}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=trees.trees(), data=st.data())
def test_what_a_checkpoint_held_is_there_again(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, data: st.DataObject
) -> None:
    with changed(tmp_path_factory.mktemp("trees"), before, data) as (root, contents, then, after):
        found = divergences(then, take_manifest(root, also=then.files))
        assert {each.path: each.kind for each in found} == expected(before, after)
        assert not planned(root, then).blocked
        made = of_restore(root, then, contents.read)
        made.stage()
        made.roll_forward()
        assert trees.found(root) == before
        assert not divergences(then, take_manifest(root))
        assert not list(root.rglob(".intercom*"))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=trees.trees(), data=st.data())
def test_what_was_added_stays_where_it_may_and_what_it_blocks_is_named(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, data: st.DataObject
) -> None:
    with changed(tmp_path_factory.mktemp("added"), before, data) as (root, contents, then, after):
        blocked = {each.path for each in planned(root, then, exact=False).blocked}
        made = of_restore(root, then, contents.read, exact=False)
        made.stage()
        made.roll_forward()
        wanted = {path: thing for path, thing in before.items() if path not in blocked}
        added = {path: thing for path, thing in after.items() if path not in before}
        assert trees.found(root) == wanted | added
        assert all(
            any(f"{path}/".startswith(f"{one}/") or f"{one}/".startswith(f"{path}/") for one in added)
            for path in blocked
        )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=trees.trees(), data=st.data())
def test_stopped_anywhere_it_is_all_or_none(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, data: st.DataObject
) -> None:
    with changed(tmp_path_factory.mktemp("stopped"), before, data) as (root, contents, then, after):
        made = of_restore(root, then, contents.read)
        with Stopping(data.draw(st.integers(1, 80))):
            made.stage()
        made.discard()
        assert trees.found(root) == after
        made.stage()
        for stops in (data.draw(st.integers(1, 60)), data.draw(st.integers(1, 60))):
            with Stopping(stops):
                made.roll_forward()
        made.roll_forward()
        assert trees.found(root) == before


def test_a_file_that_changes_after_it_was_looked_at_stops_it_before_anything_is_touched(tmp_path: Path) -> None:
    made = RESTORE.begin(tmp_path / "work")
    made.stage()
    root = made.root
    (root / "edit.txt").write_text("newer\n")
    (root / "was-a-file/y2").write_text("newer\n")
    with pytest.raises(ApplyStuck, match=r"edit\.txt changed in between.*was-a-file is a directory with files in it"):
        made.roll_forward()
    assert (root / "was-a-directory").is_file()
    (root / "edit.txt").write_bytes(b"new\n")
    (root / "was-a-file/y2").unlink()
    made.roll_forward()
    assert trees.found(root) == RESTORE.after


def test_a_file_that_is_gone_meanwhile_is_put_back_all_the_same(tmp_path: Path) -> None:
    made = RESTORE.begin(tmp_path / "work")
    made.stage()
    (made.root / "edit.txt").unlink()
    (made.root / "added/z").unlink()
    made.roll_forward()
    assert trees.found(made.root) == RESTORE.after


@pytest.mark.parametrize("meddled", ["edit.txt", "added/z"], ids=["one to overwrite", "one to remove"])
def test_a_file_that_changes_while_others_are_put_back_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddled: str
) -> None:
    root = tmp_path / "work"
    before = {"a": Thing(b"a\n", 0o644), "edit.txt": Thing(b"old\n", 0o644)}
    then, contents = checkpoint(root, before)
    added = {f"{name}/z": Thing(b"z\n", 0o644) for name in ("added", "added2/deeper")}
    trees.put(root, {"a": Thing(b"b\n", 0o644), "edit.txt": Thing(b"new\n", 0o644)} | added)
    made = of_restore(root, then, contents.get)
    made.stage()

    def late(point: str) -> None:
        if point == "files.placed_one":
            (root / meddled).write_text("late\n")

    held = (root / meddled).read_text()
    monkeypatch.setattr(crash_points, "hook", late)
    with pytest.raises(ApplyStuck, match=f"{meddled}: it changed in between"):
        made.roll_forward()
    monkeypatch.setattr(crash_points, "hook", None)
    assert (root / meddled).read_text() == "late\n"
    (root / meddled).write_text(held)
    made.roll_forward()
    assert trees.found(root) == before


def test_a_content_that_is_gone_or_damaged_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    root = tmp_path / "work"
    with Contents(tmp_path / "contents.db", 2**30).open() as contents:
        trees.put(root, RESTORE.after)
        then = take_manifest(root, store=contents)
        contents.flush()
        trees.put(root, RESTORE.before)
        contents.db.execute("update content set data = x'00'")
        made = of_restore(root, then, contents.read)
        with pytest.raises(FileError, match="is no longer stored"):
            made.stage()
        made.discard()
        contents.db.execute("delete from content")
        missing = contents.missing({state.hash for state in then.files.values() if state.link is None})
        assert {each.why for each in planned(root, then, missing).blocked} == {"its content was not stored"}
    assert trees.found(root) == RESTORE.before


def test_no_link_leads_out_of_the_workspace(tmp_path: Path) -> None:
    root, outside = tmp_path / "work", tmp_path / "outside"
    trees.put(outside, {"x": Thing(b"mine\n", 0o644)})
    then, contents = checkpoint(root, {"d/x": Thing(b"x\n", 0o644)})
    trees.put(root, {"d": Thing(bytes(outside), 0)})
    found = divergences(then, take_manifest(root, also=then.files))
    assert [(each.path, each.kind) for each in found] == [("d", ADDED), ("d/x", DELETED)]
    assert [each.why for each in planned(root, then, exact=False).blocked] == ["d is a file or link now"]
    made = of_restore(root, then, contents.get)
    made.stage()
    made.roll_forward()
    assert (outside / "x").read_text() == "mine\n"
    assert (root / "d/x").read_text() == "x\n"


def test_the_digest_changes_with_what_a_diverged_file_holds(tmp_path: Path) -> None:
    root = RESTORE.begin(tmp_path / "work").root
    then, _ = checkpoint(tmp_path / "then", RESTORE.after)

    def of() -> str:
        now = take_manifest(root, also=then.files)
        return digest(divergences(then, now), now)

    first = of()
    assert of() == first
    (root / "edit.txt").write_text("newer\n")
    assert of() != first
