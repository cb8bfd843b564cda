"""The tree of a directory: what is in it, what is skipped and cut, and no way out of the workspace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intercom.model.errors import FileError, IntercomError, InvalidArguments, NotFound, PathViolation
from intercom.workspace import files, listing
from intercom.workspace.listing import shown, tree
from tests.workspace.test_escape import PATHS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for path in ("src/config/mod.rs", "src/main.rs", "src/session/deep/er/leaf", ".git/HEAD", "target/x", "a.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "src" / "node_modules").mkdir()
    (root / ".env").write_text("")
    (tmp_path / "secret").write_text("s")
    return root


def test_a_tree_is_drawn_with_files_first_and_counted(root: Path) -> None:
    found = tree(root, "src", 2)
    assert found.lines == (
        "src/",
        "├── main.rs",
        "├── config/",
        "│   └── mod.rs",
        "└── session/",
        "    └── deep/",
    )
    assert (found.path, found.directories, found.files, found.skipped, found.left_out) == ("src", 3, 2, 1, 0)


@pytest.mark.parametrize("path", [".", "", "./", "src/..", "src/../."])
def test_the_workspace_itself_can_be_listed_and_what_tools_made_is_skipped(root: Path, path: str) -> None:
    found = tree(root, path, 1)
    assert found.lines == ("./", "├── .env", "├── a.txt", "└── src/")
    assert found.skipped == 2


def test_a_skipped_directory_is_listed_when_it_is_named(root: Path) -> None:
    assert tree(root, ".git").lines == (".git/", "└── HEAD")


def test_links_are_shown_and_not_followed_below_but_may_lead_to_the_place_named(root: Path) -> None:
    (root / "src" / "way").symlink_to("../src")
    (root / "src" / "out").symlink_to("/")
    assert "├── out (link)" in tree(root, "src", 1).lines
    assert tree(root, "src/way/way", 1).path == "src"
    (root / "top").symlink_to(".")
    assert tree(root, "top", 1).path == "."
    with pytest.raises(PathViolation):
        tree(root, "src/out")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("..", PathViolation),
        ("/etc", PathViolation),
        ("src/../../", PathViolation),
        ("src\0", PathViolation),
        ("nothing", NotFound),
        ("nothing/below", NotFound),
        ("a.txt", FileError),
        ("a.txt/below", PathViolation),
    ],
)
def test_what_can_not_be_listed_is_refused_with_the_reason(root: Path, path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        tree(root, path)


@pytest.mark.parametrize("depth", [0, 11, -1])
def test_the_depth_has_bounds(root: Path, depth: int) -> None:
    with pytest.raises(InvalidArguments, match="from 1 to 10"):
        tree(root, ".", depth)


def test_a_directory_without_end_is_cut_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(30):
        (root / "src" / f"f{i:02}").write_text("")
    monkeypatch.setattr(listing, "MAX_IN_DIRECTORY", 5)
    found = tree(root, "src", 1)
    assert found.lines[-1] == "└── … 28 more"
    assert (found.files, found.left_out) == (5, 28)
    monkeypatch.setattr(listing, "MAX_ENTRIES", 3)
    assert tree(root, ".", 5).directories + tree(root, ".", 5).files == 3
    monkeypatch.setattr(listing, "MAX_SCANNED", 10)
    assert tree(root, "src", 1).lines[-1] == "└── … at least 7 more"


def test_names_that_would_show_as_something_else_are_written_out(root: Path) -> None:
    odd = root / "odd"
    odd.mkdir()
    for name in (b"new\nline", b"\xff\xfe", "r\u202egpj.exe".encode(), b"\x1b[31mred", "grün 🎉".encode()):
        (Path(os.fsdecode(os.fsencode(odd) + b"/" + name))).write_text("")
    lines = tree(root, "odd").lines
    assert all(line.isprintable() for line in lines)
    assert {line[4:] for line in lines[1:]} == {
        r"new\nline",
        r"\udcff\udcfe",
        r"r\u202egpj.exe",
        r"\x1b[31mred",
        "grün 🎉",
    }


@given(st.text())
def test_a_shown_name_is_one_line_that_can_be_sent(name: str) -> None:
    assert len(shown(name).splitlines()) <= 1
    shown(name).encode()


def test_what_can_not_be_read_is_said_and_the_rest_is_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def opening(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == "config":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(files, "has_openat2", lambda: False)
    monkeypatch.setattr(os, "open", opening)
    lines = tree(root, "src").lines
    assert "│   └── (permission denied)" in lines
    assert "└── session/" in lines


@settings(max_examples=200, deadline=None)
@given(path=PATHS)
@example(path="out")
@example(path="in/../out/work")
def test_no_path_lists_what_is_outside(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    base = tmp_path_factory.getbasetemp() / "listing"
    shutil.rmtree(base, ignore_errors=True)
    (base / "work" / "a").mkdir(parents=True)
    (base / "outside").write_text("")
    for name, to in (("out", base), ("in", "a"), ("loop", "loop")):
        (base / "work" / name).symlink_to(to)
    try:
        assert not any("outside" in line for line in tree(base / "work", path).lines)
    except IntercomError:
        pass


def test_a_directory_swapped_for_a_link_before_any_opening_shows_nothing_of_outside(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "has_openat2", lambda: False)
    real_open = os.open
    swaps = 0
    while True:
        left = swaps

        def opening(*args: Any, **kwargs: Any) -> int:
            nonlocal left
            if left == 0:
                (root / "src").rename(root / "moved")
                (root / "src").symlink_to(tmp_path)
            left -= 1
            return real_open(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opening)
            try:
                lines = tree(root, "src", 3).lines
                assert not any("secret" in line for line in lines)
            except IntercomError:
                pass
        if left >= 0:
            break
        (root / "src").unlink()
        (root / "moved").rename(root / "src")
        swaps += 1
    assert swaps > 3
