"""Going down into a workspace by names, one directory at a time and through no link.

Unlike `paths`, which judges what a client may name, this takes names as the disk has them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def descend(root: int, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory below the open directory `root`, closed at the end.

    With `create`, what is missing is made with its parent's mode. Raises FileNotFoundError where a directory is
    missing, NotADirectoryError where a name is a file or a link, and other OSErrors as the system gives them.
    """
    fd = os.dup(root)
    try:
        for name in names:
            try:
                deeper = os.open(name, _DIRECTORY, dir_fd=fd)
            except FileNotFoundError:
                if not create:
                    raise
                deeper = _make(fd, name)
            except OSError as error:
                # A link is told apart from a file only on some systems.
                if stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode):
                    raise NotADirectoryError(error.errno, "is a symbolic link", name) from None
                raise
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)


def _make(parent: int, name: str) -> int:
    mode = os.fstat(parent).st_mode & 0o777
    os.mkdir(name, mode, dir_fd=parent)
    made = os.open(name, _DIRECTORY, dir_fd=parent)
    # The server's own umask is tight; what it makes in a workspace follows the workspace.
    os.fchmod(made, mode)
    os.fsync(parent)
    return made
