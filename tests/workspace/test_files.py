"""What a client may name, and that no link bends the way to it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intercom.model.errors import FileError, PathViolation, WorkspaceRefused
from intercom.workspace import files
from intercom.workspace.files import digest, fingerprint, opened_directory, opened_parent, opened_root


@pytest.fixture(autouse=True, params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to open: what the kernel does, and what we do where it cannot."""
    if request.param == "walk":
        monkeypatch.setattr(files, "has_openat2", lambda: False)


def make_way(root: Path, path: str) -> None:
    """Make the directory that holds `path`."""
    with opened_root(root) as top, opened_directory(top, path.split("/")[:-1], create=True):
        pass


def find_way(root: Path, path: str) -> None:
    """Open the directory that holds `path`."""
    with opened_root(root) as top, opened_parent(top, path):
        pass


@pytest.mark.parametrize(
    ("candidate", "path"),
    [
        ("a.txt", "a.txt"),
        ("./a.txt", "a.txt"),
        ("a//b", "a/b"),
        ("a/./b/", "a/b"),
        ("a/../b", "b"),
        ("a/b/../../c", "c"),
        ("...", "..."),
        ("~/x", "~/x"),
        ("n" * 255, "n" * 255),
        ("/".join(["d" * 255] * 16), "/".join(["d" * 255] * 16)),
        ("with space/ü.txt", "with space/ü.txt"),
    ],
)
def test_what_stays_inside_is_made_canonical(candidate: str, path: str) -> None:
    assert files.lexical(candidate) == path


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ("", "empty"),
        (".", "workspace itself"),
        ("a/..", "workspace itself"),
        ("..", "outside"),
        ("../x", "outside"),
        ("a/../../x", "outside"),
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("a\0b", r"U\+0000"),
        ("a\nb", r"U\+000A"),
        ("a\x7f", r"U\+007F"),
        ("a\x85", r"U\+0085"),
        ("a\u202etxt.exe", r"U\+202E"),
        ("a\ud800", r"U\+D800"),
        ("a\\..\\b", "backslash"),
        ("n" * 256, "longer than 255"),
        ("ü" * 128, "longer than 255"),
        ("/".join(["d" * 255] * 16) + "/e", "longer than 4096"),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(tmp_path: Path, candidate: str, said: str) -> None:
    with pytest.raises(PathViolation, match=said):
        files.relative(tmp_path, candidate)


def test_an_absolute_path_into_the_workspace_has_no_fast_path(tmp_path: Path) -> None:
    with pytest.raises(PathViolation, match="absolute"):
        files.relative(tmp_path, f"{tmp_path}/../outside")


def test_links_inside_are_resolved_and_links_outside_refused(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "real").mkdir(parents=True)
    (root / "real" / "f").touch()
    (root / "dir").symlink_to("real")
    (root / "file").symlink_to("real/f")
    (root / "dangling").symlink_to("real/not-yet")
    (root / "out").symlink_to(tmp_path)
    (root / "out-file").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("real/../..")
    (root / "loop").symlink_to("loop")
    (root / "self").symlink_to(".")

    assert files.relative(root, "dir/f") == "real/f"
    assert files.relative(root, "dir/new/deeper") == "real/new/deeper"
    assert files.relative(root, "file") == "real/f"
    assert files.relative(root, "dangling") == "real/not-yet"
    assert files.relative(root, "self/real/f") == "real/f"
    for outside in ("out", "out/x", "out/new/x", "out-file", "up/x"):
        with pytest.raises(PathViolation, match="outside the workspace"):
            files.relative(root, outside)
    with pytest.raises(PathViolation, match="circle"):
        files.relative(root, "loop/x")
    with pytest.raises(PathViolation, match="itself"):
        files.relative(root, "self")
    with pytest.raises(PathViolation, match="real/f, a file"):
        files.relative(root, "real/f/x")


def test_a_workspace_reached_through_a_link_is_the_same_workspace(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "alias").symlink_to("work")
    assert files.relative(tmp_path / "alias", "a") == "a"
    assert files.check_workspace(tmp_path / "alias") == (tmp_path / "work").resolve()


@given(
    st.text(max_size=60) | st.lists(st.sampled_from(["..", ".", "a", "out", "in", "", "/", "\0", "ü"])).map("/".join)
)
@example("out/../../x")
@example("in/../../x")
def test_no_path_whatever_leads_outside(tmp_path_factory: pytest.TempPathFactory, candidate: str) -> None:
    base = tmp_path_factory.getbasetemp() / "paths"
    root = base / "work"
    if not root.exists():
        (root / "a").mkdir(parents=True)
        (root / "out").symlink_to(base)
        (root / "in").symlink_to("a")
    try:
        path = files.relative(root, candidate)
    except PathViolation:
        return
    real = Path(os.path.realpath(root / path))
    assert real.is_relative_to(root.resolve())
    assert real != root.resolve()
    assert files.relative(root, path) == path


