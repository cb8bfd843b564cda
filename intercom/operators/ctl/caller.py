"""The caller at the local socket."""

from __future__ import annotations

from attrs import frozen

from intercom.model.origin import Origin

CHANNEL = "ctl"


@frozen
class Caller:
    """The user name of the peer, and the process it is."""

    name: str
    origin: Origin | None = None


def act_of(verdict_id: str | None) -> str | None:
    """Return the id that makes a repeated act of this channel safe; None if the caller gave none."""
    return None if verdict_id is None else f"{CHANNEL}/{verdict_id}"
