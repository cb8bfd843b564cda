"""The timers of a session's actor, as messages to itself."""

from __future__ import annotations

from attrs import frozen

#: How long a new request waits for its call before it is shown, in seconds.
SHOW_SECONDS = 1.0
#: How long an activity may stay unwritten, in seconds. No guarantee depends on it.
TOUCH_SECONDS = 0.5
#: How long after a session's start its waiting calls may take to come back, in seconds.
RETURN_SECONDS = 5.0


@frozen
class Expire:
    """This request's time is over."""

    request_id: str


@frozen
class Show:
    """Show a new request although no call waits for it yet."""

    request_id: str


@frozen
class LookRound:
    """The calls that waited before a restart, and still do, are back by now."""


@frozen
class WriteTouch:
    """Write the last activity to the store."""


@frozen
class ClockChanged:
    """Wall time has jumped by this many seconds: check every deadline again."""

    seconds: float
