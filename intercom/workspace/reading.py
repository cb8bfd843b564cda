"""Reading a whole file of the workspace: limited in size, without following links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from attrs import frozen

from intercom.model.errors import FileError, PathViolation
from intercom.workspace.descriptors import NotRegular, open_regular, opened_parent, opened_root

#: The largest file that a proposal may change, in bytes: patching holds it in memory twice.
MAX_FILE_BYTES = 64 * 1024 * 1024


@frozen
class FileBytes:
    """A file's content and its permission bits."""

    data: bytes
    mode: int


def read(root: Path, rel: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """Return the regular file `rel` of the workspace `root`, or None if it does not exist. Raises PathViolation if a
    link is on the way, FileError if the file is not regular, is larger than `limit` bytes, or cannot be read."""
    with opened_root(root) as top:
        return read_beneath(top, rel, limit)


def read_beneath(top: int, rel: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """Do as `read`, for a workspace directory that is open as `top`."""
    try:
        with opened_parent(top, rel) as parent:
            return read_at(parent, rel.rsplit("/", 1)[-1], rel, limit)
    except FileNotFoundError:
        return None


def read_at(parent: int, name: str, rel: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """Do as `read`, for a name in an open directory. `rel` is its path in messages."""
    try:
        fd = open_regular(parent, name)
    except FileNotFoundError:
        return None
    except NotRegular:
        raise FileError(f"{rel} is not a regular file") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathViolation(f"{rel} is a symbolic link; it was a file when it was checked") from None
        raise FileError(f"{rel} can not be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        mode = stat.S_IMODE(os.fstat(fd).st_mode) & 0o777
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileError(f"{rel} is larger than {limit} bytes, the most that can be handled")
    return FileBytes(data, mode)
