"""Commands on record: begun once, answered once, and found again when nobody finished them."""

from __future__ import annotations

from functools import partial

from intercom.store import calls, command_runs
from intercom.store.command_runs import Begun, Unfinished
from tests.store.cases import NOW, after, database


def test_a_command_is_begun_once_and_its_answer_is_the_first_one() -> None:
    with database() as db:
        begin = partial(command_runs.begin, db, "slack/1", who="anna (U1)", session_id="s1", at=NOW)
        assert command_runs.known(db, "slack/1") is None
        assert begin({"line": "/intercom status"}) is None
        assert begin({"line": "/intercom other"}) == Begun({"line": "/intercom status"}, None)
        assert command_runs.finish(db, "slack/1", {"told": "done"}, after(1))
        assert not command_runs.finish(db, "slack/1", {"told": "again"}, after(2))
        assert begin({}) == Begun({"line": "/intercom status"}, {"told": "done"})
        audit = db.execute("select kind, who, summary, session_id from audit").fetchall()
        assert audit == [("command", "anna (U1)", "/intercom status", "s1")]


def test_what_nobody_finished_is_found_oldest_first_and_nothing_else() -> None:
    with database() as db:
        calls.record(db, "other/1", None, "ping", {}, NOW)
        for i, id in enumerate(("slack/a", "slack/b", "slack/c")):
            command_runs.begin(db, id, {"line": id}, after(i), who="anna", session_id=None)
        command_runs.started(db, "slack/c", 77, 1234.5, after(4))
        command_runs.started(db, "slack/b", 78, 1234.5, after(4))
        command_runs.finish(db, "slack/b", {"told": None}, after(9))
        assert command_runs.unfinished(db) == (
            Unfinished("slack/a", {"line": "slack/a"}, None),
            Unfinished("slack/c", {"line": "slack/c"}, (77, 1234.5)),
        )
