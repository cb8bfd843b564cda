"""Which agents are connected, over which connections."""

from __future__ import annotations

from attrs import define, field

from intercom.sessions.agent_keys import is_of_process
from intercom.sessions.messages import Agent

#: How many processes that said goodbye are remembered: they end within a second.
_MOST_PARTED = 1000


@define
class ConnectedAgents:
    """`here` maps keys to the agents that were admitted and are connected, or were a moment ago; only the session
    registry writes it. `connections` holds the names of each key's connections: a shim may reconnect before its old one
    is known to be gone. `stand_ins` holds those of them that are not the key's own: they are of later processes, which
    continue its session, the one in `continued`. `parted` are the keys of the last processes that said goodbye: they
    may still be ending."""

    here: dict[str, Agent] = field(factory=dict)
    connections: dict[str, set[str]] = field(factory=dict)
    stand_ins: dict[str, set[str]] = field(factory=dict)
    continued: dict[str, str] = field(factory=dict)
    parted: dict[str, None] = field(factory=dict)

    def has(self, key: str | None) -> bool:
        """Return whether the agent of this key is connected, or may come back any moment."""
        return key is not None and key in self.here

    def connected(self, key: str | None) -> bool:
        """Return whether the agent of this key has a connection now."""
        return key is not None and bool(self.connections.get(key))

    def came(self, key: str, connection: str, own: str | None = None) -> None:
        """Record a new connection of this agent. `own` is the key of the process at its other end: if this is the key
        of another process, that one stands in for it."""
        self.connections.setdefault(key, set()).add(connection)
        if own not in (None, key) and is_of_process(key):
            self.stand_ins.setdefault(key, set()).add(connection)
        else:
            self.parted.pop(key, None)

    def left(self, key: str, connection: str, *, parts: bool = False) -> None:
        """Record the end of a connection of this agent. It may have others. `parts` says that the process of this key
        said goodbye."""
        if parts and is_of_process(key):
            self.parted[key] = None
            if len(self.parted) > _MOST_PARTED:
                del self.parted[next(iter(self.parted))]
        for kept in (self.connections, self.stand_ins):
            left = kept.get(key, set())
            left.discard(connection)
            if not left:
                kept.pop(key, None)
        if key not in self.stand_ins:
            self.continued.pop(key, None)

    def continued_over(self, connection: str) -> tuple[str, ...]:
        """Return the keys of the processes that are stood in for over this connection."""
        return tuple(key for key, names in self.stand_ins.items() if connection in names)

    def note_continued(self, key: str, session_id: str) -> None:
        """Note the session of this key, if later processes continue it."""
        if key in self.stand_ins:
            self.continued[key] = session_id

    def stood_in_for(self, key: str) -> tuple[str, ...]:
        """Return the keys of the processes that the one of this key stands in for."""
        own = self.connections.get(key, set())
        return tuple(other for other, names in self.stand_ins.items() if not names.isdisjoint(own))

    def leaving(self) -> tuple[str, ...]:
        """Return the keys of admitted agents without a connection. They may still come back."""
        return tuple(key for key in self.here if not self.connected(key))

    def coming(self) -> tuple[str, ...]:
        """Return the keys that are connected but not in `here`: agents that are back, or have made no call yet."""
        return tuple(key for key in self.connections if key not in self.here)
