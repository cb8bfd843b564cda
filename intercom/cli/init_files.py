"""Changes to other programs' files: all files of a client together or none, with backups.

`init` first works out what to write, and only reads. `commit` then writes, and restores everything if a step fails.
Nothing is printed meanwhile, so a reader that closes the pipe cannot stop it half-way.
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
    """A change of one file, given by its real path. `before` and `after` are its text, None if there is no file. An
    existing file keeps its mode, and its old text stays as `backup` if that is given. A new file gets `mode`."""

    file: Path
    before: str | None
    after: str | None
    mode: int = 0o600
    backup: Path | None = None

    @property
    def changes(self) -> bool:
        return self.before != self.after


def read(file: Path) -> str | None:
    """Return the file's text, or None if there is no file. Raises OSError and UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8") if file.exists() else None


def glance(file: Path) -> str:
    """Return the file's text as far as it can be read; empty if it cannot."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def backup_name(file: Path) -> Path:
    """Return the path for a file's old text: in the same directory, with a time stamp in its name."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return file.with_name(f"{file.name}.{stamp}.bak")


def missing_directories(file: Path) -> tuple[Path, ...]:
    """Return the directories above a file that do not exist yet, outermost first."""
    return tuple(reversed([each for each in file.parents if not each.exists()]))


def commit(changes: Sequence[Change]) -> None:
    """Carry out all of these changes or none. Raises OSError if one fails; then every file is as it was."""
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
            # Recorded first: an interrupt may come between the change and its record.
            done.append(each)
            if temporary is None:
                os.unlink(each.file)
            else:
                os.replace(temporary, each.file)
    except BaseException:
        for each in reversed(done):
            # A rename works even if the disk is full.
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
    """Describe the error for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}: {error.filename}"
    return str(error)


def indented(text: str) -> str:
    """Indent text that is shown among other lines."""
    return "".join(f"  {line}\n" for line in text.splitlines())
