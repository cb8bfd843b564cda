"""Cards and log lines under a limit of one message a second: whether approvals go before logs, and how long it takes.

The server runs on a clock that goes faster than life, over a real database and real sockets; Slack answers each post
after as long as it does in life. What is told are seconds by that clock, in which our own work looks slower than it is.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import trio
import trio.testing

from intercom.embedding import EmbeddedAgent
from tests.operators.slack.live.embedded import Room, room
from tests.slack_standin.limits import RATES

CARDS = 500
LINES = 2000
#: As many as keep each within the limit of messages a session may tell.
AGENTS = 40
#: How much faster than life the clock goes.
RATE = 10.0
#: Seconds until Slack answers a post.
LATENCY = 0.15
#: Seconds that lines keep coming, how many a second, and between two cards meanwhile.
BURST = 200
PER_SECOND = 10
BETWEEN = 5.3


async def flood(root: Path) -> None:
    """Everything at once: first the lines, then the cards."""
    async with room(root, rates=RATES) as at:
        at.slack.plan("chat.postMessage", "delay", times=float("inf"), seconds=LATENCY)
        agents = [at.agent(f"agent{number}") for number in range(AGENTS)]
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as all_lines:
                for number in range(LINES):
                    all_lines.start_soon(agents[number % AGENTS].broadcast, f"line {number}")
            for number in range(CARDS):
                nursery.start_soon(ask, agents[number % AGENTS], f"card {number:03}")
            await at.slack.wait_for(lambda: len(posted(at, "card ")) == CARDS, 4 * CARDS)
            nursery.cancel_scope.cancel()
        cards, lines = posted(at, "card "), posted(at, "line ")
        first, last = min(cards.values()), max(cards.values())
        before = sum(when < first for when in lines.values())
        between = sum(first < when < last for when in lines.values())
        print(f"{CARDS} cards and {LINES} log lines of {AGENTS} sessions at once, one message a second:")
        print(f"  the last card was posted after {last - began:.0f} s, {last - first:.0f} s after the first")
        print(f"  messages of log lines before the first card: {before}, from then to the last: {between}")
        print(f"  turned away for being too fast: {turned_away(at)}", flush=True)


async def burst(root: Path) -> None:
    """Lines keep coming, faster than they can be posted one by one, and now and then a card."""
    async with room(root, rates=RATES) as at:
        at.slack.plan("chat.postMessage", "delay", times=float("inf"), seconds=LATENCY)
        agents = [at.agent(f"agent{number}") for number in range(AGENTS)]
        asked: dict[str, float] = {}
        async with trio.open_nursery() as nursery:
            began, number = trio.current_time(), 0
            while (now := trio.current_time() - began) < BURST:
                nursery.start_soon(agents[number % AGENTS].broadcast, f"line {number}")
                number += 1
                if now > BURST / 10 + BETWEEN * len(asked):
                    title = f"card {len(asked):03}"
                    asked[title] = trio.current_time()
                    nursery.start_soon(ask, agents[number % AGENTS], title)
                await trio.sleep(1 / PER_SECOND)
            await at.slack.wait_for(lambda: len(posted(at, "card ")) == len(asked), 4 * CARDS)
            shown = posted(at, "card ")
            nursery.cancel_scope.cancel()
        waits = [next(at for text, at in shown.items() if title in text) - when for title, when in asked.items()]
        logs = posted(at, "line ")
        print(f"{len(waits)} cards among {number} log lines, {PER_SECOND} a second, one message a second:")
        print(f"  a card waited {statistics.median(waits):.2f} s (median), {max(waits):.2f} s (longest)")
        print(f"  messages of log lines meanwhile: {len(logs)}; turned away for being too fast: {turned_away(at)}")


async def ask(agent: EmbeddedAgent, title: str) -> None:
    await agent.check_clearance(title, f"{title}\n", f"{title}.txt")


def posted(at: Room, words: str) -> dict[str, float]:
    """When each message in which the words stand was posted, by all that it shows."""
    calls = [call for call in at.slack.calls if call.method == "chat.postMessage" and call.ok]
    shown = {json.dumps(call.args.get("blocks")) + str(call.args["text"]): call.at for call in calls}
    return {text: when for text, when in shown.items() if words in text}


def turned_away(at: Room) -> int:
    return sum(call.method == "chat.postMessage" and not call.ok for call in at.slack.calls)


def main() -> None:
    for run in (flood, burst):
        with tempfile.TemporaryDirectory() as directory:
            trio.run(run, Path(directory), clock=trio.testing.MockClock(rate=RATE))


if __name__ == "__main__":
    main()
