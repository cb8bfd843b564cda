"""Presence: which agents are connected now, and by which doors.

Doors write down their own coming and going, so that none of it is lost while the reception restarts; the reception
draws the conclusions. Read by everyone.
"""

from __future__ import annotations

from attrs import define, field

from intercom.sessions.reception_messages import Agent


@define
class Presence:
    """`here` maps the key of each agent that was let in, and is connected or was a moment ago, to it; it is the
    reception's. `doors` holds the connections of each key, by door: a shim that comes back may be in before its old
    connection is known to be gone."""

    here: dict[str, Agent] = field(factory=dict)
    doors: dict[str, set[str]] = field(factory=dict)

    def has(self, key: str | None) -> bool:
        """Whether the agent of this key is connected (or may come back any moment)."""
        return key is not None and key in self.here

    def connected(self, key: str | None) -> bool:
        """Whether a connection of it is up now."""
        return key is not None and bool(self.doors.get(key))

    def came(self, key: str, door: str) -> None:
        """A connection of this agent is up."""
        self.doors.setdefault(key, set()).add(door)

    def left(self, key: str, door: str) -> None:
        """A connection of this agent is gone; it may have others."""
        doors = self.doors.get(key, set())
        doors.discard(door)
        if not doors:
            self.doors.pop(key, None)

    def leaving(self) -> tuple[str, ...]:
        """The agents that are here and have no connection: they have a moment to come back."""
        return tuple(key for key in self.here if not self.connected(key))

    def coming(self) -> tuple[str, ...]:
        """The keys that are connected and not here: agents that are back, or have not made a call yet."""
        return tuple(key for key in self.doors if key not in self.here)
