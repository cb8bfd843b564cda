"""What a snapshot takes in, and what it leaves out and says so."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from intercom.model.checkpoint import FileState, Manifest, manifest_of
from intercom.model.errors import FileError
from intercom.workspace import files, gitignore
from intercom.workspace import manifest as module
from intercom.workspace.manifest import DEEPEST, Limits, take_manifest


class Kept(dict[str, bytes]):
    def put(self, hash: str, data: bytes) -> bool:
        self[hash] = data
        return True


def told(made: Manifest) -> dict[str, int]:
    return {each.why: each.count for each in made.left_out}


def test_regular_files_with_their_modes_and_links_as_links(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "a/b/run.sh").chmod(0o750)
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "empty").mkdir()
    for kept_out in (".git/config", ".intercom/settings.json", "a/.git/HEAD", ".monocoque/x", ".intercom-restore-1/0"):
        (tmp_path / kept_out).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / kept_out).write_text("x")
    (tmp_path / ".intercom-request1-0.tmp").write_text("x")
    (tmp_path / "a/.git").rename(tmp_path / "a/kept")
    (tmp_path / "a/.git").write_text("gitdir: elsewhere\n")
    kept = Kept()
    made = take_manifest(tmp_path, store=kept)
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert made.files["a/b/run.sh"] == FileState(digest, 0o750)
    assert made.files["out"] == FileState(hashlib.sha256(b"/etc").hexdigest(), 0, "/etc")
    assert set(made.files) == {"a/b/run.sh", "out", "a/kept/HEAD"}
    assert kept[digest] == b"#!/bin/sh\n"
    assert made.whole
    assert not made.left_out
    assert manifest_of(made.hashes(), made.facts()) == made


def test_what_is_no_file_is_told_and_opens_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("sock")
    finally:
        os.chdir(here)
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("x")
    found = take_manifest(tmp_path)
    assert not found.files
    assert told(found) == {"files that are not regular (pipes, sockets or devices)": 2, "names that are not UTF-8": 1}
    assert not found.whole


@pytest.mark.parametrize(
    ("limits", "words", "count"),
    [
        (Limits(max_files=3), "limit of 3 files", 3),
        (Limits(max_bytes=45), "limit of 45 bytes", 4),
        (Limits(max_seconds=15), "limit of 15 seconds", 2),
    ],
)
def test_a_limit_ends_the_look_and_is_told(tmp_path: Path, limits: Limits, words: str, count: int) -> None:
    for number in range(9):
        (tmp_path / f"{number}").write_text("0123456789")
    ticks = iter(range(100))
    made = take_manifest(tmp_path, limits, now=lambda: float(next(ticks)))
    assert len(made.files) == count
    assert not made.whole
    assert any(words in why for why in told(made))
    assert made.size == 10 * count
    # What was asked about and not reached is not taken for gone.
    ticks = iter(range(100))
    again = take_manifest(tmp_path, limits, also={"8", "0"}, now=lambda: float(next(ticks)))
    assert again.unclear == {"8"}


@pytest.mark.parametrize("names", [[f"{n}.o" for n in range(20)], [f"{n}/" for n in range(20)]])
def test_the_time_is_up_also_where_there_is_no_file_that_counts(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / ".gitignore").write_text("*.o\n.gitignore\n")
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("x")
    ticks = iter(range(1000))
    made = take_manifest(tmp_path, Limits(max_seconds=15), now=lambda: float(next(ticks)))
    assert next(ticks) == 17
    assert not made.whole
    assert told(made) == {"the limit of 15 seconds was reached": 1}


def test_no_more_rules_are_read_than_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = [], gitignore._rule
    monkeypatch.setattr(gitignore, "_rule", lambda line: made.append(line) or original(line))
    found = gitignore.read_rules(b"".join(b"%d*\n" % n for n in range(gitignore.MAX_RULES + 500)))
    assert len(found.rules) == len(made) == gitignore.MAX_RULES


def test_a_file_that_changes_while_it_is_read_is_read_again_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("one\n")
    (tmp_path / "steady").write_text("s\n")
    original, writes = module._parts, [1]

    def read(fd: int, most: int) -> Iterator[bytes]:
        data = b"".join(original(fd, most))
        if data != b"s\n" and writes[0]:
            writes[0] -= 1
            with (tmp_path / "log").open("a") as file:
                file.write("more\n")
        yield data

    monkeypatch.setattr(module, "_parts", read)
    kept = Kept()
    made = take_manifest(tmp_path, store=kept)
    assert kept[made.files["log"].hash] == b"one\nmore\n"
    writes[0] = 99
    made = take_manifest(tmp_path, store=Kept(), also={"log"})
    assert set(made.files) == {"steady"}
    assert told(made) == {"files that kept changing while they were read": 1}
    assert made.skipped == ("log",)
    assert made.unclear == {"log"}


def test_what_can_not_be_read_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/inner").write_text("x")
    monkeypatch.setattr(files, "has_openat2", lambda: False)
    original = os.open

    def refuse(path: object, *args: object, **more: object) -> int:
        if path in ("secret", "closed"):
            raise PermissionError(13, "Permission denied", path)
        return original(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    made = take_manifest(tmp_path, also={"closed/inner"})
    assert told(made) == {
        "files that cannot be read (permission denied)": 2,
        "directories that cannot be read (permission denied)": 1,
    }
    assert made.unclear == {"closed/inner"}
    assert set(made.skipped) == {"secret", "closed", "closed/inner"}
    assert made.whole


def test_too_deep_is_told_and_no_descriptor_is_left_open(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEEPEST + 2):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    before = len(os.listdir("/dev/fd"))
    made = take_manifest(tmp_path)
    assert told(made) == {f"directories more than {DEEPEST} deep": 1}
    assert len(os.listdir("/dev/fd")) == before


def test_large_files_are_hashed_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    (tmp_path / "large").chmod(0o644)
    (tmp_path / "small").write_bytes(b"y" * 1000)
    made = take_manifest(tmp_path, Limits(max_file_bytes=1000), Kept())
    assert made.files["large"] == FileState(hashlib.sha256(b"x" * 3_000_000).hexdigest(), 0o644, None, kept=False)
    assert made.files["small"].kept
    assert told(made) == {"contents too large to be kept": 1}
    assert manifest_of(made.hashes(), made.facts()) == made


def test_a_row_without_facts_is_compared_by_its_hashes_and_held_for_incomplete() -> None:
    made = manifest_of({"a": "aa"}, {})
    assert not made.whole
    assert not made.files["a"].kept
    assert evolve(made, whole=True).files == made.files


def test_a_workspace_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be opened"):
        take_manifest(tmp_path / "nothing")
