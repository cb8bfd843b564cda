"""The version of this package, and the comparison of versions."""

from __future__ import annotations

__version__ = "0.1.0"


def version_tuple(text: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared. Parts that are not numbers count as 0."""
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split("."))


def is_newer(theirs: str) -> bool:
    """Whether this version of the package is newer than ours."""
    return version_tuple(theirs) > version_tuple(__version__)
