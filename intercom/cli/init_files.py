"""Files of somebody else's that `init` changes: a client's files together, all of them or none, with backups.

What is to be written is worked out first, from reading alone. `commit` then writes it, and restores everything when one
step fails. Nothing is printed meanwhile: a reader that closes the pipe cannot stop it half-way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen


@frozen
class Change:
    """What is to become of one file, by its real path. `before` and `after` are its text, None where there is no file.
    A file that is there keeps its mode, and its old text stays as `backup` if that is given; `mode` is for a new one.
    """

    file: Path
    before: str | None
    after: str | None
    mode: int = 0o600
    backup: Path | None = None

    @property
    def changes(self) -> bool:
        return self.before != self.after


def read(file: Path) -> str | None:
    """The file's text; None where there is none. Raises OSError and UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8") if file.exists() else None


def glance(file: Path) -> str:
    """The file's text as far as it can be read; empty where it can not."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def backup_name(file: Path) -> Path:
    """Where a file's old text is kept: beside it, under a name that says when."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return file.with_name(f"{file.name}.{stamp}.bak")


def missing_directories(file: Path) -> tuple[Path, ...]:
    """The directories above a file that are not there yet, outermost first."""
    return tuple(reversed([each for each in file.parents if not each.exists()]))


def commit(changes: Sequence[Change]) -> None:
    """Carry out all of these changes or none. Raises OSError when one fails; then every file is as it was."""
    wanted = [each for each in changes if each.changes]
    for each in wanted:
        if read(each.file) != each.before:
            raise OSError(f"{each.file} has changed in the meantime; run init again")
    made: list[Path] = []
    staged: list[tuple[Change, Path | None]] = []
    backups: dict[Path, Path] = {}
    try:
        for each in wanted:
            for directory in missing_directories(each.file):
                directory.mkdir(mode=0o700)
                made.append(directory)
            if not each.file.parent.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(each.file.parent))
            mode = each.mode if each.before is None else each.file.stat().st_mode & 0o777
            staged.append((each, None if each.after is None else _stage(each.file, each.after, mode)))
        for each in wanted:
            if each.before is not None:
                backups[each.file] = each.backup or backup_name(each.file)
                shutil.copy2(each.file, backups[each.file])
        _replace(staged, backups)
    except BaseException:
        for _, temporary in staged:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
        for backup in backups.values():
            backup.unlink(missing_ok=True)
        for directory in reversed(made):
            with contextlib.suppress(OSError):
                directory.rmdir()
        raise
    for each in wanted:
        if each.backup is None and each.file in backups:
            backups[each.file].unlink(missing_ok=True)


def _replace(staged: Sequence[tuple[Change, Path | None]], backups: dict[Path, Path]) -> None:
    done: list[Change] = []
    try:
        for each, temporary in staged:
            # Noted first: an interrupt may come between the act and the note of it.
            done.append(each)
            if temporary is None:
                os.unlink(each.file)
            else:
                os.replace(temporary, each.file)
    except BaseException:
        for each in reversed(done):
            # A rename needs no room on a disk that is full.
            if each.before is None:
                each.file.unlink(missing_ok=True)
            else:
                os.rename(backups[each.file], each.file)
        raise


def _stage(target: Path, text: str, mode: int) -> Path:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return Path(temporary)


def said(error: Exception) -> str:
    """What was wrong, for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}: {error.filename}"
    return str(error)


def indented(text: str) -> str:
    """Text to be shown among other lines."""
    return "".join(f"  {line}\n" for line in text.splitlines())
