"""A hook at the places where something durable has just happened: a commit, a rename, a reply, a post.

Nothing happens there without a hook. Only tests set one, to end the process or an actor.
`tests/support/crash_points.py` lists the places.
"""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Pass the place of this name."""
    if hook is not None:
        hook(name)
