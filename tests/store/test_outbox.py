"""What Slack is to show, row by row: wishes that are put, and what becomes of each attempt to fulfil them."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.store import outbox, retention, rows
from intercom.store.database import Database
from intercom.store.outbox import Question, Row, RowKind, RowState, Urgency, measure
from intercom.store.requests import approvals, prompts, waits
from intercom.store.sessions import stalls
from tests.store.cases import NOW, after, alert, approval, prompt, wait

CHANNEL = "C1"
HELLO = {"text": "hello", "blocks": []}
OTHER = {"text": "other", "blocks": []}


def put(db: Database, key: str, content: dict[str, Any] = HELLO, **changes: Any) -> outbox.Row:
    options: dict[str, Any] = {"channel": CHANNEL, "urgency": Urgency.CARD, **changes}
    outbox.put(db, key, content, NOW, **options)
    return row(db, key)


def row(db: Database, key: str) -> Row:
    found = outbox.by_key(db, key)
    assert found is not None
    return found


def post(db: Database, key: str, ts: str = "1.5") -> Row:
    """Send a row as the sender does."""
    begun = outbox.begin_post(db, row(db, key).id, NOW)
    (sent,) = outbox.posted(db, begun.row.id, ts, begun.row.version, NOW)
    return sent


def update(db: Database, at: float = 0) -> outbox.Update | None:
    """Make the next update as the sender does; what it showed."""
    found = outbox.next_update(db, CHANNEL, after(at))
    if found is not None:
        outbox.shown(db, found.row.id, found.row.version, found.row.interim)
    return found


def test_a_new_key_is_a_new_message(db: Database) -> None:
    done = put(db, "card/1", session_id="s1", open=True)
    assert (done.content, done.version, done.shown) == (HELLO, 1, 0)
    assert (done.state, done.session_id, done.open) == (RowState.QUEUED, "s1", True)
    assert done.client_id != put(db, "card/3").client_id
    assert outbox.by_key(db, "card/2") is None


def test_the_same_again_changes_nothing(db: Database) -> None:
    first = put(db, "card/1", {"text": "a", "blocks": []})
    assert put(db, "card/1", {"blocks": [], "text": "a"}) == first


@pytest.mark.parametrize("changes", [{"content": OTHER}, {"open": True}])
def test_another_content_or_other_buttons_are_a_new_version(db: Database, changes: dict[str, Any]) -> None:
    put(db, "card/1")
    post(db, "card/1")
    assert update(db) is None
    put(db, "card/1", **changes)
    found = update(db)
    assert found.row.version == 2
    assert update(db) is None
    assert row(db, "card/1").shown == 2


def test_what_is_put_while_a_post_is_made_is_shown_afterwards(db: Database) -> None:
    put(db, "card/1")
    begun = outbox.begin_post(db, row(db, "card/1").id, NOW)
    put(db, "card/1", OTHER)
    outbox.posted(db, begun.row.id, "1.5", begun.row.version, NOW)
    found = update(db)
    assert found.contents == (OTHER,)


def test_an_interim_line_is_shown_once_and_then_the_buttons_come_back(db: Database) -> None:
    put(db, "card/1", open=True)
    post(db, "card/1")
    assert outbox.interim(db, "card/1", "processing", after(15))
    found = update(db)
    assert found.row.interim == "processing"
    assert update(db, 14) is None
    assert outbox.next_due(db, NOW) == after(15)
    found = update(db, 15)
    assert (found.row.interim, found.contents) == (None, (HELLO,))
    assert update(db, 99) is None


def test_an_interim_line_that_comes_too_late_is_not_shown(db: Database) -> None:
    put(db, "card/1", open=True)
    post(db, "card/1")
    outbox.interim(db, "card/1", "processing", after(15))
    found = update(db, 15)
    assert found.row.interim is None


@pytest.mark.parametrize("sent", [True, False])
def test_a_new_version_wins_over_an_interim_line(db: Database, sent: bool) -> None:
    put(db, "card/1", open=True)
    post(db, "card/1")
    outbox.interim(db, "card/1", "processing", after(15))
    if sent:
        update(db)
    put(db, "card/1", OTHER)
    found = update(db)
    assert (found.row.interim, found.contents) == (None, (OTHER,))
    assert update(db, 99) is None


def test_a_new_version_put_while_an_interim_line_is_sent_is_shown(db: Database) -> None:
    put(db, "card/1", open=True)
    post(db, "card/1")
    outbox.interim(db, "card/1", "processing", after(15))
    sending = outbox.next_update(db, CHANNEL, NOW)
    put(db, "card/1", OTHER)
    outbox.shown(db, sending.row.id, sending.row.version, sending.row.interim)
    found = update(db)
    assert found.contents == (OTHER,)


@pytest.mark.parametrize("sent", [True, False])
def test_an_interim_line_can_be_taken_back(db: Database, sent: bool) -> None:
    put(db, "card/1", open=True)
    post(db, "card/1")
    assert not outbox.restore(db, "card/1")
    outbox.interim(db, "card/1", "processing", after(15))
    if sent:
        update(db)
    assert outbox.restore(db, "card/1")
    found = update(db)
    assert found.row.interim is None
    assert update(db, 99) is None


def test_a_tap_that_overtakes_the_record_of_its_post_is_shown(db: Database) -> None:
    put(db, "card/1", open=True)
    begun = outbox.begin_post(db, row(db, "card/1").id, NOW)
    assert outbox.interim(db, "card/1", "processing", after(15))
    outbox.posted(db, begun.row.id, "1.5", 1, NOW)
    found = update(db)
    assert found.row.interim == "processing"


def test_a_tap_while_an_update_is_made_is_shown(db: Database) -> None:
    put(db, "card/1", open=True)
    post(db, "card/1")
    put(db, "card/1", OTHER, open=True)
    sending = outbox.next_update(db, CHANNEL, NOW)
    outbox.interim(db, "card/1", "processing", after(15))
    outbox.shown(db, sending.row.id, sending.row.version, sending.row.interim)
    found = update(db)
    assert found.row.interim == "processing"


def test_only_open_cards_have_interim_lines(db: Database) -> None:
    put(db, "card/1")
    post(db, "card/1")
    assert not outbox.interim(db, "card/1", "processing", after(15))
    assert not outbox.interim(db, "card/2", "processing", after(15))
    assert update(db) is None


def test_taps_are_shown_before_other_updates(db: Database) -> None:
    for number in (1, 2):
        put(db, f"card/{number}", open=True)
        post(db, f"card/{number}")
    put(db, "card/1", OTHER, open=True)
    outbox.interim(db, "card/2", "processing", after(15))
    shown = [update(db), update(db)]
    assert [found and found.row.key for found in shown] == ["card/2", "card/1"]


def test_an_attempt_not_known_to_have_failed_is_looked_for(db: Database) -> None:
    id = put(db, "card/1").id
    first = outbox.begin_post(db, id, NOW)
    assert not first.seek
    outbox.retry(db, id, after(1), "answer lost", uncertain=True)
    assert row(db, "card/1").not_before == after(1)
    second = outbox.begin_post(db, id, after(2))
    assert second.seek
    assert (second.row.first_at, second.row.attempts, second.row.last_error) == (NOW, 2, "answer lost")
    outbox.retry(db, id, None, "looked for and refused", uncertain=False)
    third = outbox.begin_post(db, id, after(3))
    assert not third.seek


def test_it_is_known_when_slack_was_last_asked(db: Database) -> None:
    id = put(db, "card/1").id
    assert outbox.posting(db, CHANNEL) == {}
    outbox.begin_post(db, id, NOW)
    assert outbox.posting(db, CHANNEL) == {id: NOW}
    outbox.retry(db, id, None, "no answer", uncertain=True)
    looked = outbox.begin_post(db, id, after(1), may_come=True)
    assert looked.may_come
    assert outbox.posting(db, CHANNEL) == {id: NOW}, "it was only looked for"
    outbox.begin_post(db, id, after(2))
    assert outbox.posting(db, CHANNEL) == {id: after(2)}
    outbox.posted(db, id, "1.1", 1, NOW)
    assert outbox.posting(db, CHANNEL) == {}


def test_what_is_refused_waits_for_new_content(db: Database) -> None:
    id = put(db, "card/1").id
    outbox.begin_post(db, id, NOW)
    outbox.refused(db, id, "invalid_blocks", 1)
    assert row(db, "card/1").state is RowState.REFUSED
    assert outbox.begin_post(db, id, NOW) is None
    assert outbox.channels_waiting(db) == ()
    put(db, "card/1", OTHER)
    assert outbox.begin_post(db, id, NOW) is not None
    put(db, "card/1", HELLO)
    outbox.refused(db, id, "invalid_blocks", 2)
    assert row(db, "card/1").state is RowState.QUEUED


def test_an_update_that_is_refused_is_not_tried_again(db: Database) -> None:
    id = put(db, "card/1").id
    post(db, "card/1")
    put(db, "card/1", OTHER)
    outbox.refused(db, id, "invalid_blocks", 2)
    assert update(db) is None
    assert row(db, "card/1").last_error == "invalid_blocks"


def test_an_open_card_that_was_deleted_is_posted_anew(db: Database) -> None:
    id = put(db, "card/1", open=True).id
    first = post(db, "card/1")
    put(db, "card/1", OTHER, open=True)
    assert outbox.deleted(db, id, 2)
    again = row(db, "card/1")
    assert (again.state, again.ts, again.shown, again.attempts) == (RowState.QUEUED, None, 0, 0)
    assert again.client_id != first.client_id
    post(db, "card/1", "2.5")
    assert outbox.by_ts(db, CHANNEL, "1.5") is None
    put(db, "card/1", HELLO, open=False)
    assert not outbox.deleted(db, id, 3)
    assert update(db) is None


def test_merged_lines_are_shown_with_the_row_they_were_merged_into(db: Database) -> None:
    ids = [put(db, f"notice/{n}", {"text": str(n)}, urgency=Urgency.LOG).id for n in range(3)]
    begun = outbox.begin_post(db, ids[0], NOW, ids[1:])
    assert [content["text"] for content in begun.contents] == ["0", "1", "2"]
    # the same after a crash
    again = outbox.begin_post(db, ids[0], NOW)
    assert again.contents == begun.contents
    assert [sent.id for sent in outbox.posted(db, ids[0], "1.5", 1, NOW)] == ids
    assert outbox.posted(db, ids[0], "9.9", 1, NOW) == ()
    assert {row(db, f"notice/{n}").ts for n in range(3)} == {"1.5"}
    found = outbox.by_ts(db, CHANNEL, "1.5")
    assert found.id == ids[0]
    put(db, "notice/1", {"text": "new"}, urgency=Urgency.LOG)
    changed = update(db)
    assert [content["text"] for content in changed.contents] == ["0", "new", "2"]


def test_a_reply_to_a_reply_goes_to_the_thread_that_is_in(db: Database) -> None:
    put(db, "thread/s1")
    put(db, "card/1", thread="thread/s1")
    put(db, "diff/1", thread="card/1", kind=RowKind.FILE)
    put(db, "note/1", thread="123.456")
    assert row(db, "diff/1").thread == "thread/s1"
    post(db, "thread/s1", "7.5")
    for key, ts in (("card/1", "7.5"), ("diff/1", "7.5"), ("note/1", "123.456")):
        begun = outbox.begin_post(db, row(db, key).id, NOW)
        assert begun.thread_ts == ts


def test_a_reply_to_the_ts_of_a_reply_goes_to_the_thread_that_is_in(db: Database) -> None:
    put(db, "thread/s1")
    put(db, "notice/1", thread="thread/s1")
    post(db, "thread/s1", "7.5")
    post(db, "notice/1", "8.5")
    put(db, "notice/2", thread="8.5")
    put(db, "notice/3", thread="7.5")
    put(db, "notice/4", thread="8.5", channel="C99")
    threads = [row(db, f"notice/{number}").thread for number in (2, 3, 4)]
    assert threads == ["thread/s1", "7.5", "8.5"]


@pytest.mark.parametrize(
    ("table", "asked"),
    [(approvals, approval("r1")), (prompts, prompt("r1")), (waits, wait("r1")), (stalls, alert("r1"))],
)
def test_the_ts_of_a_cards_message_is_recorded_with_its_request(db: Database, table: Any, asked: Any) -> None:
    table.insert(db, asked)
    for key, ts in (("card/r1", "7.5"), ("diff/r1", "9.5"), ("card/r2", "9.6")):
        put(db, key)
        post(db, key, ts)
    assert table.get(db, "r1").slack_ts == "7.5"
    outbox.repost(db, row(db, "card/r1").id)
    post(db, "card/r1", "10.5")
    assert table.get(db, "r1").slack_ts == "10.5"


def test_where_a_thread_is_lost_its_top_is_posted_anew(db: Database) -> None:
    put(db, "thread/s1")
    post(db, "thread/s1")
    for key, thread in (("card/1", "thread/s1"), ("card/2", "9.9")):
        id = put(db, key, thread=thread).id
        outbox.begin_post(db, id, NOW)
        outbox.unthread(db, id, "thread_not_found")
    assert row(db, "thread/s1").state is RowState.QUEUED
    assert (row(db, "card/1").thread, row(db, "card/2").thread) == ("thread/s1", None)
    assert row(db, "card/1").state is RowState.QUEUED


def test_a_file_is_posted_once_and_its_text_dropped(db: Database) -> None:
    text = {"filename": "a.diff", "title": "a", "snippet_type": "diff", "text": "x" * 1000}
    id = put(db, "diff/1", text, kind=RowKind.FILE).id
    outbox.begin_post(db, id, NOW)
    outbox.uploading(db, id, "F1")
    again = outbox.begin_post(db, id, NOW)
    assert again.row.file_id == "F1"
    outbox.posted(db, id, None, 1, NOW)
    assert row(db, "diff/1").content == {}
    before = row(db, "diff/1")
    assert put(db, "diff/1", {**text, "text": "y"}, kind=RowKind.FILE) == before
    assert update(db) is None


def test_what_is_not_posted_can_be_abandoned(db: Database) -> None:
    id = put(db, "card/1").id
    assert outbox.abandon(db, "card/1")
    assert outbox.by_id(db, id) is None
    id = put(db, "card/1").id
    outbox.begin_post(db, id, NOW)
    assert outbox.abandon(db, "card/1")
    # What was under way comes to its end, and finds nobody who cares.
    assert outbox.posted(db, id, "1.0", 1, NOW) == ()
    id = put(db, "card/1").id
    outbox.begin_post(db, id, NOW)
    outbox.posted(db, id, "1.0", 1, NOW)
    assert not outbox.abandon(db, "card/1")


def test_what_waits_is_counted(db: Database) -> None:
    assert outbox.counts(db).oldest is None
    put(db, "card/1")
    put(db, "card/2")
    put(db, "log/1", urgency=Urgency.LOG)
    post(db, "card/2")
    put(db, "card/2", OTHER)
    outbox.retry(db, row(db, "card/1").id, after(60), "not_in_channel", uncertain=False)
    counts = outbox.counts(db)
    assert counts.posts == {Urgency.CARD: 1, Urgency.LOG: 1}
    assert (counts.updates, counts.oldest) == (1, NOW)
    assert outbox.channels_waiting(db) == (CHANNEL,)


def test_open_cards_are_told_without_their_content(db: Database) -> None:
    put(db, "card/1", open=True)
    put(db, "card/2")
    put(db, "card/3", open=True)
    assert [(found.key, found.content) for found in outbox.open_rows(db)] == [("card/1", {}), ("card/3", {})]


def test_half_a_surrogate_pair_does_no_harm(db: Database) -> None:
    put(db, "card/1", {"text": "\ud800"})
    assert row(db, "card/1").content == {"text": "\ud800"}


@pytest.mark.parametrize(
    ("content", "size"),
    [
        ({"text": "abc"}, (3, 1)),
        ({}, (0, 1)),
        ({"text": "a", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "ab\ncd"}}]}, (5, 2)),
        (
            {
                "text": "a",
                "blocks": [
                    {"type": "divider"},
                    {"type": "section", "fields": [{"type": "mrkdwn", "text": "ab"}]},
                    {"type": "context", "elements": [{"type": "mrkdwn", "text": "cd"}, {"type": "image"}]},
                ],
            },
            (5, 2),
        ),
    ],
)
def test_text_is_measured(content: dict[str, Any], size: tuple[int, int]) -> None:
    assert measure(content) == size


def test_rows_go_with_their_session_and_others_by_age(db: Database) -> None:
    put(db, "thread/s1", session_id="s1")
    put(db, "command/1")
    put(db, "command/2", open=True)
    put(db, "command/3")
    put(db, "notice/1", session_id="gone before")
    for key in ("thread/s1", "command/1", "command/2", "notice/1"):
        post(db, key)
    assert retention.purge(db, after(1), after(1))["outbox"] == 2
    left = {found["key"] for found in rows.every(db, "select key from outbox")}
    assert left == {"thread/s1", "command/2", "command/3"}
    db.execute("update session set status = 'terminated', terminated_at = '2026-03-01'")
    assert retention.purge(db, after(1), after(1))["outbox"] == 1
    assert outbox.by_key(db, "thread/s1") is None


def test_what_waits_is_found_by_its_index_however_much_is_done(db: Database) -> None:
    db.execute("begin")
    db.execute(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 200000)"
        " insert into outbox (key, kind, state, channel, client_id, urgency, content, digest, chars, lines,"
        " version, shown, ts, created_at, posted_at)"
        " select 'done/' || i, 'message', 'posted', 'C1', i, 0, '{}', '', 0, 0, 1, 1, i || '.5', :at, :at from n",
        {"at": "2026-03-01T12:00:00+00:00"},
    )
    put(db, "card/1")
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    db.conn.set_progress_handler(step, 100)
    waits = next(iter(outbox.waiting(db, CHANNEL)))
    outbox.channels_waiting(db)
    outbox.next_update(db, CHANNEL, NOW)
    outbox.next_due(db, NOW)
    outbox.counts(db)
    outbox.open_rows(db)
    outbox.by_ts(db, CHANNEL, "77.5")
    post(db, "card/1")
    db.conn.set_progress_handler(None, 0)
    assert waits.id == 200_001
    # a look through the table would be two thousand at least
    assert steps < 100


def test_what_is_put_off_waits_as_long_when_the_clock_is_set(db: Database) -> None:
    put(db, "card/1")
    put(db, "card/2")
    outbox.retry(db, row(db, "card/1").id, after(60), "later", uncertain=False)
    outbox.shift(db, -7200.0)
    assert row(db, "card/1").not_before == after(60 - 7200)
    assert row(db, "card/2").not_before is None
    outbox.shift(db, -1e12)
    assert row(db, "card/1").not_before is None


QUESTION = Question("C1", "1.5", "card 1", "reject", "U1", NOW)


def test_a_question_is_answered_once(db: Database) -> None:
    outbox.ask(db, QUESTION)
    assert outbox.peek(db, "C1", "1.5") == QUESTION
    assert outbox.peek(db, "C1", "1.6") is None
    assert outbox.forget(db, "C1", "1.5")
    assert outbox.peek(db, "C1", "1.5") is None


def test_of_two_questions_in_a_thread_the_later_is_open(db: Database) -> None:
    outbox.ask(db, QUESTION)
    second = Question("C1", "1.5", "card 2", "refine", "U2", after(1))
    outbox.ask(db, second)
    assert outbox.peek(db, "C1", "1.5") == second


def test_a_question_can_be_forgotten_and_is_not_kept_for_ever(db: Database) -> None:
    outbox.ask(db, QUESTION)
    assert outbox.forget(db, "C1", "1.5")
    assert not outbox.forget(db, "C1", "1.5")
    outbox.ask(db, QUESTION)
    assert retention.purge(db, after(1), after(1))["slack_question"] == 1
