"""Detection of a project's root: the directory under version control."""

from __future__ import annotations

from pathlib import Path

_VERSION_CONTROL = (".git", ".hg", ".svn", ".jj")


def version_control_root(here: Path) -> Path | None:
    """Return the nearest directory at or above `here` under version control, or None."""
    for directory in (here, *here.parents):
        if any((directory / marker).exists() for marker in _VERSION_CONTROL):
            return directory
    return None
