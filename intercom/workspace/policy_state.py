"""The policy in force in a workspace: a pure state machine over its file and people's decisions about it.

A policy takes effect when a person accepts its content, by hash, for this workspace. If the file then changes, only
what the accepted policy grants too is in force: a narrower file takes effect at once, a wider one waits. What a file
has removed stays removed even if the older content returns, because a person may have removed it.
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
    """The stored decisions on a workspace's policy. `accepted` is the content in force, or None. `narrowing` is the
    text it is narrowed to, or None. `rejected` are the hashes of rejected contents."""

    accepted: PolicyDecision | None = None
    narrowing: str | None = None
    rejected: frozenset[str] = frozenset()


def record_of(decisions: Iterable[PolicyDecision], narrowing: str | None) -> PolicyRecord:
    """Reduce `decisions`, oldest first, to a record. The content accepted last counts, unless rejected later. A
    decision whose text does not match its hash is ignored."""
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
    """A policy, a text that states it, and the hash of that text."""

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
    """The state of a workspace's policy.

    `policy` is what decides now. `in_force` is what was last in force without a fault in the file. A `fault` grants
    nothing, but `in_force` returns without a new decision after the fault is repaired. `is_trusted`: the server's
    configuration accepts every content without asking.
    """

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
        """The text that the accepted policy is narrowed to, for the record; None if it is not narrowed."""
        accepted = self.record.accepted
        if accepted is None or self.is_trusted or self.in_force.policy == parse(accepted.text)[0]:
            return None
        return self.in_force.text


def started(loaded: Loaded, record: PolicyRecord, trust: bool = False) -> PolicyState:
    """Return the state at start, from the file as `loaded` and the stored decisions."""
    return changed(PolicyState(_granted_by(record), record), loaded, trust)


def changed(state: PolicyState, loaded: Loaded, trust: bool = False) -> PolicyState:
    """Return the state after the file was read again. `trust` accepts every content."""
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
    """Return the state after a person's decision, with the file as `loaded` now."""
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
    # A text that this version cannot parse grants nothing.
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
