"""The gateway's calls are chained entries of the audit log, counted once by day; pins and evidence are kept."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from attrs import evolve

from intercom.store import audit, audit_chain, gateway, retention, rows, sessions
from intercom.store.gateway import AllowedTool, CallEntry, DayUsage, RecordedCall, StoredEvidence
from intercom.store.writer_messages import Database
from tests.store import cases
from tests.store.cases import NOW, after

DAY = date(2026, 3, 1)


def call(id: str, **changes: Any) -> CallEntry:
    data = {"id": id, "tool": changes.get("downstream", "github")}
    entry = CallEntry(id, "s1", "claude 1", "github.search: success", data, "github", DAY, 5)
    return evolve(entry, **changes)


def ids(found: tuple[RecordedCall, ...]) -> list[object]:
    return [each.record.get("id") for each in found]


def test_calls_are_entries_of_the_chain(db: Database) -> None:
    audit.record(db, NOW, "other", "s1", "ada", "before")
    through = gateway.record_calls(db, NOW, [call("a"), call("b")], 0)
    assert through == 3
    assert gateway.newest_call(db) == 3
    verified = audit_chain.verify(db.conn)
    assert (verified.entries, verified.faults) == (3, [])
    newest = audit.recent(db, 1)[0]
    assert (newest.kind, newest.session_id, newest.who) == (gateway.GATEWAY_CALL, "s1", "claude 1")


def test_a_repeated_group_is_recorded_and_counted_once(db: Database) -> None:
    gateway.record_calls(db, NOW, [call("a"), call("b")], 0)
    # Nobody learned that this was committed: the same group comes again, with one more.
    through = gateway.record_calls(db, NOW, [call("a"), call("b"), call("c")], 0)
    assert ids(gateway.calls(db, 9)) == ["a", "b", "c"]
    assert through == 3
    # A group of which everything is known.
    assert gateway.record_calls(db, NOW, [call("c")], 1) == 3
    assert gateway.usage_of(db, "github", DAY) == DayUsage("github", DAY, 3, 15)


def test_usage_is_counted_by_downstream_and_day(db: Database) -> None:
    next_day = date(2026, 3, 2)
    gateway.record_calls(
        db, NOW, [call("a"), call("b", day=None), call("c", downstream="files"), call("d", day=next_day)], 0
    )
    gateway.record_calls(db, NOW, [call("e")], 4)
    assert gateway.usage_of(db, "files", DAY) == DayUsage("files", DAY, 1, 5)
    assert rows.every(db, "select * from gateway_usage where downstream = 'github' order by day") == [
        {"downstream": "github", "day": "2026-03-01", "calls": 2, "cost": 10},
        {"downstream": "github", "day": "2026-03-02", "calls": 1, "cost": 5},
    ]
    # The clock was set back over midnight: the later day goes on.
    assert gateway.usage_of(db, "github", DAY) == DayUsage("github", next_day, 1, 5)
    assert gateway.usage_of(db, "github", date(2026, 3, 3)) is None


def test_a_day_of_a_clock_that_was_years_ahead_does_not_hide_today(db: Database) -> None:
    gateway.record_calls(db, NOW, [call("a", day=date(2031, 1, 1)), call("b")], 0)
    assert gateway.usage_of(db, "github", DAY) == DayUsage("github", DAY, 1, 5)


def test_calls_of_one_session_or_downstream_are_found(db: Database) -> None:
    gateway.record_calls(db, NOW, [call("a"), call("b", session_id=None), call("c", downstream="files"), call("d")], 0)
    assert ids(gateway.calls(db, 2)) == ["c", "d"]
    assert ids(gateway.calls(db, 2, after_entry=0)) == ["a", "b"]
    assert ids(gateway.calls(db, 9, after_entry=2)) == ["c", "d"]
    assert ids(gateway.calls(db, 9, session_id="s1")) == ["a", "c", "d"]
    assert ids(gateway.calls(db, 9, downstream="files")) == ["c"]
    assert ids(gateway.calls(db, 1, session_id="s1", downstream="github")) == ["d"]


@pytest.mark.parametrize("data", [None, "", "{", "[]", "3", b"\xff\x00", '{"id": 7}', "null"])
def test_what_another_program_wrote_does_no_harm(db: Database, data: object) -> None:
    db.execute(
        "insert into audit (id, at, kind, who, summary, data) values (1, '', 'gateway_call', 'mallory', '', ?)", (data,)
    )
    gateway.record_calls(db, NOW, [call("a")], 0)
    assert ids(gateway.calls(db, 9))[1:] == ["a"]
    assert ids(gateway.calls(db, 9, downstream="github")) == ["a"]
    assert gateway.call_ids(db, 0) == {"a"}


@pytest.mark.parametrize(
    "query",
    [
        "select id, data from audit where kind = 'gateway_call' order by id desc limit 9",
        "select id, data from audit where kind = 'gateway_call' and id > 5 order by id limit 9",
        "select coalesce(max(id), 0) from audit where kind = 'gateway_call'",
    ],
)
def test_the_queries_use_the_index_of_calls(db: Database, query: str) -> None:
    plan = [row[3] for row in db.execute(f"explain query plan {query}").fetchall()]
    assert len(plan) == 1
    assert "idx_audit_gateway" in plan[0]


def test_the_calls_of_a_session_are_found_by_its_index(db: Database) -> None:
    statements: list[str] = []
    db.conn.set_trace_callback(statements.append)
    gateway.calls(db, 9, session_id="s1")
    db.conn.set_trace_callback(None)
    plan = [row[3] for row in db.execute(f"explain query plan {statements[-1]}").fetchall()]
    assert plan == ["SEARCH audit USING INDEX idx_audit_session (session_id=?)"]


def allowed(tool: str, definition: str = "{}", downstream: str = "github") -> AllowedTool:
    return AllowedTool(downstream, tool, definition, "ab", NOW, "ada", "d1")


def test_pins_replace_earlier_ones_of_their_names(db: Database) -> None:
    gateway.save_pins(db, "github", [allowed("search"), allowed("list"), allowed("old")])
    gateway.save_pins(db, "files", [allowed("search", downstream="files")])
    gateway.save_pins(db, "github", [allowed("search", '{"name":"search"}')], removed=["old"])
    assert gateway.pins_of(db, "github") == (allowed("list"), allowed("search", '{"name":"search"}'))
    assert gateway.forget_pins(db, "github") == 2
    assert gateway.pins_of(db, "github") == ()
    assert len(gateway.pins_of(db, "files")) == 1


def test_a_pin_of_another_downstream_is_a_mistake(db: Database) -> None:
    with pytest.raises(ValueError, match="a pin of files is not one of github"):
        gateway.save_pins(db, "github", [allowed("search", downstream="files")])


def evidence(id: str, **changes: Any) -> StoredEvidence:
    kept = StoredEvidence(
        id, "s1", f"call {id}", "github", "search", NOW, {"found": [1, None, "é"]}, {"redacted": False}
    )
    return evolve(kept, **changes)


def test_evidence_is_kept_as_it_is(db: Database) -> None:
    assert gateway.evidence.insert(db, evidence("e1"))
    assert not gateway.evidence.insert(db, evidence("e1", tool="files"))
    gateway.evidence.insert(db, evidence("e2", at=after(1), data=None))
    assert gateway.evidence.get(db, "e1") == evidence("e1")
    assert [each.id for each in gateway.evidence.newest(db, 9)] == ["e2", "e1"]
    assert gateway.evidence.among(db, ["e2", "nosuch"]) == (evidence("e2", at=after(1), data=None),)
    assert gateway.evidence.among(db, []) == ()
    assert [gateway.evidence.count_of_run(db, run) for run in ("s1", "s2")] == [2, 0]


def test_evidence_is_listed_without_its_data(db: Database) -> None:
    for at, changes in enumerate([{}, {"run_id": "s2"}, {"tool": "files"}, {"metadata": {"redacted": True}}]):
        gateway.evidence.insert(db, evidence(f"e{at}", at=after(at), **changes))
    db.execute("update gateway_evidence set metadata = 'not JSON' where id = 'e2'")
    newest = gateway.evidence.newest(db, 9)
    assert [(each.id, each.redacted, each.size) for each in newest] == [
        ("e3", True, 27),
        ("e2", False, 27),
        ("e1", False, 27),
        ("e0", False, 27),
    ]
    assert [each.id for each in gateway.evidence.newest(db, 9, run_id="s1", tool="github")] == ["e3", "e0"]
    assert gateway.evidence.newest(db, 9, run_id="%") == gateway.evidence.newest(db, 9, method="_") == ()


def test_evidence_is_deleted_after_its_session_in_small_steps(db: Database) -> None:
    ended = cases.session("ended")
    sessions.insert(db, ended)
    for each in range(3):
        gateway.evidence.insert(db, evidence(f"e{each}", run_id="ended", at=after(each)))
    assert retention.purge(db, cutoff=after(86_400), at=after(999_999), limit=2)["gateway_evidence"] == 0
    db.execute("delete from session")
    steps = [
        retention.purge(db, cutoff=after(86_400), at=after(999_999), limit=2)["gateway_evidence"] for _ in range(3)
    ]
    assert steps == [2, 1, 0]


def test_old_usage_and_evidence_are_deleted_and_pins_stay(db: Database) -> None:
    sessions.insert(db, cases.session("kept"))
    gateway.record_calls(db, NOW, [call("a", session_id=None), call("b", day=date(2026, 3, 9))], 0)
    gateway.save_pins(db, "github", [allowed("search")])
    for each in (evidence("gone", run_id="other"), evidence("kept", run_id="kept"), evidence("new", run_id="x")):
        gateway.evidence.insert(db, evolve(each, at=after(999_999) if each.id == "new" else NOW))
    gone = retention.purge(db, cutoff=after(86_400), at=after(999_999))
    assert (gone["gateway_usage"], gone["gateway_evidence"]) == (1, 1)
    assert rows.column(db, "select id from gateway_evidence order by id") == ["kept", "new"]
    assert gateway.usage_of(db, "github", DAY) is None
    assert gateway.usage_of(db, "github", date(2026, 3, 9)) == DayUsage("github", date(2026, 3, 9), 1, 5)
    assert len(gateway.pins_of(db, "github")) == 1
