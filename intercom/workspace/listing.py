"""A directory of the workspace as a tree for people: limited in size, without following links."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from pathlib import Path

from attrs import define, frozen

from intercom.model.errors import FileError, InvalidArguments, NotFound, PathViolation
from intercom.workspace.descriptors import open_root, opened_parent, opened_root
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
        raise FileError(f"{rel} can not be listed: {error.strerror}") from None
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
        raise FileError(f"{rel} can not be listed: {error.strerror}") from None


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
        walk.lines.append(f"{margin}└── ({(error.strerror or 'can not be read').lower()})")
