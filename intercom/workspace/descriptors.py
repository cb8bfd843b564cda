"""Opening what lies beneath a workspace: from a descriptor of the workspace directory, and through no symbolic link.

Every read and write of a workspace's files goes through here. Where the kernel has openat2 it resolves the path itself,
and refuses links, magic links and every way out. Elsewhere each name is opened from the directory before it, with
O_NOFOLLOW. Either way a link that was swapped in after a path was checked is met as a link.

`opened_directory` and `open_regular` raise OSErrors, for callers that take a workspace as they find it; `open_root` and
`opened_parent` raise IntercomErrors, for callers that were given a path.
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
#: For directories that are only passed through: they need not be readable.
_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Not blocking: opening a pipe that somebody left there must not hang.
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: linux/openat2.h. The number of the system call is the same on every architecture that Python is built for.
_OPENAT2 = 437
_AT_FDCWD = -100
_NO_LINKS = 0x04 | 0x02  # RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS
_BENEATH = 0x08 | _NO_LINKS  # RESOLVE_BENEATH
#: The kernel gives up where something was renamed while it resolved; after so many times we walk instead.
_TRIES = 100


class WorkspaceGone(FileError):
    """The workspace directory is not there any more: removed, or swapped for a link, a file or another directory."""


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def has_openat2() -> bool:
    """Whether this kernel has openat2, and lets us call it: sandboxes may refuse what they do not know."""
    if sys.platform != "linux":
        return False
    try:
        os.close(_openat2(_AT_FDCWD, ".", _PASSED, _NO_LINKS))
    except OSError:
        return False
    return True


def open_root(root: Path, inode: int | None = None) -> int:
    """A descriptor of the workspace directory itself, whose path is canonical; the caller closes it.

    Raises WorkspaceGone where nothing, a link or a file stands in its place or on the way to it, or (with `inode`)
    another directory than the one with this inode number; FileError where the system refuses.
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
    """As `open_root`, closed at the end."""
    fd = open_root(root, inode)
    try:
        yield fd
    finally:
        os.close(fd)


def root_inode(root: Path) -> int:
    """The inode number of the workspace directory, by which it is known again. Errors as `open_root`."""
    with opened_root(root) as fd:
        return os.fstat(fd).st_ino


@contextmanager
def opened_directory(top: int, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory below the open directory `top`, closed at the end. Names are as the disk has them.

    With `create`, what is missing is made with its parent's mode, and is on disk when this returns. Raises
    FileNotFoundError where a directory is missing, NotADirectoryError where a name is a file or a link, and other
    OSErrors as the system gives them.
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
    """A descriptor of the directory that holds `rel`, a canonical path below the open directory `top`; closed at the
    end.

    `create` as in `opened_directory`. Raises PathViolation where a directory on the way is a link or a file,
    FileNotFoundError where one is missing and `create` is false, FileError where the system refuses.
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
    """A name is no regular file: a pipe, a socket, a device or a directory."""


def open_regular(parent: int, name: str) -> int:
    """A descriptor, for reading, of the regular file `name` in the open directory `parent`; the caller closes it.

    Never waits, and follows no link. Raises NotRegular for anything else than a file or a link, OSError with ELOOP for
    a link, and other OSErrors as the system gives them.
    """
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
    # The server's own umask is tight; what it makes in a workspace follows the workspace.
    os.fchmod(made, mode)
    os.fsync(parent)
    return made


def _open(top: int | None, names: Sequence[str]) -> int:
    """The directory below `top`; below the system's root where that is None."""
    if not names:
        return os.open("/", _DIRECTORY) if top is None else os.dup(top)
    if has_openat2():
        start, path = (_AT_FDCWD, "/") if top is None else (top, "")
        try:
            return _openat2(start, path + "/".join(names), _DIRECTORY, _NO_LINKS if top is None else _BENEATH)
        except OSError as error:
            # Too long for one call, or renamed around us: the walk takes one name at a time.
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
    """The system call, which neither Python nor the C library has by name. Raises OSError, as `os.open` does."""
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
    """The path of the first directory on the way that can not be entered: openat2 does not say which."""
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
