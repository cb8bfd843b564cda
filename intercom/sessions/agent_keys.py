"""The keys of agents over HTTP, by how much their callers say of themselves.

Keys of agents over stdio are made of other things (a shim's life, a client's name for a conversation), so none of these
prefixes can come up among them by itself.
"""

from __future__ import annotations

#: Named for good by its URL: whoever comes with that name is this agent, and nobody else ever gets its session.
NAMED = "http:"
#: One HTTP session of a client that gives no name: it lasts as long as that.
PASSING = "http-session:"
#: One call of a caller without name and session.
NAMELESS = "http-call:"


def is_nameless(key: str | None) -> bool:
    """Whether the agent of this key is a single call, known by what it asked for alone."""
    return key is not None and key.startswith(NAMELESS)


def is_its_own(key: str | None) -> bool:
    """Whether the session of this key is never another agent's to take over: its own may come back at any time, or
    nobody may know of it."""
    return key is not None and key.startswith((NAMED, NAMELESS))
