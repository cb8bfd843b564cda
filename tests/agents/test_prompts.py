"""The prompts and a session's own requests: what they say, and what they keep back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from intercom.agents import prompts, resources
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.prompts import Prompt
from intercom.agents.resources import Own
from intercom.model.decision import Decision
from intercom.model.json_types import Json
from intercom.model.limits import TEXT
from tests.support.virtual_server import AgentClient, VirtualServer


async def no_roots() -> list[str]:
    return []


CALLER = Caller("client", None, None, no_roots, None)


def connection(server: VirtualServer, root: Path, key: str = "agent", *, anonymous: bool = False) -> AgentConnection:
    app = server.app
    return AgentConnection(app.system, app.config, app.connected_agents, key, str(root), None, anonymous=anonymous)


async def requests(of: AgentConnection, which: Own) -> list[Json]:
    found = (await resources.own_requests(of, CALLER, which))["requests"]
    assert isinstance(found, list)
    return found


async def text_of(of: AgentConnection, name: str, **arguments: str) -> str:
    """The text of a prompt's first message."""
    content = (await prompts.get(of, CALLER, name, arguments)).messages[0].content
    return str(getattr(content, "text", ""))


async def test_a_decision_is_not_shown_before_a_tool_has_delivered_it(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    own = connection(server, root)
    opened = await agent.propose("a.txt")
    (pending,) = await requests(own, Own.PENDING)
    assert isinstance(pending, dict)
    assert (pending["status"], pending["files"], pending["tool"]) == ("pending", ["a.txt"], "check_clearance")
    await server.decide(opened.request_id, Decision.REJECT, "the secret reason")
    (answered,) = await requests(own, Own.HISTORY)
    assert isinstance(answered, dict)
    assert answered["status"] == "answered"
    assert "secret" not in json.dumps(answered)
    assert "decision" not in answered


async def test_the_history_has_the_newest_first_and_a_limit(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    for number in range(resources.HISTORY_LIMIT + 2):
        await agent.propose(f"{number}.txt")
    found = await requests(connection(server, root), Own.HISTORY)
    names = [each["files"] for each in found if isinstance(each, dict)]
    assert len(names) == resources.HISTORY_LIMIT
    assert names[0] == [f"{resources.HISTORY_LIMIT + 1}.txt"]
    assert len(await requests(connection(server, root), Own.PENDING)) == resources.HISTORY_LIMIT + 2


async def test_another_agent_of_the_same_workspace_reads_only_its_own(server: VirtualServer, root: Path) -> None:
    await (await server.arrive(root, "one")).propose()
    await server.arrive(root, "two")
    assert len(await requests(connection(server, root, "one"), Own.PENDING)) == 1
    for which in Own:
        assert await requests(connection(server, root, "two"), which) == []


async def test_a_client_without_a_key_has_no_requests_to_read(server: VirtualServer, root: Path) -> None:
    nobody = connection(server, root, anonymous=True)
    with pytest.raises(MCPError, match="agent=KEY"):
        await requests(nobody, Own.PENDING)
    # Its status has no records, and is not refused.
    assert len((await prompts.get(nobody, CALLER, "status", {})).messages) == 1


@pytest.mark.parametrize(
    "uri",
    ["intercom://session/other", "intercom://session/pending/", "intercom://session/pending?session=x", "Pending"],
)
async def test_no_address_names_another_session(server: VirtualServer, root: Path, uri: str) -> None:
    with pytest.raises(MCPError, match="no resource has this uri"):
        await resources.read(connection(server, root), CALLER, uri)


async def test_the_status_carries_the_records_of_the_session(server: VirtualServer, root: Path) -> None:
    agent: AgentClient = await server.arrive(root)
    await agent.propose()
    own = connection(server, root)
    assert len((await prompts.get(own, CALLER, "status", {})).messages) == 1
    await own.session(CALLER)
    _, pending, history = (await prompts.get(own, CALLER, "status", {})).messages
    for message in (pending, history):
        assert "a.txt" in json.dumps(message.model_dump(mode="json"))
    assert agent.session_id in await text_of(own, "checkpoint")


async def test_arguments_are_put_in_as_they_are(server: VirtualServer, root: Path) -> None:
    own = connection(server, root)
    assert "{session} {0} %s" in await text_of(own, "ask", question="{session} {0} %s")
    assert (await text_of(own, "away", note="finish the tests")).endswith("Meanwhile: finish the tests")
    assert await text_of(own, "away", note="  ") == await text_of(own, "away")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("nothing", {}, "there are: away, back, status, checkpoint, ask"),
        ("ask", {}, "needs question"),
        ("ask", {"question": " \n"}, "needs question"),
        ("ask", {"question": "x" * (TEXT + 1)}, "must have at most"),
        ("ask", {"question": "x", "to": "root"}, "takes only question, not 'to'"),
        ("back", {"note": "x"}, "takes no arguments"),
    ],
)
async def test_what_does_not_fit_is_refused_in_words(
    server: VirtualServer, root: Path, name: str, arguments: dict[str, str], said: str
) -> None:
    with pytest.raises(MCPError) as refused:
        await prompts.get(connection(server, root), CALLER, name, arguments)
    assert said in refused.value.error.message


@given(st.sampled_from(Prompt), st.dictionaries(st.sampled_from(["note", "question", "x"]), st.text(max_size=20)))
def test_any_arguments_are_put_in_or_refused(prompt: Prompt, arguments: dict[str, str]) -> None:
    wanted = {each.name: each for each in next(each for each in prompts.LISTED if each.name == prompt).arguments or ()}
    try:
        given = prompts.read_arguments(prompt, arguments)
    except MCPError:
        missing = [name for name, each in wanted.items() if each.required and not arguments.get(name, "").strip()]
        assert missing or arguments.keys() - wanted.keys()
        return
    assert given == {name: text.strip() for name, text in arguments.items() if text.strip()}
