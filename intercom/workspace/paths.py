"""Paths: what a client may name, the canonical path that it means, and where a project begins.

A path is resolved once, when a request arrives, into the canonical path that people see and the policy evaluates.
`descriptors` opens that path without following links, so a link swapped in later is detected and refused.
"""

from __future__ import annotations

import os
import pwd
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from intercom.model.errors import PathViolation, WorkspaceRefused

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
    """Return the canonical path of `candidate` in the workspace `root`: relative, `/` between names, links resolved.

    Links inside the workspace are followed, including the last one: the result is the file that would be written. The
    file need not exist; existing ancestors are resolved. Raises PathViolation as `lexical`, and if a link leads outside
    or in a circle, or a file is in the place of a directory.
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
    """Return the path with every link followed. Raises PathViolation if a link changes meanwhile."""
    try:
        return os.path.realpath(path)
    except OSError:
        # A link was removed after it was found.
        raise PathViolation(f"the path {_shown(os.fspath(path))} changed while it was looked at; try again") from None


def check_workspace(path: Path | str) -> Path:
    """Return the canonical path of a directory that may be a workspace.

    Raises WorkspaceRefused if it is not a directory, cannot be entered, or is too wide: the root of the file system,
    the home directory or a directory above it.
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
                f"{real} cannot be a workspace: it is or holds the home directory; name the project's own directory"
            )
    if real == Path(real.anchor):
        raise WorkspaceRefused("the root directory cannot be a workspace; name the project's own directory")
    if not os.access(real, os.R_OK | os.X_OK):
        raise WorkspaceRefused(f"the workspace {real} cannot be read; check its permissions")
    return real


def _homes() -> set[Path]:
    found = {os.path.expanduser("~")}
    try:
        found.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass
    return {Path(os.path.realpath(home)) for home in found}


def _shown(path: str) -> str:
    """Return a path for use in a sentence: quoted, escaped and cut."""
    return ascii(path if len(path) <= 120 else path[:117] + "...")


_VERSION_CONTROL = (".git", ".hg", ".svn", ".jj")


def version_control_root(here: Path) -> Path | None:
    """Return the nearest directory at or above `here` under version control, or None."""
    for directory in (here, *here.parents):
        if any((directory / marker).exists() for marker in _VERSION_CONTROL):
            return directory
    return None


def choose_workspace(option: str | None, roots: Iterable[str], cwd: str | None, default: Path | None) -> str:
    """Return the first usable workspace root. The order is `option` (--workspace), the client's `roots` (file URIs),
    the version-control root above `cwd`, `default`. Raises WorkspaceRefused if there is none, and at once for an
    unusable `option`."""
    if option is not None:
        return str(check_workspace(Path(option)))
    for candidate in [*_local_roots(roots), *_root_above(cwd)]:
        try:
            return str(check_workspace(candidate))
        except WorkspaceRefused:
            continue
    if default is not None:
        return str(check_workspace(default))
    raise WorkspaceRefused(
        "no workspace is known: start agent-intercom with --workspace DIR, run the client inside a version-controlled"
        " project, or set default_workspace_root in the configuration"
    )


def _local_roots(roots: Iterable[str]) -> list[Path]:
    parts = [urlsplit(root) for root in roots]
    return [Path(unquote(part.path)) for part in parts if part.scheme == "file" and part.netloc in ("", "localhost")]


def _root_above(cwd: str | None) -> list[Path]:
    found = None if cwd is None else version_control_root(Path(cwd))
    return [] if found is None else [found]
