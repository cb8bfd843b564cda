"""`audit verify` reads a log in which somebody may have stored anything: no entry ends it, and none passes by that."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlite_utils import Database

from intercom.local.places import Places
from intercom.model import signing
from intercom.operators.commands.command_execution import CommandRequest, carry_out
from intercom.sessions import audit_signatures
from intercom.store import audit, audit_chain
from tests.sessions.signed.keyed_server import approve
from tests.sessions.signed.test_forged_log import accepted, answered, granted, made
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer

AT = datetime(2026, 11, 23, tzinfo=UTC)
#: The names that verification reads in an entry, in a signature, and in what was signed of a command.
_OF_ENTRIES = ("request_id", "grant_id", "verdict_id", "channel", "from", "scope", "seconds", "uses", "sha256")
_OF_COMMANDS = ("id", "session", "scope", "duration", "uses", "text", "reason")
NAMES = (*_OF_ENTRIES, *_OF_COMMANDS, *signing.STATED, "signature", "fields", "value")

#: Any text that JSON can hold, also halves of surrogate pairs.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | TEXTS, inner, max_size=3),
    max_leaves=6,
)
#: What a column may hold instead of an object.
CELLS = VALUES.map(json.dumps) | st.binary(max_size=20) | st.integers(-9, 9) | st.floats(allow_nan=False)


class Log:
    """A copy of a server's database with a genuine entry of each kind, which tests change and change back."""

    def __init__(self, file: Path, where: Places, genuine: dict[str, dict[str, Any]]) -> None:
        self.file, self.where, self.genuine = file, where, genuine
        self.anchors = file.with_name("anchors")
        self._keep_the_first_head()

    def _keep_the_first_head(self) -> None:
        """Whether the server had kept a head when it was copied depends on its threads; the copy has one in any case.
        It is older than what tests add."""
        with closing(audit_chain.connect(self.file)) as db:
            first = next(audit_chain.entries(db))
        assert audit_chain.append_anchor(self.anchors, audit_chain.Head(first.id, first.hash, first.at), self.file)

    def faults(self) -> list[audit_chain.Fault]:
        found = audit_chain.examine(self.file, self.anchors)
        audit_signatures.check_signatures(found, self.file, self.where)
        return found.faults

    @contextmanager
    def added(self, kind: str, data: object) -> Iterator[int]:
        """One more entry, with its hash."""
        summary = {"decided": "stop", "decision_taken_back": "approve"}.get(kind, "")
        with closing(sqlite3.connect(self.file)) as db, db:
            id = audit.record(Database(db), AT, kind, "s", "kim", summary, {})
            db.execute("update audit set data = ? where id = ?", (data, id))
        with closing(audit_chain.connect(self.file)) as db:
            [entry] = [each for each in audit_chain.entries(db) if each.id == id]
        with closing(sqlite3.connect(self.file)) as db, db:
            db.execute("update audit set hash = ? where id = ?", (audit_chain.entry_hash(entry), id))
        yield id
        with closing(sqlite3.connect(self.file)) as db, db:
            db.execute("delete from audit where id = ?", (id,))

    @contextmanager
    def changed(self, table: str, column: str, value: object) -> Iterator[None]:
        """Something else in a column of all rows."""
        with closing(sqlite3.connect(self.file)) as db, db:
            before = db.execute(f'select rowid, {column} from "{table}"').fetchall()
            db.execute(f'update "{table}" set {column} = ?', (value,))
        yield
        with closing(sqlite3.connect(self.file)) as db, db:
            db.executemany(f'update "{table}" set {column} = ?2 where rowid = ?1', before)


