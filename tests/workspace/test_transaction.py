"""The file transaction: all files of a plan change or none, whatever is changed or killed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from intercom.model import crash_points
from intercom.model.errors import ApplyStuck, FileError, IntercomError, PathViolation
from intercom.workspace import files, transaction
from tests.workspace import trees
from tests.workspace.transactions import CASES, Case, Transaction, digest, of_proposal
from tests.workspace.trees import Thing

REPOSITORY = Path(__file__).parents[2]
DELETE = "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
EDIT = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
RENAME = "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    trees.put(root, {name: Thing(data, 0o644) for name, data in (("f", b"a\n"), ("gone", b"x\n"), ("old", b"o\n"))})
    root.chmod(0o755)
    return root


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    crash_points.hook = None


def staged(root: Path, diff: str, path: str = "f", tag: str = "r1") -> Transaction:
    made = of_proposal(root, diff, path, tag)
    made.stage()
    return made


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def refuse(number: int, words: str) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, words)

    return refused


# --- what it does ----------------------------------------------------------------------------------------------------


def test_nothing_of_the_workspace_changes_before_it_is_rolled_forward(root: Path) -> None:
    made = staged(root, EDIT + DELETE + RENAME)
    assert {name for name in names(root) if not name.endswith(".tmp")} == {"f", "gone", "old"}
    assert (root / "f").read_text() == "a\n"
    for _ in range(2):
        made.roll_forward()
        assert names(root) == {"f", "new"}
        assert (root / "f").read_text() == "b\n"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_steps_travel_through_json(tmp_path: Path, case: Case) -> None:
    made = case.begin(tmp_path / "work")
    assert Transaction.from_json(made.root, made.to_json()).steps == made.steps


def test_contents_are_staged_in_the_nearest_directory_that_exists(root: Path) -> None:
    (root / "a").mkdir()
    (step,) = of_proposal(root, "text", "a/b/c/d").steps
    assert (step.staged, step.made) == ("a/.intercom-r1-0.tmp", ("a/b", "a/b/c"))
    (step,) = of_proposal(root, "text", tag="../../etc/x").steps
    assert step.staged is not None
    assert "/" not in step.staged


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
        staged(root, diff, "n").roll_forward()
    finally:
        os.umask(before)
    expected = {"n": 0o644, "private/n": 0o700, "shared/deep": 0o775, "shared/deep/n": 0o664, "x": 0o755}
    assert {name: (root / name).stat().st_mode & 0o777 for name in expected} == expected


def test_a_mode_alone_is_a_change_too(root: Path) -> None:
    staged(root, "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n").roll_forward()
    assert trees.found(root)["f"] == Thing(b"a\n", 0o755)


def test_another_name_of_the_same_file_keeps_its_content(root: Path, tmp_path: Path) -> None:
    os.link(root / "f", tmp_path / "elsewhere")
    staged(root, EDIT).roll_forward()
    assert (root / "f").read_text() == "b\n"
    assert (tmp_path / "elsewhere").read_text() == "a\n"


def test_a_file_system_without_hard_links_will_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse(1, "Operation not permitted"))
    staged(root, "mine\n", "fresh").roll_forward()
    assert (root / "fresh").read_text() == "mine\n"
    assert names(root) == {"f", "gone", "old", "fresh"}


# --- somebody changes files meanwhile --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f", "gone", "old", "new"])
def test_a_file_that_changed_after_staging_stops_everything(root: Path, name: str) -> None:
    made = staged(root, EDIT + DELETE + RENAME)
    before = (root / name).read_bytes() if name != "new" else None
    (root / name).write_text("meanwhile\n")
    found = trees.found(root)
    with pytest.raises(ApplyStuck, match=f"{name} changed in between") as stuck:
        made.roll_forward()
    assert stuck.value.details["reasons"] == (f"{name} changed in between",)
    assert trees.found(root) == found
    (root / name).unlink() if before is None else (root / name).write_bytes(before)
    made.roll_forward()
    assert names(root) == {"f", "new"}


@pytest.mark.parametrize("name", ["gone", "old"])
def test_a_file_that_changes_half_way_is_kept_and_the_rest_waits(root: Path, name: str) -> None:
    made = staged(root, EDIT + DELETE + RENAME)
    before = (root / name).read_bytes()

    def late(point: str) -> None:
        if point == "files.placed_one":
            (root / name).write_text("meanwhile\n")

    crash_points.hook = late
    with pytest.raises(ApplyStuck, match=f"stopped at {name}: it changed in between"):
        made.roll_forward()
    crash_points.hook = None
    assert (root / name).read_text() == "meanwhile\n"
    (root / name).write_bytes(before)
    made.roll_forward()
    assert names(root) == {"f", "new"}


def test_a_file_that_changes_before_the_commit_is_noticed_then(root: Path) -> None:
    made = of_proposal(root, EDIT)
    (root / "f").write_text("meanwhile\n")
    with pytest.raises(ApplyStuck, match="f changed in between"):
        made.stage()
    made.discard()
    assert names(root) == {"f", "gone", "old"}


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("evil")], ids=["lost", "damaged"])
def test_a_staged_file_that_is_lost_or_damaged_is_noticed(root: Path, spoil: Callable[[Path], object]) -> None:
    made = staged(root, EDIT)
    spoil(root / str(made.steps[0].staged))
    with pytest.raises(ApplyStuck, match="missing or damaged"):
        made.roll_forward()
    assert (root / "f").read_text() == "a\n"


def test_nothing_is_written_to_a_file_that_appears_under_a_staged_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = of_proposal(root, EDIT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda name, dir_fd: os.link(root / "gone", name, dst_dir_fd=dir_fd))
        with pytest.raises(FileError, match="f cannot be written: File exists"):
            made.stage()
    assert (root / "gone").read_text() == "x\n"


def test_only_staged_files_are_renamed_and_discarded(root: Path) -> None:
    """A journal that somebody wrote by hand names no other file."""
    (root / "planted").write_text("b\n")
    made = staged(root, EDIT)
    for path in ("planted", "../planted", "/etc/passwd"):
        forged = evolve(made, steps=(evolve(made.steps[0], staged=path),))
        with pytest.raises(ApplyStuck, match="missing or damaged"):
            forged.roll_forward()
        forged.discard()
        assert (root / "planted").exists()
    # Nor is one taken for the rest of a step that is done.
    (root / "f").write_text("b\n")
    evolve(made, steps=(evolve(made.steps[0], staged="planted"),)).roll_forward()
    assert (root / "planted").exists()


@pytest.mark.parametrize("directory", [False, True])
def test_an_apply_overrides_nobody_who_removed_its_base(root: Path, *, directory: bool) -> None:
    made = staged(root, EDIT)
    (root / "f").unlink()
    if directory:
        (root / "f").mkdir()
    with pytest.raises(ApplyStuck, match="f changed in between"):
        made.roll_forward()
    assert (root / "f").exists() is directory


def test_a_renamed_file_that_vanished_is_noticed(root: Path) -> None:
    made = staged(root, RENAME, "old")
    (root / "old").unlink()
    with pytest.raises(ApplyStuck, match="old is gone, and new is not there"):
        made.roll_forward()


def test_a_file_that_appears_in_the_last_instant_is_not_overwritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = staged(root, "mine\n", "fresh")
    link = os.link

    def late(*args: Any, **kwargs: Any) -> None:
        (root / "fresh").write_text("theirs\n")
        link(*args, **kwargs)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(ApplyStuck, match="stopped at fresh: File exists"):
        made.roll_forward()
    assert (root / "fresh").read_text() == "theirs\n"


def test_a_directory_that_cannot_be_written_to_is_noticed_before_anything_changes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    made = of_proposal(root, EDIT + DELETE)
    with pytest.raises(ApplyStuck, match="the directory of gone cannot be written to"):
        made.stage()


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_directory_swapped_for_a_link_between_the_steps_is_never_written_through(root: Path, tmp_path: Path) -> None:
    (root / "dir").mkdir()
    (root / "dir" / "f").write_text("a\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    made = of_proposal(root, EDIT.replace("/f", "/dir/f"), "dir/f")
    (root / "dir").rename(root / "moved")
    (root / "dir").symlink_to(outside)
    with pytest.raises(PathViolation, match="dir is a symbolic link"):
        made.stage()
    assert os.listdir(outside) == []

    (root / "dir").unlink()
    (root / "moved").rename(root / "dir")
    made.stage()
    (root / "dir").rename(root / "moved")
    (root / "dir").symlink_to(root / "moved")
    with pytest.raises(ApplyStuck, match="dir is a symbolic link"):
        made.roll_forward()
    made.discard()
    assert (root / "moved" / "f").read_text() == "a\n"


@pytest.mark.parametrize(("diff", "name"), [(EDIT, "f"), (DELETE, "gone")])
def test_a_link_that_takes_the_files_place_is_refused_and_its_target_untouched(
    root: Path, tmp_path: Path, diff: str, name: str
) -> None:
    made = staged(root, diff, name)
    (root / name).rename(tmp_path / "secret")
    (root / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ApplyStuck, match=f"{name} is a symbolic link"):
        made.roll_forward()
    assert (tmp_path / "secret").exists()


# --- the workspace ---------------------------------------------------------------------------------------------------


def test_a_directory_of_another_file_system_is_another_workspace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inode numbers repeat: 2 is the root of every ext4 file system."""
    made, older = staged(root, EDIT), evolve(staged(root, EDIT).steps[0], root_id=root.stat().st_ino)
    status = os.fstatvfs
    monkeypatch.setattr(os, "fstatvfs", lambda fd: os.statvfs_result((*status(fd)[:10], status(fd).f_fsid + 1)))
    for forged in (made, evolve(made, steps=(evolve(made.steps[0], root_id=1),))):
        with pytest.raises(FileError, match="another directory"):
            forged.roll_forward()
    # An older server recorded the inode number alone.
    evolve(made, steps=(older,)).roll_forward()


