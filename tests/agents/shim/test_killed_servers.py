"""The proof: a real client's calls through a real shim, while the SDK server behind it is killed again and again."""

from __future__ import annotations

import mcp_types as types
import pytest
import trio
from mcp import Client

from tests.agents.shim.stage import conducted, stage

KILLS = 4
CALLS = 6


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.real_time
async def test_every_call_is_answered_exactly_once_however_often_the_server_is_killed(mode: str) -> None:
    answers: dict[str, list[str]] = {}
    shown: dict[str, list[float]] = {}

    async def ask(client: Client, question: str) -> None:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            shown.setdefault(question, []).append(progress)

        result = await client.call_tool("ask", {"question": question}, progress_callback=progressed)
        assert isinstance(result.content[0], types.TextContent)
        answers.setdefault(question, []).append(result.content[0].text)

    names: dict[str, set[str]] = {}
    with stage() as here:
        async with conducted(here) as lives, Client(here.parameters(), mode=mode) as client:
            async with trio.open_nursery() as nursery:
                for n in range(CALLS):
                    nursery.start_soon(ask, client, f"q{n}")
                for _ in range(KILLS):
                    life = await lives.next()
                    for arrived in await life.until("arrived", CALLS):
                        names.setdefault(arrived["arrived"], set()).add(arrived["call"])
                    life.kill()
                last = await lives.next()
                await last.until("arrived", CALLS)
                await last.answer(**{f"q{n}": f"verdict {n}" for n in range(CALLS)})
            await last.until("delivered", CALLS)
            assert (await client.call_tool("echo", {"question": "still there"})).structured_content["text"]

    assert answers == {f"q{n}": [f"verdict {n}"] for n in range(CALLS)}
    assert all(len(each) == 1 for each in names.values()), "a call kept its name through every life"
    assert len({next(iter(each)) for each in names.values()}) == CALLS, "and no two share one"
    assert all(sorted(set(seen)) == seen for seen in shown.values()), "progress rose all the while"
    assert all(len(arrivals) == CALLS for arrivals in (life.heard_of("arrived") for life in lives.all))
