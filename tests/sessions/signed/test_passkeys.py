"""A passkey signs decisions as the PIN does, on the page alone, once an operator key has enrolled it, and no longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve

from intercom.local import operator_keys
from intercom.local.operator_keys import Allowed, PublicKey
from intercom.model import clock as clocks
from intercom.model import signing
from intercom.model.card import Card, CardState
from intercom.model.decision import Decided, Decision, Signature, Verdict, signature_data
from intercom.model.errors import SignatureRefused
from intercom.model.request import RiskLevel
from intercom.operators.commands.command_execution import CommandRequest, carry_out, is_proven
from intercom.operators.router_messages import Channel
from intercom.sessions import audit_signatures
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.store import audit, audit_chain
from intercom.store.writer_messages import Transact
from tests.sessions.signed.keyed_server import enrol, keyed, sql
from tests.support.keys import Key
from tests.support.passkeys import Authenticator
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


@pytest.fixture
async def phone(server: VirtualServer, key: Key) -> Authenticator:
    return await add_phone(server, key)


async def add_phone(server: VirtualServer, key: Key) -> Authenticator:
    """A passkey that this key has enrolled, as ctl does it."""
    made = Authenticator()
    operator_keys.add_public(server.app.places, made.public)
    assert await server.app.service.add_key(made.public, *key.for_key("add", made.public, server.now()))
    return made


async def revoke(server: VirtualServer, revoked: Key | Authenticator, by: Key) -> None:
    signed = by.for_key("revoke", revoked.public, server.now())
    await server.app.service.revoke_key(revoked.public.id, *signed)


def signature_of(decided: Verdict | Decided) -> Signature:
    assert decided.signature is not None
    return decided.signature


async def approve(server: VirtualServer, phone: Authenticator, id: str, **more: Any) -> Card:
    card = await server.app.service.card(id)
    return await server.app.service.decide(id, phone.verdict(card, Decision.APPROVE, server.now(), **more))


def write_list(server: VirtualServer, *keys: PublicKey) -> None:
    Path(server.app.places.operator_keys_file).write_text("".join(f"{key.line()}\n" for key in keys))


def counts(server: VirtualServer) -> set[str]:
    return set(server.app.signatures.keyring.trusted())


def faults(server: VirtualServer) -> list[str]:
    """What `audit verify` says of signatures."""
    found = audit_chain.examine(server.app.database, Path(server.app.places.audit_anchor_file))
    found.faults.clear()
    audit_signatures.check_signatures(found, server.app.database, server.app.places)
    return [fault.text for fault in found.faults]


@pytest.mark.parametrize("risk", [RiskLevel.LOW, RiskLevel.CRITICAL])
async def test_a_passkey_approves_what_was_shown_and_it_is_applied(
    server: VirtualServer, agent: AgentClient, phone: Authenticator, root: Path, risk: RiskLevel
) -> None:
    id = (await agent.propose(risk=risk)).request_id
    card = await approve(server, phone, id)
    assert card.decided is not None
    assert signature_of(card.decided).method == signing.PASSKEY
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == "a\n"
    assert faults(server) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"flags": 0x01},
        {"party": "example.org"},
        {"origin": "http://localhost:9999"},
        {"crossOrigin": True},
        {"type": "webauthn.create"},
        {"channel": "ctl"},
        {"channel": "embed"},
        {"method": signing.PIN},
        {"method": signing.TICKET},
        {"method": signing.CHANNEL},
    ],
    ids=str,
)
async def test_an_assertion_that_is_not_of_this_page_decides_nothing(
    server: VirtualServer, agent: AgentClient, phone: Authenticator, changed: dict[str, Any]
) -> None:
    id = (await agent.propose()).request_id
    with pytest.raises(SignatureRefused):
        await approve(server, phone, id, **changed)
    assert (await server.app.service.card(id)).state is CardState.PENDING


CHANGES: dict[str, Callable[[Verdict], Verdict]] = {
    "another decision": lambda verdict: evolve(verdict, decision=Decision.REJECT),
    "another text": lambda verdict: evolve(verdict, text="and delete the rest"),
    "another id": lambda verdict: evolve(verdict, id="v-another"),
    "signed text": lambda verdict: evolve(verdict, text="x", signature=evolve(signature_of(verdict), text="x")),
    "signed time": lambda verdict: evolve(
        verdict, signature=evolve(signature_of(verdict), at=clocks.to_text(verdict.at + timedelta(seconds=1)))
    ),
    "signed id": lambda verdict: evolve(verdict, id="v-b", signature=evolve(signature_of(verdict), decision_id="v-b")),
    "signed risk": lambda verdict: evolve(verdict, signature=evolve(signature_of(verdict), risk="high")),
    "signed subject": lambda verdict: evolve(verdict, signature=evolve(signature_of(verdict), subject="00" * 32)),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_an_assertion_for_anything_else_decides_nothing(
    server: VirtualServer, agent: AgentClient, phone: Authenticator, change: str
) -> None:
    id = (await agent.propose()).request_id
    verdict = phone.verdict(await server.app.service.card(id), Decision.APPROVE, server.now())
    with pytest.raises(SignatureRefused):
        await server.app.service.decide(id, CHANGES[change](verdict))
    assert (await server.app.service.card(id)).state is CardState.PENDING


async def test_an_assertion_is_for_its_card_and_for_ten_minutes(
    server: VirtualServer, agent: AgentClient, phone: Authenticator
) -> None:
    one, other = (await agent.propose("a.txt")).request_id, (await agent.propose("b.txt")).request_id
    verdict = phone.verdict(await server.app.service.card(one), Decision.APPROVE, server.now())
    with pytest.raises(SignatureRefused, match="another was shown"):
        await server.app.service.decide(other, verdict)
    await server.later(601)
    with pytest.raises(SignatureRefused, match="too long ago"):
        await server.app.service.decide(one, verdict)


async def test_another_passkey_or_another_s_assertion_decides_nothing(
    server: VirtualServer, agent: AgentClient, key: Key, phone: Authenticator
) -> None:
    id, other = (await agent.propose()).request_id, await add_phone(server, key)
    with pytest.raises(SignatureRefused, match="which does not count"):
        await approve(server, Authenticator(), id)
    card = await server.app.service.card(id)
    verdict = phone.verdict(card, Decision.APPROVE, server.now())
    with pytest.raises(SignatureRefused, match="not genuine"):
        await server.app.service.decide(
            id, evolve(verdict, signature=evolve(signature_of(verdict), key_id=other.public.id))
        )
    # The PIN's key makes no passkey's signature, not even with an assertion in it.
    said = evolve(signature_of(verdict), key_id=key.public.id)
    with pytest.raises(SignatureRefused, match="not genuine"):
        await server.app.service.decide(id, evolve(verdict, signature=phone.sign(said)))


async def test_a_command_is_signed_for_the_page_alone_and_counts_once(
    server: VirtualServer, agent: AgentClient, phone: Authenticator
) -> None:
    signed = phone.command("steer", server.now(), session=agent.session_id, text="go on")
    request = CommandRequest("steer", signed.fields, signed.signature.decision_id, signed.signature)
    # A process that has seen it must not bring it over the socket, as another act.
    assert not is_proven(server.app.service, request)
    with pytest.raises(SignatureRefused, match="of no kind that counts on ctl"):
        await carry_out(server.app.service, request, "kim", None, Channel.CTL)
    for _ in range(2):
        await carry_out(server.app.service, request, "kim", None, Channel.WEB)
    assert len([each for each in await server.app.service.audit(50) if each.kind == "steer"]) == 1
    with pytest.raises(SignatureRefused, match="is not for this steer"):
        await carry_out(server.app.service, evolve(request, verdict_id="act-0002"), "kim", None, Channel.WEB)


async def test_a_passkey_grants(server: VirtualServer, agent: AgentClient, phone: Authenticator) -> None:
    shown = await server.app.service.grants.preview((await agent.propose()).request_id)
    fields = {"id": shown.request_id, "session": shown.session_id, "scope": shown.scope, "duration": "20m", "uses": "2"}
    signed = phone.command("grant", server.now(), **fields)
    request = CommandRequest("grant", signed.fields, signed.signature.decision_id, signed.signature)
    made: Any = await carry_out(server.app.service, request, "kim", None, Channel.WEB)
    assert made["status"] == "granted"
    opened = await agent.propose("b.txt", "b\n")
    assert opened.answered is not None
    assert opened.answered.answer.status == "approved"


async def test_what_was_enabled_on_the_page_counts_after_a_restart(
    server: VirtualServer, key: Key, phone: Authenticator
) -> None:
    """The entry names no channel. Failed before: it was disabled again, as if nobody had signed it."""
    genuine = server.app.signatures.is_genuine
    for person in (key, phone):
        signature = signature_data(person.command("gateway-enable", server.now(), id="files").signature)
        assert signature is not None
        assert genuine({"downstream": "files", "signature": signature})
        assert genuine({"signature": signature, "channel": "web" if person is phone else "ctl"})
        assert not genuine({"signature": signature, "channel": "ctl" if person is phone else "web"})
        for changed in ({"decision_id": "act-other"}, {"method": signing.CHANNEL}):
            assert not genuine({"signature": {**signature, **changed}})


# --- which passkeys count --------------------------------------------------------------------------------------------


async def test_a_passkey_needs_an_operator_key_first_and_enrols_nothing(
    server: VirtualServer, key: Key, phone: Authenticator
) -> None:
    service = server.app.service
    at = clocks.to_text(server.now())
    for new in (Key().public, Authenticator().public):
        said = signing.key_statement("add", public=new.public, name=new.name, at=at, by=phone.public.id)
        with pytest.raises(SignatureRefused, match="needs the signature of an operator key that counts"):
            await service.add_key(new, at, phone.public.id, phone.assertion(said))
    said = signing.key_statement("revoke", public=key.public.public, name="kim", at=at, by=phone.public.id)
    with pytest.raises(SignatureRefused, match="needs the signature of an operator key that counts"):
        await service.revoke_key(key.public.id, at, phone.public.id, phone.assertion(said))
    allowed = Allowed(trust_changes=True)
    signed = operator_keys.sign(allowed, at, phone.public.id, lambda said: phone.assertion(said).encode())
    assert not signed.is_genuine(phone.public)


async def test_a_passkey_is_never_the_first_key(root: Path, clock: Clock) -> None:
    async with virtual_server(root.parent, clock) as server:
        phone, at = Authenticator(), clocks.to_text(server.now())
        said = signing.key_statement("add", public=phone.public.public, name="kim's phone", at=at, by=phone.public.id)
        with pytest.raises(SignatureRefused, match="needs the signature of an operator key that counts"):
            await server.app.service.add_key(phone.public, at, phone.public.id, phone.assertion(said))
        assert not server.app.signatures.required


async def test_a_passkey_counts_after_a_restart_and_not_without_its_line(root: Path, clock: Clock) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        phone = await add_phone(server, key)
    async with keyed(root, clock, key) as server:
        assert counts(server) == {key.public.id, phone.public.id}
        write_list(server, key.public)
        assert counts(server) == {key.public.id}


async def test_a_line_in_the_file_alone_makes_no_passkey_count(root: Path, clock: Clock) -> None:
    key, phone = Key(), Authenticator()
    async with keyed(root, clock, key) as server:
        operator_keys.add_public(server.app.places, phone.public)
        assert counts(server) == {key.public.id}
    async with keyed(root, clock, key) as server:
        assert counts(server) == {key.public.id}
        agent = await server.arrive(root)
        with pytest.raises(SignatureRefused, match="which does not count"):
            await approve(server, phone, (await agent.propose()).request_id)
        await server.operator.notice(f"operator key {phone.public.id} is listed")


ROWS = "insert into operator_key (id, public, name, added_at, added_by, added_signature) values (?, ?, ?, ?, ?, ?)"


@pytest.mark.parametrize("by", ["nobody", "itself", "a passkey", "a stranger", "a revoked key", "for another passkey"])
async def test_a_passkey_that_sql_enrolled_does_not_count_and_audit_verify_says_so(
    root: Path, clock: Clock, by: str
) -> None:
    key, stolen, phone, other = Key(), Key(), Authenticator(), Authenticator()
    async with keyed(root, clock, key) as server:
        before = server.now()
        await enrol(server, stolen, key)
        helper = await add_phone(server, key)
        await server.later(1)
        await revoke(server, stolen, key)
        at = clocks.to_text(before + timedelta(milliseconds=500))
        signers = {"itself": phone.public.id, "a passkey": helper.public.id, "a revoked key": stolen.public.id}
        signer = signers.get(by, key.public.id)
        said = signing.key_statement("add", public=phone.public.public, name="kim's phone", at=at, by=signer)
        wrong = signing.key_statement("add", public=other.public.public, name="kim's phone", at=at, by=signer)
        signature = {
            "nobody": "",
            "itself": phone.assertion(said),
            "a passkey": helper.assertion(said),
            "a stranger": Key().private.sign(said).hex(),
            "a revoked key": stolen.private.sign(said).hex(),
            "for another passkey": key.private.sign(wrong).hex(),
        }[by]
        sql(server, ROWS, phone.public.id, phone.public.public, "kim's phone", at, signer, signature)
        operator_keys.add_public(server.app.places, phone.public)
    async with keyed(root, clock, key) as server:
        assert counts(server) == {key.public.id, helper.public.id}
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        with pytest.raises(SignatureRefused):
            await approve(server, phone, id)
        await forge(server, phone, id)
        [fault] = faults(server)
        assert f"request {id} is signed with key {phone.public.id}" in fault
        with pytest.raises(SignatureRefused):
            await agent.ask(CheckDiff(id))


async def forge(server: VirtualServer, phone: Authenticator, id: str, **more: Any) -> Verdict:
    """Put an approval into the database, with its entry in the log: what a process of this user can do."""
    card = await server.app.service.card(id)
    verdict = phone.verdict(card, Decision.APPROVE, server.now(), **more)
    await put(server, id, verdict)
    return verdict


async def put(server: VirtualServer, id: str, verdict: Verdict) -> None:
    sql(
        server,
        "update approval_request set status = 'approved', verdict_id = ?, verdict = 'approve', decided_by = 'kim',"
        " decided_via = ?, decided_at = ?, decided_text = ?, signature = ? where id = ?",
        verdict.id,
        verdict.channel,
        clocks.to_text(server.now()),
        verdict.text,
        json.dumps(signature_data(verdict.signature)),
        id,
    )
    entry = partial(
        audit.record,
        at=server.now(),
        kind="decided",
        session_id=None,
        who="kim",
        summary="approve",
        data={"request_id": id},
    )
    await server.ask("store", Transact(entry))


STORED: dict[str, dict[str, Any]] = {
    "not verified": {"flags": 0x01},
    "another page": {"origin": "http://localhost:9999"},
    "another party": {"party": "example.org"},
    "in a frame": {"crossOrigin": True},
    "another channel": {"channel": "ctl"},
    "another method": {"method": signing.PIN},
}


@pytest.mark.parametrize("how", [*STORED, "another text", "another request", "another time", "genuine"])
async def test_a_row_that_sql_approved_writes_nothing_and_audit_verify_says_so(
    server: VirtualServer, agent: AgentClient, phone: Authenticator, root: Path, how: str
) -> None:
    id = (await agent.propose()).request_id
    card = await server.app.service.card(id)
    verdict = phone.verdict(card, Decision.APPROVE, server.now(), **STORED.get(how, {}))
    said = signature_of(verdict)
    match how:
        case "another text":
            verdict = evolve(verdict, text="x", signature=evolve(said, text="x"))
        case "another request":
            other = await server.app.service.card((await agent.propose("b.txt")).request_id)
            moved = signature_of(phone.verdict(other, Decision.APPROVE, server.now()))
            verdict = evolve(verdict, signature=evolve(moved, request_id=id))
        case "another time":
            verdict = evolve(verdict, signature=evolve(said, at=clocks.to_text(server.now() + timedelta(hours=1))))
    await put(server, id, verdict)
    if how == "genuine":
        await agent.ask(CheckDiff(id))
        assert (root / "a.txt").exists()
        assert faults(server) == []
        return
    [fault] = faults(server)
    assert f"the signature of request {id} is not" in fault
    with pytest.raises(SignatureRefused):
        await agent.ask(CheckDiff(id))
    assert not (root / "a.txt").exists()


async def test_a_revoked_passkey_signs_nothing_more_and_does_not_come_back(root: Path, clock: Clock) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        phone = await add_phone(server, key)
        agent = await server.arrive(root)
        earlier, id = (await agent.propose()).request_id, (await agent.propose("b.txt")).request_id
        await approve(server, phone, earlier)
        await server.later(1)
        await revoke(server, phone, key)
        with pytest.raises(SignatureRefused, match="which does not count"):
            await approve(server, phone, id)
        # What it had approved is not applied any more either, as with any revoked key.
        with pytest.raises(SignatureRefused):
            await agent.ask(CheckDiff(earlier))
        with pytest.raises(SignatureRefused, match="was enrolled before, and revoked"):
            await server.app.service.add_key(phone.public, *key.for_key("add", phone.public, server.now()))
        assert counts(server) == {key.public.id}
        sql(
            server,
            "update operator_key set revoked_at = null, revoked_by = null, revoked_signature = null where id = ?",
            phone.public.id,
        )
    async with keyed(root, clock, key) as server:
        assert counts(server) == {key.public.id}
        await server.operator.notice(f"operator key {phone.public.id} was revoked, and the database had lost that")
        await server.later(1)
        agent = await server.arrive(root)
        await forge(server, phone, id)
        assert faults(server) == [f"request {id} is signed with key {phone.public.id}, which was revoked before"]


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_passkey_goes_with_the_key_that_enrolled_it(root: Path, clock: Clock, is_last: bool) -> None:
    key, other = Key(), Key()
    kept = key if is_last else other
    async with keyed(root, clock, key) as server:
        if not is_last:
            await enrol(server, other, key)
        phone = await add_phone(server, key)
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await server.later(1)
        await revoke(server, key, kept)
        assert counts(server) == (set() if is_last else {other.public.id})
        assert server.app.signatures.required is not is_last
        if not is_last:
            with pytest.raises(SignatureRefused, match="which does not count"):
                await approve(server, phone, id)
            await forge(server, phone, id)
            assert faults(server) == [f"request {id} is signed with key {phone.public.id}, which was revoked before"]
            operator_keys.forget(server.app.places, key.public.id)
    if not is_last:
        async with virtual_server(root.parent, clock) as server:
            assert counts(server) == {other.public.id}


async def test_a_key_exchanged_in_the_database_does_not_count_and_audit_verify_says_so(
    root: Path, clock: Clock
) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        phone, thief = await add_phone(server, key), Authenticator()
        sql(server, "update operator_key set public = ? where id = ?", thief.public.public, phone.public.id)
        write_list(server, key.public, thief.public)
    async with keyed(root, clock, key) as server:
        assert counts(server) == {key.public.id}
        assert faults(server) == [
            f"operator key {phone.public.id} was exchanged in the database for another",
        ]


async def test_audit_verify_reads_a_log_of_several_keys_in_its_order(root: Path, clock: Clock) -> None:
    """A key that is the first again, after the last one was revoked, has signed for itself."""
    key, again = Key(), Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        phone = await add_phone(server, key)
        await approve(server, phone, (await agent.propose()).request_id)
        await server.later(1)
        await revoke(server, key, key)
        await server.later(1)
        await enrol(server, again)
        phone = await add_phone(server, again)
        await approve(server, phone, (await agent.propose("b.txt")).request_id)
        assert faults(server) == []


async def test_what_is_signed_of_an_edit_is_the_card_that_it_makes_and_it_can_be_taken_back(
    server: VirtualServer, agent: AgentClient, phone: Authenticator, root: Path
) -> None:
    """As the page does it: the person edits, sees what that makes, and signs this."""

    async def send(command: str, act: str | None = None, signature: Signature | None = None, **fields: Any) -> Any:
        return await carry_out(
            server.app.service, CommandRequest(command, fields, act, signature), "kim", None, Channel.WEB
        )

    id = (await agent.propose("mine.txt", "yours\n")).request_id
    whole = await send("amend", id=id, everything=True)
    assert whole["contents"] == {"mine.txt": "yours\n"}
    edit = json.dumps({"mine.txt": "mine\r\nno end"})
    made = await send("amend", id=id, shown=whole["card"]["proposal_hash"], edit=edit)

    async def approve_edit(card: Any, act: str) -> Any:
        unsigned = phone.command("approve", server.now(), act).signature
        said = evolve(unsigned, request_id=id, subject=signing.card_subject(card), risk=card["risk_level"])
        signature = phone.sign(evolve(said, text=made["text"]))
        return await send("approve", act, signature, id=id, shown=made["card"]["proposal_hash"], edit=edit)

    with pytest.raises(SignatureRefused, match="what was signed is not what the request says now"):
        await approve_edit(whole["card"], "act-edit-1")
    await approve_edit(made["card"], "act-edit-2")
    signed = phone.command("take-back", server.now(), "act-back-1", id=id)
    with pytest.raises(SignatureRefused, match="this server takes only decisions signed"):
        await send("take-back", "act-back-1", id=id)
    assert (await send("take-back", "act-back-1", signed.signature, id=id))["status"] == "taken back"
    assert (await server.app.service.card(id)).state is CardState.PENDING
    await approve_edit(made["card"], "act-edit-3")
    await agent.ask(CheckDiff(id))
    assert (root / "mine.txt").read_bytes() == b"mine\r\nno end"


async def test_a_grant_is_signed_with_the_scope_that_was_shown(
    server: VirtualServer, agent: AgentClient, phone: Authenticator
) -> None:
    id = (await agent.propose("a.txt")).request_id
    shown = await carry_out(
        server.app.service, CommandRequest("grant-preview", {"id": id, "duration": "5m"}), "kim", None, Channel.WEB
    )
    fields = {
        "id": id,
        "session": shown["session_id"],
        "scope": shown["scope"],
        "duration": f"{shown['seconds']}s",
        "uses": str(shown["uses"]),
    }
    signed = phone.command("grant", server.now(), "act-grant-1", **fields)
    wider = {**fields, "uses": "1000"}
    for changed, signature in ((wider, signed.signature), (fields, None)):
        request = CommandRequest("grant", changed, "act-grant-1", signature)
        with pytest.raises(SignatureRefused):
            await carry_out(server.app.service, request, "kim", None, Channel.WEB)
    request = CommandRequest("grant", fields, "act-grant-1", signed.signature)
    for _ in range(2):
        made = await carry_out(server.app.service, request, "kim", None, Channel.WEB)
        assert (made["status"], made["uses"], made["channel"]) == ("granted", shown["uses"], "web")
    assert len(await server.app.service.grants.listed()) == 1
