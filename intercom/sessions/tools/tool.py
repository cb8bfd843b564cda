"""A tool: its names, its description, its arguments and answer, and what the session does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from actors import Request
from intercom.sessions.messages import Answered
from intercom.sessions.session.actor import Handler

#: What follows a decision that a call has waited for: the answer, or the next message to ask.
AfterDecision = Callable[[Any, Answered[Any]], Request[Any] | Answered[Any]]

#: The description of `request_id` in the arguments of tools that wait for a person.
WAIT_AGAIN = "The id of an earlier request that is still pending: wait for it again instead of making a new one."


@frozen
class Hints:
    """Hints for a client's user: the tool changes nothing, may destroy data, is idempotent, reaches beyond this
    machine."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


@frozen
class Tool:
    """One tool.

    `takes` are its arguments: also the message to the session, and the argument of the embedded call. `result` is the
    class of its answer. `legacy_name` is its older name, if it has one. `handle` answers the message in the session's
    actor; None if the agent connection answers.

    A handler replies `Answered`, or `RecordedRequest` with a request for a person. If that holds an answer, the request
    was decided before, or by the policy, and that is the call's answer. Otherwise the call waits. Then `pending`
    (request id) makes the answer of a call whose client's time limit is near, and `offers_tasks` says that a client may
    poll the request instead. `after_decision` (message, decision) returns the answer after a wait, or the message to
    ask next. `complete` changes an answer just before it is sent, when it is settled what is attached to it.

    The answers of tools that ask a person are in `intercom.sessions.request_kinds`, because a decision that no call
    waited for is told with them too.
    """

    name: str
    title: str
    description: str
    takes: type[Any]
    result: type[Any]
    hints: Hints
    legacy_name: str | None = None
    handle: Handler | None = field(default=None, repr=False)
    pending: Callable[[str], object] | None = field(default=None, repr=False)
    offers_tasks: bool = False
    after_decision: AfterDecision = field(default=lambda _asked, decided: decided, repr=False)
    complete: Callable[[Answered[Any]], Answered[Any]] = field(default=lambda answered: answered, repr=False)
