"""What a permission hook asks of a session: permission for one operation.

`call` names the hook's call, as with tools: a repeated call is answered the same.
"""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.operation import Operation
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import Answered, Opened


@frozen
class AskPermission(Request[Opened[PermissionAnswer]]):
    """Ask permission for an operation. Answered at once if the policy allows it, or if a person has decided the same
    operation and that decision was not used yet. The answer that tells an approval uses it up.

    `slot` names the hook and its event, `turn` the client's turn. If a client asks at two events about one use of a
    tool, the answer to the first covers the second. Refused with `invalid_state` once the session has ended.
    """

    call: str
    client: str
    operation: Operation
    slot: str
    turn: str = ""


@frozen
class AwaitPermission(Request[Answered[PermissionAnswer]]):
    """Wait for the decision. An answer "approved" is not used up: ask again under the same name to use it."""

    call: str
    request_id: str
    ticket: str = ""
