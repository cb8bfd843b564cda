"""The connection against a scripted Slack, in virtual time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection as Frames
from wsproto.events import Ping, Pong, TextMessage

from actors import ChildSpec, System, ask
from actors.testing import Probe, no_leaks
from intercom.model.chat_status import ConnectionState, ConnectionStatus
from intercom.operators.slack.interaction_handler import Once
from intercom.operators.slack.slack_messages import Health, SocketDown, SocketUp
from intercom.operators.slack.socket_mode import (
    Disconnected,
    Handling,
    Patience,
    SlackConnection,
    Socket,
    SocketLimits,
    is_for_people,
    sentence,
    wait_after,
)
from intercom.operators.slack.web_api import RateLimited, SlackRefused, SlackTokens, SocketLost, Unreachable, WebApi
from tests.operators.slack.wire.slack_end import Link, MemoryStream, SlackEnd, answer, envelope, unreachable

WARNING = {"type": "disconnect", "reason": "warning", "debug_info": {"host": "applink-1"}}
REFRESH = {"type": "disconnect", "reason": "refresh_requested"}


@define(eq=False)
class Hand:
    """The handler: what it was given; waits for `go`, raises `fails` so many times. Handles a payload once."""

    handled: list[tuple[str, Any]] = field(factory=list)
    go: trio.Event = field(factory=trio.Event)
    fails: int = 0
    running: int = 0
    most: int = 0
    once: Once = field(factory=Once)

    async def __call__(self, kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        return await self.once.run(repr(payload), partial(self.handle, kind, payload))

    async def handle(self, kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        if self.fails:
            self.fails -= 1
            raise RuntimeError(f"the store is down; it was given {payload}")
        self.handled.append((kind, payload))
        return {"text": f"answer {len(self.handled)}"}


@define(eq=False)
class Scene:
    slack: SlackEnd
    hand: Hand
    channel: Probe
    system: System

    async def health(self) -> ConnectionStatus:
        return await ask(self.system.named("slack/connection"), Health())


@contextlib.asynccontextmanager
async def scene(
    *script: Callable[[], httpx2.Response], hand: Hand | None = None, open_gate: bool = True, **how: Any
) -> AsyncIterator[Scene]:
    hand = hand or Hand()
    if open_gate:
        hand.go.set()
    async with no_leaks(), trio.open_nursery() as nursery:
        slack = SlackEnd(nursery, script)
        async with WebApi(SlackTokens("xapp-1", "xoxb-1"), transport=slack) as web:

            def start() -> SlackConnection:
                return SlackConnection(web, hand, random=lambda: 1.0, **how)

            channel = Probe()
            async with System(
                [ChildSpec("slack/outbox_writer", lambda: channel), ChildSpec("slack/connection", start)]
            ) as sys:
                yield Scene(slack, hand, channel, sys)
        nursery.cancel_scope.cancel()


async def test_an_envelope_is_acknowledged_when_its_handler_has_returned() -> None:
    async with scene(open_gate=False) as at:
        link = await at.slack.link(1)
        await link.send(envelope("e1", action="approve"))
        await trio.sleep(1)
        assert link.acks == []
        assert (await at.health()).in_hand == 1
        at.hand.go.set()
        await link.until(1)
        assert link.received == [{"envelope_id": "e1", "payload": {"text": "answer 1"}}]
        assert at.hand.handled == [("interactive", {"action": "approve"})]
        assert (await at.health()).in_hand == 0
        # One that takes no payload is acknowledged without.
        await link.send(envelope("e2", takes_payload=False))
        await link.until(2)
        assert link.received[1] == {"envelope_id": "e2"}


async def test_an_envelope_that_comes_twice_is_handled_once_and_acknowledged_twice() -> None:
    async with scene(open_gate=False) as at:
        link = await at.slack.link(1)
        await link.send(envelope("e1"), envelope("e1"))
        await trio.sleep(1)
        at.hand.go.set()
        await link.until(2)
        await link.send(envelope("e1"))
        await link.until(3)
        assert link.received == 3 * [{"envelope_id": "e1", "payload": {"text": "answer 1"}}]
        assert len(at.hand.handled) == 1


async def test_an_act_that_was_not_recorded_is_not_acknowledged_and_handled_when_it_comes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene(hand=Hand(fails=1)) as at:
        link = await at.slack.link(1)
        await link.send(envelope("e1", text="the secret words"))
        await trio.sleep(5)
        assert link.acks == []
        await link.send(envelope("e1", text="the secret words"))
        await link.until(1)
        assert len(at.hand.handled) == 1
    assert "RuntimeError in handle" in caplog.text
    assert "secret" not in caplog.text


async def test_a_handler_that_never_returns_gives_its_place_up() -> None:
    async with scene(open_gate=False, at_once=1) as at:
        link = await at.slack.link(1)
        await link.send(envelope("e1"))
        await trio.sleep(1)
        await link.send(envelope("e2"))
        await trio.sleep(28)
        assert at.hand.running == 1
        await trio.sleep(2)
        at.hand.go.set()
        await link.until(1)
        assert link.acks == ["e2"]


async def test_only_so_many_handlers_run_at_once() -> None:
    async with scene(open_gate=False, at_once=3) as at:
        link = await at.slack.link(1)
        await link.send(*(envelope(f"e{i}") for i in range(20)))
        await trio.sleep(1)
        assert at.hand.running == 3
        at.hand.go.set()
        await link.until(20)
        assert at.hand.most == 3
        assert sorted(link.acks) == sorted(f"e{i}" for i in range(20))


@pytest.mark.parametrize("disconnect", [WARNING, REFRESH])
async def test_a_refresh_opens_the_new_socket_before_the_old_one_closes(disconnect: dict[str, Any]) -> None:
    async with scene(open_gate=False) as at:
        old = await at.slack.link(1)
        await trio.sleep(3600)
        await old.send(envelope("before"), disconnect)
        new = await at.slack.link(2, seconds=1)
        assert old.is_open
        await old.send(envelope("on the old one"))
        await new.send(envelope("on the new one"))
        at.hand.go.set()
        await old.until(2)
        await new.until(1)
        assert sorted(old.acks) == ["before", "on the old one"]
        assert new.acks == ["on the new one"]
        await old.until_closed()
        assert old.closed_at is not None
        assert old.closed_at - new.opened_at == pytest.approx(10.0, abs=1.1)
        assert new.is_open
        assert at.channel.received == [SocketUp()]
        assert (await at.health()).reconnects == 1


async def test_the_old_socket_goes_on_while_the_new_one_cannot_be_opened() -> None:
    async with scene() as at:
        old = await at.slack.link(1)
        await trio.sleep(3600)
        at.slack.script.extend([unreachable] * 3)
        await old.send(WARNING)
        await trio.sleep(1)
        await old.send(envelope("e1"))
        await old.until(1)
        new = await at.slack.link(2, seconds=10)
        await new.send(envelope("e2"))
        await new.until(1)
        assert at.channel.received == [SocketUp()]


async def test_no_more_than_two_sockets_are_open_at_once() -> None:
    async with scene() as at:
        await at.slack.link(1)
        await trio.sleep(100)
        for number in range(2, 7):
            await at.slack.links[-1].send(WARNING)
            await at.slack.link(number)
            await trio.sleep(1.5)
            assert sum(link.is_open for link in at.slack.links) <= 2
        assert [type(told) for told in at.channel.received] == [SocketUp]


async def test_an_ack_whose_socket_is_gone_goes_by_the_present_one() -> None:
    async with scene(open_gate=False) as at:
        old = await at.slack.link(1)
        await old.send(envelope("e1"))
        await trio.sleep(1)
        await old.drop()
        new = await at.slack.link(2)
        await trio.sleep(1)
        at.hand.go.set()
        await new.until(1)
        assert new.acks == ["e1"]


async def test_a_drop_is_answered_by_a_new_socket_at_once() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        await trio.sleep(100)
        dropped = trio.current_time()
        await link.drop()
        new = await at.slack.link(2)
        assert new.opened_at == dropped
        await new.send(envelope("e1"))
        await new.until(1)
        assert at.channel.received == [SocketUp(), SocketDown("the connection broke: broken"), SocketUp()]


async def test_a_close_by_slack_is_answered_and_followed_by_a_new_socket() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        await trio.sleep(100)
        await link.close()
        await at.slack.link(2, seconds=0.5)
        await link.until_closed(1)


async def test_a_socket_that_falls_silent_is_replaced_after_thirty_seconds() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        await trio.sleep(100)
        link.answers_pings = False
        new = await at.slack.link(2)
        # The last pong came at the last ping before the silence.
        assert 120 <= new.opened_at - link.opened_at <= 130.5
        await link.until_closed(0.5)
        downs = [told for told in at.channel.received if isinstance(told, SocketDown)]
        assert downs == [SocketDown("nothing was heard from slack for 30 s")]
        last_heard = (await at.health()).last_heard
        assert last_heard is not None


async def test_a_socket_on_which_slack_stops_pinging_is_replaced_though_pings_are_answered() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        for _ in range(20):
            await trio.sleep(10)
            await link.ping()
        assert len(at.slack.links) == 1
        silent = trio.current_time()
        new = await at.slack.link(2)
        assert new.opened_at - silent == pytest.approx(30.0, abs=0.1)


@pytest.mark.parametrize("pings", [False, True])
async def test_what_came_while_this_process_stood_still_is_read_before_the_socket_is_judged(
    pings: bool, clock: trio.testing.MockClock
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    socket, slack = Socket(MemoryStream(ours), SocketLimits()), Link(theirs, 0.0)
    if pings:
        await slack.ping()
    await slack.send(envelope("e1"))
    assert await socket.next() is not None
    await slack.send(envelope("e2"))
    clock.jump(60)
    assert await socket.next() == envelope("e2")


async def test_a_task_that_is_cancelled_leaves_no_part_of_a_frame_on_the_socket() -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    socket, slack = Socket(MemoryStream(ours), SocketLimits()), Frames(ConnectionType.SERVER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(socket.next)
        await theirs.send_all(slack.send(Ping(b"from applink")))
        slack.receive_data(bytes(await theirs.receive_some(3)))
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            slack.receive_data(bytes(await theirs.receive_some()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(socket.send, envelope("e1"))
        slack.receive_data(bytes(await theirs.receive_some()))
    assert [type(event) for event in slack.events()] == [Pong, TextMessage]


async def test_a_quiet_socket_whose_pings_are_answered_stays() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        await trio.sleep(3600)
        assert at.slack.links == [link]
        assert link.pings == 359


async def test_a_first_connect_that_fails_is_retried_with_growing_waits() -> None:
    fails = [unreachable, answer(500), answer(503, ok=False, error="fatal_error"), answer(200, ok=False), unreachable]
    fails[3] = answer(200, nothing="of slack's")
    async with scene(*fails, patience=Patience(backoff_max=3.0)) as at:
        await at.slack.link(1)
        waits = [later - sooner for sooner, later in zip(at.slack.opens, at.slack.opens[1:], strict=False)]
        assert waits == pytest.approx([0.0, 0.5, 1.0, 2.0, 3.0])
        assert isinstance(at.channel.received[0], SocketDown)
        assert "connection refused" in at.channel.received[0].why
        await trio.testing.wait_all_tasks_blocked()
        assert at.channel.received[-1] == SocketUp()
        assert (await at.health()).state is ConnectionState.UP


async def test_a_socket_that_lasted_starts_the_waits_anew_and_one_that_did_not_makes_them_grow() -> None:
    async with scene() as at:
        for number in range(1, 6):
            await (await at.slack.link(number)).drop()
        waits = [later - sooner for sooner, later in zip(at.slack.opens, at.slack.opens[1:], strict=False)]
        assert waits == pytest.approx([0.0, 0.5, 1.0, 2.0])
        link = await at.slack.link(6)
        await trio.sleep(30)
        at_once = trio.current_time()
        await link.drop()
        assert (await at.slack.link(7)).opened_at == at_once


async def test_a_refused_token_is_tried_now_and_then_and_health_says_what_to_do() -> None:
    refused = answer(ok=False, error="invalid_auth")
    async with scene(refused, refused, refused) as at:
        await trio.sleep(10)
        standing = await at.health()
        assert standing.state is ConnectionState.REFUSED
        assert standing.last_error is not None
        assert "invalid_auth" in standing.last_error
        assert "agent-intercom slack login" in standing.last_error
        await at.slack.link(1)
        assert at.slack.opens == pytest.approx([t + at.slack.opens[0] for t in (0, 75, 150, 225)])
        # Told once, not at each try.
        assert [type(told) for told in at.channel.received] == [SocketDown]
        await trio.testing.wait_all_tasks_blocked()
        assert [type(told) for told in at.channel.received] == [SocketDown, SocketUp]


async def test_a_link_that_is_disabled_is_tried_now_and_then() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        await trio.sleep(100)
        await link.send({"type": "disconnect", "reason": "link_disabled"})
        await link.close()
        await trio.sleep(10)
        standing = await at.health()
        assert standing.state is ConnectionState.REFUSED
        assert "switch it on" in (standing.last_error or "")
        new = await at.slack.link(2)
        assert new.opened_at - link.opened_at == pytest.approx(175, abs=1)


async def test_too_many_sockets_are_never_answered_by_one_more_at_once() -> None:
    async with scene() as at:
        at.slack.greets = False
        at.slack.first = {"type": "disconnect", "reason": "too_many_websockets"}
        await at.slack.link(3)
        at.slack.first, at.slack.greets = None, True
        waits = [later - sooner for sooner, later in zip(at.slack.opens, at.slack.opens[1:], strict=False)]
        assert waits == pytest.approx([0.5, 1.0])
        assert "stop other programs" in ((await at.health()).last_error or "")


async def test_a_limit_on_opening_sockets_is_kept() -> None:
    async with scene(answer(429, {"Retry-After": "17"})) as at:
        await at.slack.link(1)
        assert at.slack.opens[1] - at.slack.opens[0] == pytest.approx(17)


async def test_a_socket_that_says_no_hello_is_given_up() -> None:
    async with scene() as at:
        at.slack.greets = False
        link = await at.slack.link(1)
        at.slack.greets = True
        await at.slack.link(2)
        assert at.slack.opens[1] - at.slack.opens[0] == pytest.approx(10)
        await link.until_closed(1)


async def test_a_handshake_that_is_turned_down_is_retried() -> None:
    async with scene() as at:
        at.slack.accepts = False
        await trio.sleep(3)
        assert "HTTP 404" in ((await at.health()).last_error or "")
        at.slack.accepts = True
        await at.slack.link(1)


async def test_frames_that_make_no_sense_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with scene(limits=SocketLimits(max_message=1000)) as at:
        link = await at.slack.link(1)
        await link.send("no json", "[1]", "{" * 900, {"type": "interactive"}, {"envelope_id": 7, "payload": {}})
        await link.send({"type": "interactive", "envelope_id": "long", "payload": {"text": 2000 * "x"}})
        await link.send_raw(b"\x00\x01")
        await link.send({"type": "interactive", "envelope_id": "no payload", "payload": None})
        await link.send(envelope("e1"))
        await link.until(2)
        assert sorted(link.acks) == ["e1", "no payload"]
        assert len(at.slack.links) == 1
    assert caplog.text.count("passed over") == 8


async def test_bytes_that_are_no_frames_cost_the_socket() -> None:
    async with scene() as at:
        link = await at.slack.link(1)
        await trio.sleep(100)
        await link.send_bytes(b"\xff\xff\xff\xff\xff")
        await at.slack.link(2, seconds=1)
        assert "not a websocket frame" in ((await at.health()).last_error or "")


async def test_a_stop_lets_what_is_in_hand_be_acknowledged() -> None:
    async with no_leaks(), trio.open_nursery() as nursery:
        slack, hand = SlackEnd(nursery), Hand()
        async with WebApi(SlackTokens("xapp-1", "xoxb-1"), transport=slack) as web:
            async with System([ChildSpec("slack/connection", lambda: SlackConnection(web, hand))]):
                link = await slack.link(1)
                await link.send(envelope("e1"))
                await trio.testing.wait_all_tasks_blocked()

                async def later() -> None:
                    await trio.sleep(1)
                    await link.send(envelope("too late"))
                    hand.go.set()

                nursery.start_soon(later)
                began = trio.current_time()
            assert trio.current_time() - began == pytest.approx(1.0)
        await link.until_closed()
        assert link.acks == ["e1"]
        assert len(hand.handled) == 1


@pytest.mark.parametrize(("envelopes", "seconds"), [([], 0.0), ([envelope("e1")], 2.0)])
async def test_a_stop_takes_no_longer_than_it_may(envelopes: list[Any], seconds: float) -> None:
    async with scene(open_gate=False) as at:
        link = await at.slack.link(1)
        link.answers_pings = False
        await link.send(*envelopes)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(seconds)
    assert link.acks == []


async def test_a_connection_that_crashes_comes_back() -> None:
    async with scene() as at:
        await at.slack.link(1)
        at.slack.script.append(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        await at.slack.links[0].drop()
        new = await at.slack.link(2)
        await new.send(envelope("e1"))
        await new.until(1)


PATIENCE = Patience(backoff_first=0.5, backoff_max=30, slow=60)

PASSING = st.sampled_from(
    [SocketLost("gone"), Unreachable("no network", maybe_done=False), Disconnected("refresh_requested")]
)
CHANCE = st.floats(0, 1)


@pytest.mark.parametrize(
    ("failures", "least", "most"),
    [(1, 0, 0), (2, 0.25, 0.5), (3, 0.5, 1), (4, 1, 2), (8, 15, 30), (9, 15, 30), (10**6, 15, 30)],
)
def test_waits_double_up_to_the_most_and_are_scattered(failures: int, least: float, most: float) -> None:
    assert wait_after(SocketLost("gone"), failures, PATIENCE, 0.0) == least
    assert wait_after(SocketLost("gone"), failures, PATIENCE, 1.0) == most


@given(PASSING, st.integers(1, 10**9), CHANCE)
def test_no_wait_is_longer_than_the_most(cause: Exception, failures: int, chance: float) -> None:
    assert 0 <= wait_after(cause, failures, PATIENCE, chance) <= PATIENCE.backoff_max


@given(st.integers(1, 10**9), CHANCE)
def test_what_a_person_must_mend_is_tried_slowly_from_the_first(failures: int, chance: float) -> None:
    for cause in (SlackRefused("apps.connections.open", "invalid_auth"), Disconnected("link_disabled")):
        assert is_for_people(cause)
        assert 60 <= wait_after(cause, failures, PATIENCE, chance) <= 75


@given(st.integers(1, 10), CHANCE, st.floats(0, 3600))
def test_a_limit_is_never_undercut(failures: int, chance: float, seconds: float) -> None:
    assert wait_after(RateLimited("apps.connections.open", seconds), failures, PATIENCE, chance) >= seconds


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (SlackRefused("m", "not_authed"), "there is no app-level token"),
        (SlackRefused("m", "token_revoked"), "(token_revoked)"),
        (SlackRefused("m", "not_allowed_token_type"), "xapp-"),
        (SlackRefused("m", "missing_scope"), "connections:write"),
        (SlackRefused("m", "org_login_required"), "slack refuses to open a socket (org_login_required)"),
        (Disconnected("link_disabled"), "switch it on"),
        (Disconnected("too_many_websockets"), "stop other programs"),
        (Disconnected("refresh_requested"), "slack takes the socket away (refresh_requested)"),
        (SocketLost("nothing was heard"), "nothing was heard"),
    ],
)
def test_each_cause_has_a_sentence(cause: Exception, words: str) -> None:
    assert words in sentence(cause)


class Acks(list[str]):
    async def __call__(self, answer: dict[str, Any]) -> None:
        self.append(answer["envelope_id"])


async def test_what_is_too_much_at_once_is_left_for_slack_to_send_again(caplog: pytest.LogCaptureFixture) -> None:
    go, acks, handled = trio.Event(), Acks(), 0

    async def handle(_kind: str, _payload: dict[str, Any]) -> None:
        nonlocal handled
        await go.wait()
        handled += 1

    handling = Handling(handle, at_once=2, waiting=3)
    async with trio.open_nursery() as nursery:
        for number in range(8):
            handling.take(envelope(f"e{number}"), acks, nursery)
        assert handling.in_hand == 5
        go.set()
        await handling.until_idle()
        assert sorted(acks) == ["e0", "e1", "e2", "e3", "e4"]
        handling.take(envelope("e7"), acks, nursery)
        await handling.until_idle()
    assert handled == 6
    assert caplog.text.count("left for slack to send again") == 3
