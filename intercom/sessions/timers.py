"""The timers of a session's actor, which tells itself these."""

from __future__ import annotations

from attrs import frozen

#: How long a new request waits for its call before it is shown without.
SHOW_SECONDS = 1.0
#: How long an activity may go unwritten: it says when the agent was heard of, and no promise hangs on it.
TOUCH_SECONDS = 0.5
#: How long after a session's start the calls that waited before may take to be back.
RETURN_SECONDS = 5.0


@frozen
class Expire:
    """This request has run out of time."""

    request_id: str


@frozen
class Show:
    """A new request whose call has not come to wait for it is shown all the same."""

    request_id: str


@frozen
class LookRound:
    """Whoever waited before this incarnation and still does is back by now."""


@frozen
class WriteTouch:
    """The last activity goes to the store."""


@frozen
class ClockChanged:
    """Wall time has jumped by so many seconds: every deadline is judged again."""

    seconds: float
