"""What the shim answers before a server is there is what the server would have said."""

from __future__ import annotations

import json

from intercom.agents import mcp_server
from tests.support.trio_case import trio_test


@trio_test
async def test_the_shipped_answers_equal_the_live_ones() -> None:
    live = await mcp_server.take()
    assert json.loads(mcp_server.FILE.read_text()) == live, (
        "run python -m intercom.agents.mcp_server and commit the file"
    )
