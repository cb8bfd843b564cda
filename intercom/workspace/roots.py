"""Where a project begins: the directory that its version control holds."""

from __future__ import annotations

from pathlib import Path

_VERSION_CONTROL = (".git", ".hg", ".svn", ".jj")


def version_control_root(here: Path) -> Path | None:
    """The nearest directory at or above `here` that is under version control, None where none is."""
    for directory in (here, *here.parents):
        if any((directory / marker).exists() for marker in _VERSION_CONTROL):
            return directory
    return None
