"""The files of a workspace: what a path means, and how it is opened and read, through no symbolic link.

A path is resolved once, when a request arrives, into the canonical path that people see and the policy evaluates. From
then on it is opened from the descriptor of the workspace's directory. If the kernel has openat2, it resolves the path
itself and refuses links, magic links and escapes. Otherwise each name is opened from the directory before it, with
O_NOFOLLOW. Either way a link that was swapped in after the check of a path is refused.

`opened_directory` and `open_regular` raise OSErrors, for callers that walk a workspace. `opened_root` and
`opened_parent` raise IntercomErrors, for callers with a path from a client.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import functools
import hashlib
import os
import pwd
import re
import stat
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attrs import frozen

from intercom.model.errors import FileError, PathViolation, WorkspaceRefused
from intercom.model.request import NEW_FILE

# --- what a path means -----------------------------------------------------------------------------------------------

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255

#: Characters besides control characters that make a path look different from what it is: line and paragraph separators,
#: and marks that change the writing direction.
_MISLEADING = frozenset("\u2028\u2029\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DRIVE = re.compile(r"[A-Za-z]:(/|$)")


def lexical(candidate: str) -> str:
    """Normalise `candidate` without reading the disk: relative, `/` between names, no `.` or `..`.

    Raises PathViolation if it is empty, absolute, too long, leads above its start, or contains a forbidden character:
    NUL and other control characters, backslashes, marks that change the writing direction.
    """
    if not candidate:
        raise PathViolation("the path is empty; name a file relative to the workspace")
    shown = _shown(candidate)
    for char in candidate:
        if char == "\\":
            raise PathViolation(f"the path {shown} contains a backslash; write / between directories")
        if char in _MISLEADING or unicodedata.category(char) in ("Cc", "Cs"):
            raise PathViolation(f"the path {shown} contains a character that is not allowed, U+{ord(char):04X}")
    if candidate.startswith("/") or _DRIVE.match(candidate):
        raise PathViolation(f"the path {shown} is absolute; name it relative to the workspace")
    kept: list[str] = []
    for name in candidate.split("/"):
        if name == "..":
            if not kept:
                raise PathViolation(f"the path {shown} leads outside the workspace")
            kept.pop()
        elif name not in ("", "."):
            if len(name.encode()) > MAX_NAME_BYTES:
                raise PathViolation(f"a name in the path {shown} is longer than {MAX_NAME_BYTES} bytes")
            kept.append(name)
    if not kept:
        raise PathViolation(f"the path {shown} names the workspace itself, not a file in it")
    path = "/".join(kept)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise PathViolation(f"the path {shown} is longer than {MAX_PATH_BYTES} bytes")
    return path


def resolved(path: str | os.PathLike[str]) -> str:
    """Return the path with every link followed. Raises PathViolation if a link changes meanwhile."""
    try:
        return os.path.realpath(path)
    except OSError:
        # A link was removed after it was found.
        raise PathViolation(f"the path {_shown(os.fspath(path))} changed while it was looked at; try again") from None


def located(root: str | os.PathLike[str], *parts: str) -> str | None:
    """Return where a path leads to in the workspace `root`, with every link followed: "." for the workspace itself,
    None for a place outside. Raises PathViolation if a link changes meanwhile."""
    top = resolved(root)
    real = resolved(os.path.join(top, *parts))
    return os.path.relpath(real, top) if os.path.commonpath([top, real]) == top else None


def relative(root: Path, candidate: str) -> str:
    """Return the canonical path of `candidate` in the workspace `root`: relative, `/` between names, links resolved.

    Links inside the workspace are followed, including the last one: the result is the file that would be written. The
    file need not exist; existing ancestors are resolved. Raises PathViolation as `lexical`, and if a link leads outside
    or in a circle, or a file is in the place of a directory.
    """
    path = located(root, lexical(candidate))
    shown = _shown(candidate)
    if path is None:
        raise PathViolation(f"the path {shown} leads outside the workspace through a symbolic link")
    if path == ".":
        raise PathViolation(f"the path {shown} names the workspace itself, not a file in it")
    top = resolved(root)
    for each in (*reversed([*directories_above(path)]), path):
        step = os.path.join(top, each)
        if os.path.islink(step):
            raise PathViolation(f"the path {shown} is a circle of symbolic links")
        if each != path and os.path.lexists(step) and not os.path.isdir(step):
            raise PathViolation(f"the path {shown} passes through {each}, a file")
    return lexical(path)


def is_link(root: Path, candidate: str) -> bool:
    """Whether the last name of `candidate`, as spelled, is a symbolic link."""
    return os.path.islink(os.path.join(resolved(root), lexical(candidate)))


def _shown(path: str) -> str:
    """Return a path for use in a sentence: quoted, escaped and cut."""
    return ascii(path if len(path) <= 120 else path[:117] + "...")


def names(path: str) -> list[str]:
    """Return the names of a path; none for the workspace itself."""
    return path.split("/") if path else []


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def directory_of(path: str) -> str:
    """Return the path of the directory that contains `path`; empty for the workspace itself."""
    return path.rpartition("/")[0]


def directories_above(path: str) -> Iterator[str]:
    """Yield every directory above a path, innermost first, without the workspace itself."""
    while path := directory_of(path):
        yield path


# --- the workspace ---------------------------------------------------------------------------------------------------

_VERSION_CONTROL = (".git", ".hg", ".svn", ".jj")


def check_workspace(path: Path | str) -> Path:
    """Return the canonical path of a directory that may be a workspace.

    Raises WorkspaceRefused if it is not a directory, cannot be entered, or is too wide: the root of the file system,
    the home directory or a directory above it.
    """
    try:
        real = Path(path).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        shown = _shown(str(path))
        raise WorkspaceRefused(f"the workspace {shown} does not exist; name a directory that does") from None
    if not real.is_dir():
        raise WorkspaceRefused(f"the workspace {real} is not a directory")
    homes = {os.path.expanduser("~")}
    with suppress(KeyError):
        homes.add(pwd.getpwuid(os.getuid()).pw_dir)
    if any(Path(os.path.realpath(home)).is_relative_to(real) for home in homes):
        if real == Path(real.anchor):
            raise WorkspaceRefused("the root directory cannot be a workspace; name the project's own directory")
        raise WorkspaceRefused(
            f"{real} cannot be a workspace: it is or contains the home directory; name the project's own directory"
        )
    if not os.access(real, os.R_OK | os.X_OK):
        raise WorkspaceRefused(f"the workspace {real} cannot be read; check its permissions")
    return real


def version_control_root(here: Path) -> Path | None:
    """Return the nearest directory at or above `here` under version control, or None."""
    found = (each for each in (here, *here.parents) if any((each / name).exists() for name in _VERSION_CONTROL))
    return next(found, None)


def choose_workspace(option: str | None, roots: Iterable[str], cwd: str | None, default: Path | None) -> str:
    """Return the first usable workspace root. The order is `option` (--workspace), the client's `roots` (file URIs),
    the version-control root above `cwd`, `default`. Raises WorkspaceRefused if there is none, and at once for an
    unusable `option`."""
    if option is not None:
        return str(check_workspace(option))
    parts = [urlsplit(root) for root in roots]
    local = [part for part in parts if part.scheme == "file" and part.netloc in ("", "localhost")]
    candidates: list[Path | None] = [Path(unquote(part.path)) for part in local]
    candidates += [] if cwd is None else [version_control_root(Path(cwd))]
    for candidate in filter(None, candidates):
        with suppress(WorkspaceRefused):
            return str(check_workspace(candidate))
    if default is not None:
        return str(check_workspace(default))
    raise WorkspaceRefused(
        "no workspace is known: start agent-intercom with --workspace DIR, run the client inside a version-controlled"
        " project, or set default_workspace_root in the configuration"
    )


# --- opening ---------------------------------------------------------------------------------------------------------

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


class NotRegular(OSError):
    """A name is not a regular file but a pipe, a socket, a device or a directory."""


@contextmanager
def opened_root(root: Path, expected: int | None = None) -> Iterator[int]:
    """Open the workspace directory, whose path is canonical, and close it at the end.

    Raises WorkspaceGone if the path is missing, is a file or leads through a link. Raises it too if the `directory_id`
    is not `expected`, if given. Raises FileError on other system errors.
    """
    try:
        fd = _open(None, [name for name in os.fspath(root).split("/") if name])
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise WorkspaceGone(
                f"the workspace {root} is no directory, or is reached through a symbolic link"
            ) from None
        kind = WorkspaceGone if error.errno == errno.ENOENT else FileError
        raise kind(f"the workspace {root} cannot be opened: {error.strerror}") from None
    try:
        if expected is not None and expected not in recorded_ids(directory_id(fd)):
            raise WorkspaceGone(f"the workspace {root} is another directory than it was; put it back, or propose again")
        yield fd
    finally:
        os.close(fd)


def recorded_ids(directory: int) -> tuple[int, int]:
    """Return what may be recorded of the directory with this id: older servers recorded the inode number alone."""
    return directory, directory & _INODE


def directory_id(fd: int) -> int:
    """Return the number that identifies an open directory: its file system's id, then 64 bits with its inode number.

    Inode numbers repeat between file systems. Device numbers can change when the machine starts again, so they only
    stand in for a missing id.
    """
    status = os.fstat(fd)
    return (os.fstatvfs(fd).f_fsid or status.st_dev) << 64 | status.st_ino


@contextmanager
def opened_directory(top: int, path: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the directory at these names below the open directory `top`, and close it at the end.

    With `create`, missing directories are created with their parent's mode, and are on disk on return. Raises
    FileNotFoundError if a directory is missing, NotADirectoryError if a name is a file or a link, and other OSErrors.
    """
    try:
        try:
            fd = _open(top, path)
        except FileNotFoundError:
            if not create:
                raise
            fd = _descend(os.dup(top), path, _made)
    except OSError as error:
        # EXDEV: it was moved out of the workspace while it was opened.
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link", "/".join(path)) from None
        raise
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_parent(top: int, path: str) -> Iterator[int]:
    """Open the directory that contains `path`, a canonical path below `top`, and close it at the end.

    Raises PathViolation if a directory on the way is a link or a file, FileNotFoundError if one is missing, and
    FileError on other system errors.
    """
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(opened_directory(top, names(path)[:-1]))
        except FileNotFoundError:
            raise
        except OSError as error:
            place = first_blocked(top, path)
            if isinstance(error, NotADirectoryError):
                why = "is a symbolic link or not a directory; it was one when it was checked"
                raise PathViolation(f"{place} {why}") from None
            raise FileError(f"the directory {place} cannot be opened: {error.strerror}") from None
        yield fd


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


