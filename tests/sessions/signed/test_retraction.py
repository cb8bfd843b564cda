"""With an operator key, to take a decision back is signed as the decision was, and its signature never counts again."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve

from intercom.model import signing
from intercom.model.card import CardState
from intercom.model.decision import Decision, SignedCommand, signature_data
from intercom.model.errors import IntercomError, SignatureRefused
from intercom.model.request import RiskLevel
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.store import audit
from intercom.store.audit_chain import verify
from intercom.store.writer_messages import Transact
from tests.sessions.signed.keyed_server import approve, keyed, sql
from tests.sessions.signed.test_once import send
from tests.sessions.signed.test_passkeys import faults as signature_faults
from tests.sessions.signed.test_passkeys import revoke
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer

Clock = trio.testing.MockClock

DECIDED = "status, verdict, verdict_id, decided_by, decided_via, decided_at, signature"


def saved(database: Path, id: str) -> tuple[Any, ...]:
    """The columns of the recorded decision."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        found = db.execute(f"select {DECIDED} from approval_request where id = ?", (id,)).fetchone()
    return tuple(found)


def written_back(database: Path, id: str, decision: tuple[Any, ...]) -> None:
    """What any process of this user can do. It removes the records of the act, too, but for the audit log."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        db.execute(f"update approval_request set ({DECIDED}) = (?, ?, ?, ?, ?, ?, ?) where id = ?", (*decision, id))
        db.execute("delete from answered_call")
        db.commit()


def command(server: VirtualServer, key: Key, id: str, act: str = "act-0001", **more: str) -> SignedCommand:
    return key.command("take-back", server.now(), act, id=id, **more)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_decision_that_is_written_back_into_its_row_does_not_count(
    clock: Clock, root: Path, restarts: bool
) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await approve(server, key, id)
        decision = saved(Path(server.app.database), id)
        signed = command(server, key, id)
        assert (await send(server, signed))["status"] == "taken back"
        entry = next(each for each in await server.app.service.audit(20) if each.kind == "decision_taken_back")
        assert entry.data["signature"]["value"] == signed.signature.value
        if not restarts:
            await _counts_for_nothing(server, agent, id, decision)
    if restarts:
        async with keyed(root, clock, key) as server:
            await _counts_for_nothing(server, await server.arrive(root), id, decision)


async def _counts_for_nothing(server: VirtualServer, agent: AgentClient, id: str, decision: tuple[Any, ...]) -> None:
    written_back(Path(server.app.database), id, decision)
    with pytest.raises(SignatureRefused, match="it was taken back"):
        await agent.ask(CheckDiff(id))
    await server.later(0)
    assert (await server.app.service.card(id)).state is CardState.INTERRUPTED


async def test_a_signed_decision_that_was_taken_back_is_not_taken_again(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose()).request_id
    verdict = key.verdict(await server.app.service.card(id), Decision.APPROVE, server.now())
    await server.app.service.decide(id, verdict)
    await send(server, command(server, key, id))
    with pytest.raises(IntercomError, match="was taken back"):
        await server.app.service.decide(id, verdict)
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        db.execute("delete from answered_call")
        db.commit()
    with pytest.raises(SignatureRefused, match="was taken back"):
        await server.app.service.decide(id, verdict)
    card = await server.app.service.card(id)
    await server.app.service.decide(id, key.verdict(card, Decision.APPROVE, server.now(), id="v-next"))
    await agent.ask(CheckDiff(id))
    assert (await server.app.service.card(id)).state is CardState.APPLIED


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_act_counts_once(clock: Clock, root: Path, restarts: bool) -> None:
    """Otherwise a process that saw it could take the next decision back, too."""
    key = Key()
    async with keyed(root, clock, key) as server:
        id = (await (await server.arrive(root)).propose()).request_id
        await approve(server, key, id)
        act = command(server, key, id)
        await send(server, act)
        if not restarts:
            await _takes_nothing_back(server, key, id, act)
    if restarts:
        async with keyed(root, clock, key) as server:
            await server.arrive(root)
            await _takes_nothing_back(server, key, id, act)


async def _takes_nothing_back(server: VirtualServer, key: Key, id: str, act: SignedCommand) -> None:
    card = await server.app.service.card(id)
    await server.app.service.decide(id, key.verdict(card, Decision.REJECT, server.now(), id="v-next"))
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        db.execute("delete from answered_call")
        db.commit()
    with pytest.raises(IntercomError, match="counts once"):
        await send(server, act)
    assert (await server.app.service.card(id)).state is CardState.REJECTED


async def test_it_needs_a_signature_of_this_command_and_the_pin_if_it_is_critical(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose(risk=RiskLevel.CRITICAL)).request_id
    other = (await agent.propose("b.txt")).request_id
    for each in (id, other):
        card = await server.app.service.card(each)
        await server.app.service.decide(each, key.verdict(card, Decision.APPROVE, server.now(), id=f"v-{each}"))
    back = server.app.service.steering.take_back
    for refused in (
        None,
        command(server, key, other),
        command(server, key, id, method=signing.TICKET),
        command(server, Key(), id),
        key.command("revoke", server.now(), id=id),
    ):
        with pytest.raises(SignatureRefused):
            await back(id, "kim", "ctl", "act", None, refused)
    # On the page only a passkey signs.
    with pytest.raises(SignatureRefused, match="of no kind that counts on web"):
        await back(id, "kim", "web", "act", None, command(server, key, id))
    # A channel that may not decide about it may not take it back either.
    with pytest.raises(SignatureRefused, match="cannot be made by slack"):
        await back(id, "kim", "slack")
    assert (await server.app.service.card(id)).state is CardState.APPROVED
    await back(id[:12], "kim", "ctl", "act", None, command(server, key, id[:12]))
    await back(other, "kim", "ctl", "act-2", None, command(server, key, other, "act-2", method=signing.TICKET))
    assert {card.id for card in await server.app.service.pending()} == {id, other}


async def test_the_log_shows_a_decision_that_was_written_back(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    decision = saved(Path(server.app.database), id)
    await send(server, command(server, key, id))
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        assert verify(db, []).faults == []
    written_back(Path(server.app.database), id, decision)
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        [fault] = verify(db, []).faults
    assert "this decision was taken back" in fault.text


async def test_the_log_shows_a_decision_that_was_written_back_with_an_entry_of_its_own(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    decision = saved(Path(server.app.database), id)
    await send(server, command(server, key, id))
    [decided] = [each for each in await server.app.service.audit(20) if each.kind == "decided"]
    written_back(Path(server.app.database), id, decision)
    data = {"request_id": id, "proposal_hash": (decided.data or {})["proposal_hash"]}
    forged = partial(audit.record, at=server.now(), kind="decided", session_id=agent.session_id, who="kim")
    await server.ask("store", Transact(partial(forged, summary="approve", data=data)))
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        assert verify(db, []).faults == []
    assert signature_faults(server) == [f"request {id} was approved by a decision that was taken back"]


async def test_the_log_of_a_decision_that_was_taken_back_needs_no_signature_of_the_next(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    """The key was revoked in between, and none counts any more."""
    id = (await agent.propose()).request_id
    await server.later(1)
    await approve(server, key, id)
    await send(server, command(server, key, id))
    await server.later(1)
    await revoke(server, key, key)
    await server.decide(id, Decision.APPROVE)
    assert signature_faults(server) == []


async def test_the_decision_that_is_meant_is_signed_and_another_one_stays(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    decided = (await server.app.service.card(id)).decided
    assert decided is not None
    with pytest.raises(IntercomError, match="has another decision now"):
        await send(server, command(server, key, id, "act-0001", decision_id="v-before"))
    signed = command(server, key, id, "act-0002", decision_id=decided.verdict_id)
    without = SignedCommand(signed.signature, {"id": id})
    with pytest.raises(SignatureRefused, match="not for this take-back"):
        await send(server, without)
    assert (await send(server, signed))["status"] == "taken back"
    assert signature_faults(server) == []


async def test_what_the_log_could_not_verify_later_is_refused(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    with pytest.raises(IntercomError, match="says more than which decision"):
        await send(server, command(server, key, id, reason="a mistake"))
    assert (await send(server, command(server, key, id, "act-0002")))["status"] == "taken back"
    assert signature_faults(server) == []


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ends", ["take-back", "revoke"])
@pytest.mark.parametrize(
    "hide",
    [
        "update \"grant\" set revoked_at = '2026-01-01T00:00:00.000000+00:00'",
        "update \"grant\" set request_id = 'another'",
        "update \"grant\" set session_id = 'another'",
        "update \"grant\" set id = 'another'",
        'delete from "grant"',
    ],
)
async def test_a_grant_ends_also_if_its_row_was_hidden_before_and_is_put_back(
    clock: Clock, root: Path, hide: str, ends: str, restarts: bool
) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        shown = await server.app.service.grants.preview(id)
        lasts = {"duration": f"{shown.seconds}s", "uses": str(shown.uses)}
        scope = {"id": id, "session": shown.session_id, "scope": shown.scope}
        grant = (await send(server, key.command("grant", server.now(), "act-grant", **scope, **lasts)))["grant_id"]
        await approve(server, key, id)
        row = grant_row(server)
        sql(server, hide)
        if ends == "take-back":
            done = await send(server, command(server, key, id))
            assert f"that ended the grant {grant[:8]} too" in done["note"]
        else:
            done = await server.app.service.grants.revoke(grant[:8], "kim", "ctl")
            assert (done.grant.id, done.grant.session_id, done.over) == (grant, shown.session_id, "it was revoked")
        if not restarts:
            await _is_revoked(server, row)
            assert (await agent.propose("b.txt", "b\n")).answered is None
    if restarts:
        async with keyed(root, clock, key) as server:
            await _is_revoked(server, row)


def grant_row(server: VirtualServer) -> tuple[Any, ...]:
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        [row] = db.execute('select * from "grant"').fetchall()
    return tuple(row)


async def _is_revoked(server: VirtualServer, row: tuple[Any, ...]) -> None:
    """Whatever is put back where the row was."""
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        db.execute('delete from "grant"')
        db.execute(f'insert into "grant" values ({", ".join("?" * len(row))})', row)
        db.commit()
    [line] = await server.app.service.grants.listed(everything=True)
    assert line.over == "it was revoked"
    assert signature_faults(server) == []


@pytest.mark.parametrize("named", ['"\\ud800"', "7", "null", '["x"]', '"x"'])
async def test_a_grant_that_only_the_log_names_does_not_hinder(
    server: VirtualServer, agent: AgentClient, key: Key, named: str
) -> None:
    """Any process of this user can add an entry, with any data."""
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    data = f'{{"grant_id":{named},"request_id":"{id}","seconds":"x","from":7,"scope":[]}}'
    sql(
        server,
        "insert into audit select max(id) + 1, ?, 'grant_made', ?, 'x', 'x', ?, 'x', 'x' from audit",
        "2026-01-01",
        agent.session_id,
        data,
    )
    assert (await send(server, command(server, key, id)))["status"] == "taken back"
    with pytest.raises(IntercomError, match="no grant"):
        await server.app.service.grants.revoke("abc", "kim", "ctl")


async def test_without_a_named_decision_the_time_is_that_of_its_signature(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    """It is refused at first. A process that saw it sends it again after the next decision, as that one is, and with
    another time in its row."""
    id = (await agent.propose()).request_id
    signed = command(server, key, id)
    with pytest.raises(IntercomError, match="nothing to take back"):
        await send(server, signed)
    await server.later(1)
    await approve(server, key, id)
    decided = (await server.app.service.card(id)).decided
    assert decided is not None
    assert decided.signature is not None
    no_time = json.dumps(signature_data(evolve(decided.signature, at="0001-01-01T00:00:00+23:59")))
    for column, text in (
        ("status", "approved"),
        ("decided_at", "2000-01-01T00:00:00.000000+00:00"),
        ("signature", no_time),
    ):
        sql(server, f"update approval_request set {column} = ? where id = ?", text, id)
        sql(server, "delete from answered_call")
        with pytest.raises(IntercomError, match="made after this was signed"):
            await send(server, signed)
    assert (await server.app.service.card(id)).state is CardState.APPROVED
