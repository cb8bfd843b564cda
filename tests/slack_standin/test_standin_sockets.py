"""Socket Mode of the stand-in: sockets, acks in time, deliveries until one is acked, goodbyes with a reason."""

from __future__ import annotations

import json

import pytest
import trio
from trio_websocket import ConnectionRejected, open_websocket_url

from tests.slack_standin import ALICE, CHANNEL, Unanswered, serve
from tests.slack_standin.app import App, app_of, button, section


async def card(app: App) -> str:
    actions = {"type": "actions", "elements": [button()]}
    return str((await app.call("chat.postMessage", channel=CHANNEL, blocks=[section(), actions]))["ts"])


async def test_a_ticket_is_good_for_one_socket() -> None:
    async with serve() as slack, app_of(slack) as app:
        url = await app.url()
        async with open_websocket_url(url) as socket:
            hello = json.loads(await socket.get_message())
            assert (hello["type"], hello["num_connections"]) == ("hello", 1)
            with pytest.raises(ConnectionRejected):
                async with open_websocket_url(url):
                    pass


async def test_what_is_not_acked_in_three_seconds_comes_again() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        app.acks = False
        began = trio.current_time()
        slack.say(ALICE, CHANNEL, "hello")
        said = slack.envelopes[-1]
        with pytest.raises(Unanswered):
            await said.answer()
        assert trio.current_time() - began == pytest.approx(3 + 60 + 3 + 300 + 3)
        events = [one for one in app.heard if one["type"] == "events_api"]
        assert [(one["retry_attempt"], one["retry_reason"]) for one in events] == [
            (0, ""),
            (1, "timeout"),
            (2, "timeout"),
        ]
        assert len({one["envelope_id"] for one in events}) == len({one["payload"]["event_id"] for one in events}) == 1
        assert slack.unanswered == [said]


async def test_an_ack_that_comes_late_is_none() -> None:
    async with serve(echo=False, redeliver=(0, 10)) as slack, app_of(slack) as app, app.socket() as socket:
        app.acks = False
        act = slack.tap(ALICE, await card(app), "go")
        await slack.wait_for(lambda: act.missed)
        await socket.send_message(json.dumps({"envelope_id": act.id}))
        await slack.wait_for(lambda: act.acks)
        assert not act.acked.is_set()
        app.acks = True
        assert await act.answer() is None
        assert act.attempts == 2


async def test_payloads_go_by_any_open_socket_and_no_more_than_ten() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket(), app.socket():
        for _ in range(4):
            await slack.tap(ALICE, await card(app), "go").answer()
        assert {one.sent_by[0] for one in slack.envelopes} == {"socket-1", "socket-2"}
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(_hold, app)
            await slack.connected(10)
            async with open_websocket_url(await app.url()) as socket:
                assert json.loads(await socket.get_message())["reason"] == "too_many_websockets"
            nursery.cancel_scope.cancel()


async def _hold(app: App) -> None:
    async with app.socket():
        await trio.sleep_forever()


async def test_only_acks_of_what_was_sent_are_acks() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket() as socket:
        for odd in ("nonsense", '{"envelope_id": "never-sent"}', "[]"):
            await socket.send_message(odd)
        await slack.wait_for(lambda: len(slack.socket_mode.strange) == 3)
        app.answer = lambda envelope: {"text": "a tap takes no answer"}
        await slack.tap(ALICE, await card(app), "go").answer()
        assert "a tap takes no answer" in str(slack.socket_mode.strange[3])