def first_blocked(top: int, path: str) -> str:
    """Return the first directory above `path` that cannot be entered, which openat2 does not report."""
    for directory in reversed([*directories_above(path)]):
        try:
            with opened_directory(top, names(directory)):
                pass
        except OSError:
            return directory
    return directory_of(path)


def _open(top: int | None, path: Sequence[str]) -> int:
    """Open the directory below `top`, or below the system's root if that is None."""
    if not path:
        return os.open("/", _DIRECTORY) if top is None else os.dup(top)
    if has_openat2():
        start, slash = (_AT_FDCWD, "/") if top is None else (top, "")
        try:
            return _openat2(start, slash + "/".join(path), _DIRECTORY, _NO_LINKS if top is None else _BENEATH)
        except OSError as error:
            # The path is too long for one call, or renames interfere: open one name at a time.
            if error.errno not in (errno.ENAMETOOLONG, errno.EAGAIN):
                raise
    fd = os.open("/", _PASSED) if top is None else os.dup(top)
    fd = _descend(fd, path[:-1], lambda parent, name: os.open(name, _PASSED, dir_fd=parent))
    return _descend(fd, path[-1:], lambda parent, name: os.open(name, _DIRECTORY, dir_fd=parent))


def _descend(fd: int, path: Sequence[str], enter: Callable[[int, str], int]) -> int:
    """Enter one directory after another from the open directory `fd`, which is closed. Returns the last."""
    try:
        for name in path:
            deeper = enter(fd, name)
            os.close(fd)
            fd = deeper
    except BaseException:
        os.close(fd)
        raise
    return fd


