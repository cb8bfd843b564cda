"""Shows directories and files of a workspace to people, bounded and through no link."""

from __future__ import annotations

import os
import stat
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, frozen

from intercom.masking import Masked, Masker
from intercom.model.errors import FileError, InvalidArguments, NotFound, PathViolation
from intercom.model.visible_text import count
from intercom.workspace.files import (
    encoding_of,
    is_binary,
    lexical,
    located,
    name_of,
    names,
    opened_directory,
    opened_parent,
    opened_root,
    read_at,
    relative,
)

DEPTH = 3
DEEPEST = 10

#: How many entries of one directory, and of a whole tree, are drawn. The rest is counted.
MAX_IN_DIRECTORY = 200
MAX_ENTRIES = 2000
#: How many entries of one directory are read; beyond that the count is only "at least".
MAX_SCANNED = 20_000

#: Directories with generated files. Hidden ones (with a leading dot) are skipped too.
SKIPPED = frozenset({"node_modules", "target"})

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


def tree(root: Path, path: str = ".", depth: int = DEPTH) -> Tree:
    """Return the directory `path` of the workspace `root`, `depth` levels deep (1 to 10), files before directories.

    Hidden directories, node_modules and target are skipped below it, but may be named as `path`. Links are shown but
    not followed; `path` itself may lead through links inside the workspace. Raises InvalidArguments for a depth out of
    range, and PathViolation if the path leads outside. Raises NotFound if it does not exist, and FileError if it is not
    a directory or cannot be read.
    """
    if not 1 <= depth <= DEEPEST:
        raise InvalidArguments(f"the depth must be from 1 to {DEEPEST}, not {depth}")
    is_root = os.path.normpath(path or ".") == "." or located(root, lexical(path)) == "."
    rel = "." if is_root else relative(root, path)
    walk = _Walk(depth, [f"{shown(rel)}/"])
    try:
        with opened_root(root) as top:
            with opened_parent(top, rel) as parent:
                kind = os.lstat(name_of(rel), dir_fd=parent).st_mode
            if stat.S_ISLNK(kind):
                # The path was resolved before, so a link found here was created since.
                raise PathViolation(f"{rel} is a symbolic link; it was not when it was checked")
            if not stat.S_ISDIR(kind):
                raise FileError(f"{rel} is a file; show it with show-file")
            with opened_directory(top, [] if is_root else names(rel)) as fd:
                walk.draw(fd, "", 1)
    except FileNotFoundError:
        raise NotFound(f"there is no directory {path!r} in the workspace") from None
    except NotADirectoryError:
        raise PathViolation(f"{rel} is a symbolic link or not a directory; it was one when it was checked") from None
    except OSError as error:
        raise FileError(f"{rel} cannot be listed: {error.strerror}") from None
    return Tree(rel, tuple(walk.lines), walk.directories, walk.files, walk.left_out, walk.skipped, depth)


def shown(name: str) -> str:
    """Return a name for display. Characters that are invisible or misleading are escaped."""
    return "".join(
        char if unicodedata.category(char) not in _UNSEEN else char.encode("unicode_escape").decode("ascii")
        for char in name
    )


@define
class _Walk:
    depth: int
    lines: list[str]
    directories: int = 0
    files: int = 0
    left_out: int = 0
    skipped: int = 0

    def draw(self, fd: int, margin: str, level: int) -> None:
        """Draw the entries of an open directory, files first."""
        found: list[tuple[bool, str, bool]] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                is_directory = entry.is_dir(follow_symlinks=False)
                if is_directory and (entry.name.startswith(".") or entry.name in SKIPPED):
                    self.skipped += 1
                    continue
                found.append((is_directory, entry.name, entry.is_symlink()))
                if len(found) == MAX_SCANNED:
                    break
        found.sort()
        drawn = found[: max(0, min(MAX_IN_DIRECTORY, MAX_ENTRIES - self.directories - self.files))]
        cut = len(found) - len(drawn)
        for number, (is_directory, name, is_link) in enumerate(drawn, 1):
            branch, below = ("└── ", "    ") if number == len(drawn) and not cut else ("├── ", "│   ")
            if not is_directory:
                self.files += 1
                self.lines.append(f"{margin}{branch}{shown(name)}{' (link)' if is_link else ''}")
                continue
            self.directories += 1
            self.lines.append(f"{margin}{branch}{shown(name)}/")
            if level < self.depth:
                try:
                    with opened_directory(fd, [name]) as inner:
                        self.draw(inner, margin + below, level + 1)
                except OSError as error:
                    # The directory is missing, unreadable, or was replaced by a link: say so and continue.
                    why = (error.strerror or "cannot be read").lower()
                    self.lines.append(f"{margin}{below}└── ({why})")
        if cut:
            self.left_out += cut
            more = "at least " if len(found) == MAX_SCANNED else ""
            self.lines.append(f"{margin}└── … {more}{cut} more")


#: The largest file that is shown, and the most text that is shown of it, in bytes.
MAX_READ_BYTES = 16 * 1024 * 1024
MAX_SHOWN_BYTES = 1_000_000

#: Files up to this many characters are masked whole; in larger ones, how many are masked around the shown lines.
_MASKED_WHOLE = 2_000_000
_SURROUNDINGS = 256_000


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
    try:
        with opened_root(root) as top, opened_parent(top, rel) as parent:
            status = os.lstat(name_of(rel), dir_fd=parent)
            if stat.S_ISDIR(status.st_mode):
                raise FileError(f"{rel} is a directory; list it with list-files")
            read = read_at(parent, rel, MAX_READ_BYTES)
    except FileNotFoundError:
        read = None
    if read is None:
        raise NotFound(f"there is no file {path!r} in the workspace")
    if is_binary(read.data):
        raise FileError(f"{rel} is not text ({count(len(read.data), 'byte')}); only text can be shown")
    text = read.data.decode(encoding_of(read.data).codec, "replace").removeprefix("\ufeff")
    every = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not every[-1]:
        every.pop()
    first, last = (min(1, len(every)), None) if lines is None else lines
    if first > len(every):
        raise InvalidArguments(f"{rel} has {count(len(every), 'line')}; line {first} is beyond its end")
    last = min(last or len(every), len(every))
    if len("\n".join(every[max(first - 1, 0) : last]).encode()) > MAX_SHOWN_BYTES:
        raise FileError(f"this is more than {MAX_SHOWN_BYTES} bytes of {rel}; name fewer lines with --lines 1:200")
    masked = _masked(every, max(first, 1), last)
    try:
        modified = datetime.fromtimestamp(status.st_mtime, UTC)
    except (OverflowError, ValueError):
        # Dated beyond datetime's range: the time is not worth a refusal.
        modified = datetime.fromtimestamp(0, UTC)
    return FileText(rel, masked.text, masked.kinds, first, last, len(every), len(read.data), modified)


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
