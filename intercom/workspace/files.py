"""Opens, reads and hashes what lies in a workspace, from its directory's descriptor and through no symbolic link.

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
import hashlib
import os
import re
import stat
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from intercom.model.errors import FileError, PathViolation
from intercom.model.request import NEW_FILE

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

_INODE = 2**64 - 1


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


def open_root(root: Path, expected: int | None = None) -> int:
    """Return a descriptor of the workspace directory, whose path is canonical. The caller closes it.

    Raises WorkspaceGone if the path is missing, is a file or leads through a link. Raises it too if the `directory_id`
    is not `expected`, if given. Raises FileError on other system errors.
    """
    try:
        fd = _open(None, [name for name in os.fspath(root).split("/") if name])
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise WorkspaceGone(f"the workspace {root} cannot be opened: {error.strerror}") from None
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise WorkspaceGone(
                f"the workspace {root} is no directory, or is reached through a symbolic link"
            ) from None
        raise FileError(f"the workspace {root} cannot be opened: {error.strerror}") from None
    if expected is not None and not _is_same(directory_id(fd), expected):
        os.close(fd)
        raise WorkspaceGone(f"the workspace {root} is another directory than it was; put it back, or propose again")
    return fd


def directory_id(fd: int) -> int:
    """Return the number that identifies an open directory: its file system's id, then 64 bits with its inode number.

    Inode numbers repeat between file systems. Device numbers can change when the machine starts again, so they only
    stand in for a missing id.
    """
    status = os.fstat(fd)
    return (os.fstatvfs(fd).f_fsid or status.st_dev) << 64 | status.st_ino


def _is_same(found: int, expected: int) -> bool:
    # Older servers recorded the inode number alone.
    return found == expected or found & _INODE == expected


@contextmanager
def opened_root(root: Path, expected: int | None = None) -> Iterator[int]:
    """Do as `open_root`, and close the descriptor at the end."""
    fd = open_root(root, expected)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_directory(top: int, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the directory at `names` below the open directory `top`, and close it at the end.

    With `create`, missing directories are created with their parent's mode, and are on disk on return. Raises
    FileNotFoundError if a directory is missing, NotADirectoryError if a name is a file or a link, and other OSErrors.
    """
    try:
        fd = _open_or_make(top, names) if create else _open(top, names)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link", "/".join(names)) from None
        raise
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_parent(top: int, rel: str) -> Iterator[int]:
    """Open the directory that contains `rel`, a canonical path below `top`, and close it at the end.

    Raises PathViolation if a directory on the way is a link or a file, FileNotFoundError if one is missing, and
    FileError on other system errors.
    """
    names = rel.split("/")[:-1]
    try:
        fd = _open(top, names)
    except FileNotFoundError:
        raise
    except OSError as error:
        place = first_blocked(top, names)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathViolation(f"{place} is a symbolic link or no directory; it was one when it was checked") from None
        raise FileError(f"the directory {place} cannot be opened: {error.strerror}") from None
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


def _open_or_make(top: int, names: Sequence[str]) -> int:
    with suppress(FileNotFoundError):
        return _open(top, names)
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


def first_blocked(top: int, names: Sequence[str]) -> str:
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
        raise FileError(f"{rel} cannot be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        mode = stat.S_IMODE(os.fstat(fd).st_mode) & 0o777
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileError(f"{rel} is larger than {limit} bytes, the most that can be handled")
    return FileBytes(data, mode)


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data`, in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


#: The fingerprint of a missing file.
ABSENT = "nothing"
#: The fingerprints of a directory, and of anything that is not a file, link or directory.
DIRECTORY, OTHER = "directory", "other"

_CHUNK = 1024 * 1024

#: The names of staged files, and of the directories in which older servers staged the files of a restore.
STAGED = re.compile(r"\.intercom-(restore-.+|[A-Za-z0-9_-]{1,64}-\d+\.tmp)")


def names(path: str) -> list[str]:
    """Return the names of a path; none for the workspace itself."""
    return path.split("/") if path else []


def file_fingerprint(hash: str) -> str:
    """Return the fingerprint of a file whose content has this hash; "new_file" means that there is none."""
    return ABSENT if hash == NEW_FILE else f"file:{hash}"


def fingerprint(top: int, path: str) -> str:
    """Return the fingerprint of the file or link at `path`, or DIRECTORY, OTHER or ABSENT. Follows no link. Raises
    NotADirectoryError if a directory above it is a file or a link, and other OSErrors."""
    *above, name = names(path)
    try:
        with opened_directory(top, above) as parent:
            return fingerprint_at(parent, name)
    except FileNotFoundError:
        return ABSENT


def fingerprint_at(parent: int, name: str) -> str:
    """Do as `fingerprint`, for a name in the open directory `parent`."""
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
        return ABSENT
    except NotRegular:
        return OTHER
    sum = hashlib.sha256()
    try:
        while chunk := os.read(fd, _CHUNK):
            sum.update(chunk)
    finally:
        os.close(fd)
    return file_fingerprint(sum.hexdigest())


def missing_directories(top: int, path: str) -> tuple[tuple[str, ...], int]:
    """Return the directories above `path` that do not exist, outermost first, and the mode of the nearest that does. A
    file or link in a directory's place counts as missing. Raises other OSErrors."""
    mode = os.fstat(top).st_mode & 0o777
    above = names(path)[:-1]
    for depth in range(1, len(above) + 1):
        try:
            with opened_directory(top, above[:depth]) as fd:
                mode = os.fstat(fd).st_mode & 0o777
        except (FileNotFoundError, NotADirectoryError):
            return tuple("/".join(above[:end]) for end in range(depth, len(above) + 1)), mode
    return (), mode


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
