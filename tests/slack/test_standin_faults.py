"""What the stand-in can make go wrong, goes wrong as it would with Slack."""

from __future__ import annotations

from functools import partial

import httpx2
import pytest
import trio

from tests.slack import ALICE, CHANNEL, serve
from tests.slack.app import app_of
from tests.support.trio_case import trio_test


@trio_test
async def test_a_lost_answer_leaves_the_message_posted() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.plan("chat.postMessage", "lose")
        with pytest.raises(httpx2.TransportError):
            await app.call("chat.postMessage", channel=CHANNEL, text="x")
        assert [one["text"] for one in slack.messages()] == ["x"]
        assert slack.count("chat.postMessage", ok=True) == 1
        assert (await app.call("chat.postMessage", channel=CHANNEL, text="y"))["ok"]


@trio_test
async def test_a_call_that_is_cut_off_did_nothing() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.plan("chat.postMessage", "cut")
        with pytest.raises(httpx2.TransportError):
            await app.call("chat.postMessage", channel=CHANNEL, text="x")
        assert slack.messages() == []


@trio_test
async def test_an_answer_can_be_swallowed_or_late() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.plan("chat.postMessage", "swallow")
        with trio.move_on_after(60) as patience:
            await app.call("chat.postMessage", channel=CHANNEL, text="x")
        assert patience.cancelled_caught
        assert len(slack.messages()) == 1
        slack.plan("chat.postMessage", "delay", seconds=20)
        began = trio.current_time()
        await app.call("chat.postMessage", channel=CHANNEL, text="x")
        assert trio.current_time() - began == pytest.approx(20)


@trio_test
async def test_errors_of_the_server_come_before_or_after_the_work() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.plan("chat.postMessage", "status", status=502)
        slack.plan("*", "status", status=500, done=True)
        slack.plan("auth.test", "refuse", error="fatal_error")
        statuses = [(await app.post("chat.postMessage", channel=CHANNEL, text="x")).status_code for _ in range(3)]
        assert statuses == [502, 500, 200]
        assert len(slack.messages()) == 2
        assert (await app.call("auth.test"))["error"] == "fatal_error"


@trio_test
async def test_a_storm_of_limits_passes() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.plan("chat.postMessage", "limit", seconds=7, times=3)
        answers = [await app.post("chat.postMessage", channel=CHANNEL, text="x") for _ in range(4)]
        assert [one.status_code for one in answers] == [429, 429, 429, 200]
        assert answers[0].headers["retry-after"] == "7"


@trio_test
async def test_connections_are_denied_for_a_while() -> None:
    async with serve() as slack, app_of(slack) as app:
        slack.faults.deny_connects = 1
        with pytest.raises(BaseExceptionGroup) as refused:
            async with app.socket():
                pass
        assert "403" in repr(refused.value) or "ConnectionRejected" in repr(refused.value)
        async with app.socket():
            await slack.connected()


@trio_test
async def test_envelopes_come_twice_out_of_order_and_once_more() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        slack.faults.double = 1
        slack.say(ALICE, CHANNEL, "1")
        await slack.acted_on()
        await slack.wait_for(lambda: len(slack.envelopes[0].acks) == 2)
        slack.faults.reorder = 3
        for text in "234":
            slack.say(ALICE, CHANNEL, text)
        await slack.acted_on()
        slack.faults.reorder = 0
        await slack.redeliver(slack.envelopes[0])
        await slack.wait_for(lambda: len(slack.envelopes[0].acks) == 3)
        heard = [one["payload"]["event"]["text"] for one in app.heard if one["type"] == "events_api"]
        assert heard == ["1", "1", "4", "3", "2", "1"]


@trio_test
async def test_an_ack_can_go_unheard() -> None:
    async with serve(echo=False, redeliver=(0, 60)) as slack, app_of(slack) as app, app.socket():
        slack.faults.deaf = 1
        slack.say(ALICE, CHANNEL, "hello")
        assert await slack.envelopes[0].answer() is None
        assert (slack.envelopes[0].attempts, slack.envelopes[0].missed) == (2, 1)


def _noted(steps: list[str], step: str, subject: object) -> None:
    steps.append(step)


@trio_test
async def test_a_test_can_step_in_anywhere() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        steps: list[str] = []
        for step in ("call", "called", "answered", "envelope", "sent", "ack"):
            slack.on(step, partial(_noted, steps, step))
        slack.on("ack", lambda envelope: slack.drop_sockets("abrupt"))
        await app.call("auth.test")
        await slack.wait_for(lambda: "answered" in steps)
        slack.say(ALICE, CHANNEL, "hello")
        await slack.envelopes[0].answer()
        assert steps == ["call", "called", "answered", "envelope", "sent", "ack"]
        assert slack.socket_mode.live() == []


@trio_test
async def test_slack_is_out_of_reach_and_back_at_the_same_address() -> None:
    async with serve() as slack, app_of(slack) as app:
        await app.call("chat.postMessage", channel=CHANNEL, text="before")
        async with slack.down():
            with pytest.raises(httpx2.ConnectError):
                await app.call("auth.test")
        assert (await app.call("auth.test"))["ok"]
        assert len(slack.messages()) == 1
