"""Whatever is wished and whatever goes wrong, in any order: when the faults end everything is shown, once, in order."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.store import outbox, rows
from intercom.store.database import Database
from intercom.store.outbox import RowKind, RowState, Urgency
from tests.operators.slack.fake_slack import BROKEN, LATE, LOST, NO_NETWORK, RESET, FakeSlack, Fault, limited
from tests.operators.slack.server import Crash, SlackServer, crashing, sender_server
from tests.support.crash_points import SLACK_NAMES

THREADS = ("thread/a", "thread/b")
FAULTS = (None, BROKEN, LOST, NO_NETWORK, LATE, RESET, limited(3))
#: What a fault can end for good, or leave undone: with this there is nothing to tell of order.
DIFF = {"filename": "a.diff", "title": "", "snippet_type": "diff", "text": "+x\n"}

acts = st.one_of(
    st.tuples(st.just("card"), st.sampled_from(THREADS)),
    st.tuples(st.just("log"), st.sampled_from(THREADS)),
    st.tuples(st.just("file"), st.sampled_from(THREADS)),
    st.tuples(st.just("change"), st.integers(0, 30)),
    st.tuples(st.just("tap"), st.integers(0, 30)),
    st.tuples(st.just("sleep"), st.sampled_from([0.01, 0.2, 3.0, 40.0])),
    st.tuples(st.just("weather"), st.sampled_from([0.0, 0.3, 0.9, 1.0])),
    st.tuples(st.just("crash"), st.sampled_from(sorted(SLACK_NAMES))),
    # in the middle of whatever it does, also of a call
    st.tuples(st.just("fall"), st.none()),
)


class Run:
    """One run: what was wished for, and the weather."""

    def __init__(self, server: SlackServer, dice: random.Random) -> None:
        self.server = server
        self.dice = dice
        self.bad = 0.0
        self.wished: dict[str, str] = {}
        server.slack.judge = self.judge

    def judge(self, method: str, params: dict[str, Any]) -> Fault | None:
        return self.dice.choice(FAULTS) if self.dice.random() < self.bad else None

    async def do(self, act: str, how: Any) -> None:
        number = len(self.wished)
        match act:
            case "card":
                await self.wish(f"card/{number}", f"card {number}", open=True, thread=how)
            case "log":
                await self.wish(f"log/{number}", f"log {number}", urgency=Urgency.LOG, thread=how)
            case "file":
                content = {**DIFF, "title": f"file {number}"}
                self.wished[f"file/{number}"] = f"file {number}"
                await self.server.put(f"file/{number}", content, kind=RowKind.FILE, thread=how)
            case "change" | "tap":
                cards = [key for key in self.wished if key.startswith("card/")]
                if cards:
                    key = cards[how % len(cards)]
                    if act == "tap":
                        await self.server.interim(key, "processing", 15)
                    else:
                        await self.wish(key, f"{key} changed {number} {self.dice.random()}", open=True)
            case "sleep":
                await trio.sleep(how)
            case "weather":
                self.bad = how
            case "crash":
                with crashing(how):
                    await trio.sleep(1)
            case "fall":
                self.server.system.named("slack/outbox").present()._crash(Crash("at any time"))
                await trio.sleep(0.01)

    async def wish(self, key: str, content: str, **options: Any) -> None:
        self.wished[key] = content
        await self.server.put(key, content, **options)


async def _carry_out(sequence: list[tuple[str, Any]], seed: int) -> None:
    async with sender_server(web=FakeSlack(per_second=seed % 2 == 0)) as server:
        for thread in THREADS:
            await server.put(thread, thread)
        run = Run(server, random.Random(seed))
        for act, how in sequence:
            await run.do(act, how)
        run.bad = 0.0
        with trio.fail_after(900):
            await server.settled()
        await trio.sleep(61)
        await server.settled()
        await _check(run)


async def _check(run: Run) -> None:
    slack = run.server.slack
    slack.catch_up()
    # nothing twice
    ids = [message.client_id for message in slack.messages if message.client_id]
    assert len(ids) == len(set(ids))
    # everything, as it was wished last
    shown = "\n".join(slack.texts()).split("\n")
    assert sorted(shown) == sorted([*THREADS, *run.wished.values()])
    for key, content in run.wished.items():
        row = await run.server.row(key)
        assert row.state in (RowState.POSTED, RowState.MERGED)
        if row.kind is RowKind.MESSAGE:
            (message,) = [message for message in slack.messages if message.ts == row.ts]
            assert content in message.text.split("\n")
            root = await run.server.row(str(row.thread))
            assert message.thread_ts == root.ts


async def _nothing_left(server: SlackServer) -> int:
    def left(db: Database) -> int:
        return rows.count(db, "select count(*) from outbox where state in ('queued', 'posting')")

    return await server.store(left)


@settings(max_examples=40, deadline=None)
@given(st.lists(acts, max_size=30), st.integers(0, 2**16))
def test_when_the_faults_end_everything_is_shown_once(sequence: list[tuple[str, Any]], seed: int) -> None:
    trio.run(partial(_carry_out, sequence, seed), clock=trio.testing.MockClock(autojump_threshold=0))


async def _in_order(seed: int) -> None:
    """A network that comes and goes does not touch the order."""
    async with sender_server() as server:
        dice = random.Random(seed)
        server.slack.judge = lambda method, params: dice.choice([NO_NETWORK, limited(2), None, None])
        for thread in THREADS:
            await server.put(thread, thread)
        for number in range(40):
            urgency = dice.choice([Urgency.CARD, Urgency.LOG])
            thread = dice.choice(THREADS)
            await server.put(f"row/{number}", f"{urgency.name} {thread} {number}", urgency=urgency, thread=thread)
            await trio.sleep(dice.choice([0.0, 0.1, 5.0]))
        await server.settled()
        assert await _nothing_left(server) == 0
        shown = "\n".join(server.slack.texts()).split("\n")
        for thread in THREADS:
            for urgency in ("CARD", "LOG"):
                numbers = [int(line.split()[2]) for line in shown if line.startswith(f"{urgency} {thread}")]
                assert numbers == sorted(numbers)
        assert len(shown) == 42
        assert (await server.store(partial(outbox.by_key, key="row/39"))) is not None


@pytest.mark.parametrize("seed", range(3))
def test_within_a_thread_cards_and_lines_keep_their_order(seed: int) -> None:
    trio.run(_in_order, seed, clock=trio.testing.MockClock(autojump_threshold=0))
