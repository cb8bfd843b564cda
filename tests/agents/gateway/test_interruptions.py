"""A server that is killed in mid-call: what its agents are told, and what the downstream gets twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from intercom.agents.prompts import Prompt
from tests.agents.gateway.conftest import GatewayHome, gateway_home, ready
from tests.agents.gateway.raw_agent import NEW, OLD, RawAgent, Way

pytestmark = [pytest.mark.real_time]

STDIO = [Way("stdio", OLD), Way("stdio", NEW)]


@pytest.fixture
def killed() -> Iterator[GatewayHome]:
    """A gateway whose server a test kills. The shims start the next one."""
    with gateway_home() as made, made.home.serving():
        trio.run(ready, made)
        yield made


async def both(agent: RawAgent, served: GatewayHome, *tools: str) -> dict[str, dict[str, Any]]:
    """Call these tools, kill the server when the downstream has got all calls, and return how they ended."""
    ended: dict[str, dict[str, Any]] = {}

    async def call(tool: str) -> None:
        ended[tool] = await agent.call(tool, tag=tool)

    async with trio.open_nursery() as nursery:
        for tool in tools:
            nursery.start_soon(call, tool)
        for tool in tools:
            await agent.call(f"{tool.partition('__')[0]}__wait_for", event=f"began {tool}")
        served.home.kill()
        for tool in tools:
            if tool.endswith("hang_read"):
                # The shim repeats it to the next server, and this to the next downstream.
                await agent.call(f"{tool.partition('__')[0]}__wait_for", event=f"began {tool}")
                await agent.call(f"{tool.partition('__')[0]}__release", tag=tool)
    return ended


@pytest.mark.parametrize("way", STDIO, ids=str)
async def test_only_what_changes_nothing_is_sent_again(killed: GatewayHome, way: Way) -> None:
    tools = ("old__hang", "old__hang_read", "new__hang", "new__hang_read")
    async with killed.agent(way) as agent:
        ended = await both(agent, killed, *tools)
        for name in ("old", "new"):
            lost = ended[f"{name}__hang"]
            assert lost["isError"] is True
            said = json.loads(lost["content"][0]["text"])
            assert said["error_code"] == "interrupted", said
            assert "It was not sent again: look whether it had its effect" in said["error_message"]
            assert ended[f"{name}__hang_read"]["content"][0]["text"] == f"released {name}__hang_read"
            assert sorted(killed.written(name)) == [
                f"hang {name}__hang",
                f"hang {name}__hang_read",
                f"hang {name}__hang_read",
            ]
        # The agent goes on as if nothing had happened.
        assert "old__write" in await agent.names()
        assert (await agent.call("old__write", after="it"))["content"][0]["text"] == "written"


@pytest.mark.parametrize("way", STDIO, ids=str)
async def test_the_first_list_has_the_tools_of_downstreams_that_start_with_the_server(way: Way) -> None:
    with gateway_home() as served:
        # The agent's shim starts the server, and clients read their lists once, at once.
        async with served.agent(way) as agent:
            names = await agent.names()
            assert {"old__echo", "new__echo"} <= {*names}
            prompts = (await agent.request("prompts/list"))["prompts"]
            assert [each["name"] for each in prompts] == [*Prompt, "new__greet", "old__greet"]
