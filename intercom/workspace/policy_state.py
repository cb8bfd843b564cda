"""Which policy is in force in a workspace: a pure state machine over its file and what people decided about it.

A policy counts when a person accepted its content for this workspace, by hash. Of a file whose content was not
accepted, only that is in force which the accepted one grants too: what grants less takes effect at once, what grants
more waits.
What a file has taken away stays away, also when the older content comes back: a person may have taken it away.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from intercom.model.policy import DENY_ALL, PolicyDecision, WorkspacePolicy
from intercom.workspace.hashing import digest
from intercom.workspace.policy_file import Loaded, parse, render
from intercom.workspace.widening import narrowed, widens


@frozen
class PolicyRecord:
    """What is on record about a workspace's policy: the content that counts as accepted, None for none; the text of
    what its file has narrowed that to, None for not at all; the hashes of what was rejected."""

    accepted: PolicyDecision | None = None
    narrowing: str | None = None
    rejected: frozenset[str] = frozenset()


def record_of(decisions: Iterable[PolicyDecision], narrowing: str | None) -> PolicyRecord:
    """The record that `decisions` come to, oldest first: the content accepted last counts, and no other; it does not
    once it is rejected. A decision whose text is not what its hash says counts for nothing."""
    accepted: PolicyDecision | None = None
    rejected: set[str] = set()
    for each in decisions:
        if not each.is_sound:
            continue
        if each.accepted:
            accepted = each
            rejected.discard(each.sha256)
            continue
        rejected.add(each.sha256)
        if accepted is not None and accepted.sha256 == each.sha256:
            accepted = None
    return PolicyRecord(accepted, narrowing, frozenset(rejected))


@frozen
class InForce:
    """A policy with a text that states it, and that text's hash."""

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
    nothing is granted, but what stood before comes back unasked once the fault is mended. `is_trusted` says that the
    server's configuration takes every content, and that nobody was asked."""

    in_force: InForce
    record: PolicyRecord = PolicyRecord()
    source: str | None = None
    proposed: Proposed | None = None
    fault: str | None = None
    is_trusted: bool = False

    @property
    def policy(self) -> WorkspacePolicy:
        return DENY_ALL if self.fault is not None else self.in_force.policy

    @property
    def narrowing(self) -> str | None:
        """What the accepted policy has been narrowed to, for the record; None for not at all."""
        accepted = self.record.accepted
        if accepted is None or self.is_trusted or self.in_force.policy == parse(accepted.text)[0]:
            return None
        return self.in_force.text


def started(loaded: Loaded, record: PolicyRecord, trust: bool = False) -> PolicyState:
    """The state at start, when `loaded` is what the file says and `record` what people have decided before."""
    return changed(PolicyState(_granted_by(record), record), loaded, trust)


def changed(state: PolicyState, loaded: Loaded, trust: bool = False) -> PolicyState:
    """The state after the file was read again; `trust` takes every content."""
    if loaded.fault is not None:
        return evolve(state, source=loaded.source, fault=loaded.fault, proposed=None)
    ways = () if trust else widens(state.in_force.policy, loaded.policy)
    if not ways:
        in_force = _in_force(loaded.policy, loaded)
        return PolicyState(in_force, state.record, loaded.source, is_trusted=trust)
    both = narrowed(state.in_force.policy, loaded.policy)
    in_force = state.in_force if both == state.in_force.policy else _in_force(both, None)
    proposed = Proposed(loaded.policy, loaded.sha256 or "", loaded.text or "", ways)
    return PolicyState(in_force, state.record, loaded.source, proposed)


def decided(state: PolicyState, decision: PolicyDecision, loaded: Loaded, trust: bool = False) -> PolicyState:
    """The state after a person decided about some content, when `loaded` is what the file says by now."""
    before = state.record
    if decision.accepted:
        record = PolicyRecord(decision, None, before.rejected - {decision.sha256})
        in_force = _granted_by(record)
    else:
        is_withdrawn = before.accepted is not None and before.accepted.sha256 == decision.sha256
        accepted = None if is_withdrawn else before.accepted
        record = evolve(before, accepted=accepted, rejected=before.rejected | {decision.sha256})
        in_force = _granted_by(record) if is_withdrawn else state.in_force
    return changed(PolicyState(in_force, record, state.source), loaded, trust)


def _granted_by(record: PolicyRecord) -> InForce:
    accepted = record.accepted
    if accepted is None or not accepted.is_sound:
        return _in_force(DENY_ALL, None)
    # A text that cannot be read any more states nothing.
    policy = parse(accepted.text)[0]
    if record.narrowing is None:
        return InForce(policy, accepted.sha256, accepted.text)
    both = narrowed(policy, parse(record.narrowing)[0])
    return InForce(policy, accepted.sha256, accepted.text) if both == policy else _in_force(both, None)


def _in_force(policy: WorkspacePolicy, loaded: Loaded | None) -> InForce:
    if loaded is not None and loaded.text is not None and loaded.sha256 is not None and loaded.fault is None:
        return InForce(policy, loaded.sha256, loaded.text)
    text = render(policy)
    return InForce(policy, digest(text.encode()), text)
