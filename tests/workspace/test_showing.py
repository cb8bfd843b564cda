"""A file's text for people: the lines asked for, whatever the encoding, and nothing that is no text or not inside."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import FileError, InvalidArguments, NotFound, PathViolation
from intercom.workspace import listing
from intercom.workspace.files import is_binary
from intercom.workspace.listing import read_range, show


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "five").write_text("one\ntwo\nthree\nfour\nfive\n")
    (tmp_path / "secret").write_text("s")
    return root


def test_a_file_is_shown_whole_with_its_size_its_lines_and_when_it_changed(root: Path) -> None:
    os.utime(root / "src" / "five", (0, 1_700_000_000))
    found = show(root, "./src//five")
    assert (found.path, found.text) == ("src/five", "one\ntwo\nthree\nfour\nfive")
    assert (found.first, found.last, found.line_count, found.size) == (1, 5, 5, 24)
    assert found.modified == datetime.fromtimestamp(1_700_000_000, UTC)
    assert found.is_whole


@pytest.mark.parametrize(
    ("asked", "text"),
    [("2:3", "two\nthree"), ("4:", "four\nfive"), (":2", "one\ntwo"), ("3", "three"), ("4:900", "four\nfive")],
)
def test_only_the_lines_asked_for_are_shown(root: Path, asked: str, text: str) -> None:
    found = show(root, "src/five", read_range(asked))
    assert found.text == text
    assert not found.is_whole
    assert found.line_count == 5


def test_lines_beyond_the_end_are_refused_with_how_many_there_are(root: Path) -> None:
    with pytest.raises(InvalidArguments, match="has 5 lines"):
        show(root, "src/five", (6, None))


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
def test_text_is_text_in_any_encoding(root: Path, data: bytes, text: str) -> None:
    (root / "f").write_bytes(data)
    assert show(root, "f").text == text


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"text\0", bytes(range(1, 32)) * 20, b"\xff\xfea\0b"])
def test_what_is_no_text_is_refused(root: Path, data: bytes) -> None:
    (root / "f").write_bytes(data)
    assert is_binary(data)
    with pytest.raises(FileError, match="no text"):
        show(root, "f")


def test_too_much_is_refused_with_what_to_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_SHOWN_BYTES", 10)
    with pytest.raises(FileError, match="--lines"):
        show(root, "src/five")
    assert show(root, "src/five", (1, 2)).text == "one\ntwo"
    monkeypatch.setattr(listing, "MAX_READ_BYTES", 10)
    with pytest.raises(FileError, match="larger than 10 bytes"):
        show(root, "src/five")


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
def test_what_is_no_file_of_the_workspace_is_refused(root: Path, path: str, error: type[Exception]) -> None:
    (root / "out").symlink_to("..")
    (root / "link").symlink_to("../secret")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    with pytest.raises(error):
        show(root, path)


def test_a_directory_is_sent_to_the_command_that_lists_it(root: Path) -> None:
    with pytest.raises(FileError, match="list-files"):
        show(root, "src")


def test_a_link_that_stays_inside_shows_the_file_it_leads_to(root: Path) -> None:
    (root / "way").symlink_to("src/five")
    assert show(root, "way").path == "src/five"
