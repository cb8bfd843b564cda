"""From an actor's name to what may stand in a label: which sort of actor it is, and never which one."""

from __future__ import annotations

import re

#: Whatever has no name of ours.
OTHER = "other"
#: Groups whose members are few and have names of their own; of any other group the members are sessions, paths or
#: connections, of which there may be thousands.
_NAMED = frozenset({"slack"})
_WORD = re.compile(r"[a-z][a-z_]{0,30}")


def family(name: str) -> str:
    """`session` of `session/3f2a...`, `slack/outbox` of itself; "other" where the name is no word of ours."""
    head, _, rest = name.partition("/")
    if not _WORD.fullmatch(head):
        return OTHER
    return name if head in _NAMED and _WORD.fullmatch(rest) else head
