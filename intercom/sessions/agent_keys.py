"""The keys of agents over HTTP, by how much their callers say of themselves.

Keys of agents over stdio are made of other things (a shim's life, a client's name for a conversation), and kept apart
from these where a client's name is like one of the prefixes.
"""

from __future__ import annotations

from intercom.sessions.reception_messages import key_of

#: Named for good by its URL: whoever comes with that name is this agent, and nobody else ever gets its session.
NAMED = "http:"
#: One HTTP session of a client that gives no name: it lasts as long as that.
PASSING = "http-session:"
#: One call of a caller without name and session.
NAMELESS = "http-call:"

_RESERVED = (NAMED, PASSING, NAMELESS, key_of(""))
#: What divides such a key from a conversation of its client: nothing that a key in a URL may have in it.
_DIVIDER = "#"
_APART = "client/"


def of_conversation(key: str, conversation: str) -> str:
    """The key of one conversation of a client whose connection has `key`. Over HTTP conversations divide what that is,
    and lead to no other agent's; over stdio they go on beyond the connection."""
    if key.startswith((NAMED, PASSING)):
        return f"{key}{_DIVIDER}{conversation}"
    return f"{_APART}{conversation}" if conversation.startswith((*_RESERVED, _APART)) else conversation


def is_nameless(key: str | None) -> bool:
    """Whether the agent of this key is a single call, known by what it asked for alone."""
    return key is not None and key.startswith(NAMELESS)


def is_its_own(key: str | None) -> bool:
    """Whether the session of this key is never another agent's to take over: its own may come back at any time, or
    nobody may know of it."""
    return key is not None and key.startswith((NAMED, NAMELESS))
