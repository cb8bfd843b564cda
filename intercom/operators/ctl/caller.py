"""Who asks at the local socket."""

from __future__ import annotations

from attrs import frozen

CHANNEL = "ctl"


@frozen
class Caller:
    """The name of the user at the other end of the socket."""

    name: str
