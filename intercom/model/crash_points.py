"""Places where a crash must lose nothing, by name.

Production code says `reach("journal.committed")` as it passes; nothing happens unless a hook is set, which only the
chaos runs do (they kill the process there).
"""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Pass the crash point `name`."""
    if hook is not None:
        hook(name)
