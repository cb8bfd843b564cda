"""Shows directories and files of a workspace to people, bounded and through no link."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, frozen

from intercom.masking import Masked, Masker
from intercom.model.errors import FileError, InvalidArguments, NotFound, PathViolation
from intercom.workspace.files import open_root, opened_parent, opened_root, read_at
from intercom.workspace.patches import encoding_of
from intercom.workspace.paths import lexical, relative, resolved

DEPTH = 3
DEEPEST = 10

#: How many entries of one directory, and of a whole tree, are drawn. The rest is counted.
MAX_IN_DIRECTORY = 200
MAX_ENTRIES = 2000
#: How many entries of one directory are read; beyond that the count is only "at least".
MAX_SCANNED = 20_000

#: Directories with generated files. Hidden ones (with a leading dot) are skipped too.
SKIPPED = frozenset({"node_modules", "target"})

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Categories of characters that are invisible, change the writing direction or break a line.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


@frozen
class Tree:
    """A drawn directory tree.

    `path` is canonical, "." for the workspace itself. `lines` are ready to show; the first is the directory's own name.
    `directories` and `files` count what is drawn below it, `left_out` what the limits cut off, and `skipped` the
    directories that are never entered.
    """

    path: str
    lines: tuple[str, ...]
    directories: int
    files: int
    left_out: int
    skipped: int
    depth: int


@define
class _Walk:
    depth: int
    lines: list[str]
    directories: int = 0
    files: int = 0
    left_out: int = 0
    skipped: int = 0

    @property
    def room(self) -> int:
        return MAX_ENTRIES - self.directories - self.files


def tree(root: Path, path: str = ".", depth: int = DEPTH) -> Tree:
    """Return the directory `path` of the workspace `root`, `depth` levels deep (1 to 10), files before directories.

    Hidden directories, node_modules and target are skipped below it, but may be named as `path`. Links are shown but
    not followed; `path` itself may lead through links inside the workspace. Raises InvalidArguments for a depth out of
    range, and PathViolation if the path leads outside. Raises NotFound if it does not exist, and FileError if it is not
    a directory or cannot be read.
    """
    if not 1 <= depth <= DEEPEST:
        raise InvalidArguments(f"the depth must be from 1 to {DEEPEST}, not {depth}")
    rel, fd = _open(root, path)
    try:
        walk = _Walk(depth, [f"{shown(rel)}/" if rel != "." else "./"])
        _list(walk, fd, "", 1)
    except OSError as error:
        raise FileError(f"{rel} cannot be listed: {error.strerror}") from None
    finally:
        os.close(fd)
    return Tree(rel, tuple(walk.lines), walk.directories, walk.files, walk.left_out, walk.skipped, depth)


def shown(name: str) -> str:
    """Return a name for display. Characters that are invisible or misleading are escaped."""
    return "".join(
        char if unicodedata.category(char) not in _UNSEEN else char.encode("unicode_escape").decode("ascii")
        for char in name
    )


def _open(root: Path, path: str) -> tuple[str, int]:
    if _is_root(root, path):
        return ".", open_root(root)
    rel = relative(root, path)
    try:
        with opened_root(root) as top, opened_parent(top, rel) as parent:
            return rel, _entered(parent, rel)
    except FileNotFoundError:
        raise NotFound(f"there is no directory {path!r} in the workspace") from None


def _entered(parent: int, rel: str) -> int:
    name = rel.rsplit("/", 1)[-1]
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            # The path was resolved before, so a link found here was created since.
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise PathViolation(f"{rel} is a symbolic link; it was none when it was checked") from None
            raise FileError(f"{rel} is a file; show it with show-file") from None
        raise FileError(f"{rel} cannot be listed: {error.strerror}") from None


def _is_root(root: Path, path: str) -> bool:
    """Whether a path means the workspace itself. Raises PathViolation for an invalid path."""
    if os.path.normpath(path or ".") == ".":
        return True
    top = resolved(root)
    return resolved(os.path.join(top, lexical(path))) == top


@frozen
class _Name:
    name: str
    is_directory: bool
    is_link: bool


def _names(fd: int) -> tuple[list[_Name], int]:
    """Return the entries of a directory, files first, and the number of skipped directories."""
    found: list[_Name] = []
    skipped = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory and (entry.name.startswith(".") or entry.name in SKIPPED):
                skipped += 1
                continue
            found.append(_Name(entry.name, is_directory, entry.is_symlink()))
            if len(found) == MAX_SCANNED:
                break
    return sorted(found, key=lambda each: (each.is_directory, each.name)), skipped


def _list(walk: _Walk, fd: int, margin: str, level: int) -> None:
    found, skipped = _names(fd)
    walk.skipped += skipped
    drawn = found[: max(0, min(MAX_IN_DIRECTORY, walk.room))]
    cut = len(found) - len(drawn)
    for i, each in enumerate(drawn):
        last = i == len(drawn) - 1 and not cut
        branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
        if not each.is_directory:
            walk.files += 1
            walk.lines.append(f"{margin}{branch}{shown(each.name)}{' (link)' if each.is_link else ''}")
            continue
        walk.directories += 1
        walk.lines.append(f"{margin}{branch}{shown(each.name)}/")
        if level < walk.depth:
            _enter(walk, fd, each.name, margin + below, level + 1)
    if cut:
        walk.left_out += cut
        more = "at least " if len(found) == MAX_SCANNED else ""
        walk.lines.append(f"{margin}└── … {more}{cut} more")


def _enter(walk: _Walk, parent: int, name: str, margin: str, level: int) -> None:
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            _list(walk, fd, margin, level)
        finally:
            os.close(fd)
    except OSError as error:
        # The directory is missing, unreadable, or was replaced by a link: say so and continue.
        walk.lines.append(f"{margin}└── ({(error.strerror or 'cannot be read').lower()})")


#: The largest file that is shown, and the most text that is shown of it, in bytes.
MAX_READ_BYTES = 16 * 1024 * 1024
MAX_SHOWN_BYTES = 1_000_000

#: Files up to this many characters are masked whole; in larger ones, how many are masked around the shown lines.
_MASKED_WHOLE = 2_000_000
_SURROUNDINGS = 256_000

#: How many bytes are examined to recognise text, and the share of control characters that text may have.
_LOOKED_AT = 8192
_ODD_SHARE = 0.1
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


@frozen
class FileText:
    r"""Lines of a file, without secrets.

    `path` is canonical. `text` holds the lines from `first` to `last`, counted from 1 and inclusive (0 and 0 for an
    empty file), separated by "\n". `masked` are the kinds of secrets removed. `size` (bytes) and `line_count` are of
    the whole file.
    """

    path: str
    text: str
    masked: tuple[str, ...]
    first: int
    last: int
    line_count: int
    size: int
    modified: datetime

    @property
    def is_whole(self) -> bool:
        return self.first <= 1 and self.last == self.line_count


def show(root: Path, path: str, lines: tuple[int, int | None] | None = None) -> FileText:
    """Return the text of the file `path` in the workspace `root`, or its `lines` (first, last or None for the end).

    The file is masked before lines are taken from it, because the middle of a key would not be recognised.

    Raises PathViolation if the path leads outside, NotFound if there is no file, InvalidArguments if the lines do not
    exist. Raises FileError if the file is a directory, not regular, binary, too large or unreadable.
    """
    rel = relative(root, path)
    name = rel.rsplit("/", 1)[-1]
    try:
        with opened_root(root) as top, opened_parent(top, rel) as parent:
            if _is_directory(parent, name):
                raise FileError(f"{rel} is a directory; list it with list-files")
            read = read_at(parent, name, rel, MAX_READ_BYTES)
            modified = _modified(parent, name)
    except FileNotFoundError:
        read = None
    if read is None:
        raise NotFound(f"there is no file {path!r} in the workspace")
    if is_binary(read.data):
        raise FileError(f"{rel} is no text ({len(read.data)} bytes); only text can be shown")
    encoding = encoding_of(read.data)
    text = read.data.decode(encoding.codec, "replace").removeprefix("\ufeff")
    every = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not every[-1]:
        every.pop()
    first, last = _range(rel, len(every), lines)
    if len("\n".join(every[max(first - 1, 0) : last]).encode()) > MAX_SHOWN_BYTES:
        raise FileError(f"this is more than {MAX_SHOWN_BYTES} bytes of {rel}; name fewer lines with --lines 1:200")
    shown = _masked(every, max(first, 1), last)
    return FileText(rel, shown.text, shown.kinds, first, last, len(every), len(read.data), modified)


def _masked(every: list[str], first: int, last: int) -> Masked:
    """Return the lines from `first` to `last`, masked together with all lines that a secret may extend over."""
    start, end = first - 1, last
    if sum(map(len, every)) <= _MASKED_WHOLE:
        start, end = 0, len(every)
    else:
        start, end = _wider(every, start, -1), _wider(every, end, 1)
    return Masker().mask("\n".join(every[start:end])).lines(first - start, last - start)


def _wider(every: list[str], at: int, step: int) -> int:
    """Return the line so far from line `at`, in the direction of `step`, that any secret fits between them."""
    room = _SURROUNDINGS
    while room > 0 and 0 <= at - (step < 0) < len(every):
        room -= len(every[at - (step < 0)]) + 1
        at += step
    return at


def is_binary(data: bytes) -> bool:
    """Whether bytes are not text: they have a NUL that no wide encoding explains, or many control characters."""
    if encoding_of(data).codec.startswith(("utf-16", "utf-32")):
        return False
    start = data[:_LOOKED_AT]
    if b"\0" in data:
        return True
    odd = sum((byte < 32 and byte not in _TEXT_CONTROLS) or byte == 127 for byte in start)
    return odd > len(start) * _ODD_SHARE


def read_range(text: str) -> tuple[int, int | None]:
    """Parse `A:B`, `A:` (to the end), `:B` (from the start) or `A`, counted from 1. Raises InvalidArguments."""
    first, colon, last = text.partition(":")
    if all(part == "" or (part.isascii() and part.isdecimal() and len(part) < 10) for part in (first, last)) and (
        first or last
    ):
        begin = int(first or 1)
        end = (int(last) if last else None) if colon else begin
        if begin >= 1 and (end is None or end >= begin):
            return begin, end
    raise InvalidArguments(f"lines are named A:B, counted from 1, as in 10:50, not {text[:40]!r}")


def _range(rel: str, count: int, lines: tuple[int, int | None] | None) -> tuple[int, int]:
    if lines is None:
        return min(1, count), count
    first, last = lines
    if first > count:
        raise InvalidArguments(f"{rel} has {count} lines; line {first} is beyond its end")
    return first, min(last or count, count)


def _is_directory(parent: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _modified(parent: int, name: str) -> datetime:
    try:
        return datetime.fromtimestamp(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        # Deleted since it was read, or dated beyond datetime's range: the time is not worth a refusal.
        return datetime.fromtimestamp(0, UTC)
