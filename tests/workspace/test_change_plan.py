"""From a proposal to a plan: what changes, on which base, and what stands against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from intercom.model.errors import FileError, PatchConflict, PathViolation, RecordMismatch
from intercom.model.request import ChangeKind, FileChange
from intercom.workspace import change_plan, proposal
from intercom.workspace.change_plan import Plan
from intercom.workspace.files import digest

CREATE = "--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+g\n"
EDIT = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-a\n+b\n+c\n"


def planned(root: Path, diff: str, path: str = "f") -> Plan:
    return change_plan.plan(root, proposal.parse(diff, path))


def again(root: Path, diff: str, plan: Plan, path: str = "f", diverged: bool = False) -> Plan:
    parsed = proposal.parse(diff, path)
    return change_plan.plan_again(root, parsed, plan.changes, root_id=plan.root_id, diverged=diverged)


def test_a_patch_is_planned_on_the_bytes_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    (tmp_path / "f").chmod(0o640)
    plan = planned(tmp_path, EDIT)
    assert plan.changes == (
        FileChange("f", ChangeKind.WRITE, digest(b"a\n"), digest(b"b\nc\n"), added=2, removed=1),
    )  # fmt: skip
    (file,) = plan.files
    assert (file.change.before_hash, file.after, file.mode) == (digest(b"a\n"), b"b\nc\n", 0o640)
    assert (tmp_path / "f").read_bytes() == b"a\n"


def test_a_whole_file_is_written_as_given_whether_or_not_one_is_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "f").chmod(0o755)
    over, new = planned(tmp_path, "é\n").files[0], planned(tmp_path, "é\n", "d/g").files[0]
    assert (over.change.kind, over.after, over.mode) == (ChangeKind.WRITE, "é\n".encode(), 0o755)
    assert (new.change.kind, new.after, new.mode, new.change.before_hash) == (
        ChangeKind.CREATE,
        "é\n".encode(),
        None,
        "new_file",
    )
    assert (over.change.added, over.change.removed) == (1, 2)


@pytest.mark.parametrize(
    ("mode", "line", "expected"),
    [(0o640, "100755", 0o750), (0o755, "100644", 0o644), (0o700, "100755", 0o700), (0o600, "100644", 0o600)],
)
def test_mode_lines_set_or_clear_execution_for_those_who_may_read(
    tmp_path: Path, mode: int, line: str, expected: int
) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    (tmp_path / "f").chmod(mode)
    (file,) = planned(tmp_path, f"diff --git a/f b/f\nold mode 100644\nnew mode {line}\n").files
    assert (file.mode, file.after) == (expected, b"a\n")
    assert file.change.mode == (expected if expected != mode else None)


def test_a_base_that_changed_since_is_a_conflict_and_named(tmp_path: Path) -> None:
    for diff in (EDIT, "whole\n"):
        (tmp_path / "f").write_bytes(b"a\n")
        plan = planned(tmp_path, diff)
        assert again(tmp_path, diff, plan) == plan
        for change in (b"other\n", None):
            (tmp_path / "f").unlink() if change is None else (tmp_path / "f").write_bytes(change)
            with pytest.raises(PatchConflict, match="f changed since"):
                again(tmp_path, diff, plan)
    plan = planned(tmp_path, "whole\n", "g")
    (tmp_path / "g").write_bytes(b"mine\n")
    with pytest.raises(PatchConflict, match="g changed since"):
        again(tmp_path, "whole\n", plan, "g")


def test_where_it_is_allowed_a_whole_file_is_planned_over_another_base_but_no_patch(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    whole, patch = planned(tmp_path, "whole\n"), planned(tmp_path, EDIT)
    assert again(tmp_path, "whole\n", whole, diverged=True).changes == whole.changes
    (tmp_path / "f").write_bytes(b"other\n")
    plan = again(tmp_path, "whole\n", whole, diverged=True)
    assert plan.files[0].change.before_hash == digest(b"other\n")
    with pytest.raises(PatchConflict, match="f changed since"):
        again(tmp_path, EDIT, patch, diverged=True)
    (tmp_path / "f").unlink()
    assert again(tmp_path, "whole\n", whole, diverged=True).files[0].change.kind is ChangeKind.CREATE


def test_another_text_than_the_one_that_was_planned_is_told_from_a_changed_base(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    plan = planned(tmp_path, EDIT)
    two = EDIT + CREATE
    for diff, said in (
        (EDIT.replace("+c", "+x"), "its content after differs"),
        (EDIT.replace("-a", "-x"), "is another patch"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n" + EDIT, "its mode differs"),
        (two, "changes 2 file"),
        ("whole\n", "its content after differs"),
    ):
        with pytest.raises(RecordMismatch, match=said):
            again(tmp_path, diff, plan)
    rename = "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n"
    renamed = planned(tmp_path, rename)
    assert again(tmp_path, rename, renamed) == renamed
    (tmp_path / "g").write_bytes(b"here now\n")
    with pytest.raises(PatchConflict, match="g changed since"):
        again(tmp_path, rename, renamed)


def test_one_file_that_does_not_fit_stops_the_whole_patch(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    (tmp_path / "g").write_bytes(b"other\n")
    with pytest.raises(PatchConflict, match=r"does not fit g: hunk 1 \(@@ -1 \+1,2 @@\): line 1 should be"):
        planned(tmp_path, EDIT + EDIT.replace("/f", "/g"))


@pytest.mark.parametrize(
    ("path", "diff", "said"),
    [
        ("f", "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", "creates f, which exists already"),
        ("none", "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n", "changes none, which does not exist"),
        ("f", "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "removes f, but 2 bytes would be left"),
        (
            "f",
            "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n",
            "renames f to g, which exists",
        ),
        (
            "x",
            "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
            "changes x, which does not exist",
        ),
        ("none", "diff --git a/none b/none\ndeleted file mode 100644\n", "changes none, which does not exist"),
    ],
)
def test_what_should_or_should_not_be_there(tmp_path: Path, path: str, diff: str, said: str) -> None:
    (tmp_path / "f").write_bytes(b"a\nb\n")
    (tmp_path / "g").write_bytes(b"g\n")
    with pytest.raises(PatchConflict, match=said):
        planned(tmp_path, diff, path)


def test_a_patch_that_only_adds_makes_the_file_that_is_not_there(tmp_path: Path) -> None:
    diff = "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"
    assert planned(tmp_path, diff).changes[0].kind is ChangeKind.CREATE
    (tmp_path / "f").touch()
    assert planned(tmp_path, diff).changes[0].kind is ChangeKind.WRITE


def test_a_path_through_links_is_the_file_it_really_is(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "real").mkdir(parents=True)
    (root / "real" / "f").write_bytes(b"a\n")
    (root / "dir").symlink_to("real")
    (root / "link").symlink_to("real/f")
    (root / "out").symlink_to(tmp_path)

    assert planned(root, EDIT.replace("/f", "/dir/f"), "dir/f").changes[0].path == "real/f"
    assert planned(root, "whole", "link").changes[0].path == "real/f"
    with pytest.raises(PathViolation, match="outside"):
        planned(root, "whole", "out/x")
    with pytest.raises(PathViolation, match="link is a symbolic link; removing"):
        planned(root, "--- a/link\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "link")
    with pytest.raises(PathViolation, match="two files of the patch are real/f"):
        planned(root, EDIT.replace("/f", "/link") + EDIT.replace("/f", "/real/f"), "link")


def test_what_is_no_regular_file_is_no_base(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        planned(tmp_path, "whole")


def test_a_plan_names_its_paths_and_every_one_that_changed(tmp_path: Path) -> None:
    for name in ("f", "old"):
        (tmp_path / name).write_bytes(b"a\n")
    diff = EDIT + CREATE + "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"
    plan = planned(tmp_path, diff)
    assert plan.paths == ("f", "g", "old", "new")
    assert again(tmp_path, diff, plan) == plan
    (tmp_path / "old").write_bytes(b"b\n")
    (tmp_path / "g").write_bytes(b"b\n")
    with pytest.raises(PatchConflict, match="g, old changed since"):
        again(tmp_path, diff, plan)
