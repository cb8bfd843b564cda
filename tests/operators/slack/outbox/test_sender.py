"""What stands in the outbox comes to stand in Slack, in order and in place."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest
import trio

from actors import ask
from actors.testing import start_probe
from intercom.operators.slack.sender import PostWorker
from intercom.operators.slack.slack_messages import OutboxHealth
from intercom.operators.slack.web_api import Remedy, remedy
from intercom.sessions.messages import Posted
from intercom.store import outbox
from intercom.store.outbox import RowKind, RowState, Urgency
from intercom.store.store_and_reader import Store, StoreUnavailable
from tests.operators.slack.fake_slack import FakeSlack, limited, refusing
from tests.operators.slack.server import sender_server, text

DIFF = {"filename": "a.diff", "title": "a.diff", "snippet_type": "diff", "text": "+x\n"}


async def test_a_message_is_posted_and_updated_in_place() -> None:
    async with sender_server() as server:
        await server.put("card/1", "pending", open=True)
        await server.settled()
        await server.put("card/1", "approved")
        await server.settled()
        (message,) = server.slack.messages
        assert (message.text, message.history) == ("approved", ["pending"])
        row = await server.row("card/1")
        assert (row.state, row.ts, row.shown, row.version) == (RowState.POSTED, message.ts, 2, 2)
        assert row.client_id == message.client_id


async def test_what_was_put_before_the_start_is_sent() -> None:
    async with sender_server() as server:
        await trio.sleep(1)
        await server.put_all([("card/1", "pending", {})], wake=False)
        await trio.sleep(60)
        assert server.slack.texts() == []
        ref = server.system.named("slack/outbox").present()
        await ref.stop(block=False)
        await server.settled()
        assert server.slack.texts() == ["pending"]


async def test_what_is_put_just_when_the_sender_comes_to_rest_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PostWorker.run

    async def dawdling(worker: PostWorker) -> datetime | None:
        due = await run(worker)
        await trio.sleep(1)
        return due

    monkeypatch.setattr(PostWorker, "run", dawdling)
    async with sender_server() as server:
        await server.put("card/1", "one")
        await trio.sleep(0.5)
        await server.put("card/2", "two")
        await trio.sleep(2)
        assert server.slack.texts() == ["one", "two"]


async def test_a_thread_begins_with_its_root_and_a_card_is_followed_by_its_file() -> None:
    async with sender_server() as server:
        await server.put_all(
            [
                ("thread/s1", "root", {"urgency": Urgency.LINE}),
                ("notice/1", "line", {"urgency": Urgency.LINE, "thread": "thread/s1"}),
                ("card/1", "card", {"thread": "thread/s1"}),
                ("diff/1", DIFF, {"thread": "card/1", "kind": RowKind.FILE}),
                ("card/2", "second card", {"thread": "thread/s1"}),
            ]
        )
        await server.settled()
        assert server.slack.texts() == ["root", "card", "a.diff", "second card", "line"]
        root, *replies = server.slack.messages
        assert {reply.thread_ts for reply in replies} == {root.ts}
        assert [upload.data for upload in server.slack.team.uploads.values()] == [b"+x\n"]
        assert (await server.row("diff/1")).content == {}


async def test_lines_share_messages_when_more_than_one_waits() -> None:
    async with sender_server(web=FakeSlack(latency=1.0)) as server:
        await server.put("thread/s1", "root", urgency=Urgency.LOG)
        await server.settled()
        in_thread: dict[str, Any] = {"urgency": Urgency.LOG, "thread": "thread/s1"}
        await server.put("log/0", "line 0", **in_thread)
        await trio.sleep(0.5)
        for number in range(1, 31):
            await server.put(f"log/{number}", f"line {number}", **in_thread)
        await server.settled()
        root, *posted = server.slack.messages
        assert [message.text.count("\n") + 1 for message in posted] == [1, 20, 10]
        assert {message.thread_ts for message in posted} == {root.ts}
        assert "\n".join(server.slack.texts()[1:]) == "\n".join(f"line {number}" for number in range(31))
        assert posted[1].blocks == [block for number in range(1, 21) for block in text(f"line {number}")["blocks"]]


async def test_sessions_that_begin_at_the_same_time_have_a_thread_each() -> None:
    async with sender_server() as server:
        await server.put_all(
            [
                (key, words, {"urgency": Urgency.LOG, "thread": thread})
                for session in ("s1", "s2")
                for key, words, thread in (
                    (f"thread/{session}", session, None),
                    (f"line/{session}", f"of {session}", f"thread/{session}"),
                )
            ]
        )
        await server.settled()
        roots = {message.ts: message.text for message in server.slack.messages if message.thread_ts is None}
        replies = {message.text: roots[message.thread_ts] for message in server.slack.messages if message.thread_ts}
        assert replies == {"of s1": "s1", "of s2": "s2"}


async def test_a_channel_that_can_not_be_posted_in_holds_up_no_other() -> None:
    async with sender_server() as server:
        server.slack.judge = lambda method, params: refusing("not_in_channel") if params["channel"] == "C1" else None
        await server.put("card/1", "one")
        await server.put("card/2", "two", channel="C2")
        await trio.sleep(30)
        assert server.slack.texts() == ["two"]
        standing = await server.health()
        assert standing.waiting == {"card": 1}
        assert "invite the app to the channel" in standing.faults["C1"]
        server.slack.judge = lambda method, params: None
        await trio.sleep(60)
        assert server.slack.texts() == ["two", "one"]
        assert (await server.health()).faults == {}
        assert "not_in_channel" in str((await server.health()).last_error)


async def test_content_that_slack_does_not_take_is_posted_as_plain_text() -> None:
    async with sender_server() as server:
        server.slack.judge = lambda method, params: refusing("invalid_blocks") if params["blocks"] else None
        await server.put("card/1", "one")
        await server.settled()
        await server.put("card/1", "two")
        await server.settled()
        (message,) = server.slack.messages
        assert (message.text, message.blocks, message.history) == ("two", [], ["one"])


async def test_content_that_slack_takes_in_no_form_is_given_up_until_it_changes() -> None:
    async with sender_server() as server:
        server.slack.judge = lambda method, params: refusing("msg_too_long") if params["text"] == "long" else None
        await server.put("card/1", "long")
        await server.put("card/2", "next")
        await server.settled()
        assert server.slack.texts() == ["next"]
        row = await server.row("card/1")
        assert row.state is RowState.REFUSED
        assert "msg_too_long" in str(row.last_error)
        await server.put("card/1", "short")
        await server.settled()
        assert server.slack.texts() == ["next", "short"]


async def test_a_word_that_nobody_knows_holds_up_no_other_row() -> None:
    async with sender_server() as server:
        wrong = [True]
        server.slack.judge = lambda method, params: refusing("new_word") if wrong and params["text"] == "one" else None
        await server.put("card/1", "one")
        await server.put("card/2", "two")
        await trio.sleep(10)
        assert server.slack.texts() == ["two"]
        wrong.clear()
        assert 50 < await server.settled() < 70
        assert server.slack.texts() == ["two", "one"]


#: Rows that are posted and updated; a file is posted only.
MESSAGES = ({}, {"open": True}, {"thread": "thread/s1"}, {"thread": "1700000000.000100"}, {"urgency": Urgency.LOG})
FILE = {"kind": RowKind.FILE}
#: A code of Slack's for each remedy, of a post and of an update.
CODES = {
    Remedy.MEND: "is_archived",
    Remedy.REDRAW: "msg_too_long",
    Remedy.RETHREAD: "thread_not_found",
    Remedy.GONE: "cant_update_message",
    Remedy.LATER: "new_word",
}


@pytest.mark.parametrize("code", [*CODES.values(), "message_not_found", "restricted_action_thread_locked"])
@pytest.mark.parametrize(
    ("options", "updates"), [*((each, updates) for each in MESSAGES for updates in (False, True)), (FILE, False)]
)
async def test_no_refusal_of_a_row_holds_up_the_next_or_is_tried_all_the_time(
    options: dict[str, Any], updates: bool, code: str
) -> None:
    first = DIFF if "kind" in options else "one"
    async with sender_server() as server:
        await server.put("thread/s1", "root")
        if updates:
            await server.put("row/1", first, **options)
        await server.settled()
        before = len(server.slack.calls)
        bad = {"chat.postMessage": "one", "chat.update": "changed", "files.completeUploadExternal": None}
        server.slack.judge = lambda method, params: (
            refusing(code) if method in bad and params.get("text") == bad[method] else None
        )
        await server.put("row/1", "changed" if updates else first, **options)
        await server.put("card/2", "two")
        await trio.sleep(600)
        assert len(server.slack.calls) - before < 60
        if code != CODES[Remedy.MEND]:
            assert "two" in server.slack.texts()
        health = await server.health()
        left = sum(health.waiting.values()) + health.updates
        assert bool(left) == bool(health.faults)
        if left or code == CODES[Remedy.REDRAW]:
            assert code in str(health.last_error)
        server.slack.judge = lambda method, params: None
        await server.settled()
        row = await server.row("row/1")
        assert row.state is (RowState.REFUSED if code == CODES[Remedy.REDRAW] and not updates else RowState.POSTED)


def test_every_remedy_has_a_code() -> None:
    assert {remedy(code, updating=updating) for code in CODES.values() for updating in (False, True)} == set(Remedy)


async def test_an_interim_line_is_shown_and_then_the_outcome() -> None:
    async with sender_server() as server:
        await server.put("card/1", "pending", open=True)
        await server.settled()
        await server.interim("card/1", "processing (ada)", 15)
        await trio.sleep(1)
        assert server.slack.texts() == ["processing (ada)"]
        await server.put("card/1", "approved")
        await server.settled()
        assert server.slack.messages[0].history == ["pending", "processing (ada)"]
        assert server.slack.texts() == ["approved"]
        await trio.sleep(60)
        assert server.slack.methods()["chat.update"] == 2


async def test_after_an_interim_line_and_nothing_more_the_buttons_come_back() -> None:
    async with sender_server() as server:
        await server.put("card/1", "pending", open=True)
        await server.settled()
        await server.interim("card/1", "processing (ada)", 15)
        await trio.sleep(14)
        assert server.slack.texts() == ["processing (ada)"]
        await trio.sleep(2)
        assert server.slack.texts() == ["pending"]
        assert server.slack.messages[0].blocks == text("pending")["blocks"]


async def test_an_interim_line_goes_before_other_updates() -> None:
    async with sender_server(web=FakeSlack(latency=0.5)) as server:
        for number in range(5):
            await server.put(f"card/{number}", "pending", open=True)
        await server.settled()
        await server.put_all([(f"card/{number}", "changed", {"open": True}) for number in range(4)])
        await server.interim("card/4", "processing", 15)
        await trio.sleep(1.2)
        assert server.slack.texts().count("changed") == 1
        assert server.slack.texts()[4] == "processing"


async def test_an_open_card_that_was_deleted_is_posted_again_and_a_closed_one_is_not() -> None:
    async with sender_server() as server:
        for number in (1, 2):
            await server.put(f"card/{number}", f"card {number}", open=True)
        await server.settled()
        for number in (1, 2):
            server.slack.delete(f"card {number}")
        await server.put("card/1", "card 1 again", open=True)
        await server.put("card/2", "card 2 done")
        await server.settled()
        assert server.slack.texts() == ["card 1 again"]
        assert (await server.row("card/1")).ts == server.slack.messages[0].ts


async def test_a_thread_whose_root_was_deleted_gets_a_new_one() -> None:
    async with sender_server() as server:
        await server.put("thread/s1", "root")
        await server.settled()
        server.slack.delete("root")
        await server.put("card/1", "card", thread="thread/s1")
        await server.settled()
        root, card = server.slack.messages
        assert (root.text, card.text, card.thread_ts) == ("root", "card", root.ts)


async def test_a_thread_in_another_channel_is_left_and_its_root_not_posted_again_and_again() -> None:
    async with sender_server() as server:
        await server.put("thread/s1", "root")
        await server.settled()
        await server.put("card/1", "card", thread="thread/s1", channel="C2")
        await server.settled()
        assert [(message.channel, message.text) for message in server.slack.messages] == [
            ("C1", "root"),
            ("C2", "card"),
        ]


async def test_a_thread_that_slack_never_takes_is_left_in_the_end() -> None:
    async with sender_server() as server:
        await server.put("thread/s1", "root")
        await server.settled()
        server.slack.judge = lambda method, params: refusing("thread_not_found") if "thread_ts" in params else None
        await server.put("card/1", "card", thread="thread/s1")
        await server.settled()
        assert server.slack.texts()[-1] == "card"
        assert len(server.slack.messages) < 6


async def test_a_thread_that_is_not_ours_and_is_gone_is_left() -> None:
    async with sender_server() as server:
        await server.put("command/1", "output", thread="1700000000.000100")
        await server.settled()
        assert [message.thread_ts for message in server.slack.messages] == [None]


async def test_a_session_hears_of_its_notice() -> None:
    async with sender_server(web=FakeSlack(latency=1.0)) as server:
        probe = start_probe(server.system, "session/s1")
        for number in range(3):
            await server.put(f"notice/{number}", f"line {number}", urgency=Urgency.LINE, session_id="s1")
        await server.put("card/1", "card", session_id="s1")
        await server.settled()
        heard = [await probe.expect(Posted) for _ in range(3)]
        assert [each.key for each in heard] == ["notice/0", "notice/1", "notice/2"]
        assert {each.ts for each in heard} <= {message.ts for message in server.slack.messages}
        await probe.expect_nothing()


async def test_the_health_tells_what_waits() -> None:
    async with sender_server() as server:
        await server.put("card/1", "one")
        await server.settled()
        server.slack.judge = lambda method, params: limited(30)
        asked = server.now()
        await server.put("card/2", "two")
        await server.put("log/1", "log", urgency=Urgency.LOG)
        await server.put("card/1", "changed")
        await trio.sleep(10)
        standing = await server.health()
        assert (standing.waiting, standing.updates) == ({"card": 1, "log": 1}, 1)
        assert standing.oldest is not None
        assert abs((standing.oldest - asked).total_seconds()) < 1


async def test_who_asks_for_the_health_while_the_store_is_away_brings_nothing_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sender_server() as server:
        sender = server.system.ref("slack/outbox")

        async def never(store: Store, work: object) -> None:
            raise StoreUnavailable

        monkeypatch.setattr(Store, "transact", never)
        with pytest.raises(StoreUnavailable):
            await ask(server.system.named("slack/outbox"), OutboxHealth())
        assert server.system.ref("slack/outbox") is sender


async def test_an_abandoned_message_is_never_sent() -> None:
    async with sender_server() as server:
        server.slack.judge = lambda method, params: limited(30)
        await server.put("card/1", "one")
        await trio.sleep(1)
        await server.put("card/2", "two")
        assert await server.store(partial(outbox.abandon, key="card/2"))
        server.slack.judge = lambda method, params: None
        await server.settled()
        assert server.slack.texts() == ["one"]
