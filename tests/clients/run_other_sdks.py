"""Clients of @ai-sdk/mcp and of the oldest and the newest Python SDK 1.x: an approval, and a server that is killed."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from intercom.sessions.request_kinds import APPROVED
from intercom.sessions.tools.tool_table import BY_NAME
from tests.clients import pypi
from tests.clients.ctl import ctl
from tests.clients.driver import Refused, content, driver
from tests.clients.over_http import configure_http
from tests.clients.run_sdk import CHANGE, connected, everyway
from tests.support.server_process import Home

pytestmark = pytest.mark.real_time

AI_SDK, PYTHON_SDK = "driver_ai_sdk.mjs", "driver_python.py"
#: What the client itself allows a call, in milliseconds.
LIMIT = 8_000
#: Seconds in which a client that noticed that its connection broke would have said so.
LONG = 10


@pytest.mark.parametrize("version", ["ai-sdk", *pypi.OLDER_SDKS])
@everyway
async def test_a_change_is_approved_and_applied(home: Home, version: str, over: str) -> None:
    script, python = (AI_SDK, None) if version == "ai-sdk" else (PYTHON_SDK, pypi.sdk_python(version))
    root = home.workspace()
    async with connected(home, script, root, over, python) as (client, person):
        assert {tool["name"] for tool in await client.do("tools")} == BY_NAME.keys()
        asked = await client.begin("call", tool="check_clearance", arguments=CHANGE)
        card = await person.card(kind="approval")
        await ctl(home, "approve", card["request_id"])
        assert content(await asked()) == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
        assert (await client.call("check_diff", request_id=card["request_id"]))["status"] == "applied"
        assert (root / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize("version", pypi.OLDER_SDKS)
@pytest.mark.parametrize("limit", [LIMIT, None], ids=["with a limit", "without a limit"])
async def test_over_http_only_its_own_limit_ends_the_call_of_a_server_that_died(
    home: Home, version: str, limit: int | None
) -> None:
    root, python = home.workspace(), pypi.sdk_python(version)
    port = configure_http(home)
    told: dict[str, Any] = {} if limit is None else {"timeout": limit}
    async with driver(PYTHON_SDK, python) as client:
        with home.serving():
            await client.do("connect", over="http", **port.address(root))
            async with home.person(root) as person:
                asked = await client.begin("call", tool="check_clearance", arguments=CHANGE, **told)
                card = await person.card(kind="approval")
                # The server has begun to answer.
                await asked.event("progress")
                home.kill()
        with home.serving():
            await ctl(home, "approve", card["request_id"])
            if limit is None:
                await trio.sleep(LONG)
                assert not asked.done
                return
            with pytest.raises(Refused, match=r"[Tt]imed out"):
                await asked()
            await client.do("connect", over="http", **port.address(root))
            (late,) = (await client.call("ping"))["late_verdicts"]
            assert late["answer"] == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
            again = await client.call("check_clearance", request_id=late["request_id"])
            assert again["status"] == "approved"
            assert (await client.call("check_diff", request_id=late["request_id"]))["status"] == "applied"
