"""The connection against the stand-in for Slack, over real sockets, in virtual time: what goes wrong, with counts."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field

from actors import ChildSpec, System, ask
from actors.testing import Probe
from intercom.model.chat_status import ConnectionState, ConnectionStatus
from intercom.operators.slack.interaction_handler import Once
from intercom.operators.slack.slack_messages import Health, SocketDown
from intercom.operators.slack.socket_mode import Patience, SlackConnection
from intercom.operators.slack.web_api import RateLimited, SlackApiError, SlackRefused, SlackTokens, Unreachable, WebApi
from tests.slack_standin import ALICE, APP_TOKEN, BOT_TOKEN, CHANNEL, serve
from tests.slack_standin.standin import Standin


@define(eq=False)
class Ears:
    """The handler: counts what it heard, by the text."""

    heard: Counter[str] = field(factory=Counter)
    seconds: float = 0.01
    once: Once = field(factory=Once)

    async def __call__(self, kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        text = payload["event"]["text"] if kind == "events_api" else payload["text"]
        return await self.once.run(text, partial(self.handle, text))

    async def handle(self, text: str) -> dict[str, Any]:
        await trio.sleep(self.seconds)
        self.heard[text] += 1
        return {"text": f"heard {text}"}


@define(eq=False)
class Scene:
    slack: Standin
    ears: Ears
    channel: Probe
    system: System

    async def health(self) -> ConnectionStatus:
        return await ask(self.system.named("slack/connection"), Health())

    async def say(self, *texts: str, every: float = 0.0) -> None:
        for text in texts:
            self.slack.say(ALICE, CHANNEL, text)
            await trio.sleep(every)


@contextlib.asynccontextmanager
async def scene(*, connect: bool = True, handler_seconds: float = 0.01, **how: Any) -> AsyncIterator[Scene]:
    async with serve(**how) as slack:
        tokens = SlackTokens(slack.app_token, slack.bot_token)
        async with WebApi(tokens, base_url=slack.api_url) as web:
            ears = Ears(seconds=handler_seconds)
            channel = Probe()

            def start() -> SlackConnection:
                return SlackConnection(web, ears, random=random.Random(1).random, patience=Patience(backoff_max=10))

            if not connect:
                slack.go_down()
            children = [ChildSpec("slack/outbox_writer", lambda: channel), ChildSpec("slack/connection", start)]
            async with System(children) as system:
                if connect:
                    await slack.connected()
                yield Scene(slack, ears, channel, system)


#: A fault of a call -> how it ends for its caller, after how many seconds, whether its work was done a second after it
#: was asked for, and whether it is done in the end.
CALLS: list[tuple[str, dict[str, Any], type[SlackApiError] | None, float, bool, bool]] = [
    ("lose", {}, Unreachable, 0, True, True),
    ("swallow", {}, Unreachable, 10, True, True),
    ("cut", {}, Unreachable, 0, False, False),
    ("delay", {"seconds": 5}, None, 5, True, True),
    ("stall", {"seconds": 5}, None, 5, False, True),
    ("stall", {"seconds": 15}, Unreachable, 10, False, True),
    ("status", {"status": 502}, Unreachable, 0, False, False),
    ("status", {"status": 502, "done": True}, Unreachable, 0, True, True),
    ("limit", {"seconds": 7}, RateLimited, 0, False, False),
    ("refuse", {"error": "is_archived"}, SlackRefused, 0, False, False),
]


@pytest.mark.parametrize(("how", "more", "error", "seconds", "soon", "in_the_end"), CALLS)
async def test_a_fault_of_a_call_is_what_it_is_called_and_is_met_once(
    how: str, more: dict[str, Any], error: type[SlackApiError] | None, seconds: float, soon: bool, in_the_end: bool
) -> None:
    async with serve() as slack, WebApi(SlackTokens(APP_TOKEN, BOT_TOKEN), base_url=slack.api_url) as web:
        done: list[int] = []
        slack.plan("chat.postMessage", how, **more)
        slack.later(1, lambda: done.append(len(slack.messages())))
        began = trio.current_time()
        with pytest.raises(error) if error else contextlib.nullcontext():
            await web.call("chat.postMessage", channel=CHANNEL, text="x")
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.5)
        await trio.sleep(20)
        assert [*done, len(slack.messages())] == [soon, in_the_end]
        await web.call("chat.postMessage", channel=CHANNEL, text="y")


@pytest.mark.parametrize(
    ("how", "seconds", "why"), [("clean", 0, "closed"), ("abrupt", 0, "broke"), ("freeze", 30, "heard")]
)
async def test_a_socket_is_lost_as_it_is_said(how: str, seconds: float, why: str) -> None:
    async with scene() as at:
        began = trio.current_time()
        at.slack.drop_sockets(how)
        await at.slack.wait_for(lambda: at.slack.socket_mode.opened == 2, 90)
        assert trio.current_time() - began == pytest.approx(seconds, abs=6)
        [down] = [told for told in at.channel.received if isinstance(told, SocketDown)]
        assert why in down.why


async def test_a_refresh_costs_no_envelope_its_three_seconds() -> None:
    async with scene(lifetime=60.0) as at:
        texts = [f"m{i}" for i in range(200)]
        await at.say(*texts, every=1.0)
        await at.slack.acted_on()
        assert at.ears.heard == Counter(texts)
        assert at.slack.unanswered == []
        assert at.slack.socket_mode.opened >= 3


async def test_envelopes_are_doubled_mixed_up_and_not_heard_of_and_sockets_denied() -> None:
    async with scene(redeliver=(0.0, 5.0)) as at:
        at.slack.faults.double, at.slack.faults.deaf = 1, 3
        await at.say("a", "b")
        await at.slack.acted_on()
        assert [len(each.sent_by) for each in at.slack.envelopes] == [3, 2]
        assert [each.missed for each in at.slack.envelopes] == [1, 1]
        sent: list[str] = []
        at.slack.on("sent", lambda each: sent.append(each.payload["event"]["text"]), times=3)
        at.slack.faults.reorder = 3
        await at.say("c", "d", "e")
        await at.slack.acted_on()
        assert sent == ["e", "d", "c"]
        at.slack.faults.clear()
        at.slack.faults.deny_connects = 2
        at.slack.drop_sockets("abrupt")
        await at.slack.wait_for(lambda: at.slack.socket_mode.opened == 2)
        assert at.slack.count("apps.connections.open") == 4
        assert at.ears.heard == Counter("abcde")


async def test_errors_when_a_socket_is_asked_for_are_outlasted() -> None:
    async with scene(connect=False) as at:
        await trio.sleep(3600)
        assert (await at.health()).state is not ConnectionState.UP
        at.slack.plan("apps.connections.open", "status", times=3, status=500)
        at.slack.plan("apps.connections.open", "limit", times=1, seconds=20)
        at.slack.plan("apps.connections.open", "lose", times=1)
        at.slack.plan("apps.connections.open", "swallow", times=1)
        at.slack.faults.deny_connects = 2
        back = trio.current_time()
        await at.slack.come_up()
        await at.slack.connected(seconds=200)
        assert trio.current_time() - back < 120
        assert at.slack.count("apps.connections.open") == 9
        await at.say("hello")
        await at.slack.acted_on()
        assert (await at.health()).state is ConnectionState.UP


@pytest.mark.parametrize("seed", range(5))
async def test_any_mixture_of_faults_ends_with_each_act_handled_once(seed: int) -> None:
    chance = random.Random(seed)

    async with scene(redeliver=(0.0, *(20.0 for _ in range(30)))) as at:
        faults = [
            lambda: at.slack.drop_sockets("clean"),
            lambda: at.slack.drop_sockets("abrupt"),
            lambda: at.slack.drop_sockets("freeze"),
            lambda: at.slack.refresh(warned=chance.choice([0.0, 2.0, 10.0])),
            lambda: setattr(at.slack.faults, "double", at.slack.faults.double + 3),
            lambda: setattr(at.slack.faults, "deaf", at.slack.faults.deaf + 1),
            lambda: at.slack.plan("apps.connections.open", chance.choice(["lose", "status", "cut", "limit"])),
            lambda: setattr(at.slack.faults, "deny_connects", 1),
            at.slack.go_down,
            at.slack.come_up,
        ]
        texts = [f"m{i}" for i in range(100)]
        for text in texts:
            if chance.random() < 0.3:
                answer = chance.choice(faults)()
                if answer is not None and not isinstance(answer, int):
                    await answer
            await at.say(text, every=chance.choice([0.0, 0.5, 4.0]))
        await at.slack.come_up()
        await at.slack.acted_on(3600)
        assert at.ears.heard == Counter(texts)
        assert all(envelope.acked.is_set() for envelope in at.slack.envelopes)