@pytest.fixture
async def log(server: VirtualServer, agent: AgentClient, key: Key, root: Path, tmp_path: Path) -> Log:
    made_entries = [await make(server, agent, key, root) for make in (answered, accepted)]
    await approve(server, key, (await agent.propose("b.txt")).request_id)
    id = (await agent.propose("c.txt")).request_id
    await approve(server, key, id)
    for act in (
        key.command("take-back", server.now(), "act-back", id=id),
        key.command("steer", server.now(), "act-steer", session=agent.session_id, text="go on"),
    ):
        name, act_id = act.signature.decision, act.signature.decision_id
        await carry_out(server.app.service, CommandRequest(name, act.fields, act_id, act.signature), "kim", None)
    made_entries += [await made(server, "decision_taken_back"), await granted(server, agent, key, root)]
    genuine = {entry.kind: json.loads(json.dumps(entry.data)) for entry in made_entries}
    enabled = key.command("gateway-enable", server.now(), "act-enable", id="files").signature
    genuine["downstream_enabled"] = {"downstream": "files", "signature": audit_signature(enabled)}
    file = tmp_path / "copy.db"
    with closing(sqlite3.connect(server.app.database)) as db, closing(sqlite3.connect(file)) as copy:
        db.backup(copy)
    return Log(file, server.app.places, genuine)


def audit_signature(signature: Any) -> dict[str, Any]:
    return {name: getattr(signature, name) for name in (*signing.STATED, "value")}


async def test_any_entry_of_an_act_that_nobody_signed_is_a_fault(log: Log) -> None:
    assert log.faults() == []

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(sorted(log.genuine)), st.sampled_from(NAMES), st.booleans(), VALUES)
    def check(kind: str, name: str, inside: bool, value: Any) -> None:
        data = log.genuine[kind]
        said = {**data["signature"], "decision_id": "another", name: value} if inside else data["signature"]
        text = json.dumps({**data, "signature": said, **({} if inside else {name: value})})
        # What was signed once more, for another entry, is not good for it.
        with log.added(kind, text) as id:
            if kind != "downstream_enabled" or inside:
                assert any(fault.entry == id for fault in log.faults())
            log.faults()

    check()


async def test_an_entry_with_anything_for_its_data_is_a_fault(log: Log) -> None:
    @settings(max_examples=50, deadline=None)
    @given(st.sampled_from(sorted(log.genuine)), CELLS)
    def check(kind: str, data: object) -> None:
        with log.added(kind, data) as id:
            assert any(fault.entry == id for fault in log.faults())

    check()


ROWS = [
    *(("approval_request", column) for column in ("signature", "decided_text")),
    *(("instruction", "signature"), ("instruction", "kind"), ("grant", "signature")),
    *(("operator_key", column) for column in ("added_at", "added_signature", "added_by", "name", "public")),
]


async def test_a_row_with_anything_in_it_does_not_end_the_verification(log: Log) -> None:
    @settings(max_examples=50, deadline=None)
    @given(st.sampled_from(ROWS), CELLS.filter(lambda cell: cell not in ("", "null")))
    def check(row: tuple[str, str], value: object) -> None:
        table, column = row
        with log.changed(table, column, value):
            assert log.faults() != [] or table == "operator_key"

    check()


async def test_what_is_nested_deeply_does_not_end_the_verification(log: Log) -> None:
    for kind in (*log.genuine, "purged"):
        for name, depth in itertools.product(("request_id", "signature", "audit_pruned"), range(20, 1000, 320)):
            nested = "[" * depth + "]" * depth
            for text in (nested, f'{{"text": {nested}, "through": 1, "hash": {nested}}}'):
                with log.added(kind, f'{{"{name}": {text}}}') as id:
                    assert any(fault.entry == id for fault in log.faults()) or kind == "purged"


async def test_half_a_surrogate_pair_in_the_id_of_an_act_does_not_end_the_verification(log: Log) -> None:
    for method, grant in ((signing.PIN, "x"), (signing.CHANNEL, "\ud800")):
        signature = {"decision": "grant", "request_id": "", "decision_id": "\ud800", "at": "t", "method": method}
        data = {"grant_id": grant, "from": "t", "channel": "slack", "signature": signature}
        with log.added("grant_made", json.dumps(data)) as id:
            assert id in [fault.entry for fault in log.faults()]
