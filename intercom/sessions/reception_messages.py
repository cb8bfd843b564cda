"""The protocol of the reception: who lets agents in, and hears of them as they come and go."""

from __future__ import annotations

from attrs import frozen

from actors import Request


@frozen
class Agent:
    """Who calls: `key` is stable for one conversation, `client_name` what it says of itself, `workspace` checked, and
    `channel_id` the chat channel that its connection asked for: a session opened for it is shown there for good.

    `session_id` names the session that the agent was started for; then `key` is `key_of(session_id)`, and the workspace
    is that session's, whatever stands here.
    """

    key: str
    client_name: str | None
    workspace: str
    channel_id: str | None = None
    session_id: str | None = None


def key_of(session_id: str) -> str:
    """The key of the agent for which this session was made; no other agent's key begins so."""
    return f"session:{session_id}"


@frozen
class Admit(Request[str]):
    """The id of the agent's session, opened if it has none; its actors run when this is answered.

    An agent with a `session_id` gets that one or is refused: `not_found`, `invalid_state` (over, or another agent of it
    is connected), `unauthorized` (an agent's that opened it for itself)."""

    agent: Agent


@frozen
class Adopt(Request[str]):
    """Give the agent the session it left behind (or `session_id`), else its own. The answer is the session's id. An
    agent that was started for a session stays in that."""

    agent: Agent
    session_id: str | None = None


@frozen
class Nameless:
    """A session that a caller without a name has, and the agent it counts as."""

    session_id: str
    agent: Agent


@frozen
class FindNameless(Request[Nameless]):
    """The session in which a caller without a name asked for this; its actors run when this is answered. Refused with
    `request_not_found` for what any other agent asked for."""

    request_id: str


@frozen
class Wanted(Request[str]):
    """See to it that this session's actors run; answers its id."""

    session_id: str


@frozen
class AgentsGone:
    """A connection these agents spoke over is gone, which their door has noted. `for_good`: nobody will come back."""

    keys: tuple[str, ...]
    for_good: bool = False


@frozen
class AgentsHere:
    """A connection of these agents is up, which their door has noted."""

    keys: tuple[str, ...]
