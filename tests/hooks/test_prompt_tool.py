"""The tool for Claude Code's `--permission-prompt-tool`: there only where it is wanted, and heard like any hook."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client

from intercom.agents.mcp_server import offer
from intercom.model.config import Config, McpSettings
from intercom.sessions.tools.tool_table import BY_NAME
from tests.hooks.test_live import ALLOW_STATUS
from tests.support.server_process import TRUSTING, begin, call, user_home

WANTED = TRUSTING + "[mcp]\npermission_prompt_tool = true\n"


async def ask(agent: Client, tool: str, **given: Any) -> dict[str, Any]:
    """As Claude Code asks; what it reads is the text."""
    result = await agent.call_tool("permission_prompt", {"tool_name": tool, "input": given, "tool_use_id": "toolu_1"})
    (text,) = result.content
    assert isinstance(text, types.TextContent)
    found: dict[str, Any] = json.loads(text.text)
    return found


def test_it_is_no_tenth_tool_unless_switched_on() -> None:
    assert set(offer(Config())) == set(BY_NAME)
    assert set(offer(Config(mcp=McpSettings(permission_prompt_tool=True)))) == {*BY_NAME, "permission_prompt"}


@pytest.mark.real_time
async def test_a_person_or_the_policy_answers_and_the_input_stays_as_it_was() -> None:
    with user_home(WANTED) as home:
        workspace = home.workspace()
        (workspace / ".intercom").mkdir()
        (workspace / ".intercom" / "settings.json").write_text(ALLOW_STATUS)
        with home.serving():
            async with home.agent(workspace) as agent, home.person() as person:
                await person.do("policy-accept", workspace=str(workspace))
                assert "permission_prompt" in {tool.name for tool in (await agent.list_tools()).tools}
                given = {"command": "git status", "timeout": None}
                assert await ask(agent, "Bash", **given) == {"behavior": "allow", "updatedInput": given}
                own = {"behavior": "allow", "updatedInput": {}}
                assert await ask(agent, "mcp__agent-intercom__ping") == own
                async with trio.open_nursery() as nursery:
                    later = begin(nursery, agent, "permission_prompt", tool_name="Bash", input={"command": "make"})
                    card = await person.card(title="Run: make")
                    await person.do("reject", id=card["request_id"], reason="not now")
                    denied = await later()
                assert denied["behavior"] == "deny"
                assert "not now" in denied["message"]
                # Told, so that it rides on nothing else.
                assert "late_verdicts" not in await call(agent, "ping")
                async with trio.open_nursery() as nursery:
                    later = begin(nursery, agent, "permission_prompt", tool_name="ExitPlanMode", input={"plan": "x"})
                    card = await person.card(title="Use the tool ExitPlanMode")
                    await person.do("approve", id=card["request_id"])
                    assert (await later())["behavior"] == "allow"