def test_a_link_swapped_in_after_the_check_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "work", tmp_path / "outside"
    (root / "dir" / "deep").mkdir(parents=True)
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "f").write_text("secret")
    path = files.relative(root, "dir/deep/f")
    (root / "dir").rename(root / "moved")
    (root / "dir").symlink_to(outside)

    with pytest.raises(PathViolation, match="dir is a symbolic link"):
        find_way(root, path)
    with pytest.raises(NotADirectoryError):
        make_way(root, path)
    with pytest.raises(PathViolation):
        files.read(root, path)
    assert sorted(os.listdir(outside / "deep")) == ["f"]


def test_a_directory_that_is_moved_out_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dir").mkdir()
    openat2 = files._openat2

    def moved(start: int, path: str, flags: int, resolve: int) -> int:
        if path == "dir":
            raise OSError(errno.EXDEV, "Invalid cross-device link", path)
        return openat2(start, path, flags, resolve)

    monkeypatch.setattr(files, "has_openat2", lambda: True)
    monkeypatch.setattr(files, "_openat2", moved)
    with pytest.raises(PathViolation, match="dir is a symbolic link"):
        find_way(tmp_path, "dir/f")


def test_the_last_name_is_not_followed_either(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "f").symlink_to(tmp_path / "secret")
    with pytest.raises(PathViolation, match="f is a symbolic link"):
        files.read(root, "f")


def test_directories_are_made_with_their_parents_mode_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    before = os.umask(0o077)
    try:
        make_way(tmp_path, "a/b/c.txt")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o775, 0o775]
    assert not (tmp_path / "a/b/c.txt").exists()


def test_a_missing_directory_is_told_apart_from_a_refused_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_way(tmp_path, "a/b")
    (tmp_path / "f").touch()
    with pytest.raises(PathViolation, match="not a directory"):
        find_way(tmp_path, "f/x")
    with pytest.raises(FileError, match="cannot be opened"):
        find_way(tmp_path / "gone", "x")


def test_nothing_leaks_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    for candidate in ("f", "a/b", "f/x"):
        try:
            files.read(tmp_path, candidate)
        except PathViolation:
            pass
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before


def test_only_regular_files_of_bearable_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dir").mkdir()
    (tmp_path / "f").write_bytes(b"12345")
    for name in ("pipe", "dir"):
        with pytest.raises(FileError, match="not a regular file"):
            files.read(tmp_path, name)
    with pytest.raises(FileError, match="larger than 4 bytes"):
        files.read(tmp_path, "f", limit=4)
    assert files.read(tmp_path, "f", limit=5) == files.FileBytes(b"12345", (tmp_path / "f").stat().st_mode & 0o777)


def test_a_socket_and_what_may_not_be_read_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # socket names must be short
        listening.bind("s")
        with pytest.raises(FileError, match="s is not a regular file"):
            files.read(tmp_path, "s")
    (tmp_path / "d").mkdir()
    monkeypatch.setattr(files, "has_openat2", lambda: False)
    real_open = os.open

    def refuse(path: str, *args: Any, **kwargs: Any) -> int:
        if path in ("f", "d"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FileError, match="f cannot be read: Permission denied"):
        files.read(tmp_path, "f")
    with pytest.raises(FileError, match="the directory d cannot be opened: Permission denied"):
        files.read(tmp_path, "d/f")


def test_a_directory_that_another_makes_first_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_mkdir = os.mkdir

    def late(*args: Any, **kwargs: Any) -> None:
        real_mkdir(*args, **kwargs)
        real_mkdir(*args, **kwargs)

    monkeypatch.setattr(os, "mkdir", late)
    make_way(tmp_path, "a/b")
    assert (tmp_path / "a").is_dir()


def test_a_fingerprint_tells_kind_and_content(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    os.mkfifo(tmp_path / "pipe")
    with opened_root(tmp_path) as top:
        assert fingerprint(top, "f") == f"file:{digest(b'abc')}"
        assert fingerprint(top, "link") == f"link:{digest(b'f')}"
        assert fingerprint(top, "pipe") == "other"
        assert fingerprint(top, "none/such") == "nothing"
        with pytest.raises(NotADirectoryError):
            fingerprint(top, "link/x")
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_what_is_far_more_than_a_workspace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "users" / "me"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for refused in ("/", home, home.parent, home / "project" / "..", "~"):
        with pytest.raises(WorkspaceRefused):
            files.check_workspace(refused)
    assert files.check_workspace("~/project") == (home / "project").resolve()
    (tmp_path / "f").touch()
    with pytest.raises(WorkspaceRefused, match="not a directory"):
        files.check_workspace(tmp_path / "f")
    with pytest.raises(WorkspaceRefused, match="does not exist"):
        files.check_workspace(tmp_path / "none")
