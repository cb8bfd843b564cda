"""Two agents that number their requests alike, and name their progress alike, never get what is the other's."""

from __future__ import annotations

import itertools
import json
import random

import pytest
import trio

from tests.agents.gateway.conftest import GatewayHome
from tests.agents.gateway.raw_agent import NEW, OLD, RawAgent, Way, refused_with

pytestmark = [pytest.mark.real_time(seconds=240)]

PAIRS = [
    (Way("stdio", OLD), Way("stdio", OLD)),
    (Way("http", OLD), Way("http", OLD)),
    (Way("http", NEW), Way("http", NEW)),
    (Way("stdio", NEW), Way("http", OLD)),
]
ROUNDS = 40


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
async def test_answers_and_progress_are_the_agents_own(gateway: GatewayHome, one: Way, other: Way) -> None:
    """Each round, both agents make the same calls with the same ids and tokens, in random orders: some are cancelled,
    and some fail."""
    chance = random.Random(f"{one} {other}")
    async with gateway.agent(one, name="one") as first, gateway.agent(other, name="other") as second:
        for agent in (first, second):
            agent.ids = itertools.count(10_000)
        for number in range(ROUNDS):
            downstream = chance.choice(("old", "new"))
            async with trio.open_nursery() as nursery:
                for agent in chance.sample((first, second), 2):
                    kinds = chance.sample(("echo", "progress", "refuse", "hang"), 3)
                    for place, kind in enumerate(kinds):
                        nursery.start_soon(_call, agent, downstream, kind, number * 10 + place, chance.random())
        for agent, foreign in ((first, "other"), (second, "one")):
            assert foreign not in json.dumps(agent.said)
            tokens = [each["progressToken"] for each in agent.of("notifications/progress")]
            assert len(tokens) == 2 * sum(1 for _ in itertools.groupby(tokens)), "reports of two calls are mixed up"


async def _call(agent: RawAgent, downstream: str, kind: str, id: int, late: float) -> None:
    mine = f"{agent.name} {id}"
    meta = {"progressToken": id}
    if kind == "echo":
        got = await agent.call(f"{downstream}__echo", id=id, meta=meta, mine=mine)
        assert json.loads(got["content"][0]["text"]) == {"mine": mine}
    elif kind == "progress":
        values = [round(late, 3), 2]
        got = await agent.call(f"{downstream}__progress", id=id, meta=meta, values=values, mine=mine)
        assert got["content"][0]["text"] == "done"
        told = [each["progress"] for each in agent.of("notifications/progress") if each["progressToken"] == id]
        assert told == values
    elif kind == "refuse":
        error = await agent.refusal(f"{downstream}__refuse", id=id, meta=meta)
        assert error["code"] == -32055
    else:
        # Cancelled at once, perhaps before it is sent, or while it runs.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_hang, agent, f"{downstream}__hang", id, mine)
            # Over HTTP a cancellation can overtake its call.
            if late < 0.5 or agent.is_over_http:
                await agent.call(f"{downstream}__wait_for", event=f"began {mine}")
            await agent.cancel(id)
            nursery.cancel_scope.cancel()


async def _hang(agent: RawAgent, tool: str, id: int, mine: str) -> None:
    # Over HTTP, the SDK answers a cancelled request of an older version; over stdio it does not.
    with refused_with(-32800):
        got = await agent.call(tool, id=id, tag=mine)
        raise AssertionError(f"nothing has released it: {got}")
