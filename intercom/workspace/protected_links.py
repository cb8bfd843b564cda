"""What is protected under another name: where links of protected names lead, hooks that git finds elsewhere, and
repositories whose directory is not called `.git`.

`CLAUDE.md -> docs/agents.md`, `.git/hooks/pre-commit -> ../../scripts/check`, `core.hooksPath = tools/hooks`,
`include.path = ../tools/gitconfig`: who may write the target writes what a client obeys, or what runs by itself. So
does who may write `tests/fixture/config` beside a HEAD, where a later `git status` starts what it names. A policy
does not grant these either.
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

#: How many entries of protected directories are looked at. Where there are more a person is asked, to be safe.
MAX_ENTRIES = 20_000

#: What version control keeps by the thousand and nobody runs: of these directories only the hooks are looked into.
_OF_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
_HOOKS_PATH = re.compile(rb"^[ \t]*hooksPath[ \t]*=[ \t]*\"?([^\"#;\r\n]+)", re.IGNORECASE | re.MULTILINE)
_INCLUDED = re.compile(
    rb"^[ \t]*(?:\[include[^\]\r\n]*\][ \t]*)?path[ \t]*=[ \t]*\"?([^\"#;\r\n]+)", re.IGNORECASE | re.MULTILINE
)
_MAX_CONFIG = 256 * 1024


class _TooMany(Exception):
    """There is more to look at than MAX_ENTRIES."""


def why_protected(root: Path, paths: Sequence[str]) -> str | None:
    """Why one of these canonical paths of the workspace `root` is protected though its name is not; None where none is.

    Links are looked for in the workspace's directory, in those above each path, and in the protected directories
    there. Never raises: what cannot be looked at is for a person to decide.
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
    """Whether the file has a second name (a hard link), by which it may be a protected one. A change in place changes
    both; an apply puts a new file under one."""
    try:
        with opened_root(root) as top, opened_directory(top, path.split("/")[:-1]) as parent:
            status = os.stat(path.rsplit("/", 1)[-1], dir_fd=parent, follow_symlinks=False)
    except (IntercomError, OSError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _is_repository(top: int, directory: PurePosixPath) -> bool:
    """Whether git may take the directory for a repository. It wants more than a HEAD, and that may come later."""
    try:
        with opened_directory(top, directory.parts) as fd:
            os.stat("HEAD", dir_fd=fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _led_to(top: int, root: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every protected link, with the canonical path that it leads to within the workspace."""
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
    """The protected links in a directory, and in the protected directories in it."""
    below: list[str] = []
    try:
        with opened_directory(top, names) as fd, os.scandir(fd) as entries:
            for entry in entries:
                path = "/".join((*names, entry.name))
                is_ours = is_protected(path)
                if inside or is_ours:
                    # Unprotected entries beside them cost nothing: they may be as many as they like.
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
    """What the configuration of the repository in a directory says of its hooks and of further configuration, which may
    say the same: each setting with its path, as seen from that directory."""
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
    """The canonical path of a file in the workspace; None for one elsewhere."""
    real = os.path.realpath(path)
    return os.path.relpath(real, root) if real.startswith(f"{root}/") else None