def test_a_file_system_without_an_id_is_told_apart_by_its_device(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.fstatvfs
    monkeypatch.setattr(os, "fstatvfs", lambda fd: os.statvfs_result((*status(fd)[:10], 0)))
    with files.opened_root(root) as fd:
        assert files.directory_id(fd) == root.stat().st_dev << 64 | root.stat().st_ino


# --- discarding, and what the system refuses -------------------------------------------------------------------------


def test_discarding_leaves_the_workspace_as_it_was(root: Path) -> None:
    before = names(root)
    made = staged(root, "text", "a/b/c")
    assert names(root) > before
    for _ in range(2):
        made.discard()
        assert names(root) == before
    # Directories may be there already if it stopped half-way.
    (root / "a/b").mkdir(parents=True)
    made.discard()
    assert names(root) == before
    (root / "a/b").mkdir(parents=True)
    (root / "a/theirs").write_text("x")
    made.discard()
    assert names(root) == {*before, "a", "a/theirs"}
    shutil.rmtree(root)
    made.discard()
    assert not root.exists()


def test_what_cannot_be_discarded_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = staged(root, "text", "a/b/c")
    monkeypatch.setattr(os, "unlink", refuse(13, "Permission denied"))
    with pytest.raises(FileError, match=r"\.intercom-r1-0\.tmp cannot be removed: Permission denied"):
        made.discard()


def test_staging_again_after_a_crash_in_staging_replaces_what_was_left(root: Path) -> None:
    made = staged(root, EDIT)
    (root / str(made.steps[0].staged)).write_text("half")
    made.stage()
    made.roll_forward()
    assert (root / "f").read_text() == "b\n"


def test_what_the_system_refuses_is_said_in_words(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = of_proposal(root, EDIT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse(28, "No space left on device"))
        with pytest.raises(FileError, match="f cannot be written: No space left on device"):
            made.stage()
    with monkeypatch.context() as patch:
        patch.setattr(transaction, "fingerprint", refuse(13, "Permission denied"))
        with pytest.raises(ApplyStuck, match="f cannot be looked at: permission denied"):
            made.stage()
    made.discard()
    assert names(root) == {"f", "gone", "old"}
    assert (root / "f").read_text() == "a\n"


# --- crashes ---------------------------------------------------------------------------------------------------------

#: How often each crash point is passed when nothing goes wrong.
PASSINGS = {
    "apply": {"files.staged": 1, "test.committed": 1, "files.placed_one": 6},
    "restore": {"files.staged": 1, "test.committed": 1, "files.placed_one": 8},
}


@pytest.mark.parametrize("name", CASES)
def test_every_step_is_a_crash_point(tmp_path: Path, name: str) -> None:
    seen: Counter[str] = Counter()
    made = CASES[name].begin(tmp_path / "work")
    crash_points.hook = lambda point: seen.update([point])
    made.stage()
    crash_points.reach("test.committed")
    made.roll_forward()
    assert seen == PASSINGS[name]
    assert trees.found(made.root) == CASES[name].after
    assert not list(made.root.rglob(".intercom*"))
    # A restore removes directories that it leaves empty, an apply does not.
    assert (made.root / "added").exists() is False
    assert (made.root / "old").exists() is (name == "apply")


def kill(made: Transaction, point: str, occurrence: int) -> int:
    file = made.root.with_suffix(".json")
    file.write_text(made.to_json())
    command = [sys.executable, "-m", "tests.workspace.crash_child", made.root, file, point, str(occurrence)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode


@pytest.mark.parametrize(
    ("name", "point", "occurrence"),
    [
        (name, point, n + 1)
        for name, points in PASSINGS.items()
        for point, count in points.items()
        # Before the others, between them and after them: `test_stopped_before_any_call_...` stops at each.
        for n in sorted({0, count // 2, count - 1})
    ],
)
def test_killed_anywhere_it_leaves_all_files_or_none(tmp_path: Path, name: str, point: str, occurrence: int) -> None:
    case = CASES[name]
    made = case.begin(tmp_path / "work")
    assert kill(made, point, occurrence) == -signal.SIGKILL
    if point == "files.staged":
        made.discard()
        assert trees.found(made.root) == case.before
        return
    if point == "files.placed_one":
        # A recovery that is killed too is finished by the next.
        kill(made, point, 2)
    for _ in range(2):
        made.roll_forward()
        assert trees.found(made.root) == case.after


class Stopped(BaseException):
    """As good as a kill: nothing catches it."""


class Stopping:
    """Stops this thread at the n-th call that changes or opens files, as long as it is entered."""

    left = 0
    hooked = False
    events = frozenset({"open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.chmod"})

    def __init__(self, left: int) -> None:
        self._left = left

    def __enter__(self) -> None:
        if not Stopping.hooked:
            sys.addaudithook(Stopping.heard)
            Stopping.hooked = True
        Stopping.left = self._left

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        Stopping.left = 0
        return kind is Stopped

    @staticmethod
    def heard(event: str, _: object) -> None:
        if Stopping.left and event in Stopping.events:
            Stopping.left -= 1
            if Stopping.left == 0:
                raise Stopped


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_stopped_before_any_call_that_changes_files_it_leaves_all_or_none(tmp_path: Path, case: Case) -> None:
    outcomes: Counter[str] = Counter()
    while not outcomes["done"]:
        made = case.begin(tmp_path / "work")
        state = "staging"
        with Stopping(outcomes.total() + 1):
            made.stage()
            state = "committed"
            made.roll_forward()
            state = "done"
        outcomes[state] += 1
        if state == "staging":
            made.discard()
            assert trees.found(made.root) == case.before
        else:
            made.roll_forward()
            assert trees.found(made.root) == case.after
    assert outcomes["staging"] > 20
    assert outcomes["committed"] > 20


# --- journals of older servers ---------------------------------------------------------------------------------------


def older_apply(root: Path) -> str:
    """What an older server recorded of an edit, a removal and a rename, which it had staged beside their targets."""
    (root / "sub").mkdir()
    (root / ".intercom-r1-0.tmp").write_text("b\n")
    (root / "sub/.intercom-r1-2.tmp").write_text("o\n")
    common = {"mode": 0o644, "made": [], "size": 2, "root_inode": root.stat().st_ino}
    steps = [
        ("f", None, "write", ".intercom-r1-0.tmp", digest("a\n"), digest("b\n"), []),
        ("gone", None, "delete", None, digest("x\n"), None, []),
        ("sub/new", "old", "rename", ".intercom-r1-2.tmp", digest("o\n"), digest("o\n"), ["sub"]),
    ]
    keys = ("path", "old_path", "kind", "temp", "before_hash", "after_hash", "made")
    return json.dumps([{**common, **dict(zip(keys, step, strict=True))} for step in steps])


def older_restore(root: Path) -> str:
    """The same of an older restore, which it had staged in a directory of its own."""
    staging = root / ".intercom-restore-r1"
    staging.mkdir(mode=0o700)
    (staging / "1").write_text("b\n")
    (staging / "2").write_text("o\n")
    common = {"mode": 0o644, "link": None, "root_inode": root.stat().st_ino}
    steps = [
        ("gone", f"file:{digest('x' + chr(10))}", "nothing", None),
        ("old", f"file:{digest('o' + chr(10))}", "nothing", None),
        ("f", f"file:{digest('a' + chr(10))}", f"file:{digest('b' + chr(10))}", "1"),
        ("sub/new", "nothing", f"file:{digest('o' + chr(10))}", "2"),
    ]
    keys = ("path", "before", "after", "staged")
    return json.dumps([{**common, **dict(zip(keys, step, strict=True))} for step in steps])


@pytest.mark.parametrize("record", [older_apply, older_restore])
@pytest.mark.parametrize("begun", [False, True])
def test_what_an_older_server_committed_to_is_rolled_forward(
    root: Path, record: Callable[[Path], str], *, begun: bool
) -> None:
    made = Transaction(root, transaction.from_text(record(root), "r1"), {}.get)
    if begun:
        shutil.move(root / str(made.steps[-1].staged or made.steps[-2].staged), root / "new")
        (root / "sub").mkdir(exist_ok=True)
        (root / "new").rename(root / "sub/new")
    for _ in range(2):
        made.roll_forward()
        assert trees.found(root) == {"f": Thing(b"b\n", 0o644), "sub/new": Thing(b"o\n", 0o644)}
        assert not list(root.rglob(".intercom*"))


@pytest.mark.parametrize("record", [older_apply, older_restore])
def test_what_an_older_server_only_staged_is_discarded(root: Path, record: Callable[[Path], str]) -> None:
    before = trees.found(root)
    made = Transaction(root, transaction.from_text(record(root), "r1"), {}.get)
    made.discard()
    assert trees.found(root) == before
    assert not list(root.rglob(".intercom*"))


def test_what_an_older_server_left_out_is_nothing(root: Path) -> None:
    steps = [{key: value for key, value in each.items() if key != "size"} for each in json.loads(older_apply(root))]
    read = transaction.from_text(json.dumps([{**each, "mode": None} for each in steps]), "r1")
    assert {(step.size, step.mode) for step in read} == {(0, 0)}


@pytest.mark.parametrize(
    "other",
    [{"path": "g"}, {"before": "file:0"}, {"after": "file:2"}, {"link": "g"}, {"moved_from": "g"}, {"strict": False}],
)
def test_a_step_with_another_path_content_or_target_does_something_else(other: dict[str, Any]) -> None:
    step = transaction.Step("f", "nothing", "file:1")
    assert evolve(step, mode=0o644, staged="s", made=("d",), root_id=1).act == step.act != evolve(step, **other).act


def test_refusals_are_ours(root: Path) -> None:
    shutil.rmtree(root)
    with pytest.raises(IntercomError, match="cannot be opened"):
        transaction.prepare(root, "r1", (), None)
