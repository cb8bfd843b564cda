"""Which policy is in force in a workspace: a pure state machine over what its file says and who is connected.

The policy found at start holds. What grants less takes effect at once. What grants more while agents are connected (one
of them may have written it) waits until a person accepts it; meanwhile only what both grant is in force.
"""

from __future__ import annotations

from attrs import evolve, frozen

from intercom.model.errors import NotFound
from intercom.model.policy import DENY_ALL, WorkspacePolicy
from intercom.workspace.hashing import digest
from intercom.workspace.policy_file import Loaded, parse, render
from intercom.workspace.widening import narrowed, widens


@frozen
class InForce:
    """A policy with a text that states it and that text's hash, to be kept across restarts."""

    policy: WorkspacePolicy
    sha256: str
    text: str


@frozen
class Proposed:
    """A policy that waits for a person: the hash and text of its file, and the ways in which it grants more."""

    policy: WorkspacePolicy
    sha256: str
    text: str
    ways: tuple[str, ...]


@frozen
class PolicyState:
    """`policy` is what decides now. `in_force` is what was last in force with no fault in the file: with a `fault`,
    nothing is granted, but what stood before may come back unasked once the fault is mended."""

    in_force: InForce
    source: str | None = None
    proposed: Proposed | None = None
    fault: str | None = None

    @property
    def policy(self) -> WorkspacePolicy:
        return DENY_ALL if self.fault is not None else self.in_force.policy


def started(loaded: Loaded, kept: tuple[str, str] | None) -> PolicyState:
    """The state at start. `kept` are hash and text of what was in force before the server went away while agents
    lived: the file found now is then held against it, as any change under a live agent is."""
    if kept is None:
        policy = loaded.policy
        return PolicyState(_in_force(policy, loaded), loaded.source, fault=loaded.fault)
    sha, text = kept
    # A text that can not be read any more states nothing.
    state = PolicyState(InForce(parse(text)[0], sha, text))
    return changed(state, loaded, agents=True)


def changed(state: PolicyState, loaded: Loaded, agents: bool, trust: bool = False) -> PolicyState:
    """The state after the file was read again. `agents` says that one is connected; `trust` takes every change."""
    if loaded.fault is not None:
        return evolve(state, source=loaded.source, fault=loaded.fault, proposed=None)
    # What was held back stays so when the agents have left: they need not be connected to come back for it.
    held = state.proposed is not None and state.proposed.sha256 == loaded.sha256
    ways = widens(state.in_force.policy, loaded.policy)
    if not ways or trust or not (agents or held):
        return PolicyState(_in_force(loaded.policy, loaded), loaded.source)
    both = narrowed(state.in_force.policy, loaded.policy)
    in_force = state.in_force if both == state.in_force.policy else _in_force(both, None)
    proposed = Proposed(loaded.policy, loaded.sha256 or "", loaded.text or "", ways)
    return PolicyState(in_force, loaded.source, proposed)


def accepted(state: PolicyState, sha256: str) -> PolicyState:
    """The state after a person accepted the proposed policy. Raises NotFound when it is not the one that waits."""
    proposed = state.proposed
    if proposed is None or proposed.sha256 != sha256:
        raise NotFound("no policy with this content waits to be accepted; look at the policy file as it is now")
    return evolve(state, in_force=InForce(proposed.policy, proposed.sha256, proposed.text), proposed=None)


def _in_force(policy: WorkspacePolicy, loaded: Loaded | None) -> InForce:
    if loaded is not None and loaded.text is not None and loaded.sha256 is not None and loaded.fault is None:
        return InForce(policy, loaded.sha256, loaded.text)
    text = render(policy)
    return InForce(policy, digest(text.encode()), text)
