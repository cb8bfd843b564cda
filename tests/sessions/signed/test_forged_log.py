"""`audit verify` believes no entry only because a genuine signature is in it: each is for one act, and counts once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from intercom.local.passkeys import from_base64url, to_base64url
from intercom.model import signing
from intercom.model.audit import AuditEntry
from intercom.model.config import Config, DecisionsSettings, HighestRisk
from intercom.model.decision import Decision
from intercom.operators.commands.command_execution import CommandRequest, carry_out
from intercom.sessions.tools.transmit import Transmit
from intercom.store import audit
from intercom.store.writer_messages import Transact
from tests.sessions.signed.keyed_server import approve, keyed, sql
from tests.sessions.signed.test_passkeys import add_phone, faults
from tests.sessions.signed.test_signed_grants import grant
from tests.sessions.test_policy_trust import POLICY, waiting, write
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer


async def made(server: VirtualServer, kind: str) -> AuditEntry:
    """The newest entry of this kind, whose signature is genuine."""
    assert faults(server) == []
    return [each for each in await server.app.service.audit(50) if each.kind == kind][-1]


async def forge(
    server: VirtualServer, entry: AuditEntry, summary: str | None = None, at: datetime | None = None, **changes: Any
) -> list[str]:
    """Write an entry like this one, with these changes, as a process of this user can; return what `audit verify`
    finds."""
    data = {**json.loads(json.dumps(entry.data)), **changes}
    work = partial(
        audit.record,
        at=at or server.now(),
        kind=entry.kind,
        session_id=entry.session_id,
        who="kim",
        summary=summary or entry.summary,
        data=data,
    )
    await server.ask("store", Transact(work))
    return faults(server)


async def granted(server: VirtualServer, agent: AgentClient, key: Key, root: Path) -> AuditEntry:
    await grant(server, key, (await agent.propose()).request_id)
    return await made(server, "grant_made")


async def taken_back(server: VirtualServer, agent: AgentClient, key: Key, root: Path) -> AuditEntry:
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    signed = key.command("take-back", server.now(), id=id)
    request = CommandRequest("take-back", signed.fields, signed.signature.decision_id, signed.signature)
    await carry_out(server.app.service, request, "kim", None)
    return await made(server, "decision_taken_back")


async def accepted(server: VirtualServer, agent: AgentClient, key: Key, root: Path) -> AuditEntry:
    write(root, POLICY)
    card = await waiting(server, root)
    await server.app.service.decide(card.id, key.verdict(card, Decision.ACCEPT, server.now()))
    return await made(server, "policy_accept")


async def answered(server: VirtualServer, agent: AgentClient, key: Key, root: Path) -> AuditEntry:
    id = (await agent.ask(Transmit("What now?"))).request_id
    card = await server.app.service.card(id)
    await server.app.service.decide(id, key.verdict(card, Decision.STOP, server.now()))
    return await made(server, "decided")


Make = Callable[[VirtualServer, AgentClient, Key, Path], Awaitable[AuditEntry]]

#: The changes with which an entry is written again; without any it is the same act once more.
FORGED: dict[Make, list[dict[str, Any]]] = {
    granted: [{}, {"grant_id": "another"}, {"scope": "{}", "uses": 10000}],
    taken_back: [{}, {"request_id": "another", "verdict_id": "v"}],
    accepted: [{"sha256": "00" * 32}, {"workspace_root": "/elsewhere"}],
    answered: [{}, {"summary": "continue"}, {"request_id": "another"}],
}


@pytest.mark.parametrize("make", FORGED)
async def test_a_signature_that_is_used_again_in_the_log_is_found(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, make: Make
) -> None:
    entry = await make(server, agent, key, root)
    for number, changes in enumerate(FORGED[make], 1):
        assert len(await forge(server, entry, **changes)) == number


@pytest.mark.parametrize("make", [granted, taken_back, accepted])
async def test_what_calls_itself_a_channels_signature_is_verified(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, make: Make
) -> None:
    entry = await make(server, agent, key, root)
    assert entry.data is not None
    for number, channel in enumerate(("ctl", "web", "slack", "embed"), 1):
        value = f"{number:02x}" * 64
        said = {**entry.data["signature"], "method": signing.CHANNEL, "key_id": f"{channel}:0000", "value": value}
        assert len(await forge(server, entry, channel=channel, signature=said)) == number


async def test_what_a_channel_has_signed_is_no_fault(clock: trio.testing.MockClock, root: Path) -> None:
    key, config = Key(), Config(decisions=DecisionsSettings(embed=HighestRisk.LOW))
    async with keyed(root, clock, key, config) as server:
        agent, service = await server.arrive(root), server.app.service
        rejected, granted = [(await agent.propose(name)).request_id for name in ("a.txt", "b.txt")]
        asked = (await agent.ask(Transmit("What now?"))).request_id
        await service.grants.make(granted, "kim", "embed")
        acts = {rejected: Decision.REJECT, asked: Decision.CONTINUE, granted: Decision.APPROVE}
        for id, decision in acts.items():
            await service.decide(id, evolve(server.verdict(decision), channel="embed", id=f"v-{id}"))
        await service.steering.steer(agent.session_id, "go on", "kim", "embed")
        assert faults(server) == []


async def test_a_message_with_the_signature_of_another_one_is_found(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    signed = key.command("steer", server.now(), session=agent.session_id, text="go on")
    request = CommandRequest("steer", signed.fields, signed.signature.decision_id, signed.signature)
    await carry_out(server.app.service, request, "kim", None)
    entry = await made(server, "steer")
    assert entry.data is not None
    id = entry.data["instruction_id"]
    sql(
        server,
        "insert into instruction (id, kind, session_id, text, given_by, given_via, created_at, signature)"
        " select 'again', kind, session_id, text, given_by, given_via, created_at, signature"
        " from instruction where id = ?",
        id,
    )
    assert await forge(server, entry, instruction_id="again") != []


async def test_an_answer_that_nobody_signed_is_found(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    entry = await answered(server, agent, key, root)
    [fault] = await forge(server, entry, request_id="another", signature=None)
    assert "without a signature" in fault


LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("make", FORGED)
async def test_an_entry_that_says_it_is_older_than_the_key_needs_a_signature_too(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, make: Make
) -> None:
    entry = await make(server, agent, key, root)
    [fault] = await forge(server, entry, at=LONG_AGO, signature=None)
    assert "without a signature" in fault


async def test_an_approval_and_a_message_that_say_they_are_older_than_the_key_are_found(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose()).request_id
    sql(
        server,
        "update approval_request set status = 'approved', verdict_id = 'v', verdict = 'approve', decided_by = 'kim',"
        " decided_via = 'ctl', decided_at = ? where id = ?",
        "2000-01-01T00:00:00.000000+00:00",
        id,
    )
    decided = AuditEntry(0, LONG_AGO, "decided", agent.session_id, "kim", "approve", {"request_id": id})
    assert await forge(server, decided, at=LONG_AGO) == [
        f"request {id} was approved on ctl without a signature, though there was a key"
    ]
    sql(
        server,
        "insert into instruction (id, kind, session_id, text, given_by, given_via, created_at)"
        " values ('m', 'steer', ?, 'go on', 'kim', 'ctl', '2000-01-01T00:00:00.000000+00:00')",
        agent.session_id,
    )
    told = AuditEntry(0, LONG_AGO, "steer", agent.session_id, "kim", "go on", {"instruction_id": "m"})
    assert await forge(server, told, at=LONG_AGO) == [
        f"request {id} was approved on ctl without a signature, though there was a key",
        "steer m came on ctl without a signature, though there was a key",
    ]


async def test_a_key_that_only_the_table_has_counts_from_the_first_entry_that_is_not_older(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    """An older version recorded no enrolment, and retention deletes old entries. Whoever changes the row's time makes
    its signature worthless, and decisions had to be signed from the first entry on."""
    entry = AuditEntry(0, LONG_AGO, "decided", agent.session_id, "kim", "stop", {"request_id": "r"})
    await forge(server, entry)
    sql(server, "update audit set kind = 'x' where kind = 'operator_key_added'")
    assert len(await forge(server, entry, at=LONG_AGO)) == 2
    sql(server, "update operator_key set added_at = '2999-01-01T00:00:00.000000+00:00'")
    assert len(faults(server)) == 2


@pytest.mark.parametrize(
    "data",
    ['{"request_id": "ID", "limit": NaN}', '{"request_id": "another", "request_id": "ID"}', "{"],
    ids=["only Python reads it", "it names two requests", "nobody reads it"],
)
async def test_an_entry_that_not_every_reader_reads_alike_hides_no_approval(
    server: VirtualServer, agent: AgentClient, key: Key, data: str
) -> None:
    id = (await agent.propose()).request_id
    sql(
        server,
        "update approval_request set status = 'approved', verdict_id = 'v', verdict = 'approve', decided_by = 'kim',"
        " decided_via = 'ctl', decided_at = 'x' where id = ?",
        id,
    )
    await forge(server, AuditEntry(0, LONG_AGO, "broadcast", agent.session_id, "kim", "approve", {}))
    sql(
        server,
        "update audit set kind = 'decided', data = ? where id = (select max(id) from audit)",
        data.replace("ID", id),
    )
    [fault] = faults(server)
    assert "though there was a key" in fault


@pytest.mark.parametrize("make", [granted, taken_back, answered])
async def test_a_signature_in_another_spelling_counts_once_too(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, make: Make
) -> None:
    """In the worst case an unnamed take-back is copied, for a later decision."""
    entry = await make(server, agent, key, root)
    assert entry.data is not None
    signature = entry.data["signature"]
    later = {"verdict_id": "v-later"} if make is taken_back else {}
    [fault] = await forge(server, entry, signature={**signature, "value": signature["value"].upper()}, **later)
    assert f"is that of entry {entry.id}, and counts once" in fault


#: The order of the curve P-256.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


async def test_the_other_form_of_a_passkeys_signature_counts_once_too(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    phone = await add_phone(server, key)
    id = (await agent.ask(Transmit("What now?"))).request_id
    await server.app.service.decide(id, phone.verdict(await server.app.service.card(id), Decision.STOP, server.now()))
    entry = await made(server, "decided")
    assert entry.data is not None
    signature = entry.data["signature"]
    data, client, value = signature["value"].split(".")
    r, s = decode_dss_signature(from_base64url(value) or b"")
    other = ".".join((data, client, to_base64url(encode_dss_signature(r, _ORDER - s))))
    [fault] = await forge(server, entry, signature={**signature, "value": other})
    assert f"is that of entry {entry.id}, and counts once" in fault
