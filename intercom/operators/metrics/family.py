"""Metric labels for actors: an actor's kind, never its identity."""

from __future__ import annotations

import re

#: The label for any name that matches no known pattern.
OTHER = "other"
#: Groups with few members, each with its own name. In other groups the members are sessions, paths or connections, of
#: which there may be thousands.
_NAMED = frozenset({"slack"})
_WORD = re.compile(r"[a-z][a-z_]{0,30}")


def family(name: str) -> str:
    """Return the label of an actor: `session` for `session/3f2a...`, `slack/outbox` for itself, "other" for any unknown
    form."""
    head, _, rest = name.partition("/")
    if not _WORD.fullmatch(head):
        return OTHER
    return name if head in _NAMED and _WORD.fullmatch(rest) else head
