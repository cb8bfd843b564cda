"""Presence: which agents are connected, and by which connections.

Agent connections record their own start and end here, so that nothing is lost while the session registry restarts. The
registry evaluates it; everyone may read it.
"""

from __future__ import annotations

from attrs import define, field

from intercom.sessions.reception_messages import Agent


@define
class Presence:
    """`here` maps keys to the agents that were admitted and are connected, or were a moment ago; only the session
    registry writes it. `doors` holds the connections of each key: a shim may reconnect before its old connection is
    known to be gone."""

    here: dict[str, Agent] = field(factory=dict)
    doors: dict[str, set[str]] = field(factory=dict)

    def has(self, key: str | None) -> bool:
        """Return whether the agent of this key is connected, or may come back any moment."""
        return key is not None and key in self.here

    def connected(self, key: str | None) -> bool:
        """Return whether the agent of this key has a connection now."""
        return key is not None and bool(self.doors.get(key))

    def came(self, key: str, door: str) -> None:
        """Record a new connection of this agent."""
        self.doors.setdefault(key, set()).add(door)

    def left(self, key: str, door: str) -> None:
        """Record the end of a connection of this agent. It may have others."""
        doors = self.doors.get(key, set())
        doors.discard(door)
        if not doors:
            self.doors.pop(key, None)

    def leaving(self) -> tuple[str, ...]:
        """Return the keys of admitted agents without a connection. They may still come back."""
        return tuple(key for key in self.here if not self.connected(key))

    def coming(self) -> tuple[str, ...]:
        """Return the keys that are connected but not in `here`: agents that are back, or have made no call yet."""
        return tuple(key for key in self.doors if key not in self.here)
