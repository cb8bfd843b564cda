"""Who asks at the local socket."""

from __future__ import annotations

from attrs import frozen

from intercom.model.origin import Origin

CHANNEL = "ctl"


@frozen
class Caller:
    """The name of the user at the other end of the socket, and which process it is."""

    name: str
    origin: Origin | None = None


def act_of(verdict_id: str | None) -> str | None:
    """What names an act of this channel for good, so that asking again does it once; None where the caller did not."""
    return None if verdict_id is None else f"{CHANNEL}/{verdict_id}"
