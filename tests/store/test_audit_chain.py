"""The audit log as a chain: whatever is changed, removed, put in or moved is found, and a crash is no alarm."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intercom.cli import ctl_audit
from intercom.local.places import places
from intercom.operators.commands.json_forms import verification_entry
from intercom.sessions import audit_signatures
from intercom.store import audit, audit_chain, retention
from intercom.store.audit_chain import GENESIS, STARTED, AnchorError, Entry, Head, Verification, entry_hash, head
from intercom.store.database import open_database

AT = datetime(2026, 11, 23, 8, tzinfo=UTC)


def write(path: Path, count: int = 12) -> None:
    """A log with so many entries, two of them about a request."""
    opened = open_database(path)
    db = opened.db
    with closing(db):
        db.execute("begin immediate")
        before = head(db.conn)
        for number in range(count):
            data = {"request_id": "r-1", "decision": number} if number % 3 else None
            audit.record(
                db, AT + timedelta(seconds=number), "broadcast", f"s-{number % 2}", "agent", f"said {number}", data
            )
        db.execute("commit")
        assert before is None or before.sequence


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "a.db")
    return tmp_path / "a.db"


def look(log: Path) -> Verification:
    """What verification finds, with the anchors beside the database."""
    return audit_chain.examine(log, log.with_name("audit.anchor"))


def change(log: Path, *statements: str) -> None:
    """Somebody else writes the database."""
    with closing(sqlite3.connect(log)) as db, db:
        for statement in statements:
            db.execute(statement)


def anchor(log: Path) -> Head:
    with closing(audit_chain.connect(log)) as db:
        newest = head(db)
    assert newest is not None
    audit_chain.append_anchor(log.with_name("audit.anchor"), newest, log)
    return newest


def rechain(log: Path, first: int = 1) -> None:
    """Make all hashes anew from an entry on, as one who knows how it is done."""
    with closing(sqlite3.connect(log)) as db, db:
        previous = GENESIS
        for entry in list(audit_chain.entries(db)):
            if entry.id < first:
                previous = entry.hash
                continue
            entry = entry._replace(previous=previous)
            previous = entry_hash(entry)
            db.execute("update audit set previous = ?, hash = ? where id = ?", (entry.previous, previous, entry.id))


def test_an_untouched_log_holds_and_tells_its_head(log: Path) -> None:
    newest = anchor(log)
    found = look(log)
    assert (found.faults, found.entries, found.anchors, found.head) == ([], 12, 1, newest)
    assert newest.sequence == 12
    with closing(open_database(log).db) as db:
        assert [entry.id for entry in audit.recent(db, 100)] == list(range(1, 13))
        assert audit.recent(db, 1)[0].hash == newest.hash


TAMPERINGS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "edit the time": (("update audit set at = '2026-11-23T09:00:00.000000Z' where id = 5",), 5),
    "edit the kind": (("update audit set kind = 'decided' where id = 5",), 5),
    "edit the session": (("update audit set session_id = 's-9' where id = 5",), 5),
    "drop the session": (("update audit set session_id = null where id = 5",), 5),
    "edit who": (("update audit set who = 'ann' where id = 5",), 5),
    "edit the summary": (("update audit set summary = 'said nothing' where id = 5",), 5),
    "edit the data": (("""update audit set data = '{"request_id":"r-2"}' where id = 5""",), 5),
    "drop the data": (("update audit set data = null where id = 5",), 5),
    "edit the hash": (("update audit set hash = previous where id = 5",), 5),
    "edit the hash before": (("update audit set previous = hash where id = 5",), 5),
    "edit the number": (("update audit set id = 50 where id = 12",), 50),
    "edit the first": (("update audit set summary = 'x' where id = 1",), 1),
    "edit the last": (("update audit set summary = 'x' where id = 12",), 12),
    "delete one": (("delete from audit where id = 5",), 6),
    "delete several": (("delete from audit where id between 5 and 8",), 9),
    "delete the first": (("delete from audit where id = 1",), 2),
    "delete the beginning": (("delete from audit where id < 6",), 6),
    "cut the last": (("delete from audit where id = 12",), None),
    "cut the tail": (("delete from audit where id > 7",), None),
    "delete all": (("delete from audit",), None),
    "insert at the end": (
        (
            "insert into audit (id, at, kind, who, summary, previous, hash)"
            " values (13, 'x', 'decided', 'ann', 'approve', '0', '0')",
        ),
        13,
    ),
    "insert with a hash of another": (
        (
            "insert into audit (id, at, kind, who, summary, previous, hash)"
            " select 13, at, kind, who, summary, previous, hash from audit where id = 12",
        ),
        13,
    ),
    "insert between": (
        (
            "update audit set id = id + 100 where id > 5",
            "update audit set id = id - 99 where id > 100",
            "insert into audit select 6, at, kind, session_id, who, summary, data, previous, hash from audit"
            " where id = 5",
        ),
        6,
    ),
    "swap two": (
        (
            "update audit set id = 100 where id = 5",
            "update audit set id = 5 where id = 6",
            "update audit set id = 6 where id = 100",
        ),
        5,
    ),
    "repeat one": (
        (
            "update audit set (at, kind, session_id, who, summary, data, previous, hash) ="
            " (select at, kind, session_id, who, summary, data, previous, hash from audit where id = 4) where id = 5",
        ),
        5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERINGS)
@pytest.mark.parametrize("anchored", [False, True])
def test_what_was_tampered_with_is_found_and_named(log: Path, name: str, anchored: bool) -> None:
    statements, entry = TAMPERINGS[name]
    if anchored:
        anchor(log)
    change(log, *statements)
    faults = look(log).faults
    assert faults, name
    assert faults[0].entry == entry, faults


@pytest.mark.parametrize("first", [1, 6, 12])
def test_a_chain_that_was_made_anew_is_found_by_its_anchor(log: Path, first: int) -> None:
    anchor(log)
    change(log, f"update audit set summary = 'nothing happened' where id = {first}")
    rechain(log, first)
    [fault] = look(log).faults
    assert fault.entry == 12
    assert "had another hash" in fault.text


def test_a_tail_that_was_cut_with_its_counter_is_found_by_its_anchor(log: Path) -> None:
    anchor(log)
    change(log, "delete from audit where id > 9", "update sqlite_sequence set seq = 9 where name = 'audit'")
    [fault] = look(log).faults
    assert "entries 10 to 12 were cut off" in fault.text


def test_an_anchor_file_that_went_is_missed(log: Path) -> None:
    with closing(open_database(log).db) as db:
        audit.record(db, AT, "audit_anchored", None, "intercom", "kept")
    anchor(log)
    assert look(log).faults == []
    log.with_name("audit.anchor").unlink()
    [fault] = look(log).faults
    assert "is gone" in fault.text


@pytest.mark.parametrize("kind", ["audit_anchored", "audit_posted"])
def test_a_file_of_heads_that_was_begun_again_is_found(log: Path, kind: str) -> None:
    with closing(open_database(log).db) as db:
        audit.record(db, AT, kind, None, "intercom", "kept")
    first = anchor(log)
    assert (look(log).faults, look(log).begun_again) == ([], [])
    log.with_name("audit.anchor").unlink()
    write(log, 3)
    later = anchor(log)
    [fault] = look(log).faults
    assert "was begun again" in fault.text
    assert f"since entry {first.sequence}, and its first is of entry {later.sequence}" in fault.text
    log.with_name("audit.anchor").unlink()
    with closing(open_database(log).db) as db:
        audit.record(db, AT, "audit_anchored", None, "intercom", "kept", {"again": True})
    anchor(log)
    found = look(log)
    assert (found.faults, [entry for entry, _ in found.begun_again]) == ([], [later.sequence + 1])
    # Those who look are told, for good.
    assert verification_entry(found)["anchors_begun_again"]


def test_a_crash_between_the_commit_and_the_anchor_is_no_alarm(log: Path) -> None:
    anchor(log)
    write(log, 5)
    with log.with_name("audit.anchor").open("ab") as file:
        file.write(b'{"sequence": 17, "ha')
    found = look(log)
    assert (found.faults, found.entries, found.anchors) == ([], 17, 1)
    newest = anchor(log)
    assert (look(log).anchors, newest.sequence, look(log).faults) == (2, 17, [])


def test_a_missing_state_directory_is_made_for_the_anchor(tmp_path: Path) -> None:
    file = tmp_path / "state" / "audit.anchor"
    audit_chain.append_anchor(file, Head(1, "0" * 64, "2026-11-23T08:00:00.000000+00:00"), tmp_path / "a.db")
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [each.sequence for each in audit_chain.read_anchors(file, tmp_path / "a.db")] == [1]


@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_an_anchor_file_that_others_may_touch_is_refused(log: Path, mode: int) -> None:
    anchor(log)
    file = log.with_name("audit.anchor")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(mode)
    with pytest.raises(AnchorError, match="yours alone"):
        look(log)
    file.unlink()
    file.symlink_to(log)
    with pytest.raises(AnchorError):
        anchor(log)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_of_any_entry_is_found(log: Path, data: st.DataObject) -> None:
    copy = log.with_name("copy.db")
    shutil.copy(log, copy)
    id = data.draw(st.integers(1, 12))
    column = data.draw(st.sampled_from(Entry._fields[1:]))
    with closing(sqlite3.connect(copy)) as db, db:
        before = db.execute(f"select {column} from audit where id = ?", (id,)).fetchone()[0]
        value = data.draw(
            st.one_of(
                st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(0, 9), st.binary(max_size=4)
            )
        )
        db.execute(f"update audit set {column} = ? where id = ?", (value, id))
        stored = db.execute(f"select {column} from audit where id = ?", (id,)).fetchone()[0]
    if stored != before:
        assert look(copy).faults


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(1, 12), min_size=1), st.booleans())
def test_any_entries_that_are_removed_are_missed(log: Path, ids: set[int], renumber: bool) -> None:
    copy = log.with_name("copy.db")
    shutil.copy(log, copy)
    change(copy, f"delete from audit where id in ({', '.join(map(str, ids))})")
    if renumber:
        with closing(sqlite3.connect(copy)) as db, db:
            for number, (id,) in enumerate(db.execute("select id from audit order by id").fetchall(), 1):
                db.execute("update audit set id = ? where id = ?", (number, id))
    assert look(copy).faults


def approve(log: Path, id: str, *, entry: str | None, proposal: str = "p-1", status: str = "approved") -> None:
    """A request with this decision in its row, and this in the log."""
    with closing(open_database(log).db) as db, db.conn:
        db.execute(
            "insert or ignore into session (id, owner_user_id, workspace_root, status, mode, created_at, updated_at)"
            " values ('s', '', '/w', 'active', 'local', 'x', 'x')"
        )
        db.execute(
            "insert into approval_request (id, session_id, title, diff_content, file_path, risk_level, status,"
            " original_hash, created_at, key, verdict_id, verdict, decided_by, decided_via, decided_at, proposal_hash)"
            " values (?, 's', 't', 'd', 'f', 'low', ?, 'h', 'x', ?, 'v', 'approve', 'ann', 'ctl', 'x', ?)",
            (id, status, id, proposal),
        )
        if entry is not None:
            audit.record(db, AT, "decided", "s", "ann", entry, {"request_id": id, "proposal_hash": "p-1"})


def test_a_decision_needs_its_entry(log: Path) -> None:
    approve(log, "r-decided", entry="approve")
    approve(log, "r-applied", entry="approve", status="consumed")
    found = look(log)
    assert (found.faults, found.decisions) == ([], 2)
    approve(log, "r-none", entry=None)
    approve(log, "r-other", entry="reject")
    approve(log, "r-changed", entry="approve", proposal="p-2")
    texts = [fault.text for fault in look(log).faults]
    assert len(texts) == 3
    assert "r-none is approved (by ann), and no entry says that anybody decided it" in texts[0]
    assert "r-other is approved (approve by ann), and the log says reject" in texts[1]
    assert "r-changed was changed after it was decided" in texts[2]


def test_retention_takes_a_beginning_and_the_chain_holds(log: Path) -> None:
    anchor(log)
    with closing(open_database(log).db) as db, db.conn:
        retention.purge(db, AT + timedelta(seconds=6), AT + timedelta(days=1))
    found = look(log)
    assert (found.faults, found.first, found.entries) == ([], 7, 7)
    with closing(open_database(log).db) as db, db.conn:
        retention.purge(db, AT + timedelta(days=2), AT + timedelta(days=3))
    found = look(log)
    assert (found.faults, found.entries) == ([], 2)
    write(log, 2)
    assert look(log).faults == []
    # The same without the entry that says so.
    change(log, "delete from audit where id < (select max(id) from audit)")
    assert look(log).faults


def test_entries_of_sessions_that_are_kept_stay(log: Path) -> None:
    approve(log, "r-1", entry="approve")
    with closing(open_database(log).db) as db, db.conn:
        retention.purge(db, AT + timedelta(days=2), AT + timedelta(days=3))
    found = look(log)
    assert (found.faults, found.first) == ([], 13)


def test_a_chain_that_began_later_than_its_log_is_sound(tmp_path: Path) -> None:
    """As in databases from before the release: older entries, with gaps, and a decision without an entry."""
    path = tmp_path / "old.db"
    with closing(open_database(path).db):
        pass
    approve(path, "r-old", entry=None)
    started = json.dumps({"first": 3, "through": 9, "entries": 3, "decided_before": ["r-old"]})
    entry = "insert into audit (id, at, kind, who, summary, data) values"
    change(
        path,
        *(f"{entry} ({id}, '{AT}', 'noted', 'a', 's', null)" for id in (3, 4, 9)),
        f"{entry} (10, '{AT}', '{STARTED}', 'intercom', 's', '{started}')",
    )
    rechain(path)
    found = look(path)
    assert (found.faults, found.entries, found.unchained) == ([], 4, 2)
    change(path, "delete from audit where id = 4")
    assert look(path).faults


def test_an_export_is_verified_like_the_log(log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    newest = anchor(log)
    anchors = audit_chain.read_anchors(log.with_name("audit.anchor"), log)
    assert ctl_audit._export(log) == 0
    lines = capsys.readouterr().out.splitlines()
    file = tmp_path / "export.jsonl"
    assert json.loads(lines[-1])["head"]["hash"] == newest.hash

    def found(lines: list[str]) -> list[str]:
        file.write_text("\n".join(lines) + "\n")
        return [fault.text for fault in ctl_audit.verify_export(file, anchors).faults]

    assert found(lines) == []
    assert found([*lines[:4], *lines[5:]])
    assert found([*lines[:4], lines[5], lines[4], *lines[6:]])
    assert found([*lines[:10], lines[-1]])
    assert found(lines[:-1])
    assert found([lines[0].replace("said 0", "said 1"), *lines[1:]])


def test_verification_is_quick(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    write(path, 20_000)
    found = look(path)
    assert (found.faults, found.entries) == ([], 20_000)


def test_an_undone_entry_leaves_no_gap(log: Path) -> None:
    with closing(open_database(log).db) as db:
        db.execute("begin immediate")
        audit.record(db, AT, "broadcast", None, "agent", "undone")
        db.execute("rollback")
        audit.record(db, AT, "broadcast", None, "agent", "kept")
    assert (look(log).faults, look(log).entries) == ([], 13)


def test_only_one_function_writes_the_log() -> None:
    """Entries are inserted where they are chained, changed nowhere, and removed where that goes on record."""
    import intercom

    package = Path(intercom.__file__).parent
    sources: Iterator[tuple[str, str]] = ((path.name, path.read_text()) for path in package.rglob("*.py"))
    found: dict[str, set[str]] = {"insert into audit ": set(), "update audit ": set(), "delete from audit ": set()}
    for name, text in sources:
        for statement, names in found.items():
            if statement in text:
                names.add(name)
    assert found == {
        # An export is verified in a database of its own, in memory.
        "insert into audit ": {"audit.py", "ctl_audit.py"},
        "update audit ": set(),
        "delete from audit ": {"audit.py"},
    }


def append(log: Path, kind: str, data: dict[str, object], at: str = "2026-11-23T09:00:00.000000+00:00") -> None:
    """An entry that somebody puts at the end, as one who knows how it is done."""
    with closing(sqlite3.connect(log)) as db, db:
        newest = head(db)
        text = json.dumps(data)
        entry = Entry(newest.sequence + 1, at, kind, None, "intercom", "approve", text, newest.hash, "")
        entry = entry._replace(hash=entry_hash(entry))
        db.execute(f"insert into audit ({', '.join(entry._fields)}) values ({', '.join('?' * len(entry))})", entry)


@pytest.mark.parametrize("how", ["anchored", "put on record", "begun twice"])
def test_an_entry_that_begins_the_chain_once_more_vouches_for_nothing(log: Path, how: str) -> None:
    if how == "anchored":
        anchor(log)
    else:
        append(log, "audit_anchored" if how == "put on record" else STARTED, {"first": 1})
    approve(log, "r-none", entry=None)
    append(log, STARTED, {"first": 1, "decided_before": ["r-none"]})
    texts = [fault.text for fault in look(log).faults]
    assert "it says that the chain begins here, and it had begun before" in texts
    assert any("no entry says that anybody decided it" in text for text in texts)


@pytest.mark.parametrize(("later", "found"), [(timedelta(hours=1), True), (timedelta(days=31), False)])
def test_entries_do_not_go_by_age_on_the_day_they_were_made(log: Path, later: timedelta, found: bool) -> None:
    newest = anchor(log)
    write(log, 2)
    pruned = {"through": newest.sequence, "hash": newest.hash, "count": newest.sequence}
    append(log, "purged", {"audit_pruned": pruned}, (datetime.fromisoformat(newest.at) + later).isoformat())
    change(log, f"delete from audit where id <= {newest.sequence}")
    assert bool(look(log).faults) is found


def test_what_a_person_decided_did_not_pass_by_itself(log: Path) -> None:
    approve(log, "r-1", entry=None)
    with closing(open_database(log).db) as db, db.conn:
        audit.record(db, AT, "auto_approved", "s", "policy", "t", {"request_id": "r-1", "proposal_hash": "p-1"})
    assert [fault.text for fault in look(log).faults] == [
        "request r-1 is approved (by ann), and the log says that it passed by itself"
    ]


#: What somebody may put into a column that holds something else.
_NESTED = "[" * 100_000
ODD: tuple[object, ...] = (
    *(5, 1.5, b"\xff\x00", "x", "[]", "{", _NESTED, '{"audit_pruned": "x"}', '{"audit_pruned": {"through": "x"}}'),
    *('{"audit_pruned": {"through": null}}', '{"audit_pruned": {}}', '{"audit_pruned": [1]}', '{"first": [1]}'),
    *('{"first": "x"}', '{"decided_before": 5}', '{"decided_before": [[1]]}', '{"request_id": {"a": 1}}'),
)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:30])
def test_no_entry_that_was_edited_ends_the_verification(log: Path, odd: object) -> None:
    anchor(log)
    whole = log.read_bytes()
    for kind in ("purged", STARTED, "audit_anchored", "decided", "operator_key_added"):
        for entry in (1, 5, 12):
            with closing(sqlite3.connect(log)) as db, db:
                db.execute("update audit set kind = ?, data = ? where id = ?", (kind, odd, entry))
            found = look(log)
            audit_signatures.check_signatures(found, log, places())
            assert any(fault.entry == entry and "edited" in fault.text for fault in found.faults)
            log.write_bytes(whole)


def test_bytes_that_are_no_text_do_not_end_it_and_are_no_other_bytes(log: Path) -> None:
    change(log, "update audit set summary = cast(x'ff' as text) where id = 3")
    assert any(fault.entry == 3 and "edited" in fault.text for fault in look(log).faults)


def test_what_a_fault_quotes_does_not_hide_it(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Verification()
    found.add(3, "request \x1b[2J\x1b[1A is approved\n8 decisions, each with its entry")
    assert ctl_audit._shown(found, False) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert said.splitlines()[0].startswith("entry 3: request \\x1b[2J")


def test_a_head_that_was_added_for_a_log_made_anew_does_not_hide_it(log: Path) -> None:
    anchor(log)
    change(log, "update audit set summary = 'forged' where id = 5")
    rechain(log, 5)
    assert look(log).faults
    anchor(log)
    assert [fault.entry for fault in look(log).faults] == [12, 12]
