"""Protection by links and settings: link targets of protected names, git hooks elsewhere, and repositories not named
`.git`.

Examples: `CLAUDE.md -> docs/agents.md`, `.git/hooks/pre-commit -> ../../scripts/check`, `core.hooksPath = tools/hooks`,
`include.path = ../tools/gitconfig`. An agent that can write the target can write instructions for a client, or code
that runs by itself. The same holds for `tests/fixture/config` beside a HEAD: a later `git status` starts what it names.
A policy cannot grant these paths either.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from intercom.model.errors import IntercomError
from intercom.workspace.descriptors import open_regular, opened_directory, opened_root
from intercom.workspace.protected import is_protected

#: How many entries of protected directories are examined. If there are more, a person decides.
MAX_ENTRIES = 20_000

#: Of these directories only the hooks are searched: the rest is thousands of files that are never run.
_OF_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
_HOOKS_PATH = re.compile(rb"^[ \t]*hooksPath[ \t]*=[ \t]*\"?([^\"#;\r\n]+)", re.IGNORECASE | re.MULTILINE)
_INCLUDED = re.compile(
    rb"^[ \t]*(?:\[include[^\]\r\n]*\][ \t]*)?path[ \t]*=[ \t]*\"?([^\"#;\r\n]+)", re.IGNORECASE | re.MULTILINE
)
_MAX_CONFIG = 256 * 1024


class _TooMany(Exception):
    """There are more than MAX_ENTRIES entries to examine."""


def why_protected(root: Path, paths: Sequence[str]) -> str | None:
    """Return why one of these canonical paths of the workspace `root` is protected despite its name, or None.

    Links are searched in the workspace directory, in the directories above each path, and in the protected directories
    there. Never raises: if something cannot be examined, that is the reason returned.
    """
    try:
        with opened_root(root) as top:
            for path in paths:
                for parent in PurePosixPath(path).parents:
                    if _is_repository(top, parent):
                        return f"{path} lies in {parent}, which has a HEAD: to git it is a repository"
            for link, target in _led_to(top, root, paths):
                for path in paths:
                    if path == target or path.startswith(f"{target}/"):
                        return f"{path} is what {link} leads to, which is protected"
    except _TooMany:
        return "there are too many protected files to look for links among them"
    except (IntercomError, OSError) as error:
        return f"the protected files cannot be looked at ({error})"
    return None


def has_other_name(root: Path, path: str) -> bool:
    """Whether the file has a second name (a hard link), which may be a protected one. A change in place changes
    both. An apply is safe, because it puts a new file under one name."""
    try:
        with opened_root(root) as top, opened_directory(top, path.split("/")[:-1]) as parent:
            status = os.stat(path.rsplit("/", 1)[-1], dir_fd=parent, follow_symlinks=False)
    except (IntercomError, OSError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _is_repository(top: int, directory: PurePosixPath) -> bool:
    """Whether git may treat a directory as a repository: it has a HEAD. git needs more, which may be created later."""
    try:
        with opened_directory(top, directory.parts) as fd:
            os.stat("HEAD", dir_fd=fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _led_to(top: int, root: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every protected link, with the canonical path of its target in the workspace."""
    above = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    left = [MAX_ENTRIES]
    for directory in sorted(above):
        names = [] if directory == "." else directory.split("/")
        for link in _links(top, names, left, inside=False):
            target = _within(root, os.path.join(root, link))
            if target is not None:
                yield link, target
        for setting, path in _of_git(top, names):
            target = _within(root, os.path.join(root, *names, path))
            if target is not None:
                yield f"{setting} of git", target


def _links(top: int, names: list[str], left: list[int], *, inside: bool) -> Iterator[str]:
    """Yield the protected links in a directory, and in the protected directories inside it."""
    below: list[str] = []
    try:
        with opened_directory(top, names) as fd, os.scandir(fd) as entries:
            for entry in entries:
                path = "/".join((*names, entry.name))
                is_ours = is_protected(path)
                if inside or is_ours:
                    # Unprotected entries are cheap, so they do not count towards the limit.
                    left[0] -= 1
                    if left[0] < 0:
                        raise _TooMany
                if entry.is_symlink() and is_ours:
                    yield path
                elif entry.is_dir(follow_symlinks=False) and (is_ours or entry.name == ".github"):
                    below.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in below:
        if names and names[-1] in _OF_VERSION_CONTROL and name != "hooks":
            continue
        yield from _links(top, [*names, name], left, inside=True)


def _of_git(top: int, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of hooks and included files in the configuration of a directory's repository. Each comes with
    the name of its setting and is relative to the directory. An included file can set the same."""
    try:
        with opened_directory(top, [*names, ".git"]) as fd, os.fdopen(open_regular(fd, "config"), "rb") as file:
            text = file.read(_MAX_CONFIG)
    except OSError:
        return
    for found in _HOOKS_PATH.findall(text)[-1:]:
        yield "core.hooksPath", os.fsdecode(found).strip()
    for found in _INCLUDED.findall(text):
        yield "include.path", os.path.join(".git", os.fsdecode(found).strip())


def _within(root: Path, path: str) -> str | None:
    """Return the canonical path of a file in the workspace; None if it is elsewhere."""
    real = os.path.realpath(path)
    return os.path.relpath(real, root) if real.startswith(f"{root}/") else None
