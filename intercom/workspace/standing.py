"""The present state of a path in a workspace, examined without following links."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection

from intercom.workspace.descriptors import NotRegular, open_regular, opened_directory
from intercom.workspace.put_back_plan import NOTHING

#: The signs of a directory, and of anything that is not a file, link or directory.
DIRECTORY, OTHER = "directory", "other"

_CHUNK = 1024 * 1024


def names(path: str) -> list[str]:
    """Return the names of a path; none for the workspace itself."""
    return path.split("/") if path else []


def sign(top: int, path: str) -> str:
    """Return the sign of the file or link at a path, or DIRECTORY, OTHER or NOTHING. Follows no link."""
    *above, name = names(path)
    try:
        with opened_directory(top, above) as parent:
            return sign_at(parent, name)
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING


def sign_at(parent: int, name: str) -> str:
    """Do as `sign`, for a name in the open directory `parent`."""
    try:
        kind = os.lstat(name, dir_fd=parent).st_mode
        if stat.S_ISLNK(kind):
            target = os.readlink(name, dir_fd=parent)
            return f"link:{hashlib.sha256(target.encode('utf-8', 'surrogateescape')).hexdigest()}"
        if stat.S_ISDIR(kind):
            return DIRECTORY
        if not stat.S_ISREG(kind):
            return OTHER
        fd = open_regular(parent, name)
    except FileNotFoundError:
        return NOTHING
    except NotRegular:
        return OTHER
    sum = hashlib.sha256()
    try:
        while chunk := os.read(fd, _CHUNK):
            sum.update(chunk)
    finally:
        os.close(fd)
    return f"file:{sum.hexdigest()}"


def will_be_empty(top: int, path: str, going: Collection[str]) -> bool:
    """Whether a directory contains no file after the files `going` are removed."""
    ahead = [path]
    while ahead:
        directory = ahead.pop()
        with opened_directory(top, names(directory)) as fd, os.scandir(fd) as entries:
            for entry in entries:
                below = f"{directory}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(below)
                elif below not in going:
                    return False
    return True


def is_taken(top: int, path: str, going: Collection[str]) -> bool:
    """Whether a path is a directory that still contains a file after the files `going` are removed."""
    *above, name = names(path)
    try:
        with opened_directory(top, above) as parent:
            if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
                return False
        return not will_be_empty(top, path, going)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # A directory that cannot be read cannot be removed either.
        return True
