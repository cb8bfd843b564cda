"""Replaces several files: all of them or none, with the old texts kept where that is asked for.

The files may be other programs'. Each is replaced by a rename, so a reader sees the old text or the new one. Standard
library and attrs only.
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

from attrs import field, frozen


def _length(text: str | None) -> str:
    """Texts of others' files may have secrets, and a `repr` may be logged."""
    return "None" if text is None else f"<{len(text)} characters>"


@frozen
class Change:
    """A change of one file, given by its real path. `before` and `after` are its text, None if there is no file. An
    existing file keeps its mode, and its old text stays as `backup` if that is given. A new file gets `mode`.

    A backup in another directory can be read by its owner only, and so can a directory that is made for it.
    """

    file: Path
    before: str | None = field(repr=_length)
    after: str | None = field(repr=_length)
    mode: int = 0o600
    backup: Path | None = None

    @property
    def changes(self) -> bool:
        return self.before != self.after


def read(file: Path) -> str | None:
    """Return the file's text, or None if there is no file. Raises OSError and UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8") if file.exists() else None


def backup_name(file: Path, directory: Path | None = None) -> Path:
    """Return the path for a file's old text: in `directory` (None for the file's own), with a time stamp in its
    name."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return (directory or file.parent) / f"{file.name}.{stamp}.bak"


def missing_directories(file: Path) -> tuple[Path, ...]:
    """Return the directories above a file that do not exist yet, outermost first."""
    return tuple(reversed([each for each in file.parents if not each.exists()]))


def commit(changes: Sequence[Change]) -> None:
    """Carry out all of these changes or none, in this order. Raises OSError if one fails; then every file is as it was.

    If the process is killed in between, the first files are new and the others old, each of them whole. The old text of
    each replaced file is then in its backup, or beside it.
    """
    wanted = [each for each in changes if each.changes]
    for each in wanted:
        if read(each.file) != each.before:
            raise OSError(f"{each.file} has changed in the meantime; run the command again")
    copies: dict[Path, Path] = {}
    with contextlib.ExitStack() as undo:
        staged = [(each, _stage(each, undo)) for each in wanted]
        for each in wanted:
            if each.before is not None:
                copies[each.file] = _copy(each, undo)
        for each, new in staged:
            # Noted first: an interrupt may come between the change and its note.
            mode = each.mode if each.before is None else each.file.stat().st_mode & 0o777
            undo.callback(_restore, each.file, copies.get(each.file), mode)
            if new is None:
                os.unlink(each.file)
            else:
                os.replace(new, each.file)
        undo.pop_all()
    for each in wanted:
        if each.backup is None and each.file in copies:
            copies[each.file].unlink(missing_ok=True)


def _stage(change: Change, undo: contextlib.ExitStack) -> str | None:
    """Write the new text to a file beside the old one. Returns its path; None if the file is to be deleted."""
    _make_directories(change.file, undo)
    if not change.file.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(change.file.parent))
    if change.after is None:
        return None
    mode = change.mode if change.before is None else change.file.stat().st_mode & 0o777
    return _draft(change.file, change.after.encode("utf-8"), mode, undo)


def _make_directories(file: Path, undo: contextlib.ExitStack) -> None:
    """Make the directories that a file still needs, which only the user can read."""
    for directory in missing_directories(file):
        directory.mkdir(mode=0o700)
        undo.callback(_remove_directory, directory)


def _draft(file: Path, content: bytes, mode: int, undo: contextlib.ExitStack) -> str:
    """Write a file beside `file`, private until it is complete. Returns its path."""
    handle, new = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    undo.callback(Path(new).unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())
    return new


def _copy(change: Change, undo: contextlib.ExitStack) -> Path:
    """Copy the old file to its backup, or beside it. Returns the path of the copy."""
    copy = change.backup or backup_name(change.file)
    _make_directories(copy, undo)
    undo.callback(copy.unlink, missing_ok=True)
    if copy.parent == change.file.parent:
        shutil.copy2(change.file, copy)
    else:
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(change.file.read_bytes())
            stream.flush()
            os.fsync(descriptor)
    return copy


def _remove_directory(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _restore(file: Path, copied: Path | None, mode: int) -> None:
    if copied is None:
        file.unlink(missing_ok=True)
    elif copied.parent == file.parent:
        # A rename works even if the disk is full.
        os.rename(copied, file)
    elif file.exists() and file.read_bytes() == copied.read_bytes():
        pass  # not replaced yet
    else:
        with contextlib.ExitStack() as undo:
            os.replace(_draft(file, copied.read_bytes(), mode, undo), file)
            undo.pop_all()
