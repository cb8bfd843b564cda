"""Socket Mode of the stand-in: sockets, acks in time, deliveries until one is acked, goodbyes with a reason."""

from __future__ import annotations

import json

import pytest
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, open_websocket_url

from tests.slack import ALICE, CHANNEL, Unanswered, serve
from tests.slack.app import App, app_of, button, section
from tests.support.trio_case import trio_test


async def card(app: App) -> str:
    actions = {"type": "actions", "elements": [button()]}
    return str((await app.call("chat.postMessage", channel=CHANNEL, blocks=[section(), actions]))["ts"])


@trio_test
async def test_a_ticket_is_good_for_one_socket() -> None:
    async with serve() as slack, app_of(slack) as app:
        url = await app.url()
        async with open_websocket_url(url) as socket:
            hello = json.loads(await socket.get_message())
            assert (hello["type"], hello["num_connections"]) == ("hello", 1)
            with pytest.raises(ConnectionRejected):
                async with open_websocket_url(url):
                    pass


@trio_test
async def test_a_tap_reaches_the_app_in_slacks_shape() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        ts = await card(app)
        act = slack.tap(ALICE, ts, "go")
        assert await act.answer() is None
        heard = app.heard[-1]
        assert (heard["type"], heard["accepts_response_payload"]) == ("interactive", False)
        tap = heard["payload"]
        assert tap["user"]["id"] == ALICE
        assert tap["container"] == {"type": "message", "message_ts": ts, "channel_id": CHANNEL, "is_ephemeral": False}
        action = tap["actions"][0]
        assert (action["action_id"], action["value"], action["type"]) == ("go", "1", "button")
        assert action["action_ts"] > ts
        assert tap["message"]["ts"] == ts
        assert tap["response_url"].startswith(slack.url)
        assert (act.attempts, act.missed, slack.unanswered) == (1, 0, [])


@trio_test
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


@trio_test
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


@trio_test
async def test_what_happens_without_a_socket_waits_for_one_a_while() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app:
        act = slack.tap(ALICE, await card(app), "go")
        await trio.sleep(2)
        async with app.socket():
            assert await act.answer() is None
        assert (act.attempts, act.missed) == (1, 0)
        lost = slack.tap(ALICE, slack.messages()[0]["ts"], "go")
        with pytest.raises(Unanswered):
            await lost.answer()


@trio_test
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


@trio_test
async def test_a_socket_is_taken_away_with_a_warning_first() -> None:
    async with serve(lifetime=3600) as slack, app_of(slack) as app:
        began = trio.current_time()
        async with app.socket():
            await slack.wait_for(lambda: not slack.socket_mode.live(), 4000)
            assert trio.current_time() - began == pytest.approx(3600)
            await slack.wait_for(lambda: not slack.socket_mode.sockets)
            assert trio.current_time() - began == pytest.approx(3610)
            assert [one.get("reason") for one in app.heard] == [None, "warning", "refresh_requested"]


@trio_test
async def test_socket_mode_can_be_switched_off() -> None:
    async with serve() as slack, app_of(slack) as app, app.socket():
        slack.socket_mode.disable()
        await slack.wait_for(lambda: not slack.socket_mode.sockets)
        assert app.heard[-1]["reason"] == "link_disabled"
        assert not (await app.call("apps.connections.open", slack.app_token))["ok"]


@pytest.mark.parametrize("how", ["clean", "abrupt"])
def test_a_dropped_socket_ends_for_the_app_too(how: str) -> None:
    @trio_test
    async def dropped() -> None:
        async with serve() as slack, app_of(slack) as app, open_websocket_url(await app.url()) as socket:
            await slack.connected()
            await socket.get_message()
            slack.drop_sockets(how)
            with pytest.raises(ConnectionClosed):
                await socket.get_message()

    dropped()


@trio_test
async def test_a_frozen_socket_says_nothing_and_is_given_up_by_what_it_did_not_ack() -> None:
    async with serve(echo=False, redeliver=(0, 0)) as slack, app_of(slack) as app, app.socket():
        await trio.sleep(12)
        slack.drop_sockets("freeze")
        heard = len(app.heard)
        async with app.socket():
            acts = [slack.tap(ALICE, await card(app), "go") for _ in range(2)]
            for act in acts:
                await act.answer()
            assert sorted(act.missed for act in acts) == [0, 1]
            assert {act.sent_by[-1] for act in acts} == {"socket-2"}
        assert len(app.heard) == heard + 1 + 2


@trio_test
async def test_pings_come_every_few_seconds() -> None:
    async with serve(ping_interval=5) as slack, app_of(slack) as app, app.socket() as socket:
        pongs: list[bytes] = []
        await socket.ping(b"mine")
        assert pongs == []
        await trio.sleep(30)
        assert slack.socket_mode.live()


@trio_test
async def test_only_acks_of_what_was_sent_are_acks() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket() as socket:
        for odd in ("nonsense", '{"envelope_id": "never-sent"}', "[]"):
            await socket.send_message(odd)
        await slack.wait_for(lambda: len(slack.socket_mode.strange) == 3)
        app.answer = lambda envelope: {"text": "a tap takes no answer"}
        await slack.tap(ALICE, await card(app), "go").answer()
        assert "a tap takes no answer" in str(slack.socket_mode.strange[3])
