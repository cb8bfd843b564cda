"""The official client through the gateway: what it lists, calls and is asked, in both protocol versions."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from tests.agents.gateway.conftest import GatewayHome
from tests.support.server_process import ERAS

pytestmark = [pytest.mark.real_time]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_finds_all_it_knows(gateway: GatewayHome, mode: str, downstream: str) -> None:
    reported: list[float] = []

    async def elicit(_ctx: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    async with gateway.home.agent(gateway.home.workspace(), mode=mode, elicitation_callback=elicit) as client:
        assert f"{downstream}__echo" in [tool.name for tool in (await client.list_tools()).tools]
        # Its models do not know the kinds of blocks of `echo`.
        big = await client.call_tool(f"{downstream}__big", {"size": 20})
        assert [block.type for block in big.content] == ["text"]
        asked = await client.call_tool(f"{downstream}__ask", {"what": ["elicitation"]})
        assert asked.structured_content == {"answers": [{"action": "accept", "content": {"colour": "blue"}}]}
        await client.call_tool(f"{downstream}__progress", {"values": [1, 2]}, progress_callback=on_progress)
        assert sorted(reported) == [1, 2]
        read = await client.read_resource(f"demo://{downstream}/own")
        assert read.contents[0].uri == f"demo://{downstream}/own"
        prompt = await client.get_prompt(f"{downstream}__greet", {"who": "Kim"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
