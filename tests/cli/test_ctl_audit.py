"""`agent-intercom-ctl audit` against a real server, with it and without it, and against a database that was changed."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import asdict, evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlite_utils import Database
from trio.testing import MockClock

from intercom.local.operator_keys import PublicKey
from intercom.local.places import places
from intercom.model import clock as clocks
from intercom.model import signing
from intercom.model.config import Config, DecisionsSettings, HighestRisk
from intercom.model.decision import Decision
from intercom.sessions import audit_signatures
from intercom.store import audit, audit_chain
from intercom.store.database import open_database
from intercom.store.writer_messages import Transact
from tests.sessions.signed.keyed_server import keyed, sql
from tests.support.keys import Key
from tests.support.server_process import CTL, Home, begin, call


def ctl(home: Home, *arguments: str) -> tuple[int, Any]:
    """The exit code of the command, and what it prints as JSON."""
    done = subprocess.run([*CTL, *arguments], env=home.environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip().count("\n") == 0 else done.stdout


def words(home: Home, *arguments: str) -> str:
    """What it says to a person."""
    plain = [word for word in CTL if word != "--json"]
    done = subprocess.run(
        [*plain, *arguments], env=home.environ, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def change(home: Home, *statements: str) -> None:
    with closing(sqlite3.connect(home.places.database)) as db, db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.real_time
async def test_the_log_is_verified_and_exported_with_a_server_and_without(home: Home) -> None:
    assert ctl(home, "audit", "verify")[0] == 1
    workspace = home.workspace()
    with home.serving():
        async with home.agent(workspace) as agent, home.person(workspace) as person, trio.open_nursery() as nursery:
            asked = begin(nursery, agent, "check_clearance", title="Count", diff="one\n", file_path="new.txt")
            card = await person.card(title="Count")
            await person.do("approve", id=card["request_id"])
            answer = await asked()
            assert (await call(agent, "check_diff", request_id=answer["request_id"]))["status"] == "applied"
        code, found = ctl(home, "audit", "verify")
        assert (code, found["ok"], found["faults"], found["decisions"]) == (0, True, [], 1)
    code, stopped = ctl(home, "audit", "verify")
    assert (code, stopped["ok"]) == (0, True)
    assert stopped["anchors"] >= 1
    assert os.stat(home.places.audit_anchor_file).st_mode & 0o777 == 0o600
    assert stopped["head"]["sequence"] >= found["head"]["sequence"]
    assert "each follows the one before" in words(home, "audit", "verify")

    lines = words(home, "audit", "export")
    export = home.root / "export.jsonl"
    export.write_text(lines)
    kinds = [json.loads(line).get("kind") for line in lines.splitlines()]
    assert {"clearance_asked", "decided", "applied"} <= set(kinds)
    [decided] = [json.loads(line) for line in lines.splitlines() if '"kind": "decided"' in line]
    data = json.loads(decided["data"])
    assert data["channel"] == "ctl"
    assert data["origin"]["pid"] > 0
    assert len(data["proposal_hash"]) == 64
    assert ctl(home, "audit", "verify", str(export))[0] == 0
    export.write_text(lines.replace('"kind": "decided"', '"kind": "refused"'))
    assert ctl(home, "audit", "verify", str(export))[0] == 1

    change(home, "update audit set who = 'nobody' where kind = 'decided'")
    code, found = ctl(home, "audit", "verify")
    assert (code, found["ok"], found["faults"][0]["entry"]) == (1, False, decided["id"])
    assert f"entry {decided['id']}: it was edited" in words(home, "audit", "verify")
    assert f"entry {decided['id']}: it was edited" in home.command("doctor").stdout
    change(home, f"update audit set who = {decided['who']!r} where kind = 'decided'")
    assert ctl(home, "audit", "verify")[0] == 0


def test_with_an_operator_key_an_approval_needs_a_genuine_signature(tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    key = PublicKey(base64.b64encode(private.public_key().public_bytes_raw()).decode())
    at = datetime(2026, 11, 23, tzinfo=UTC)
    database = tmp_path / "a.db"
    with closing(open_database(database).db) as db, db.conn:
        text = clocks.to_text(at)
        enrolled = signing.key_statement("add", public=key.public, name="", at=text, by=key.id)
        db.execute(
            "insert into operator_key (id, public, name, added_at, added_by, added_signature)"
            " values (?, ?, '', ?, ?, ?)",
            (key.id, key.public, text, key.id, private.sign(enrolled).hex()),
        )
        db.execute(
            "insert into session (id, owner_user_id, workspace_root, status, mode, created_at, updated_at)"
            " values ('s', '', '/w', 'active', 'local', 'x', 'x')"
        )
        for id in ("genuine", "forged", "unsigned"):
            said = {"request_id": id, "subject": "s", "risk": "low", "decision": "approve", "text": None, "at": "t"}
            said |= {"decision_id": "v", "key_id": key.id, "method": "pin"}
            value = private.sign(signing.statement(said)).hex() if id == "genuine" else "00" * 64
            db.execute(
                "insert into approval_request (id, session_id, title, diff_content, file_path, risk_level, status,"
                " original_hash, created_at, key, verdict_id, verdict, decided_by, decided_via, decided_at, signature)"
                " values (?, 's', 't', 'd', 'f', 'low', 'approved', 'h', 'x', ?, 'v', 'approve', 'ann', 'ctl', 'x', ?)",
                (id, id, None if id == "unsigned" else json.dumps({**said, "value": value})),
            )
            audit.record(db, at, "decided", "s", "ann", "approve", {"request_id": id})
    found = audit_chain.examine(database, tmp_path / "audit.anchor")
    assert found.faults == []
    audit_signatures.check_signatures(found, database, places(environ={"HOME": str(tmp_path)}))
    assert [(fault.entry, fault.text) for fault in found.faults] == [
        (2, "the signature of request forged is not genuine"),
        (3, "request unsigned was approved on ctl without a signature, though there was a key"),
    ]


def put_unsigned_approval(database: Path) -> None:
    """Make a database in which an operator key was enrolled, and a request was approved without a signature."""
    at = datetime(2026, 11, 23, tzinfo=UTC)
    with closing(open_database(database).db) as db, db.conn:
        audit.record(db, at, "operator_key_added", None, "ann", "operator key k", {"key_id": "k", "public": "AAAA"})
        db.execute(
            "insert into session (id, owner_user_id, workspace_root, status, mode, created_at, updated_at)"
            " values ('s', '', '/w', 'active', 'local', 'x', 'x')"
        )
        db.execute(
            "insert into approval_request (id, session_id, title, diff_content, file_path, risk_level, status,"
            " original_hash, created_at, key, verdict_id, verdict, decided_by, decided_via, decided_at)"
            " values ('r', 's', 't', 'd', 'f', 'low', 'approved', 'h', 'x', 'r', 'v', 'approve', 'ann', 'ctl', 'x')"
        )
        audit.record(db, at, "decided", "s", "ann", "approve", {"request_id": "r"})


def test_a_key_that_was_removed_from_the_database_still_asks_for_signatures(tmp_path: Path) -> None:
    """Failed before: without a row in the table of keys no signature was looked at."""
    database = tmp_path / "a.db"
    put_unsigned_approval(database)
    found = audit_chain.examine(database, tmp_path / "audit.anchor")
    audit_signatures.check_signatures(found, database, places(environ={"HOME": str(tmp_path)}))
    assert [(fault.entry, fault.text) for fault in found.faults] == [
        (1, "operator key k was enrolled, and it was removed from the database"),
        (2, "request r was approved on ctl without a signature, though there was a key"),
    ]


APPROVED = (
    "update approval_request set status = 'approved', verdict_id = 'x', verdict = 'approve', decided_by = 'kim',"
    " decided_via = ?, decided_at = '2026-01-01T00:00:01.000000+00:00', signature = ? where id = ?"
)


async def test_a_channels_signature_is_verified_and_none_is_needed_once_no_key_is_left(
    clock: MockClock, tmp_path: Path
) -> None:
    """Failed before: whatever called itself a channel's was believed, and each approval after the last key was revoked
    was called a forged one."""
    key, root = Key(), tmp_path / "ws"
    root.mkdir()
    config = Config(decisions=DecisionsSettings(embed=HighestRisk.LOW))
    async with keyed(root, clock, key, config) as server:
        agent = await server.arrive(root)

        async def propose(name: str) -> str:
            return str((await agent.propose(name)).request_id)

        genuine = await propose("a.txt")
        await server.app.service.decide(genuine, evolve(server.verdict(Decision.APPROVE), channel="embed"))
        stored = (await server.app.service.card(genuine)).decided
        assert stored is not None
        forged = {}
        for name, channel in (("b.txt", "embed"), ("c.txt", "ctl")):
            id = await propose(name)
            said = {**asdict(stored.signature), "request_id": id, "decision_id": "x"}
            sql(server, APPROVED, channel, json.dumps(said), id)
            await server.ask("store", Transact(partial(decided, id=id, at=server.now())))
            forged[channel] = id
        await server.later(1)
        at_text, by, signature = key.for_key("revoke", key.public, server.now())
        await server.app.service.revoke_key(key.public.id, at_text, by, signature)
        await server.later(1)
        await server.decide(await propose("d.txt"), Decision.APPROVE)
        found = audit_chain.examine(server.app.database, tmp_path / "audit.anchor")
        found.faults.clear()
        audit_signatures.check_signatures(found, server.app.database, server.app.places)
        assert [fault.text for fault in found.faults] == [
            f"the signature of request {forged['embed']} is not genuine",
            f"the signature of request {forged['ctl']} is not of ctl, where it was approved",
        ]


def decided(db: Database, id: str, at: datetime) -> None:
    audit.record(db, at, "decided", None, "kim", "approve", {"request_id": id})


async def test_a_revocation_that_no_key_signed_ends_nothing(clock: MockClock, tmp_path: Path) -> None:
    key, root = Key(), tmp_path / "ws"
    root.mkdir()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        data = {"key_id": key.public.id, "public": key.public.public, "by": key.public.id, "at": "x", "signature": "00"}
        record = partial(
            audit.record,
            at=server.now(),
            kind="operator_key_revoked",
            session_id=None,
            who="kim",
            summary="",
            data=data,
        )
        await server.ask("store", Transact(record))
        await server.later(1)
        sql(server, APPROVED, "ctl", None, id)
        await server.ask("store", Transact(partial(decided, id=id, at=server.now())))
        found = audit_chain.examine(server.app.database, tmp_path / "audit.anchor")
        found.faults.clear()
        audit_signatures.check_signatures(found, server.app.database, server.app.places)
        assert [fault.text for fault in found.faults] == [
            f"operator key {key.public.id} is marked as revoked without a signature",
            f"request {id} was approved on ctl without a signature, though there was a key",
        ]


@pytest.mark.real_time
async def test_a_log_that_was_cut_is_told_on_stderr_when_the_server_starts(home: Home) -> None:
    with home.serving():
        async with home.agent(home.workspace()) as agent:
            await call(agent, "broadcast", message="hello")
    change(home, "delete from audit where id > 1")
    with home.serving():
        async with home.agent(home.workspace()) as agent:
            await call(agent, "broadcast", message="hello again")
    assert "the audit log was changed while no server watched it" in (home.root / "server.log").read_text()
    code, found = ctl(home, "audit", "verify")
    assert code == 1
    assert found["faults"]
