"""Trees of directories and texts of files: what they hold, what is skipped and cut, and no way out of the workspace."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intercom.model.errors import FileError, IntercomError, InvalidArguments, NotFound, PathViolation
from intercom.workspace import files, listing
from intercom.workspace.files import is_binary
from intercom.workspace.listing import read_range, show, shown, tree
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


@settings(max_examples=100, deadline=None)
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


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    texts = tmp_path / "work"
    (texts / "src").mkdir(parents=True)
    (texts / "src" / "five").write_text("one\ntwo\nthree\nfour\nfive\n")
    (tmp_path / "secret").write_text("s")
    return texts


def test_a_file_is_shown_whole_with_its_size_its_lines_and_when_it_changed(texts: Path) -> None:
    os.utime(texts / "src" / "five", (0, 1_700_000_000))
    found = show(texts, "./src//five")
    assert (found.path, found.text) == ("src/five", "one\ntwo\nthree\nfour\nfive")
    assert (found.first, found.last, found.line_count, found.size) == (1, 5, 5, 24)
    assert found.modified == datetime.fromtimestamp(1_700_000_000, UTC)
    assert found.is_whole


@pytest.mark.parametrize(
    ("asked", "text"),
    [("2:3", "two\nthree"), ("4:", "four\nfive"), (":2", "one\ntwo"), ("3", "three"), ("4:900", "four\nfive")],
)
def test_only_the_lines_asked_for_are_shown(texts: Path, asked: str, text: str) -> None:
    found = show(texts, "src/five", read_range(asked))
    assert found.text == text
    assert not found.is_whole
    assert found.line_count == 5


def test_lines_beyond_the_end_are_refused_with_how_many_there_are(texts: Path) -> None:
    with pytest.raises(InvalidArguments, match="has 5 lines"):
        show(texts, "src/five", (6, None))


@pytest.mark.parametrize("asked", ["", ":", "0:3", "5:2", "a:b", "-1:3", "1:2:3", "1.5", "²:3", "1" * 30])
def test_what_names_no_lines_is_refused(asked: str) -> None:
    with pytest.raises(InvalidArguments, match="A:B"):
        read_range(asked)


@given(st.text(max_size=12))
def test_a_range_is_read_or_refused_and_begins_at_one(text: str) -> None:
    try:
        first, last = read_range(text)
    except InvalidArguments:
        return
    assert first >= 1
    assert last is None or last >= first


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("grün\r\nä\r\n".encode(), "grün\nä"),
        ("\ufeffa\n".encode(), "a"),
        ("Wörter\n".encode("cp1252"), "Wörter"),
        ("\ufeffWörter\nzwei".encode("utf-16-le"), "Wörter\nzwei"),
        (b"", ""),
        (b"\n", ""),
        (b"\x1b[31mlog\x1b[0m\n", "\x1b[31mlog\x1b[0m"),
    ],
)
def test_text_is_text_in_any_encoding(texts: Path, data: bytes, text: str) -> None:
    (texts / "f").write_bytes(data)
    assert show(texts, "f").text == text


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"text\0", bytes(range(1, 32)) * 20, b"\xff\xfea\0b"])
def test_what_is_no_text_is_refused(texts: Path, data: bytes) -> None:
    (texts / "f").write_bytes(data)
    assert is_binary(data)
    with pytest.raises(FileError, match="not text"):
        show(texts, "f")


def test_too_much_is_refused_with_what_to_do(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_SHOWN_BYTES", 10)
    with pytest.raises(FileError, match="--lines"):
        show(texts, "src/five")
    assert show(texts, "src/five", (1, 2)).text == "one\ntwo"
    monkeypatch.setattr(listing, "MAX_READ_BYTES", 10)
    with pytest.raises(FileError, match="larger than 10 bytes"):
        show(texts, "src/five")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("../secret", PathViolation),
        ("out/secret", PathViolation),
        ("link", PathViolation),
        ("/etc/passwd", PathViolation),
        (".", PathViolation),
        ("loop", PathViolation),
        ("src", FileError),
        ("pipe", FileError),
        ("gone", NotFound),
        ("gone/too", NotFound),
        ("src/five/no", PathViolation),
    ],
)
def test_what_is_no_file_of_the_workspace_is_refused(texts: Path, path: str, error: type[Exception]) -> None:
    (texts / "out").symlink_to("..")
    (texts / "link").symlink_to("../secret")
    (texts / "loop").symlink_to("loop")
    os.mkfifo(texts / "pipe")
    with pytest.raises(error):
        show(texts, path)


def test_a_directory_is_sent_to_the_command_that_lists_it(texts: Path) -> None:
    with pytest.raises(FileError, match="list-files"):
        show(texts, "src")


def test_a_link_that_stays_inside_shows_the_file_it_leads_to(texts: Path) -> None:
    (texts / "way").symlink_to("src/five")
    assert show(texts, "way").path == "src/five"
