"""With an operator key a grant counts only as it was signed: not from the database, not again, not for longer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve

from intercom.model import signing
from intercom.model.config import Config, DecisionsSettings, HighestRisk
from intercom.model.decision import Decision, SignedCommand
from intercom.model.errors import IntercomError, InvalidState, SignatureRefused
from intercom.model.grant import GrantLine
from intercom.model.request import Operation, OperationKind, RiskLevel
from intercom.operators.commands import command_execution as requests
from intercom.operators.ctl.connection import CtlRequest
from intercom.sessions.messages import AskPermission
from intercom.sessions.tools.check_diff import CheckDiff
from tests.sessions.signed.keyed_server import enrol, keyed, sql
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def signed_for(server: VirtualServer, key: Key, id: str, **more: Any) -> SignedCommand:
    """The command as ctl signs it, after its preview."""
    shown = await server.app.service.grants.preview(id)
    fields = {"id": shown.request_id, "session": shown.session_id, "scope": shown.scope, "duration": "20m", "uses": "2"}
    method = more.pop("method", signing.PIN)
    return key.command("grant", server.now(), method=method, **{**fields, **more})


def request_of(signed: SignedCommand, **more: str) -> CtlRequest:
    return CtlRequest("grant", {**signed.fields, **more}, signed.signature.decision_id, signed.signature)


async def grant(server: VirtualServer, key: Key, id: str, **more: Any) -> Any:
    """The grant, through the local socket's own checks."""
    signed = await signed_for(server, key, id, **more)
    return await requests.carry_out(server.app.service, request_of(signed), "kim", None)


async def status(agent: AgentClient, path: str, call: str | None = None) -> str | None:
    opened = await agent.propose(path, "b\n", call=call)
    return None if opened.answered is None else str(opened.answered.answer.status)


async def lines(server: VirtualServer) -> tuple[GrantLine, ...]:
    return await server.app.service.grants.listed(everything=True)


