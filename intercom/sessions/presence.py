"""Presence: which agents are connected now, and by which doors. Written by the reception, read by everyone."""

from __future__ import annotations

from attrs import define, field

from intercom.sessions.reception_messages import Agent


@define
class Presence:
    """`here` maps the key of each agent that is connected, or was a moment ago, to it; `doors` the connections it has:
    a shim that comes back may be in before its old connection is known to be gone."""

    here: dict[str, Agent] = field(factory=dict)
    doors: dict[str, set[str]] = field(factory=dict)

    def has(self, key: str | None) -> bool:
        """Whether the agent of this key is connected (or may come back any moment)."""
        return key is not None and key in self.here

    def connected(self, key: str | None) -> bool:
        """Whether a connection of it is up now."""
        return key is not None and bool(self.doors.get(key))

    def count(self, workspace_root: str) -> int:
        """How many agents that are here work in this workspace."""
        return sum(agent.workspace == workspace_root for agent in self.here.values())

    def came(self, key: str, door: str) -> None:
        self.doors.setdefault(key, set()).add(door)

    def left(self, key: str, door: str) -> bool:
        """Note that a connection is gone; True when it was the agent's last."""
        doors = self.doors.get(key, set())
        doors.discard(door)
        if doors:
            return False
        self.doors.pop(key, None)
        return True

    def leaving(self) -> tuple[str, ...]:
        """The agents that are here and have no connection: they have a moment to come back."""
        return tuple(key for key in self.here if not self.connected(key))
