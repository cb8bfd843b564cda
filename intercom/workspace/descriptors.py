"""Opening files beneath a workspace, from a descriptor of its directory and without following symbolic links.

Every read and write of workspace files goes through here. If the kernel has openat2, it resolves the path itself and
refuses links, magic links and escapes. Otherwise each name is opened from the directory before it, with O_NOFOLLOW.
Either way a link that was swapped in after the check of a path is refused.

`opened_directory` and `open_regular` raise OSErrors, for callers that walk a workspace. `open_root` and `opened_parent`
raise IntercomErrors, for callers with a path from a client.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from intercom.model.errors import FileError, PathViolation

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: For directories that are only traversed: they need not be readable.
_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Non-blocking: opening a pipe in the workspace must not hang.
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: From linux/openat2.h. The system call has the same number on every architecture that Python supports.
_OPENAT2 = 437
_AT_FDCWD = -100
_NO_LINKS = 0x04 | 0x02  # RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS
_BENEATH = 0x08 | _NO_LINKS  # RESOLVE_BENEATH
#: openat2 fails if a rename interferes with it; after this many tries, walk the path name by name.
_TRIES = 100


class WorkspaceGone(FileError):
    """The workspace directory is missing, or replaced by a link, a file or another directory."""


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def has_openat2() -> bool:
    """Whether this kernel has openat2 and permits it. Sandboxes may block system calls that they do not know."""
    if sys.platform != "linux":
        return False
    try:
        os.close(_openat2(_AT_FDCWD, ".", _PASSED, _NO_LINKS))
    except OSError:
        return False
    return True


def open_root(root: Path, inode: int | None = None) -> int:
    """Return a descriptor of the workspace directory, whose path is canonical. The caller closes it.

    Raises WorkspaceGone if the path is missing, is a file or leads through a link. Raises it too if the directory's
    inode number is not `inode`, if given. Raises FileError on other system errors.
    """
    try:
        fd = _open(None, [name for name in os.fspath(root).split("/") if name])
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise WorkspaceGone(f"the workspace {root} can not be opened: {error.strerror}") from None
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise WorkspaceGone(
                f"the workspace {root} is no directory, or is reached through a symbolic link"
            ) from None
        raise FileError(f"the workspace {root} can not be opened: {error.strerror}") from None
    if inode is not None and os.fstat(fd).st_ino != inode:
        os.close(fd)
        raise WorkspaceGone(f"the workspace {root} is another directory than it was; put it back, or propose again")
    return fd


@contextmanager
def opened_root(root: Path, inode: int | None = None) -> Iterator[int]:
    """Do as `open_root`, and close the descriptor at the end."""
    fd = open_root(root, inode)
    try:
        yield fd
    finally:
        os.close(fd)


def root_inode(root: Path) -> int:
    """Return the inode number that identifies the workspace directory. Raises as `open_root`."""
    with opened_root(root) as fd:
        return os.fstat(fd).st_ino


@contextmanager
def opened_directory(top: int, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the directory at `names` below the open directory `top`, and close it at the end.

    With `create`, missing directories are created with their parent's mode, and are on disk on return. Raises
    FileNotFoundError if a directory is missing, NotADirectoryError if a name is a file or a link, and other OSErrors.
    """
    try:
        fd = _open_or_make(top, names, create)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link", "/".join(names)) from None
        raise
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_parent(top: int, rel: str, *, create: bool = False) -> Iterator[int]:
    """Open the directory that contains `rel`, a canonical path below `top`, and close it at the end.

    `create` is as in `opened_directory`. Raises PathViolation if a directory on the way is a link or a file,
    FileNotFoundError if one is missing, and FileError on other system errors.
    """
    names = rel.split("/")[:-1]
    try:
        fd = _open_or_make(top, names, create)
    except FileNotFoundError:
        raise
    except OSError as error:
        place = _first_blocked(top, names)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathViolation(f"{place} is a symbolic link or no directory; it was one when it was checked") from None
        raise FileError(f"the directory {place} can not be opened: {error.strerror}") from None
    try:
        yield fd
    finally:
        os.close(fd)


class NotRegular(OSError):
    """A name is not a regular file but a pipe, a socket, a device or a directory."""


def open_regular(parent: int, name: str) -> int:
    """Return a descriptor for reading of the regular file `name` in the directory `parent`. The caller closes it.
    Never blocks or follows a link. Raises NotRegular for other kinds of files, and OSErrors (ELOOP for a link)."""
    try:
        fd = os.open(name, _REGULAR, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotRegular(errno.EINVAL, "is not a regular file", name) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(errno.EINVAL, "is not a regular file", name)
    return fd


def _open_or_make(top: int, names: Sequence[str], create: bool) -> int:
    try:
        return _open(top, names)
    except FileNotFoundError:
        if not create:
            raise
    fd = os.dup(top)
    try:
        for name in names:
            deeper = _made(fd, name)
            os.close(fd)
            fd = deeper
    except BaseException:
        os.close(fd)
        raise
    return fd


def _made(parent: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        mode = os.fstat(parent).st_mode & 0o777
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    made = os.open(name, _DIRECTORY, dir_fd=parent)
    # The server's umask is strict; directories in a workspace take the mode of their parent.
    os.fchmod(made, mode)
    os.fsync(parent)
    return made


def _open(top: int | None, names: Sequence[str]) -> int:
    """Open the directory below `top`, or below the system's root if that is None."""
    if not names:
        return os.open("/", _DIRECTORY) if top is None else os.dup(top)
    if has_openat2():
        start, path = (_AT_FDCWD, "/") if top is None else (top, "")
        try:
            return _openat2(start, path + "/".join(names), _DIRECTORY, _NO_LINKS if top is None else _BENEATH)
        except OSError as error:
            # The path is too long for one call, or renames interfere: open one name at a time.
            if error.errno not in (errno.ENAMETOOLONG, errno.EAGAIN):
                raise
    return _walk(top, names)


def _walk(top: int | None, names: Sequence[str]) -> int:
    fd = os.open("/", _PASSED) if top is None else os.dup(top)
    try:
        for i, name in enumerate(names):
            deeper = os.open(name, _DIRECTORY if i == len(names) - 1 else _PASSED, dir_fd=fd)
            os.close(fd)
            fd = deeper
    except BaseException:
        os.close(fd)
        raise
    return fd


def _openat2(start: int, path: str, flags: int, resolve: int) -> int:
    """Make the system call, which neither Python nor the C library wraps. Raises OSError, as `os.open` does."""
    sys.audit("open", path, None, flags)
    how = _How(flags, 0, resolve)
    for _ in range(_TRIES):
        fd: int = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(start),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _first_blocked(top: int, names: Sequence[str]) -> str:
    """Return the path of the first directory that cannot be entered, which openat2 does not report."""
    fd = os.dup(top)
    try:
        for i, name in enumerate(names):
            try:
                deeper = os.open(name, _DIRECTORY, dir_fd=fd)
            except OSError:
                return "/".join(names[: i + 1])
            os.close(fd)
            fd = deeper
    finally:
        os.close(fd)
    return "/".join(names)
