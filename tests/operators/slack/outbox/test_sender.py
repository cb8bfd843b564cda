"""What stands in the outbox comes to stand in Slack, in order and in place."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest
import trio

from actors import ask
from actors.testing import start_probe
from intercom.model.outbox import RowKind, RowState, Urgency
from intercom.operators.slack.lanes import Posts
from intercom.operators.slack.messages import OutboxHealth
from intercom.operators.slack.sending import Means
from intercom.sessions.chat import Posted
from intercom.store import outbox
from tests.support.trio_case import trio_test

from .fake import FakeSlack, limited, refusing
from .house import now, open_house, text

DIFF = {"filename": "a.diff", "title": "a.diff", "snippet_type": "diff", "text": "+x\n"}


@trio_test
async def test_a_message_is_posted_and_updated_in_place() -> None:
    async with open_house() as house:
        await house.put("card/1", "pending", open=True)
        await house.settled()
        await house.put("card/1", "approved")
        await house.settled()
        (message,) = house.slack.messages
        assert (message.text, message.history) == ("approved", ["pending"])
        row = await house.row("card/1")
        assert (row.state, row.ts, row.shown, row.version) == (RowState.POSTED, message.ts, 2, 2)
        assert row.client_id == message.client_id


@trio_test
async def test_what_was_put_before_the_start_is_sent() -> None:
    async with open_house() as house:
        await trio.sleep(1)
        await house.put_all([("card/1", "pending", {})], wake=False)
        await trio.sleep(60)
        assert house.slack.texts() == []
        ref = house.system.named("slack/outbox").present()
        await ref.stop(block=False)
        await house.settled()
        assert house.slack.texts() == ["pending"]


@trio_test
async def test_what_is_put_just_when_the_sender_comes_to_rest_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Posts.run

    async def dawdling(lane: Posts) -> datetime | None:
        due = await run(lane)
        await trio.sleep(1)
        return due

    monkeypatch.setattr(Posts, "run", dawdling)
    async with open_house() as house:
        await house.put("card/1", "one")
        await trio.sleep(0.5)
        await house.put("card/2", "two")
        await trio.sleep(2)
        assert house.slack.texts() == ["one", "two"]


@trio_test
async def test_a_thread_begins_with_its_root_and_a_card_is_followed_by_its_file() -> None:
    async with open_house() as house:
        await house.put_all(
            [
                ("thread/s1", "root", {"urgency": Urgency.LINE}),
                ("notice/1", "line", {"urgency": Urgency.LINE, "thread": "thread/s1"}),
                ("card/1", "card", {"thread": "thread/s1"}),
                ("diff/1", DIFF, {"thread": "card/1", "kind": RowKind.FILE}),
                ("card/2", "second card", {"thread": "thread/s1"}),
            ]
        )
        await house.settled()
        assert house.slack.texts() == ["root", "card", "a.diff", "second card", "line"]
        root, *replies = house.slack.messages
        assert {reply.thread_ts for reply in replies} == {root.ts}
        assert list(house.slack.uploads.values()) == [b"+x\n"]
        assert (await house.row("diff/1")).content == {}


@trio_test
async def test_lines_share_messages_when_more_than_one_waits() -> None:
    async with open_house(FakeSlack(latency=1.0)) as house:
        await house.put("thread/s1", "root", urgency=Urgency.LOG)
        await house.settled()
        in_thread: dict[str, Any] = {"urgency": Urgency.LOG, "thread": "thread/s1"}
        await house.put("log/0", "line 0", **in_thread)
        await trio.sleep(0.5)
        for number in range(1, 31):
            await house.put(f"log/{number}", f"line {number}", **in_thread)
        await house.settled()
        root, *posted = house.slack.messages
        assert [message.text.count("\n") + 1 for message in posted] == [1, 20, 10]
        assert {message.thread_ts for message in posted} == {root.ts}
        assert "\n".join(house.slack.texts()[1:]) == "\n".join(f"line {number}" for number in range(31))
        assert posted[1].blocks == text("\n".join(f"line {number}" for number in range(1, 21)))["blocks"]


@trio_test
async def test_sessions_that_begin_at_the_same_time_have_a_thread_each() -> None:
    async with open_house() as house:
        await house.put_all(
            [
                (key, words, {"urgency": Urgency.LOG, "thread": thread})
                for session in ("s1", "s2")
                for key, words, thread in (
                    (f"thread/{session}", session, None),
                    (f"line/{session}", f"of {session}", f"thread/{session}"),
                )
            ]
        )
        await house.settled()
        roots = {message.ts: message.text for message in house.slack.messages if message.thread_ts is None}
        replies = {message.text: roots[message.thread_ts] for message in house.slack.messages if message.thread_ts}
        assert replies == {"of s1": "s1", "of s2": "s2"}


@trio_test
async def test_a_channel_that_can_not_be_posted_in_holds_up_no_other() -> None:
    async with open_house() as house:
        house.slack.judge = lambda method, params: refusing("not_in_channel") if params["channel"] == "C1" else None
        await house.put("card/1", "one")
        await house.put("card/2", "two", channel="C2")
        await trio.sleep(30)
        assert house.slack.texts() == ["two"]
        standing = await house.health()
        assert standing.waiting == {"card": 1}
        assert "invite the app to the channel" in standing.troubles["C1"]
        house.slack.judge = lambda method, params: None
        await trio.sleep(60)
        assert house.slack.texts() == ["two", "one"]
        assert (await house.health()).troubles == {}
        assert "not_in_channel" in str((await house.health()).last_error)


@trio_test
async def test_content_that_slack_does_not_take_is_posted_as_plain_text() -> None:
    async with open_house() as house:
        house.slack.judge = lambda method, params: refusing("invalid_blocks") if params["blocks"] else None
        await house.put("card/1", "one")
        await house.settled()
        await house.put("card/1", "two")
        await house.settled()
        (message,) = house.slack.messages
        assert (message.text, message.blocks, message.history) == ("two", [], ["one"])


@trio_test
async def test_content_that_slack_takes_in_no_form_is_given_up_until_it_changes() -> None:
    async with open_house() as house:
        house.slack.judge = lambda method, params: refusing("msg_too_long") if params["text"] == "long" else None
        await house.put("card/1", "long")
        await house.put("card/2", "next")
        await house.settled()
        assert house.slack.texts() == ["next"]
        row = await house.row("card/1")
        assert row.state is RowState.REFUSED
        assert "msg_too_long" in str(row.last_error)
        await house.put("card/1", "short")
        await house.settled()
        assert house.slack.texts() == ["next", "short"]


@trio_test
async def test_a_word_that_nobody_knows_holds_up_no_other_row() -> None:
    async with open_house() as house:
        wrong = [True]
        house.slack.judge = lambda method, params: refusing("new_word") if wrong and params["text"] == "one" else None
        await house.put("card/1", "one")
        await house.put("card/2", "two")
        await trio.sleep(10)
        assert house.slack.texts() == ["two"]
        wrong.clear()
        assert 50 < await house.settled() < 70
        assert house.slack.texts() == ["two", "one"]


@trio_test
async def test_an_interim_line_is_shown_and_then_the_outcome() -> None:
    async with open_house() as house:
        await house.put("card/1", "pending", open=True)
        await house.settled()
        await house.interim("card/1", "processing (ada)", 15)
        await trio.sleep(1)
        assert house.slack.texts() == ["processing (ada)"]
        await house.put("card/1", "approved")
        await house.settled()
        assert house.slack.messages[0].history == ["pending", "processing (ada)"]
        assert house.slack.texts() == ["approved"]
        await trio.sleep(60)
        assert house.slack.methods()["chat.update"] == 2


@trio_test
async def test_after_an_interim_line_and_nothing_more_the_buttons_come_back() -> None:
    async with open_house() as house:
        await house.put("card/1", "pending", open=True)
        await house.settled()
        await house.interim("card/1", "processing (ada)", 15)
        await trio.sleep(14)
        assert house.slack.texts() == ["processing (ada)"]
        await trio.sleep(2)
        assert house.slack.texts() == ["pending"]
        assert house.slack.messages[0].blocks == text("pending")["blocks"]


@trio_test
async def test_an_interim_line_goes_before_other_updates() -> None:
    async with open_house(FakeSlack(latency=0.5)) as house:
        for number in range(5):
            await house.put(f"card/{number}", "pending", open=True)
        await house.settled()
        await house.put_all([(f"card/{number}", "changed", {"open": True}) for number in range(4)])
        await house.interim("card/4", "processing", 15)
        await trio.sleep(1.2)
        assert house.slack.texts().count("changed") == 1
        assert house.slack.texts()[4] == "processing"


@trio_test
async def test_an_open_card_that_was_deleted_is_posted_again_and_a_closed_one_is_not() -> None:
    async with open_house() as house:
        for number in (1, 2):
            await house.put(f"card/{number}", f"card {number}", open=True)
        await house.settled()
        for number in (1, 2):
            house.slack.delete(f"card {number}")
        await house.put("card/1", "card 1 again", open=True)
        await house.put("card/2", "card 2 done")
        await house.settled()
        assert house.slack.texts() == ["card 1 again"]
        assert (await house.row("card/1")).ts == house.slack.messages[0].ts


@trio_test
async def test_a_thread_whose_root_was_deleted_gets_a_new_one() -> None:
    async with open_house() as house:
        await house.put("thread/s1", "root")
        await house.settled()
        house.slack.delete("root")
        await house.put("card/1", "card", thread="thread/s1")
        await house.settled()
        root, card = house.slack.messages
        assert (root.text, card.text, card.thread_ts) == ("root", "card", root.ts)


@trio_test
async def test_a_thread_in_another_channel_is_left_and_its_root_not_posted_again_and_again() -> None:
    async with open_house() as house:
        await house.put("thread/s1", "root")
        await house.settled()
        await house.put("card/1", "card", thread="thread/s1", channel="C2")
        await house.settled()
        assert [(message.channel, message.text) for message in house.slack.messages] == [("C1", "root"), ("C2", "card")]


@trio_test
async def test_a_thread_that_slack_never_takes_is_left_in_the_end() -> None:
    async with open_house() as house:
        await house.put("thread/s1", "root")
        await house.settled()
        house.slack.judge = lambda method, params: refusing("thread_not_found") if "thread_ts" in params else None
        await house.put("card/1", "card", thread="thread/s1")
        await house.settled()
        assert house.slack.texts()[-1] == "card"
        assert len(house.slack.messages) < 6


@trio_test
async def test_a_thread_that_is_not_ours_and_is_gone_is_left() -> None:
    async with open_house() as house:
        await house.put("command/1", "output", thread="1700000000.000100")
        await house.settled()
        assert [message.thread_ts for message in house.slack.messages] == [None]


@trio_test
async def test_a_session_hears_of_its_notice() -> None:
    async with open_house(FakeSlack(latency=1.0)) as house:
        probe = start_probe(house.system, "session/s1")
        for number in range(3):
            await house.put(f"notice/{number}", f"line {number}", urgency=Urgency.LINE, session_id="s1")
        await house.put("card/1", "card", session_id="s1")
        await house.settled()
        heard = [await probe.expect(Posted) for _ in range(3)]
        assert [each.key for each in heard] == ["notice/0", "notice/1", "notice/2"]
        assert {each.ts for each in heard} <= {message.ts for message in house.slack.messages}
        await probe.expect_nothing()


@trio_test
async def test_the_health_tells_what_waits() -> None:
    async with open_house() as house:
        await house.put("card/1", "one")
        await house.settled()
        house.slack.judge = lambda method, params: limited(30)
        asked = now()
        await house.put("card/2", "two")
        await house.put("log/1", "log", urgency=Urgency.LOG)
        await house.put("card/1", "changed")
        await trio.sleep(10)
        standing = await house.health()
        assert (standing.waiting, standing.updates) == ({"card": 1, "log": 1}, 1)
        assert standing.oldest is not None
        assert abs((standing.oldest - asked).total_seconds()) < 1


@trio_test
async def test_who_asks_for_the_health_while_the_store_is_away_brings_nothing_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_house() as house:
        sender = house.system.ref("slack/outbox")

        async def never(means: Means, work: object) -> None:
            raise trio.TooSlowError

        monkeypatch.setattr(Means, "transact", never)
        with pytest.raises(trio.TooSlowError):
            await ask(house.system.named("slack/outbox"), OutboxHealth())
        assert house.system.ref("slack/outbox") is sender


@trio_test
async def test_an_abandoned_message_is_never_sent() -> None:
    async with open_house() as house:
        house.slack.judge = lambda method, params: limited(30)
        await house.put("card/1", "one")
        await trio.sleep(1)
        await house.put("card/2", "two")
        assert await house.transact(partial(outbox.abandon, key="card/2"))
        house.slack.judge = lambda method, params: None
        await house.settled()
        assert house.slack.texts() == ["one"]
