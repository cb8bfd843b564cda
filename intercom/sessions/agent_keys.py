"""The keys of agents: what tells one agent from another, and which keys keep their sessions for themselves. Pure."""

from __future__ import annotations

from intercom.sessions.messages import key_of

#: A permanent name in the URL: every caller with this name is the same agent, and no other agent gets its session.
NAMED = "http:"
#: One HTTP session of a client without a name. The key ends with the HTTP session.
PASSING = "http-session:"
#: One call of a caller without a name and without an HTTP session.
ANONYMOUS = "http-call:"

_RESERVED = (NAMED, PASSING, ANONYMOUS, key_of(""))
#: Separates such a key from a conversation of its client. A key in a URL cannot contain it.
_DIVIDER = "#"
_APART = "client/"


def of_conversation(key: str, conversation: str) -> str:
    """Return the key of the agent of one conversation, if a client names its conversations. `key` is that of the
    connection.

    Over HTTP another client may use the same name, so the key is that of the connection with the conversation added.
    Over stdio the conversation alone is the key, so its agent finds its session again over a new connection. A name
    that looks like another kind of key gets a prefix.
    """
    if key.startswith((NAMED, PASSING)):
        return f"{key}{_DIVIDER}{conversation}"
    return f"{_APART}{conversation}" if conversation.startswith((*_RESERVED, _APART)) else conversation


def is_anonymous(key: str | None) -> bool:
    """Return whether the agent of this key is an anonymous client: a single call, known only by its request."""
    return key is not None and key.startswith(ANONYMOUS)


def is_its_own(key: str | None) -> bool:
    """Return whether no other agent may take over the session of this key: its owner may come back, or nobody else may
    know of it."""
    return key is not None and key.startswith((NAMED, ANONYMOUS))
