"""The same act once, in memory; and ephemeral messages, which wait a while and then no more."""

from __future__ import annotations

import pytest
import trio

from actors import ChildSpec, System
from intercom.operators.slack.ephemeral_sender import EphemeralSender
from intercom.operators.slack.interaction_handler import REMEMBERED, Once
from intercom.operators.slack.slack_messages import SendEphemeral
from intercom.operators.slack.web_api import RateLimited, SlackRefused
from tests.operators.slack.fake_slack import FakeSlack


async def test_who_comes_second_waits_for_the_first_and_gets_its_answer() -> None:
    once, began, answers = Once(), [], []

    async def work() -> dict[str, int]:
        began.append(trio.current_time())
        await trio.sleep(1)
        return {"n": len(began)}

    async def come() -> None:
        answers.append(await once.run("a", work))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(come)
    await come()
    assert answers == [{"n": 1}] * 4
    assert await once.run("b", work) == {"n": 2}


async def test_an_act_that_failed_is_tried_by_the_next_to_come() -> None:
    once, tries = Once(), []

    async def work() -> None:
        tries.append(1)
        await trio.sleep(1)
        if len(tries) == 1:
            raise RuntimeError("x")

    async def first() -> None:
        with pytest.raises(RuntimeError):
            await once.run("a", work)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.sleep(0.5)
        nursery.start_soon(once.run, "a", work)
    await once.run("a", work)
    assert len(tries) == 2


async def test_only_the_latest_acts_are_remembered() -> None:
    once, ran = Once(), []

    async def work() -> None:
        ran.append(1)

    for number in range(REMEMBERED + 10):
        await once.run(str(number), work)
    await once.run(str(REMEMBERED), work)
    assert len(ran) == REMEMBERED + 10
    await once.run("0", work)
    assert len(ran) == REMEMBERED + 11


async def sent(web: FakeSlack, *messages: SendEphemeral, seconds: float) -> None:
    spec = ChildSpec("slack/ephemeral", lambda: EphemeralSender(web))
    async with System([spec]) as system:
        for message in messages:
            system.named("slack/ephemeral").tell(message)
        await trio.sleep(seconds)


async def test_an_ephemeral_message_waits_out_a_limit() -> None:
    web = FakeSlack()
    web.faults["chat.postEphemeral"] = [RateLimited("chat.postEphemeral", 5)]
    await sent(web, SendEphemeral("C0X", "U0X", "too late"), seconds=6)
    assert [params["text"] for params in web.made("chat.postEphemeral")] == ["too late"] * 2


async def test_an_ephemeral_message_that_is_stale_is_dropped() -> None:
    web = FakeSlack()
    web.faults["chat.postEphemeral"] = [RateLimited("chat.postEphemeral", 61)]
    await sent(web, SendEphemeral("C0X", "U0X", "too late"), seconds=100)
    assert len(web.made("chat.postEphemeral")) == 1


async def test_an_ephemeral_message_that_is_refused_does_not_keep_the_next() -> None:
    web = FakeSlack()
    web.faults["chat.postEphemeral"] = [SlackRefused("chat.postEphemeral", "user_not_in_channel")]
    await sent(web, SendEphemeral("C0X", "U0X", "one"), SendEphemeral("C0X", "U0Y", "two", "1.1"), seconds=1)
    told = {params["text"]: params.get("thread_ts") for params in web.made("chat.postEphemeral")}
    assert told == {"one": None, "two": "1.1"}


async def test_of_too_many_ephemeral_messages_the_oldest_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    web = FakeSlack()
    web.slow["chat.postEphemeral"] = 5.0
    async with System([ChildSpec("slack/ephemeral", lambda: EphemeralSender(web))]) as system:
        for number in range(300):
            system.named("slack/ephemeral").tell(SendEphemeral("C0X", "U0X", str(number)))
            await trio.sleep(0.01)
        await trio.sleep(50)
    told = [int(params["text"]) for params in web.made("chat.postEphemeral")[:8]]
    assert told[:6] == [0, 1, 2, 3, 100, 101]
    assert "the oldest is dropped" in caplog.text
