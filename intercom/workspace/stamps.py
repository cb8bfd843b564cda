"""Time stamps in the headers of a patch."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4})")


def says_gone(stamp: str | None) -> bool:
    """Whether a file's time stamp is the epoch, with which `diff -N` marks a missing file."""
    found = _STAMP.match(stamp or "")
    if found is None:
        return False
    return datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S %z") == datetime(1970, 1, 1, tzinfo=UTC)