async def test_a_signed_grant_lets_pass_and_be_applied(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    made = await grant(server, key, (await agent.propose()).request_id)
    assert made["status"] == "granted"
    opened = await agent.propose("b.txt", "b\n")
    assert opened.answered is not None
    assert opened.answered.answer.status == "approved"
    await agent.ask(CheckDiff(opened.request_id))
    assert (root / "b.txt").read_text() == "b\n"
    (entry,) = [each for each in await server.app.service.audit(50) if each.kind == "grant_made"]
    assert entry.data is not None
    assert entry.data["signature"]["key_id"] == key.public.id


async def test_an_unsigned_grant_is_none(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    id = (await agent.propose()).request_id
    with pytest.raises(SignatureRefused, match="takes only decisions signed"):
        await requests.carry_out(server.app.service, CtlRequest("grant", {"id": id}, "act"), "kim", None)
    with pytest.raises(SignatureRefused):
        await server.app.service.grants.make(id, "kim", "ctl")
    assert not await lines(server)


async def test_a_grant_needs_the_pin_itself(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    with pytest.raises(IntercomError, match="with the PIN itself"):
        await grant(server, key, (await agent.propose()).request_id, method=signing.TICKET)


@pytest.mark.parametrize(
    "more",
    [
        {"uses": "1000"},
        {"duration": "24h"},
        {"scope": '{"kind":"change","patterns":["**"],"risk":"high","tool":null}'},
        {"session": "another"},
        {"pattern": "**"},
    ],
)
async def test_what_was_not_signed_is_not_granted(
    server: VirtualServer, agent: AgentClient, key: Key, more: dict[str, str]
) -> None:
    signed = await signed_for(server, key, (await agent.propose()).request_id)
    with pytest.raises(SignatureRefused):
        await requests.carry_out(server.app.service, request_of(signed, **more), "kim", None)
    assert not await lines(server)


async def test_a_process_may_bring_only_what_a_pin_was_typed_for(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    signed = await signed_for(server, key, (await agent.propose()).request_id)
    assert requests.is_proven(server.app.service, request_of(signed))
    assert not requests.is_proven(server.app.service, request_of(signed, uses="3"))
    assert not requests.is_proven(server.app.service, CtlRequest("grant", {"id": "x"}, "act"))
    assert not requests.is_proven(server.app.service, CtlRequest("revoke", {"id": "x"}, "act", signed.signature))


async def test_a_command_that_is_sent_again_makes_no_second_grant(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    signed = await signed_for(server, key, (await agent.propose()).request_id)
    first = await requests.carry_out(server.app.service, request_of(signed), "kim", None)
    await server.app.service.grants.revoke(first["grant_id"], "kim", "ctl")
    again = await requests.carry_out(server.app.service, request_of(signed), "kim", None)
    assert again == first
    assert await status(agent, "b.txt") is None


@pytest.mark.parametrize(
    "change",
    [
        "update grant set uses = 1000",
        "update grant set seconds = 86400",
        "update grant set created_at = '2026-01-01T00:10:00.000000+00:00'",
        """update grant set scope = '{"kind":"change","patterns":["**"],"risk":"high","tool":null}'""",
        "update grant set signature = null",
        "update grant set granted_via = 'slack'",
        "update grant set granted_via = 'embed'",
        "update grant set request_id = 'another'",
        "update grant set id = 'another'",
    ],
)
async def test_a_row_that_was_changed_lets_nothing_pass(
    server: VirtualServer, agent: AgentClient, key: Key, change: str
) -> None:
    await grant(server, key, (await agent.propose()).request_id)
    assert await status(agent, "b.txt") == "approved"
    sql(server, change)
    assert await status(agent, "c.txt") is None


async def test_a_row_of_another_session_lets_nothing_pass_there(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    await grant(server, key, (await agent.propose()).request_id)
    other = await server.arrive(root, "other")
    sql(server, "update grant set session_id = ?", other.session_id)
    assert await status(other, "b.txt") is None
    sql(server, "update audit set session_id = ? where kind = 'grant_made'", other.session_id)
    assert await status(other, "c.txt") is None
    (line,) = await lines(server)
    assert line.over == "it does not count: the signature is for another grant"


async def test_uses_are_not_given_back(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    await grant(server, key, (await agent.propose()).request_id, uses="1")
    assert await status(agent, "b.txt") == "approved"
    # Not even with the entries of the audit log gone while the server runs.
    sql(server, "delete from audit where kind = 'grant_used'")
    assert await status(agent, "c.txt") is None


async def test_a_revocation_is_not_taken_back(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    made = await grant(server, key, (await agent.propose()).request_id)
    await server.app.service.grants.revoke(made["grant_id"], "kim", "ctl")
    sql(server, "update grant set revoked_at = null, revoked_by = null")
    sql(server, "delete from audit where kind = 'grant_revoked'")
    assert await status(agent, "b.txt") is None


async def test_an_approval_that_names_a_grant_is_applied_only_if_the_grant_was_used_for_it(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    made = await grant(server, key, (await agent.propose()).request_id)
    (root / "src").mkdir()
    id = (await agent.propose("src/a.txt", "evil\n")).request_id
    sql(
        server,
        "update approval_request set status = 'approved', verdict_id = 'x', verdict = 'approve', decided_by = 'grant',"
        " decided_via = 'grant', decided_at = created_at, decided_text = ?, auto_rule = ? where id = ?",
        f"grant/{made['grant_id']}",
        f"grant/{made['grant_id']}",
        id,
    )
    with pytest.raises(InvalidState, match="no use of a grant"):
        await agent.ask(CheckDiff(id))
    assert not (root / "src" / "a.txt").exists()


async def test_a_hook_is_answered_again_only_by_a_recorded_use(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    make = Operation(OperationKind.COMMAND, "Bash", "Run: make", "make", "make")
    tool = Operation(OperationKind.COMMAND, "Bash", "Run: true", "true", "true")
    asked = await agent.ask(AskPermission(agent.call(), "client", tool, "one"))
    made = await grant(server, key, asked.request_id)

    async def may(operation: Operation, call: str) -> Any:
        opened = await agent.ask(AskPermission(call, "client", operation, "one"))
        return None if opened.answered is None else opened.answered.answer

    # A person has yet to decide about the first one, and goes before the grant.
    assert await may(tool, "c1") is None
    other = evolve(tool, identity="true again")
    assert (await may(other, "c2")).rule == f"grant/{made['grant_id']}"
    assert (await may(other, "c2")).status == "allowed"
    (line,) = await lines(server)
    assert line.used == 1
    await server.app.service.grants.revoke(made["grant_id"], "kim", "ctl")
    assert (await may(other, "c2")).status == "denied"
    assert await may(make, "c3") is None


async def test_a_channel_that_may_decide_signs_itself_up_to_its_risk(root: Path, clock: Clock, key: Key) -> None:
    config = Config(decisions=DecisionsSettings(embed=HighestRisk.LOW))
    async with keyed(root, clock, key, config) as server:
        agent = await server.arrive(root)
        low = (await agent.propose()).request_id
        high = (await agent.propose("b.txt", risk=RiskLevel.HIGH)).request_id
        grants = server.app.service.grants
        with pytest.raises(SignatureRefused, match="high risk"):
            await grants.make(high, "kim", "embed")
        with pytest.raises(SignatureRefused, match="slack"):
            await grants.make(low, "kim", "slack")
        await grants.make(low, "kim", "embed")
        assert await status(agent, "c.txt") == "approved"
        sql(server, "update grant set uses = 11")
        assert await status(agent, "d.txt") is None


async def test_what_was_approved_or_granted_before_there_was_a_key_does_not_count_any_more(
    clock: Clock, root: Path
) -> None:
    key = Key()
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        approved = (await agent.propose()).request_id
        await server.app.service.grants.make(approved, "kim", "ctl")
        await server.decide(approved, Decision.APPROVE)
        assert await status(agent, "b.txt") == "approved"
        await enrol(server, key)
        with pytest.raises(IntercomError):
            await agent.ask(CheckDiff(approved))
        assert await status(agent, "c.txt") is None
    assert os.listdir(root) == []
