"""The keys of agents: what tells one agent from another, and which keys keep their sessions for themselves. Pure."""

from __future__ import annotations

from intercom.local import shim_process
from intercom.sessions.messages import key_of

#: A permanent name in the URL: every caller with this name is the same agent, and no other agent gets its session.
NAMED = "http:"
#: A permanent name over stdio, in one workspace: `init` writes an entry for all workspaces, and relative paths mean
#: other files in another.
LOCAL = "agent:"
#: One HTTP session of a client without a name. The key ends with the HTTP session.
PASSING = "http-session:"
#: One call of a caller without a name and without an HTTP session.
ANONYMOUS = "http-call:"

_RESERVED = (NAMED, LOCAL, PASSING, ANONYMOUS, key_of(""))
#: Separates such a key from a conversation of its client. A key in a URL cannot contain it.
_DIVIDER = "#"
_APART = "client/"

#: What to do if a session ends with its process.
ONE_AGENT = (
    "each process is an agent of its own: start all of one agent with the same --agent KEY or INTERCOM_AGENT (over HTTP"
    " ?agent=KEY in the URL), or call reboot to continue the last session of this workspace"
)


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


def of_named(name: str, conversation: str, workspace: str) -> str:
    """Return the key of the agent with this permanent name over stdio, in this workspace. A conversation that its
    client names, or an empty one, is another agent within the name."""
    named = f"{LOCAL}{name}{_DIVIDER}"
    # A workspace begins with a slash, so neither form can be read as the other.
    return f"{named}{_DIVIDER}{conversation}@{workspace}" if conversation else f"{named}{workspace}"


def is_of_process(key: str | None) -> bool:
    """Whether this is the key of one process without a name: another process of its client may be the same agent."""
    return shim_process.is_id(key)


def is_anonymous(key: str | None) -> bool:
    """Return whether the agent of this key is an anonymous client: a single call, known only by its request."""
    return key is not None and key.startswith(ANONYMOUS)


def is_its_own(key: str | None) -> bool:
    """Return whether no other agent may take over the session of this key: its owner may come back, or nobody else may
    know of it."""
    return key is not None and key.startswith((NAMED, LOCAL, ANONYMOUS))
