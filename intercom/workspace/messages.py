"""The messages that a policy watcher accepts."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.approval import RiskLevel
from intercom.model.policy import PolicyAnswer, PolicyDecision
from intercom.workspace.policy import Query
from intercom.workspace.policy_state import PolicyState


@frozen
class Evaluate(Request[PolicyAnswer]):
    """A request to evaluate whether the policy allows this operation without a person."""

    query: Query


@frozen
class EvaluateFiles(Request[PolicyAnswer]):
    """A request to evaluate whether the policy allows a proposal that changes all of these files without a person.

    `paths` are canonical. `in_place`: a client writes to the files themselves, and so changes every hard link to them.
    """

    paths: tuple[str, ...]
    risk: RiskLevel
    in_place: bool = False


@frozen
class Current(Request[PolicyState]):
    """A request for the present state: the policy in force, the proposed one, and the file's fault."""


@frozen
class PolicyDecided(Request[PolicyState]):
    """A request to act on a decision of a person about a policy file's content, already recorded."""

    decision: PolicyDecision


@frozen
class FileTouched:
    """A notification that the policy file may have changed."""