def _made(parent: int, name: str) -> int:
    """Open a directory, which is created if it is missing."""
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


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


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


# --- reading ---------------------------------------------------------------------------------------------------------

#: The largest file that a proposal may change, in bytes: patching holds it in memory twice.
MAX_FILE_BYTES = 64 * 1024 * 1024


@frozen
class FileBytes:
    """A file's content and its permission bits."""

    data: bytes
    mode: int


def read(root: Path, path: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """Return the regular file `path` of the workspace `root`, or None if it does not exist. Raises PathViolation if a
    link is on the way, FileError if the file is not regular, is larger than `limit` bytes, or cannot be read."""
    with opened_root(root) as top:
        return read_beneath(top, path, limit)


def read_beneath(top: int, path: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """Do as `read`, for a workspace directory that is open as `top`."""
    try:
        with opened_parent(top, path) as parent:
            return read_at(parent, path, limit)
    except FileNotFoundError:
        return None


def read_at(parent: int, path: str, limit: int = MAX_FILE_BYTES) -> FileBytes | None:
    """Do as `read`, for a path whose directory is open as `parent`."""
    try:
        fd = open_regular(parent, name_of(path))
    except FileNotFoundError:
        return None
    except NotRegular:
        raise FileError(f"{path} is not a regular file") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathViolation(f"{path} is a symbolic link; it was a file when it was checked") from None
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        mode = stat.S_IMODE(os.fstat(fd).st_mode) & 0o777
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileError(f"{path} is larger than {limit} bytes, the most that can be handled")
    return FileBytes(data, mode)


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data`, in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


# --- the state of a path ---------------------------------------------------------------------------------------------

#: The fingerprint of a missing file.
ABSENT = "nothing"
#: The fingerprints of a directory, and of anything that is not a file, link or directory.
DIRECTORY, OTHER = "directory", "other"

#: The names of staged files, and of the directories in which older servers staged the files of a restore.
STAGED = re.compile(r"\.intercom-(restore-.+|[A-Za-z0-9_-]{1,64}-\d+\.tmp)")


def file_fingerprint(hash: str) -> str:
    """Return the fingerprint of a file whose content has this hash; "new_file" means that there is none."""
    return ABSENT if hash == NEW_FILE else f"file:{hash}"


def fingerprint(top: int, path: str) -> str:
    """Return the fingerprint of the file or link at `path`, or DIRECTORY, OTHER or ABSENT. Follows no link. Raises
    NotADirectoryError if a directory above it is a file or a link, and other OSErrors."""
    try:
        with opened_directory(top, names(path)[:-1]) as parent:
            return fingerprint_at(parent, name_of(path))
    except FileNotFoundError:
        return ABSENT


def fingerprint_at(parent: int, name: str) -> str:
    """Do as `fingerprint`, for a name in the open directory `parent`."""
    try:
        kind = os.lstat(name, dir_fd=parent).st_mode
        if stat.S_ISLNK(kind):
            return f"link:{digest(os.readlink(name, dir_fd=parent).encode('utf-8', 'surrogateescape'))}"
        if stat.S_ISDIR(kind):
            return DIRECTORY
        if not stat.S_ISREG(kind):
            return OTHER
        fd = open_regular(parent, name)
    except FileNotFoundError:
        return ABSENT
    except NotRegular:
        return OTHER
    with os.fdopen(fd, "rb") as file:
        return file_fingerprint(hashlib.file_digest(file, "sha256").hexdigest())


def missing_directories(top: int, path: str) -> tuple[tuple[str, ...], int]:
    """Return the directories above `path` that do not exist, outermost first, and the mode of the nearest that does. A
    file or link in a directory's place counts as missing. Raises other OSErrors."""
    mode = os.fstat(top).st_mode & 0o777
    directories = [*reversed([*directories_above(path)])]
    for number, directory in enumerate(directories):
        try:
            with opened_directory(top, names(directory)) as fd:
                mode = os.fstat(fd).st_mode & 0o777
        except (FileNotFoundError, NotADirectoryError):
            return tuple(directories[number:]), mode
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
    try:
        with opened_directory(top, names(path)[:-1]) as parent:
            is_directory = stat.S_ISDIR(os.lstat(name_of(path), dir_fd=parent).st_mode)
        return is_directory and not will_be_empty(top, path, going)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # A directory that cannot be read cannot be removed either.
        return True


# --- bytes as text ---------------------------------------------------------------------------------------------------

BOM = "\ufeff"

#: UTF-32 comes first, because its little-endian mark begins with that of UTF-16.
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: How many bytes are examined to recognise text, and the share of control characters that text may have.
_LOOKED_AT = 8192
_ODD_SHARE = 0.1
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


@frozen
class Encoding:
    """How a file's bytes are decoded, with a name for people."""

    codec: str
    errors: str
    name: str

    def decode(self, data: bytes) -> str:
        return data.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """Encode text. Raises UnicodeEncodeError if the encoding lacks a character."""
        return text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8", "surrogateescape", "utf-8")


def encoding_of(data: bytes) -> Encoding:
    """Guess the encoding of a file.

    A byte order mark decides. Else it is UTF-8 if all or most of the non-ASCII lines are valid UTF-8. Else it is
    Windows-1252 if the bytes are valid in that, else Latin-1, in which every byte is a character.
    """
    for mark, codec in _WIDE:
        if data.startswith(mark):
            encoding = Encoding(codec, "surrogatepass", codec)
            with suppress(UnicodeError):
                if encoding.encode(encoding.decode(data)) == data:
                    return encoding
    odd = [line for line in data.split(b"\n") if not line.isascii()]
    valid = sum(_decodes(line, "utf-8") for line in odd)
    if valid == len(odd) or valid > len(odd) - valid:
        return UTF8
    if _decodes(data, "cp1252"):
        return Encoding("cp1252", "strict", "windows-1252")
    return Encoding("latin-1", "strict", "latin-1")


def _decodes(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def split_text(text: str) -> list[str]:
    """Return the lines of a text with their line ends, of which the last may have none."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def is_binary(data: bytes) -> bool:
    """Whether bytes are not text: they have a NUL that no wide encoding explains, or many control characters."""
    if encoding_of(data).codec.startswith(("utf-16", "utf-32")):
        return False
    start = data[:_LOOKED_AT]
    odd = sum((byte < 32 and byte not in _TEXT_CONTROLS) or byte == 127 for byte in start)
    return b"\0" in data or odd > len(start) * _ODD_SHARE
