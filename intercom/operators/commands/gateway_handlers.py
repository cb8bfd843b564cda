"""The handlers of the gateway's operator commands."""

from __future__ import annotations

from collections.abc import Sequence

from intercom.model.errors import InvalidState
from intercom.model.gateway_view import (
    BudgetView,
    CallResult,
    CallTail,
    CheckedCall,
    DownstreamDetail,
    DownstreamList,
    DownstreamView,
    EvidenceFound,
    EvidenceLine,
    GatewayOperations,
    HealthReport,
    LintFinding,
    RoleExplanation,
)
from intercom.model.json_types import JsonObject
from intercom.operators.commands.caller_and_handler import Caller, handles
from intercom.operators.commands.command_table import LISTED
from intercom.operators.commands.json_forms import form, plain, returns, shape, under
from intercom.sessions.operator_service import OperatorService


def _gateway(service: OperatorService) -> GatewayOperations:
    if service.gateway is None:
        why = service.no_gateway_reason or "set enabled under [gateway] in its configuration, and start it again"
        raise InvalidState(f"this server has no gateway: {why}", code="no_gateway")
    return service.gateway


@handles("gateway-list", plain)
async def gateway_list(service: OperatorService, caller: Caller) -> DownstreamList:
    gateway = _gateway(service)
    return DownstreamList(tuple(await gateway.list()), tuple(await gateway.faults()))


@handles("gateway-show", plain)
async def gateway_show(service: OperatorService, caller: Caller, id: str, tool: str | None = None) -> DownstreamDetail:
    return await _gateway(service).show(id, tool)


@handles("gateway-test", plain)
async def gateway_test(service: OperatorService, caller: Caller, id: str) -> HealthReport:
    return await _gateway(service).test(id)


@handles("gateway-call", plain)
async def gateway_call(
    service: OperatorService, caller: Caller, id: str, tool: str, text: str | None = None
) -> CallResult:
    """Call a tool; `text` has its arguments, as `gateway-check` returns them."""
    return await _gateway(service).call(id, tool, text, caller.name, caller.act)


@handles("gateway-check", plain)
async def gateway_check(
    service: OperatorService, caller: Caller, id: str, tool: str, text: str | None = None
) -> CheckedCall:
    """Check a call; `text` has its arguments as the person wrote them."""
    return await _gateway(service).check(id, tool, text)


@handles("gateway-enable", form(DownstreamView, "name", "reason", status="enabled"))
async def gateway_enable(service: OperatorService, caller: Caller, id: str) -> DownstreamView:
    return await _gateway(service).set_enabled(id, True, caller.name, caller.signature)


@handles("gateway-disable", form(DownstreamView, "name", "reason", status="disabled"))
async def gateway_disable(service: OperatorService, caller: Caller, id: str) -> DownstreamView:
    return await _gateway(service).set_enabled(id, False, caller.name, caller.signature)


@handles("gateway-tail", plain)
async def gateway_tail(
    service: OperatorService, caller: Caller, id: str | None = None, limit: int = LISTED, start: int | None = None
) -> CallTail:
    """Return the last `limit` calls, or the first ones after the entry `start`."""
    return await _gateway(service).tail(id, start=start, limit=limit)


@returns(shape(lines=[EvidenceLine], exports=[dict[str, object]]))
def _evidence_form(found: EvidenceFound) -> JsonObject:
    """Return the form of kept results. Exports are JSON already, and may be nested deeper than `plain` goes."""
    return {"lines": plain(found.lines), "exports": list(found.exports)}


@handles("gateway-evidence", _evidence_form)
async def gateway_evidence(
    service: OperatorService,
    caller: Caller,
    text: str | None = None,
    session: str | None = None,
    name: str | None = None,
    tool: str | None = None,
    limit: int = LISTED,
) -> EvidenceFound:
    """Return the kept results whose ids are the words of `text`; without these, list the newest."""
    ids = tuple(dict.fromkeys((text or "").split()))
    return await _gateway(service).evidence(ids, session=session or "", name=name or "", tool=tool or "", limit=limit)


@handles("gateway-explain", plain)
async def gateway_explain(
    service: OperatorService, caller: Caller, role: str, id: str | None = None, tool: str | None = None
) -> RoleExplanation:
    return await _gateway(service).explain(role, id, tool)


@handles("gateway-budgets", under("budgets"))
async def gateway_budgets(service: OperatorService, caller: Caller) -> Sequence[BudgetView]:
    return await _gateway(service).budgets()


@handles("gateway-lint", under("findings"))
async def gateway_lint(service: OperatorService, caller: Caller) -> Sequence[LintFinding]:
    """Read the gateway's files now, and return what is wrong with them."""
    return await _gateway(service).lint()
