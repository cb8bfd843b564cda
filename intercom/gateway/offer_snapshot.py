"""What the gateway offers at one moment: the configuration, the roles, and the tools of all downstreams. Pure.

The gateway's actor makes a new snapshot when anything changes. Calls read the current one without asking the actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from attrs import define, field

from intercom.gateway.assignments import AgentIdentity, Assignments, narrowed_by, role_of
from intercom.gateway.catalog import Catalog, Entry, Visible
from intercom.gateway.config_directory import Signature
from intercom.gateway.downstream_config import DownstreamConfig, Expose
from intercom.gateway.messages import Offer
from intercom.gateway.resources_and_prompts import PROMPTS, RESOURCES
from intercom.gateway.roles import NO_ROLES, Decision, Effect, Roles, decide

_STRICTNESS: Final = {Effect.ALLOW: 0, Effect.ASK: 1, Effect.DENY: 2}


@define(eq=False, slots=False)
class OfferSnapshot:
    """One state of the gateway; never changed. `faults` are sentences about files with faults and tools left out.
    `signature` is that of the files that it was read from."""

    configs: Mapping[str, DownstreamConfig] = field(factory=dict)
    roles: Roles = NO_ROLES
    assignments: Assignments = field(factory=Assignments)
    offers: Mapping[str, Offer] = field(factory=dict)
    catalog: Catalog = field(factory=Catalog)
    faults: tuple[str, ...] = ()
    signature: Signature = ()
    _decided: dict[tuple[str | None, str | None, str, str], Effect] = field(factory=dict, init=False, repr=False)

    @cached_property
    def plain(self) -> frozenset[str]:
        """The downstreams whose tools and prompts have no prefix."""
        return frozenset(name for name, config in self.configs.items() if not config.prefix)

    @property
    def listed(self) -> tuple[object, ...]:
        """All that the lists of agents depend on."""
        shown = {name: (each.prefix, each.expose, each.capabilities) for name, each in self.configs.items()}
        return self.offers, self.roles, self.assignments, shown

    def role_of(self, agent: AgentIdentity) -> tuple[str | None, str]:
        """Return the role of an agent, None if it has none, and why."""
        return role_of(self.assignments, agent)

    def decide(self, agent: AgentIdentity, downstream: str, tool: str) -> Effect:
        """Return whether an agent may call a tool. The stricter of two roles counts if its client's name narrows it."""
        role, _ = self.role_of(agent)
        narrowed = narrowed_by(self.assignments, agent)
        key = (role, narrowed, downstream, tool)
        known = self._decided.get(key)
        if known is None:
            found = [self.decision(each, downstream, tool).effect for each in {role, narrowed} if each is not None]
            known = max(found, key=_STRICTNESS.__getitem__, default=Effect.DENY) if role is not None else Effect.DENY
            if len(self._decided) > 100_000:
                self._decided.clear()
            self._decided[key] = known
        return known

    def decision(self, role: str, downstream: str, tool: str) -> Decision:
        """Return what a role may do, with the rule that says so."""
        return decide(self.roles, role, downstream, tool)

    def is_read_only(self, downstream: str, verb: str) -> bool:
        """Whether a call changes nothing: a read of a resource or a prompt, or a tool of which the configuration says
        so."""
        if verb in (RESOURCES, PROMPTS):
            return True
        config = self.configs.get(downstream)
        return config is not None and config.is_read_only(verb)

    def sees(self, agent: AgentIdentity, downstream: str, verb: str) -> bool:
        """Whether a downstream's resources or prompts are shown to an agent."""
        config = self.configs.get(downstream)
        return config is not None and config.offers(verb) and self.decide(agent, downstream, verb) is not Effect.DENY

    def visible_to(self, agent: AgentIdentity) -> tuple[Visible, ...]:
        """Return the tools that an agent may call, in the order of the catalog."""
        found = []
        for entry in self.catalog.entries:
            effect = self.decide(agent, entry.downstream, entry.tool)
            if effect is not Effect.DENY:
                found.append(Visible(entry, asks=effect is Effect.ASK))
        return tuple(found)

    def is_searched(self, entry: Entry) -> bool:
        """Whether agents find this tool by `search_tools` only, instead of in their list."""
        config = self.configs.get(entry.downstream)
        return config is not None and config.expose is Expose.SEARCH

    @cached_property
    def has_search(self) -> bool:
        """Whether any downstream is exposed by search."""
        return any(config.expose is Expose.SEARCH for config in self.configs.values())
