"""The handlers of the commands with which people permit things in advance: grants, and rules of a policy."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, fields

from intercom.model import signing
from intercom.model.decision import Decision
from intercom.model.grant import GrantEntry, GrantLine, GrantPreview
from intercom.model.json_types import JsonObject
from intercom.model.policy import RulePreview, RuleWritten
from intercom.model.request import RiskLevel
from intercom.operators.commands.caller_and_handler import Caller, handles
from intercom.operators.commands.json_forms import form, plain, returns, shape
from intercom.sessions.operator_service import OperatorService

_entry = form(GrantEntry, *(each.name for each in fields(GrantEntry)))


@returns(shape("Grant", _entry))
def grant_entry(line: GrantLine) -> JsonObject:
    """Return the entry of a grant in `grants`."""
    return _entry(GrantEntry.of(line))


@returns(shape(grant_entry, status="granted"))
def _made_entry(line: GrantLine) -> JsonObject:
    return {**grant_entry(line), "status": "granted"}


@handles("grant", _made_entry)
async def grant(
    service: OperatorService,
    caller: Caller,
    id: str,
    duration: str | None = None,
    uses: str | None = None,
    pattern: str | None = None,
    risk: str | None = None,
    session: str | None = None,
    scope: str | None = None,
) -> GrantLine:
    """Permit requests like this card's in advance. `session` and `scope` are those of the preview that was shown."""
    return await service.grants.make(
        id,
        caller.name,
        caller.channel.value,
        pattern=pattern,
        risk=risk,
        duration=duration,
        uses=uses,
        scope=scope,
        session=session,
        act_id=caller.act,
        signed=caller.signed,
        origin=caller.origin,
    )


@handles("grant-preview", plain)
async def grant_preview(
    service: OperatorService,
    caller: Caller,
    id: str,
    duration: str | None = None,
    uses: str | None = None,
    pattern: str | None = None,
    risk: str | None = None,
) -> GrantPreview:
    return await service.grants.preview(id, pattern=pattern, risk=risk, duration=duration, uses=uses)


@returns(shape(grants=[grant_entry]))
def _grant_entries(lines: Sequence[GrantLine]) -> JsonObject:
    return {"grants": [grant_entry(each) for each in lines]}


@handles("grants", _grant_entries)
async def grants(
    service: OperatorService, caller: Caller, everything: bool = False, session: str | None = None
) -> Sequence[GrantLine]:
    return await service.grants.listed(session, everything=everything)


@returns(shape(grant_entry, status="revoked"))
def _revoked_entry(line: GrantLine) -> JsonObject:
    return {**grant_entry(line), "status": "revoked"}


@handles("revoke", _revoked_entry)
async def revoke(service: OperatorService, caller: Caller, id: str) -> GrantLine:
    """End a grant, by the prefix of its id."""
    return await service.grants.revoke(id, caller.name, caller.channel.value, caller.origin)


# --- rules of a policy ------------------------------------------------------------------------------------------------


@handles("allow-preview", plain)
async def allow_preview(
    service: OperatorService, caller: Caller, id: str, pattern: str | None = None, risk: str | None = None
) -> RulePreview:
    return await service.rules.preview(id, pattern=pattern, risk=risk)


@handles("allow", plain)
async def allow(
    service: OperatorService,
    caller: Caller,
    id: str,
    pattern: str | None = None,
    risk: str | None = None,
    sha256: str | None = None,
) -> RuleWritten:
    """Write the rule, and accept the policy. With an operator key a person at ctl accepts it by a command of its own,
    which they sign. `sha256` is the hash of the file that was shown."""
    is_signed_here = caller.channel.value in signing.SIGNED_HERE
    if service.signatures.required and is_signed_here:
        # Before anything is written. The risk is that of a policy's card.
        service.signatures.check_level(caller.channel.value, RiskLevel.HIGH)
    written = await service.rules.write(id, caller.name, pattern=pattern, risk=risk, shown=sha256)
    if written.policy_id is None or (service.signatures.required and not is_signed_here):
        return written
    verdict = caller.verdict(Decision.ACCEPT, None)
    await service.decide_policy(written.workspace_root, verdict, written.sha256)
    return evolve(written, status="in force", policy_id=None)
