"""What a policy watcher understands."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.approval import RiskLevel
from intercom.model.policy import PolicyAnswer, PolicyDecision
from intercom.workspace.policy import Query
from intercom.workspace.policy_state import PolicyState


@frozen
class Evaluate(Request[PolicyAnswer]):
    """Does the policy let this operation pass without a person?"""

    query: Query


@frozen
class EvaluateFiles(Request[PolicyAnswer]):
    """Does the policy let a proposal that changes all of these files pass without a person? Paths are canonical;
    `in_place` says that a client writes into the files themselves, and so into all their names."""

    paths: tuple[str, ...]
    risk: RiskLevel
    in_place: bool = False


@frozen
class Current(Request[PolicyState]):
    """What is in force, what waits to be accepted, and what is wrong with the file?"""


@frozen
class PolicyDecided(Request[PolicyState]):
    """A person decided about some content of the policy file, and it is on record: act on it."""

    decision: PolicyDecision


@frozen
class FileTouched:
    """The policy file may have changed."""
