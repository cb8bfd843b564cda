"""What a policy watcher understands."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.approval import RiskLevel
from intercom.model.policy import PolicyAnswer
from intercom.workspace.policy import Query
from intercom.workspace.policy_state import PolicyState


@frozen
class Evaluate(Request[PolicyAnswer]):
    """Does the policy let this operation pass without a person?"""

    query: Query


@frozen
class EvaluateFiles(Request[PolicyAnswer]):
    """Does the policy let a proposal that changes all of these files pass without a person? Paths are canonical."""

    paths: tuple[str, ...]
    risk: RiskLevel


@frozen
class Current(Request[PolicyState]):
    """What is in force, what waits to be accepted, and what is wrong with the file?"""


@frozen
class Accept(Request[PolicyState]):
    """Put the proposed policy with this hash in force; `by` is the person. Refused (not_found) when it is not what
    waits."""

    sha256: str
    by: str


@frozen
class AgentsConnected(Request[None]):
    """So many agents are connected to this workspace now.

    Ask it before the first call of an agent that connects is served: once it is answered, no change that the agent
    makes can pass for one that was there before. When one leaves, telling is enough.
    """

    count: int


@frozen
class FileTouched:
    """The policy file may have changed."""
