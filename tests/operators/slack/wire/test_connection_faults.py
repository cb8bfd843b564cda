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
from intercom.model.chat import ConnectionState, ConnectionStatus
from intercom.operators.slack.interactions import Once
from intercom.operators.slack.messages import Health
from intercom.operators.slack.socket_mode import Patience, SlackConnection
from intercom.operators.slack.web_api import SlackTokens, WebApi
from tests.slack import ALICE, CHANNEL, serve
from tests.slack.standin import Standin


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
            children = [ChildSpec("slack/channel", lambda: channel), ChildSpec("slack/connection", start)]
            async with System(children) as system:
                if connect:
                    await slack.connected()
                yield Scene(slack, ears, system)


async def test_a_refresh_loses_no_envelope_and_costs_none_its_three_seconds() -> None:
    async with scene() as at:
        at.slack.later(5, at.slack.refresh)
        texts = [f"m{i}" for i in range(200)]
        await at.say(*texts, every=0.2)
        await at.slack.acted_on()
        assert at.ears.heard == Counter(texts)
        assert at.slack.unanswered == []
        assert at.slack.socket_mode.opened == 2


async def test_sockets_of_a_short_life_lose_no_envelope() -> None:
    async with scene(lifetime=60.0) as at:
        texts = [f"m{i}" for i in range(600)]
        await at.say(*texts, every=1.0)
        await at.slack.acted_on()
        assert at.ears.heard == Counter(texts)
        assert at.slack.unanswered == []
        assert at.slack.socket_mode.opened >= 10


@pytest.mark.parametrize("how", ["clean", "abrupt"])
async def test_a_socket_that_is_lost_again_and_again_costs_nothing_but_a_second_delivery(how: str) -> None:
    async with scene(redeliver=(0.0, 1.0, 5.0, 30.0)) as at:
        texts = [f"m{i}" for i in range(100)]
        for number in range(10):
            at.slack.later(number * 31, lambda: at.slack.drop_sockets(how))
        await at.say(*texts, every=3.1)
        await at.slack.acted_on(300)
        assert at.ears.heard == Counter(texts)
        assert all(envelope.acked.is_set() for envelope in at.slack.envelopes)
        assert len(at.slack.unanswered) <= 10


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
