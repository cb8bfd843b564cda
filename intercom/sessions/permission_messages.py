"""What a permission hook asks of a session: leave for one operation, and words before the agent stops.

`call` names the hook's call for good, as with tools: asked again under the same name, it is answered alike.
"""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.operation import Operation
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import Answered, Opened


@frozen
class AskPermission(Request[Opened[PermissionAnswer]]):
    """Ask leave for an operation. Answered at once where it needs no waiting: the policy allows it, or a person has
    allowed or refused the same before and that was not used yet. An approval is used up by the answer that tells it.

    `slot` names the hook and its event, and `turn` the client's turn: where a client asks at two events about one use
    of a tool, the second is covered by the answer to the first. Refused (`invalid_state`) once the session has ended.
    """

    call: str
    client: str
    operation: Operation
    slot: str
    turn: str = ""


@frozen
class AwaitPermission(Request[Answered[PermissionAnswer]]):
    """Wait for the verdict. An answer of "approved" is not used up yet: ask again under the same name to use it."""

    call: str
    request_id: str
    ticket: str = ""
