"""The protocol of the session registry, which admits agents and is told when they come and go."""

from __future__ import annotations

from attrs import frozen

from actors import Request


@frozen
class Agent:
    """A calling agent. `key` is stable for one conversation, `client_name` is the client's own name, `workspace` is
    checked. `channel_id` is the chat channel that the connection named; a session opened for the agent stays there.

    `session_id` names the session that the agent was started for. Then `key` is `key_of(session_id)`, and the session's
    workspace counts.
    """

    key: str
    client_name: str | None
    workspace: str
    channel_id: str | None = None
    session_id: str | None = None


def key_of(session_id: str) -> str:
    """Return the key of the agent for which this session was made. No other agent's key has this prefix."""
    return f"session:{session_id}"


@frozen
class Admit(Request[str]):
    """Return the id of the agent's session, opened if it has none; its actors run when this is answered. An agent with
    a `session_id` gets that session or is refused: with `not_found`, `invalid_state` (it is over, or its other agent is
    connected) or `unauthorized` (an agent opened it for itself)."""

    agent: Agent


@frozen
class Adopt(Request[str]):
    """Give the agent the session that it abandoned (or `session_id`), else its own. The answer is the session's id. An
    agent that was started for a session stays in that one."""

    agent: Agent
    session_id: str | None = None


@frozen
class Nameless:
    """The session of an anonymous client, and the agent it counts as."""

    session_id: str
    agent: Agent


@frozen
class FindNameless(Request[Nameless]):
    """Find the session in which an anonymous client made this request; its actors run when this is answered. Refused
    with `request_not_found` for another agent's request."""

    request_id: str


@frozen
class Wanted(Request[str]):
    """Run this session's actors; answers its id."""

    session_id: str


@frozen
class AgentsGone:
    """A connection of these agents is gone, as `Presence` records. `for_good`: no agent will come back over it."""

    keys: tuple[str, ...]
    for_good: bool = False


@frozen
class AgentsHere:
    """A connection of these agents is up, as `Presence` records."""

    keys: tuple[str, ...]
