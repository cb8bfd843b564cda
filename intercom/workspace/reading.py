"""Reading a file of the workspace through the walk that follows no link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from attrs import frozen

from intercom.model.errors import FileError, PathViolation
from intercom.workspace.paths import open_parent

#: The largest file a proposal may change, in bytes: it is held in memory twice while it is patched.
MAX_FILE_BYTES = 64 * 1024 * 1024


@frozen
class FileBytes:
    """A file's content, and its permission bits."""

    data: bytes
    mode: int


def read(root: Path, rel: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """The regular file `rel`, or None where nothing is.

    Raises PathViolation where a link stands in the way, FileError for what is no regular file, is larger than `limit`
    bytes, or can not be read.
    """
    try:
        parent = open_parent(root, rel, create=False)
    except FileNotFoundError:
        return None
    try:
        return read_at(parent, rel.rsplit("/", 1)[-1], rel, limit)
    finally:
        os.close(parent)


def read_at(parent: int, name: str, rel: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """As `read`, for a name in an open directory; `rel` is what messages call it."""
    # Not blocking: opening a pipe that somebody left there must not hang.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathViolation(f"{rel} is a symbolic link; it was a file when it was checked") from None
        if error.errno == errno.ENXIO:
            raise FileError(f"{rel} is not a regular file") from None
        raise FileError(f"{rel} can not be read: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{rel} is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise FileError(f"{rel} is larger than {limit} bytes, the most that can be handled")
    return FileBytes(data, stat.S_IMODE(status.st_mode) & 0o777)
