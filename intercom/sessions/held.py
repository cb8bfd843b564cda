"""Pause rules: which messages a paused session refuses. These are the agent's new requests.

Pings pass, and so do calls that wait for earlier requests: they go on waiting.
"""

from __future__ import annotations

from intercom.sessions.messages import (
    Apply,
    AskPrompt,
    Broadcast,
    CheckPolicy,
    Propose,
    Recall,
    StandBy,
    SwitchMode,
    TakeWords,
)
from intercom.sessions.permission_messages import AskPermission

_HELD = (Apply, AskPermission, Broadcast, CheckPolicy, Recall, TakeWords)


def waits_while_paused(message: object) -> bool:
    """Return whether a paused session refuses this message (`paused`) without any effect."""
    match message:
        case Propose(request_id=request_id) | AskPrompt(request_id=request_id) | StandBy(request_id=request_id):
            return request_id is None
        case SwitchMode(from_agent=from_agent):
            return from_agent
    return isinstance(message, _HELD)
