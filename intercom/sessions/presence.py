"""Presence: which agents are connected now. Written by the reception, read by everyone."""

from __future__ import annotations

from attrs import define, field

from intercom.sessions.messages import Agent


@define
class Presence:
    """`here` maps the key of each connected agent to it; `leaving` are those whose connection was lost a moment ago."""

    here: dict[str, Agent] = field(factory=dict)
    leaving: set[str] = field(factory=set)

    def has(self, key: str | None) -> bool:
        """Whether the agent of this key is connected (or may come back any moment)."""
        return key is not None and key in self.here

    def connected(self, key: str | None) -> bool:
        """Whether its connection is up now."""
        return key is not None and key in self.here and key not in self.leaving

    def count(self, workspace_root: str) -> int:
        """How many connected agents work in this workspace."""
        return sum(agent.workspace == workspace_root for agent in self.here.values())
