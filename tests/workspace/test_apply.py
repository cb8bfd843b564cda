"""The file steps of an apply, without crashes: staging, rolling forward, being stuck, giving up."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from intercom.model.errors import ApplyStuck, FileError, PathViolation
from intercom.workspace import apply, patching, proposal
from intercom.workspace.hashing import digest
from intercom.workspace.patching import Plan
from intercom.workspace.step import Step, Written

DELETE = "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
EDIT = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
RENAME = "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    root.chmod(0o755)
    for name, content in (("f", "a\n"), ("gone", "x\n"), ("old", "o\n")):
        (root / name).write_text(content)
        (root / name).chmod(0o644)
    return root


def staged(root: Path, diff: str, path: str = "f", tag: str = "r1") -> tuple[Plan, tuple[Step, ...]]:
    plan = patching.plan(root, proposal.parse(diff, path))
    steps = apply.prepare(root, plan, tag)
    apply.stage(root, plan, steps)
    return plan, steps


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_nothing_of_the_workspace_changes_before_it_is_rolled_forward(root: Path) -> None:
    _, steps = staged(root, EDIT + DELETE + RENAME)
    assert {name for name in names(root) if not name.endswith(".tmp")} == {"f", "gone", "old"}
    assert (root / "f").read_text() == "a\n"
    assert apply.roll_forward(root, steps) == (Written("f", 2), Written("gone", 0), Written("new", 2))
    assert names(root) == {"f", "new"}
    assert (root / "f").read_text() == "b\n"


def test_steps_travel_through_json(root: Path) -> None:
    plan, steps = staged(root, "text", "a/b/c")
    assert tuple(Step.from_json(json.loads(json.dumps(step.to_json()))) for step in steps) == steps
    assert steps[0].made == ("a", "a/b")
    assert steps[0].temp == ".intercom-r1-0.tmp"
    assert steps[0].after_hash == plan.changes[0].after_hash == digest(b"text")


def test_a_tag_that_is_no_name_is_hashed(root: Path) -> None:
    _, steps = staged(root, "text", tag="../../etc/x")
    assert steps[0].temp is not None
    assert "/" not in steps[0].temp
    apply.roll_forward(root, steps)
    assert (root / "f").read_text() == "text"


def test_new_files_take_their_mode_from_their_directory_and_not_the_umask(root: Path) -> None:
    (root / "private").mkdir(mode=0o700)
    (root / "shared").mkdir()
    (root / "shared").chmod(0o775)
    diff = "".join(
        f"diff --git a/{name} b/{name}\nnew file mode {mode}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
        for name, mode in (("n", "100644"), ("private/n", "100755"), ("shared/deep/n", "100644"), ("x", "100755"))
    )
    before = os.umask(0o077)
    try:
        _, steps = staged(root, diff, "n")
        apply.roll_forward(root, steps)
    finally:
        os.umask(before)
    modes = {
        name: (root / name).stat().st_mode & 0o777 for name in ("n", "private/n", "shared/deep", "shared/deep/n", "x")
    }
    assert modes == {"n": 0o644, "private/n": 0o700, "shared/deep": 0o775, "shared/deep/n": 0o664, "x": 0o755}


def test_a_mode_alone_is_a_change_too(root: Path) -> None:
    _, steps = staged(root, "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n")
    apply.roll_forward(root, steps)
    assert (root / "f").stat().st_mode & 0o777 == 0o755
    assert (root / "f").read_text() == "a\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("f", "f changed in between"),
        ("gone", "gone changed while"),
        ("old", "old changed while"),
        ("new", "new changed"),
    ],
)
def test_a_file_that_changed_after_staging_stops_everything(root: Path, path: str, said: str) -> None:
    _, steps = staged(root, EDIT + DELETE + RENAME)
    (root / path).write_text("meanwhile\n")
    before = {name: (root / name).read_bytes() for name in names(root)}
    with pytest.raises(ApplyStuck, match=said):
        apply.roll_forward(root, steps)
    assert {name: (root / name).read_bytes() for name in names(root)} == before


def test_a_file_changed_half_way_is_named_and_the_rest_is_kept_for_later(root: Path) -> None:
    _, steps = staged(root, EDIT + DELETE)
    apply.roll_forward(root, steps[:1])
    (root / "gone").write_text("meanwhile\n")
    with pytest.raises(ApplyStuck, match="gone changed") as stuck:
        apply.verify(root, steps)
    assert stuck.value.details["reasons"] == ("gone changed while it was to be removed",)
    (root / "gone").write_text("x\n")
    apply.roll_forward(root, steps)
    assert names(root) == {"f", "old"}


def test_a_staged_file_that_was_damaged_or_lost_is_noticed(root: Path) -> None:
    _, steps = staged(root, EDIT)
    (root / str(steps[0].temp)).write_text("evil")
    with pytest.raises(ApplyStuck, match="missing or damaged"):
        apply.roll_forward(root, steps)
    (root / str(steps[0].temp)).unlink()
    with pytest.raises(ApplyStuck, match="missing or damaged"):
        apply.roll_forward(root, steps)
    assert (root / "f").read_text() == "a\n"


def test_a_renamed_file_that_vanished_is_noticed(root: Path) -> None:
    _, steps = staged(root, RENAME, "old")
    (root / "old").unlink()
    with pytest.raises(ApplyStuck, match="old is gone"):
        apply.roll_forward(root, steps)


def test_a_file_that_comes_up_in_the_last_instant_is_not_overwritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, steps = staged(root, "mine\n", "fresh")
    link = os.link

    def late(*args: object, **kwargs: object) -> None:
        (root / "fresh").write_text("theirs\n")
        link(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(ApplyStuck, match="stopped at fresh: File exists"):
        apply.roll_forward(root, steps)
    assert (root / "fresh").read_text() == "theirs\n"


def test_a_file_system_without_hard_links_will_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    _, steps = staged(root, "mine\n", "fresh")
    apply.roll_forward(root, steps)
    assert (root / "fresh").read_text() == "mine\n"
    assert names(root) == {"f", "gone", "old", "fresh"}


def test_discarding_leaves_the_workspace_as_it_was(root: Path) -> None:
    before = names(root)
    _, steps = staged(root, "text", "a/b/c")
    assert names(root) > before
    apply.discard(root, steps)
    assert names(root) == before
    apply.discard(root, steps)


def test_discarding_keeps_a_directory_that_somebody_else_uses_by_now(root: Path) -> None:
    _, steps = staged(root, "text", "a/b/c")
    (root / "a" / "theirs").write_text("x")
    apply.discard(root, steps)
    assert names(root) == {"f", "gone", "old", "a", "a/theirs"}


def test_discarding_in_a_workspace_that_is_gone_is_done_at_once(root: Path) -> None:
    _, steps = staged(root, "text", "a/b/c")
    shutil.rmtree(root)
    apply.discard(root, steps)
    assert not root.exists()


def test_what_can_not_be_discarded_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    _, steps = staged(root, "text", "a/b/c")
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(FileError, match=r"a/b/\.intercom-r1-0\.tmp can not be removed: Permission denied"):
        apply.discard(root, steps)


def test_staging_again_after_a_crash_in_staging_replaces_what_was_left(root: Path) -> None:
    plan, steps = staged(root, EDIT)
    (root / str(steps[0].temp)).write_text("half")
    apply.stage(root, plan, steps)
    apply.roll_forward(root, steps)
    assert (root / "f").read_text() == "b\n"


def test_a_directory_swapped_for_a_link_between_the_steps_is_never_written_through(root: Path, tmp_path: Path) -> None:
    (root / "dir").mkdir()
    (root / "dir" / "f").write_text("a\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    plan = patching.plan(root, proposal.parse(EDIT.replace("/f", "/dir/f"), "dir/f"))
    steps = apply.prepare(root, plan, "r1")
    (root / "dir").rename(root / "moved")
    (root / "dir").symlink_to(outside)
    with pytest.raises(PathViolation, match="dir is a symbolic link"):
        apply.stage(root, plan, steps)
    assert os.listdir(outside) == []

    (root / "dir").unlink()
    (root / "moved").rename(root / "dir")
    apply.stage(root, plan, steps)
    (root / "dir").rename(root / "moved")
    (root / "dir").symlink_to(root / "moved")
    with pytest.raises(ApplyStuck, match="dir is a symbolic link"):
        apply.roll_forward(root, steps)
    apply.discard(root, steps)
    assert (root / "moved" / "f").read_text() == "a\n"


def test_a_link_that_takes_the_files_place_is_refused_and_its_target_untouched(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a\n")
    _, steps = staged(root, EDIT)
    (root / "f").unlink()
    (root / "f").symlink_to(tmp_path / "secret")
    with pytest.raises(ApplyStuck, match="f is a symbolic link"):
        apply.roll_forward(root, steps)
    assert (tmp_path / "secret").read_text() == "a\n"


def test_another_name_of_the_same_file_keeps_its_content(root: Path, tmp_path: Path) -> None:
    os.link(root / "f", tmp_path / "elsewhere")
    _, steps = staged(root, EDIT)
    apply.roll_forward(root, steps)
    assert (root / "f").read_text() == "b\n"
    assert (tmp_path / "elsewhere").read_text() == "a\n"


def test_what_the_system_refuses_is_said_in_words(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    plan = patching.plan(root, proposal.parse(EDIT, "f"))
    steps = apply.prepare(root, plan, "r1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match="f can not be written: No space left on device"):
            apply.stage(root, plan, steps)
    apply.discard(root, steps)
    assert names(root) == {"f", "gone", "old"}
    assert (root / "f").read_text() == "a\n"
