"""What is held up while a session is paused: whatever its agent asks for anew.

Its signs of life are taken, and so are the calls that wait for what was asked before: those wait on.
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
    """Whether a paused session refuses this (`paused`), having done nothing."""
    match message:
        case Propose(request_id=request_id) | AskPrompt(request_id=request_id) | StandBy(request_id=request_id):
            return request_id is None
        case SwitchMode(from_agent=from_agent):
            return from_agent
    return isinstance(message, _HELD)
