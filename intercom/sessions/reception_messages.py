"""The protocol of the reception: who lets agents in, and hears of them as they come and go."""

from __future__ import annotations

from attrs import frozen

from actors import Request


@frozen
class Agent:
    """Who calls: `key` is stable for one conversation, `client_name` what it says of itself, `workspace` checked, and
    `channel_id` the chat channel that its connection asked for: a session opened for it is shown there for good."""

    key: str
    client_name: str | None
    workspace: str
    channel_id: str | None = None


@frozen
class Admit(Request[str]):
    """The id of the agent's session, opened if it has none; its actors run when this is answered."""

    agent: Agent


@frozen
class Adopt(Request[str]):
    """Give the agent the session it left behind (or `session_id`), else its own. The answer is the session's id."""

    agent: Agent
    session_id: str | None = None


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
