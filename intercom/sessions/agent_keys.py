"""The keys of agents over HTTP, by how well their callers are known.

Keys of agents over stdio are made of other things: a shim's id, or a client's name for a conversation.
`of_conversation` keeps them apart from these prefixes.
"""

from __future__ import annotations

from intercom.sessions.reception_messages import key_of

#: A permanent name in the URL: every caller with this name is the same agent, and no other agent gets its session.
NAMED = "http:"
#: One HTTP session of a client without a name. The key ends with the HTTP session.
PASSING = "http-session:"
#: One call of a caller without a name and without an HTTP session.
NAMELESS = "http-call:"

_RESERVED = (NAMED, PASSING, NAMELESS, key_of(""))
#: Separates such a key from a conversation of its client. A key in a URL cannot contain it.
_DIVIDER = "#"
_APART = "client/"


def of_conversation(key: str, conversation: str) -> str:
    """Return the key of one conversation of a client whose connection has `key`. Over HTTP a conversation is part of
    the connection's key. Over stdio it outlives the connection."""
    if key.startswith((NAMED, PASSING)):
        return f"{key}{_DIVIDER}{conversation}"
    return f"{_APART}{conversation}" if conversation.startswith((*_RESERVED, _APART)) else conversation


def is_nameless(key: str | None) -> bool:
    """Return whether the agent of this key is an anonymous client: a single call, known only by its request."""
    return key is not None and key.startswith(NAMELESS)


def is_its_own(key: str | None) -> bool:
    """Return whether no other agent may take over the session of this key: its owner may come back, or nobody else may
    know of it."""
    return key is not None and key.startswith((NAMED, NAMELESS))
