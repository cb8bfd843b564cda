"""Paths: what a client may name, and the canonical path that it means.

A name is resolved once, when a request comes, into the canonical path that people see and the policy judges. Whenever
a file is touched, `descriptors` opens that path and follows no link; so a link swapped in between is met as a link, and
refused.
"""

from __future__ import annotations

import os
import pwd
import re
import unicodedata
from pathlib import Path

from intercom.model.errors import PathViolation, WorkspaceRefused

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255

#: Beside control characters, what could make a path read differently from what it is: line and paragraph separators,
#: and the marks that turn the direction of writing.
_MISLEADING = frozenset("\u2028\u2029\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DRIVE = re.compile(r"[A-Za-z]:(/|$)")


def lexical(candidate: str) -> str:
    """The path that `candidate` spells, without a look at the disk: relative, `/` between names, no `.` or `..`.

    Raises PathViolation for what is empty, absolute, too long, leads above its start, or holds characters that are not
    allowed (NUL and other control characters, backslashes, marks that change the direction of writing).
    """
    if not candidate:
        raise PathViolation("the path is empty; name a file relative to the workspace")
    for char in candidate:
        if char == "\\":
            raise PathViolation(f"the path {_shown(candidate)} holds a backslash; write / between directories")
        if char in _MISLEADING or unicodedata.category(char) in ("Cc", "Cs"):
            raise PathViolation(
                f"the path {_shown(candidate)} holds a character that is not allowed, U+{ord(char):04X}"
            )
    if candidate.startswith("/") or _DRIVE.match(candidate):
        raise PathViolation(f"the path {_shown(candidate)} is absolute; name it relative to the workspace")
    names: list[str] = []
    for name in candidate.split("/"):
        if name == "..":
            if not names:
                raise PathViolation(f"the path {_shown(candidate)} leads outside the workspace")
            names.pop()
        elif name not in ("", "."):
            if len(name.encode()) > MAX_NAME_BYTES:
                raise PathViolation(f"a name in the path {_shown(candidate)} is longer than {MAX_NAME_BYTES} bytes")
            names.append(name)
    if not names:
        raise PathViolation(f"the path {_shown(candidate)} names the workspace itself, not a file in it")
    path = "/".join(names)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise PathViolation(f"the path {_shown(candidate)} is longer than {MAX_PATH_BYTES} bytes")
    return path


def relative(root: Path, candidate: str) -> str:
    """The canonical path of `candidate` in the workspace `root`: relative, POSIX separators, every link resolved.

    Links that stay inside the workspace are followed, the last one too: the answer names the file that would really be
    written. The file need not exist; every ancestor that does is resolved. Raises PathViolation for what `lexical`
    refuses, and where a link leads outside, in a circle, or to nothing that can hold the file.
    """
    spelled = lexical(candidate)
    top = resolved(root)
    real = resolved(os.path.join(top, spelled))
    if os.path.commonpath([top, real]) != top:
        raise PathViolation(f"the path {_shown(candidate)} leads outside the workspace through a symbolic link")
    if real == top:
        raise PathViolation(f"the path {_shown(candidate)} names the workspace itself, not a file in it")
    path = os.path.relpath(real, top)
    step = top
    names = path.split("/")
    for i, name in enumerate(names):
        step = os.path.join(step, name)
        if os.path.islink(step):
            raise PathViolation(f"the path {_shown(candidate)} is a circle of symbolic links")
        if i < len(names) - 1 and os.path.lexists(step) and not os.path.isdir(step):
            raise PathViolation(f"the path {_shown(candidate)} passes through {'/'.join(names[: i + 1])}, a file")
    return lexical(path)


def is_link(root: Path, candidate: str) -> bool:
    """Whether the last name of `candidate`, as spelled, is a symbolic link."""
    return os.path.islink(os.path.join(resolved(root), lexical(candidate)))


def resolved(path: str | os.PathLike[str]) -> str:
    """The path with every link in it followed. Raises PathViolation where one changed while it was followed."""
    try:
        return os.path.realpath(path)
    except OSError:
        # A link that was there is not there to be read.
        raise PathViolation(f"the path {_shown(os.fspath(path))} changed while it was looked at; try again") from None


def check_workspace(path: Path | str) -> Path:
    """The canonical path of a directory that may serve as a workspace.

    Raises WorkspaceRefused for what is no directory, can not be entered, or is far more than a workspace: the root of
    the file system, the home directory and what holds it.
    """
    try:
        real = Path(path).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise WorkspaceRefused(
            f"the workspace {_shown(str(path))} does not exist; name a directory that does"
        ) from None
    if not real.is_dir():
        raise WorkspaceRefused(f"the workspace {real} is not a directory")
    for home in _homes():
        if real == home or real in home.parents:
            raise WorkspaceRefused(
                f"{real} can not be a workspace: it is or holds the home directory; name the project's own directory"
            )
    if real == Path(real.anchor):
        raise WorkspaceRefused("the root directory can not be a workspace; name the project's own directory")
    if not os.access(real, os.R_OK | os.X_OK):
        raise WorkspaceRefused(f"the workspace {real} can not be read; check its permissions")
    return real


def _homes() -> set[Path]:
    found = {os.path.expanduser("~")}
    try:
        found.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass
    return {Path(os.path.realpath(home)) for home in found}


def _shown(path: str) -> str:
    """A path as it may stand in a sentence: quoted, escaped, cut."""
    return ascii(path if len(path) <= 120 else path[:117] + "...")
