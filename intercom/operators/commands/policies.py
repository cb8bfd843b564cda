"""Commands about the workspaces' policies: list, show, accept and reject them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from intercom.model.card import Card
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments
from intercom.operators.commands.entries import plain, under
from intercom.operators.commands.handler import Caller, Nothing, handles
from intercom.sessions.operator_service import OperatorService
from intercom.sessions.policies import PolicyStatus


@frozen
class OnePolicy:
    """A policy by its card's id or its workspace."""

    id: str | None = None
    workspace: str | None = None


@frozen
class AcceptPolicy:
    """Without a name, the only policy that waits. `sha256` is the hash of the text that the person saw."""

    id: str | None = None
    workspace: str | None = None
    sha256: str | None = None


@frozen
class RejectPolicy:
    id: str | None = None
    workspace: str | None = None
    sha256: str | None = None
    reason: str | None = None


def _decided_entry(status: str) -> Callable[[Card], dict[str, Any]]:
    return lambda card: {"request_id": card.id, "status": status, "workspace_root": card.workspace_root}


@handles("policy-list", Nothing, under("policies"))
async def policy_list(service: OperatorService, caller: Caller, asked: Nothing) -> Sequence[PolicyStatus]:
    return await service.policies()


@handles("policy-show", OnePolicy, plain)
async def policy_show(service: OperatorService, caller: Caller, asked: OnePolicy) -> PolicyStatus:
    named = asked.workspace or asked.id
    if named is None:
        raise InvalidArguments("policy-show needs an id; see pending")
    return await service.policy(named)


@handles("policy-accept", AcceptPolicy, _decided_entry("accepted"))
async def policy_accept(service: OperatorService, caller: Caller, asked: AcceptPolicy) -> Card:
    verdict = caller.verdict(Decision.ACCEPT, None)
    return await service.decide_policy(asked.workspace or asked.id, verdict, asked.sha256)


@handles("policy-reject", RejectPolicy, _decided_entry("rejected"))
async def policy_reject(service: OperatorService, caller: Caller, asked: RejectPolicy) -> Card:
    verdict = caller.verdict(Decision.REJECT, asked.reason or caller.default_reason)
    return await service.decide_policy(asked.workspace or asked.id, verdict, asked.sha256)
