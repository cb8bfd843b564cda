"""Whatever the network, Slack or a crash does to the sending: everything is shown, and nothing twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio

from intercom.operators.slack.slack_messages import SocketUp
from intercom.store.outbox import RowKind, Urgency
from tests.operators.slack.fake_slack import BROKEN, LATE, LOST, NO_NETWORK, RESET, FakeSlack, Fault, limited
from tests.operators.slack.server import Crash, crashing, sender_server
from tests.slack_standin import chat
from tests.support.crash_points import SLACK_NAMES

DIFF = {"filename": "a.diff", "title": "a.diff", "snippet_type": "diff", "text": "+x\n"}
HOUR = 3600.0


def each_once(slack: FakeSlack) -> bool:
    """Whether no two messages are of one row."""
    ids = [message.client_id for message in slack.messages if message.client_id]
    return len(set(ids)) == len(ids)


async def test_an_hour_without_network_and_then_everything_is_right() -> None:
    async with sender_server() as server:
        await server.put("thread/s1", "root")
        await server.put("card/0", "open", open=True, thread="thread/s1")
        await server.settled()
        server.slack.judge = lambda method, params: NO_NETWORK
        for number in range(1, 11):
            await server.put(f"card/{number}", f"card {number}", open=True, thread="thread/s1")
            await server.put(f"log/{number}", f"log {number}", urgency=Urgency.LOG, thread="thread/s1")
            await server.put("card/0", f"changed {number}", open=True)
            await trio.sleep(HOUR / 10)
        tries = server.slack.methods()
        assert server.slack.texts() == ["root", "open"]
        server.slack.judge = lambda method, params: None
        assert await server.settled() < HOUR + 70
        assert server.slack.texts()[1:-1] == ["changed 10", *(f"card {number}" for number in range(1, 11))]
        assert server.slack.texts()[-1] == "\n".join(f"log {number}" for number in range(1, 11))
        assert server.slack.messages[1].history == ["open"]
        # an hour of tries, one a minute at most and one for each that came
        assert tries["chat.postMessage"] < 120
        assert each_once(server.slack)


async def test_word_that_slack_is_back_ends_the_wait() -> None:
    async with sender_server() as server:
        server.slack.judge = lambda method, params: NO_NETWORK
        await server.put("card/1", "one")
        await trio.sleep(HOUR)
        server.slack.judge = lambda method, params: None
        # at an arbitrary instant within the wait
        server.system.named("slack/outbox").tell(SocketUp())
        assert await server.settled() < HOUR + 1


async def test_a_storm_of_429_is_sat_out_as_long_as_slack_says() -> None:
    async with sender_server() as server:
        storm = [37.0, 5.0, 1.0, 90.0]
        server.slack.judge = lambda method, params: limited(storm.pop(0)) if storm else None
        await server.put("card/1", "one")
        end = await server.settled()
        assert 133 < end < 140
        times = [second for second, _, _ in server.slack.calls]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert [round(gap) for gap in gaps] == [37, 5, 1, 90]
        assert server.slack.texts() == ["one"]


async def test_after_a_429_the_pace_is_what_slack_takes() -> None:
    async with sender_server(web=FakeSlack(per_second=True, latency=0.01)) as server:
        await server.put_all([(f"card/{number}", f"card {number}", {}) for number in range(50)])
        assert await server.settled() < 60
        assert server.slack.limited == 1


@pytest.mark.parametrize("thread", [None, "thread/s1"])
async def test_a_message_whose_answer_was_lost_is_found_and_not_posted_twice(thread: str | None) -> None:
    async with sender_server() as server:
        await server.put("thread/s1", "root")
        for number in range(8):
            await server.put(f"before/{number}", f"before {number}", thread=thread)
        await server.settled()
        lost = [LOST]
        server.slack.judge = lambda method, params: lost.pop() if lost and method == "chat.postMessage" else None
        await server.put("card/1", "one", thread=thread)
        await server.settled()
        assert server.slack.texts().count("one") == 1
        assert server.slack.methods()["chat.postMessage"] == 10
        assert (await server.row("card/1")).ts == server.slack.messages[-1].ts


async def test_a_message_found_on_a_later_page_is_not_posted_twice() -> None:
    async with sender_server(web=FakeSlack(page=2)) as server:
        lost = [LOST]
        found = [BROKEN, BROKEN]

        def judge(method: str, params: dict[str, object]) -> Fault | None:
            if method == "chat.postMessage":
                return lost.pop() if lost else None
            return found.pop() if found else None

        server.slack.judge = judge
        await server.put("card/1", "one")
        await trio.sleep(0.2)
        # others have gone on meanwhile
        for number in range(9):
            chat.put(server.slack.team, server.slack.team.channels["C1"], {"user": "U0X", "text": f"other {number}"})
        await server.settled()
        assert server.slack.texts().count("one") == 1
        assert server.slack.methods()["conversations.history"] > 4


async def test_a_message_found_in_an_older_version_is_updated() -> None:
    async with sender_server() as server:
        lost = [LOST]
        server.slack.judge = lambda method, params: lost.pop() if lost and method == "chat.postMessage" else None
        await server.put("card/1", "pending", open=True)
        await trio.sleep(0.1)
        await server.put("card/1", "approved")
        await server.settled()
        assert server.slack.texts() == ["approved"]
        assert server.slack.methods() == {"chat.postMessage": 1, "conversations.history": 1, "chat.update": 1}


async def test_a_message_that_was_not_posted_after_all_is_posted_once() -> None:
    async with sender_server() as server:
        broken = [BROKEN]
        server.slack.judge = lambda method, params: broken.pop() if broken and method == "chat.postMessage" else None
        await server.put("card/1", "one")
        await server.settled()
        assert server.slack.texts() == ["one"]
        assert server.slack.methods() == {"chat.postMessage": 2, "conversations.history": 1}


@pytest.mark.parametrize("name", SLACK_NAMES)
async def test_a_sender_that_falls_posts_nothing_twice(name: str) -> None:
    async with sender_server() as server:
        with crashing(name, times=3) as passed:
            await server.put("thread/s1", "root")
            for number in range(5):
                await server.put(f"card/{number}", f"card {number}", thread="thread/s1")
            await server.put("diff/1", DIFF, kind=RowKind.FILE, thread="thread/s1")
            await server.settled()
        assert len(passed) >= 4
        assert server.slack.texts() == ["root", *(f"card {number}" for number in range(5)), "a.diff"]


@pytest.mark.parametrize("fault", [LATE, RESET])
@pytest.mark.parametrize("falls", [False, True])
async def test_a_message_that_slack_posts_long_after_it_was_asked_is_posted_once(fault: Fault, falls: bool) -> None:
    async with sender_server() as server:
        faults = [fault]
        server.slack.judge = lambda method, params: faults.pop() if faults and method == "chat.postMessage" else None
        await server.put("card/1", "one")
        await trio.sleep(0.2)
        if falls:
            server.system.named("slack/outbox").present()._crash(Crash())
        await server.put("card/2", "two")
        await trio.sleep(5)
        assert "one" not in server.slack.texts(), "it is not there yet"
        await server.settled()
        await trio.sleep(60)
        assert sorted(server.slack.texts()) == ["one", "two"]
        assert server.slack.methods()["chat.postMessage"] == 2


@pytest.mark.parametrize("fault", [LATE, RESET])
@pytest.mark.parametrize("falls", [False, True])
async def test_an_update_that_slack_makes_long_after_it_was_asked_does_not_stay(fault: Fault, falls: bool) -> None:
    async with sender_server() as server:
        await server.put("card/1", "pending")
        await server.settled()
        faults = [fault]
        server.slack.judge = lambda method, params: faults.pop() if faults and method == "chat.update" else None
        await server.put("card/1", "old")
        await trio.sleep(0.2)
        if falls:
            server.system.named("slack/outbox").present()._crash(Crash())
        await server.put("card/1", "new")
        await trio.sleep(60)
        await server.settled()
        server.slack.catch_up()
        (message,) = server.slack.messages
        assert "old" in message.history, "it came, and late"
        assert message.text == "new"


async def test_what_is_newer_does_not_wait_for_what_may_come_late() -> None:
    async with sender_server(web=FakeSlack(latency=1.0)) as server:
        await server.put("card/1", "pending", open=True)
        await server.settled()
        faults = [RESET]
        told = trio.Event()

        def judge(method: str, params: dict[str, Any]) -> Fault | None:
            if faults:
                return faults.pop()
            told.set()
            return None

        server.slack.judge = judge
        await server.put("card/1", "old", open=True)
        await told.wait()
        # just when the old one is shown, and nobody has been told yet
        await server.put("card/1", "new", open=True)
        await trio.sleep(5)
        assert server.slack.texts() == ["new"]
        await server.interim("card/1", "processing", 10)
        await trio.sleep(5)
        assert server.slack.texts() == ["processing"]
        await trio.sleep(8)
        assert server.slack.texts() == ["new"]


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "upload", "files.completeUploadExternal"])
@pytest.mark.parametrize("fault", [NO_NETWORK, BROKEN, LOST])
async def test_a_file_is_shared_once_whatever_fails(method: str, fault: Fault) -> None:
    async with sender_server() as server:
        faults = [fault] * 3
        server.slack.judge = lambda called, params: faults.pop() if faults and called == method else None
        await server.put("card/1", "card")
        await server.put("diff/1", DIFF, kind=RowKind.FILE)
        await server.settled()
        assert server.slack.texts() == ["card", "a.diff"]


async def test_a_row_that_slack_stumbles_over_holds_up_no_other_thread() -> None:
    async with sender_server() as server:
        server.slack.judge = lambda method, params: BROKEN if params.get("text") == "poison" else None
        await server.put("thread/s1", "root 1")
        await server.put("thread/s2", "root 2")
        await server.put("card/1", "poison", thread="thread/s1")
        await server.put("card/2", "behind", thread="thread/s1")
        await server.put("card/3", "other", thread="thread/s2")
        await trio.sleep(60)
        assert "other" in server.slack.texts()
        await trio.sleep(1200)
        assert "behind" in server.slack.texts()
        server.slack.judge = lambda method, params: None
        await server.settled()
        assert server.slack.texts().count("poison") == 1


async def test_the_urgent_does_not_wait_behind_a_thousand_lines() -> None:
    slack = FakeSlack(per_second=True, latency=0.01)
    async with sender_server(web=slack) as server:
        lines = [(f"log/{n}", f"log {n}", {"urgency": Urgency.LOG, "thread": "thread/s1"}) for n in range(1000)]
        cards = [(f"card/{n}", f"card {n}", {"thread": "thread/s1"}) for n in range(500)]
        await server.put_all([("thread/s1", "root", {}), *lines])
        await trio.sleep(5.5)
        began = trio.current_time()
        await server.put_all(cards)
        end = await server.settled()
        posted = [message for message in slack.messages if message.text.startswith("card")]
        assert [message.text for message in posted] == [f"card {n}" for n in range(500)]
        # one a second from the moment they were put, with no line between
        assert posted[-1].at - began < 510
        logged = [message.text for message in slack.messages if message.text.startswith("log")]
        assert "\n".join(logged) == "\n".join(f"log {n}" for n in range(1000))
        assert len(logged) <= 51
        assert end < 565
        assert each_once(slack)
        # Slack is asked about once a minute whether it takes more
        assert slack.limited <= 10
