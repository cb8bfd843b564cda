"""Acts on record: each is done once, and repeating it gets the first answer; unfinished commands are found again."""

from __future__ import annotations

from functools import partial

from intercom.store import idempotency
from intercom.store.database import Database
from intercom.store.idempotency import Begun, Scope, Unfinished
from tests.store.cases import NOW, after


def test_a_command_is_begun_once_and_its_answer_is_the_first_one(db: Database) -> None:
    begin = partial(idempotency.begin, db, "slack/1", who="anna (U1)", session_id="s1", at=NOW)
    assert idempotency.known(db, "slack/1") is None
    assert begin({"line": "/intercom status"}) is None
    assert begin({"line": "/intercom other"}) == Begun({"line": "/intercom status"}, None)
    assert idempotency.finish(db, "slack/1", {"told": "done"}, after(1))
    assert not idempotency.finish(db, "slack/1", {"told": "again"}, after(2))
    assert begin({}) == Begun({"line": "/intercom status"}, {"told": "done"})
    audit = db.execute("select kind, who, summary, session_id from audit").fetchall()
    assert audit == [("command", "anna (U1)", "/intercom status", "s1")]


def test_what_nobody_finished_is_found_oldest_first_and_nothing_else(db: Database) -> None:
    idempotency.record(db, Scope.CALL, "other/1", {}, NOW, tool="ping")
    for i, id in enumerate(("slack/a", "slack/b", "slack/c")):
        idempotency.begin(db, id, {"line": id}, after(i), who="anna", session_id=None)
    idempotency.started(db, "slack/c", 77, 1234.5, after(4))
    idempotency.started(db, "slack/b", 78, 1234.5, after(4))
    idempotency.finish(db, "slack/b", {"told": None}, after(9))
    assert idempotency.unfinished(db) == (
        Unfinished("slack/a", {"line": "slack/a"}, None),
        Unfinished("slack/c", {"line": "slack/c"}, (77, 1234.5)),
    )


def test_one_id_may_be_recorded_in_several_scopes_and_once_in_each(db: Database) -> None:
    for scope in Scope:
        assert not idempotency.was_done(db, scope, "act")
        assert idempotency.record(db, scope, "act", {"scope": scope.name}, NOW)
        assert not idempotency.record(db, scope, "act", {}, NOW)
        assert idempotency.answer(db, scope, "act") == {"scope": scope.name}


def test_a_call_keeps_its_first_answer(db: Database) -> None:
    assert idempotency.answer(db, Scope.CALL, "shim/1") is None
    assert idempotency.record(db, Scope.CALL, "shim/1", {"status": "applied"}, NOW, session_id="s1", tool="check_diff")
    assert not idempotency.record(
        db, Scope.CALL, "shim/1", {"status": "error"}, NOW, session_id="s1", tool="check_diff"
    )
    assert idempotency.answer(db, Scope.CALL, "shim/1") == {"status": "applied"}
    assert idempotency.record(db, Scope.CALL, "shim/2", {}, NOW, tool="ping")
