"""The nine tools: what holds for each holds over every transport and in every protocol version."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx2
import jsonschema
import mcp_types as types
import pytest
import trio
from attrs import frozen
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from intercom.agents.mcp_server import INSTRUCTIONS
from intercom.local import own_files
from intercom.sessions.request_kinds import APPROVED, NO_INSTRUCTION, PERSON_ANSWERED
from tests.support.server_process import ERAS, TRUSTING, Home, Later, Person, begin, call, user_home

#: What the server of these tests is told.
CONFIG = f"http_port = 0\n{TRUSTING}"

pytestmark = [pytest.mark.real_time, pytest.mark.home(CONFIG)]


@frozen
class Transport:
    """A way in for agents. `mode` is the SDK client's: "auto" for the newest protocol version, "legacy" for the one
    with a handshake."""

    over: str
    mode: str

    def __str__(self) -> str:
        return f"{self.over}-{self.mode}"


@frozen
class AgentAtWork:
    """An agent in a workspace of its own, and the person who sees its cards."""

    transport: Transport
    root: Path
    agent: Client
    person: Person
    nursery: trio.Nursery

    def ask(self, tool: str, /, **arguments: Any) -> Later:
        """The agent asks, and the test goes on."""
        return begin(self.nursery, self.agent, tool, **arguments)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return await call(self.agent, tool, **arguments)

    async def schemas(self) -> dict[str, Any]:
        """The published schema of each tool's answer."""
        return {tool.name: tool.output_schema for tool in (await self.agent.list_tools()).tools}


@pytest.fixture(params=[Transport(over, mode) for over in ("stdio", "http") for mode in ERAS], ids=str)
async def work(served: Home, request: pytest.FixtureRequest) -> AsyncIterator[AgentAtWork]:
    """An agent over each transport, at the server of the module."""
    transport, root = request.param, served.workspace()
    connected = served.agent(root, mode=transport.mode) if transport.over == "stdio" else _http(served, transport, root)
    async with connected as agent, served.person(root) as person, trio.open_nursery() as nursery:
        yield AgentAtWork(transport, root, agent, person, nursery)


@asynccontextmanager
async def _http(server: Home, transport: Transport, root: Path) -> AsyncIterator[Client]:
    address = trio.Path(server.places.http_address_file)
    while not await address.exists():  # noqa: ASYNC110 - the port opens beside what says that the server is ready
        await trio.sleep(0.01)
    headers = {
        "Authorization": f"Bearer {own_files.http_token(server.places)}",
        "X-Intercom-Agent": root.name,
        "X-Intercom-Workspace": str(root),
    }
    url = f"{(await address.read_text()).strip()}/mcp"
    async with httpx2.AsyncClient(headers=headers, timeout=30) as web:
        about = types.Implementation(name="claude-code", version="1")
        async with Client(
            streamable_http_client(url, http_client=web), mode=transport.mode, client_info=about
        ) as client:
            yield client


async def test_a_change_goes_from_the_question_to_the_disk(work: AgentAtWork) -> None:
    published = await work.schemas()
    asked = work.ask("check_clearance", title="Add hello", diff="hello\n", file_path="hello.txt")
    card = await work.person.card(kind="approval", away=False)
    assert card["title"] == "Add hello"
    await work.person.do("approve", id=card["request_id"])
    approved = await asked()
    assert approved == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
    jsonschema.validate(approved, published["check_clearance"])

    if work.transport.over == "stdio":
        # Over HTTP only the next call shows that the answer arrived.
        await work.person.card(request_id=card["request_id"], status="delivered")
    applied = await work.call("check_diff", request_id=card["request_id"])
    assert applied == {"status": "applied", "files_written": [{"path": "hello.txt", "bytes": 6}]}
    jsonschema.validate(applied, published["check_diff"])
    assert (work.root / "hello.txt").read_bytes() == b"hello\n"
    await work.person.card(request_id=card["request_id"], status="applied")


async def test_a_rejection_carries_its_reason(work: AgentAtWork) -> None:
    asked = work.ask("check_clearance", title="Bad", diff="x\n", file_path="a.txt", risk_level="high")
    card = await work.person.card(kind="approval")
    assert card["risk_level"] == "high"
    await work.person.do("reject", id=card["request_id"], reason="wrong file")
    rejected = await asked()
    jsonschema.validate(rejected, (await work.schemas())["check_clearance"])
    assert rejected == {"status": "rejected", "request_id": card["request_id"], "reason": "wrong file"}
    refused = await work.call("check_diff", request_id=card["request_id"])
    assert refused["error_code"] == "not_approved"
    assert not (work.root / "a.txt").exists()


async def test_a_question_is_answered_and_an_idle_agent_given_work(work: AgentAtWork) -> None:
    published = await work.schemas()
    for answer in ({"decision": "continue"}, {"decision": "refine", "instruction": "use tabs"}, {"decision": "stop"}):
        asked = work.ask("transmit", prompt_text="Go on?", elapsed_seconds=5, actions_taken=2)
        card = await work.person.card(kind="prompt", status="pending", away=False)
        work.person.cards.clear()
        assert (card["description"], card["detail"]) == ("Go on?", "running for 5 s, 2 actions taken")
        await work.person.do(
            "answer", id=card["request_id"], decision=answer["decision"], text=answer.get("instruction")
        )
        told = await asked()
        assert told == answer | {"message": PERSON_ANSWERED[answer["decision"]]}
        jsonschema.validate(told, published["transmit"])
    waits = work.ask("standby", message="done with it")
    card = await work.person.card(kind="standby")
    assert card["description"] == "done with it"
    await work.person.do("resume", session=card["session_id"], instruction="now the tests")
    said = await waits()
    assert said == {"status": "resumed", "instruction": "now the tests"}
    jsonschema.validate(said, published["standby"])
    assert await work.call("standby", timeout_seconds=1) == {"status": "timeout", "message": NO_INSTRUCTION}


async def test_what_needs_no_answer_is_answered_at_once(work: AgentAtWork) -> None:
    published = await work.schemas()
    fresh = await work.call("reboot")
    assert fresh == {"status": "clean"}

    pinged = await work.call("ping", status_message="halfway", progress_snapshot=[{"label": "a", "status": "done"}])
    assert pinged["acknowledged"] is True
    # Nulls stand for what is left out.
    assert (await work.call("ping", status_message=None, progress_snapshot=None))["acknowledged"]
    assert pinged["stall_detection_enabled"] is True
    await work.person.notice(text="halfway", session_id=pinged["session_id"])

    told = await work.call("broadcast", message="built", level="success")
    assert told == {"posted": False}
    await work.person.notice(text="built", level="success")

    judged = await work.call("auto_check", tool_name="cargo", context={"args": "test", "operation": "read"})
    assert judged == {"auto_approved": False, "matched_rule": None}

    switched = await work.call("switch_freq", mode="hybrid")
    assert switched == {"previous_mode": "local", "current_mode": "hybrid"}

    again = await work.call("reboot")
    assert again["status"] == "recovered"
    assert again["progress_snapshot"] == [{"label": "a", "status": "done"}]
    for tool, answer in {
        "reboot": fresh,
        "ping": pinged,
        "broadcast": told,
        "auto_check": judged,
        "switch_freq": switched,
    }.items():
        jsonschema.validate(answer, published[tool])
    jsonschema.validate(again, published["reboot"])


async def test_tools_and_resources_are_listed_with_what_they_do_to_the_world(work: AgentAtWork) -> None:
    tools = {tool.name: tool for tool in (await work.agent.list_tools()).tools}
    assert list(tools) == [
        "check_clearance",
        "check_diff",
        "auto_check",
        "transmit",
        "broadcast",
        "reboot",
        "switch_freq",
        "standby",
        "ping",
    ]
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert [name for name, hint in hints.items() if hint.read_only_hint] == ["auto_check"]
    assert [name for name, hint in hints.items() if hint.destructive_hint] == ["check_diff"]
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        # Some clients refuse alternatives at the top of a schema.
        assert not {"anyOf", "oneOf", "allOf"} & set(tool.input_schema)
        assert len(tool.description or "") > 80
    waiting = {"check_clearance", "transmit", "standby"}
    assert all("request_id" in tools[name].input_schema["properties"] for name in waiting)
    assert all("required" not in tools[name].input_schema for name in waiting)

    (template,) = (await work.agent.list_resource_templates()).resource_templates
    assert template.uri_template == "slack://channel/{id}/recent{?limit}"
    assert [str(each.uri) for each in (await work.agent.list_resources()).resources] == [
        "intercom://session/pending",
        "intercom://session/history",
    ]
    with pytest.raises(Exception, match="slack is not set up"):
        await work.agent.read_resource("slack://channel/C0123/recent")
    with pytest.raises(Exception, match="no resource has this uri"):
        await work.agent.read_resource("file:///etc/passwd")


async def test_a_session_reads_its_own_requests_and_nobody_elses(work: AgentAtWork, served: Home) -> None:
    asked = work.ask("transmit", prompt_text="Which colour?", prompt_type="clarification")
    card = await work.person.card(kind="prompt", away=False)
    (waiting,) = await _requests(work.agent, "pending")
    assert waiting["request_id"] == card["request_id"]
    assert (waiting["tool"], waiting["title"]) == ("transmit", "Which colour?")
    async with served.agent(served.workspace()) as other:
        assert await _requests(other, "pending") == await _requests(other, "history") == []
    await work.person.do("answer", id=card["request_id"], decision="refine", text="Blue.")
    await asked()
    await work.call("ping", status_message="read it")
    assert await _requests(work.agent, "pending") == []
    (answered,) = await _requests(work.agent, "history")
    assert (answered["decision"], answered["text"]) == ("refine", "Blue.")


async def _requests(agent: Client, which: str) -> list[dict[str, Any]]:
    (contents,) = (await agent.read_resource(f"intercom://session/{which}")).contents
    assert isinstance(contents, types.TextResourceContents)
    found: list[dict[str, Any]] = json.loads(contents.text)["requests"]
    return found


async def test_prompts_are_listed_and_tell_the_model_which_tool_to_call(work: AgentAtWork) -> None:
    listed = {each.name: each for each in (await work.agent.list_prompts()).prompts}
    assert list(listed) == ["away", "back", "status", "checkpoint", "ask"]
    assert all(each.title and each.description for each in listed.values())
    calls = {"away": "switch_freq", "back": "switch_freq", "checkpoint": "ping", "ask": "transmit"}
    for name, tool in calls.items():
        arguments = {"question": "Which colour?"} if name == "ask" else None
        (message,) = (await work.agent.get_prompt(name, arguments)).messages
        assert tool in getattr(message.content, "text", "")
    with pytest.raises(Exception, match="needs question"):
        await work.agent.get_prompt("ask")
    with pytest.raises(Exception, match="no prompt is called 'nothing'"):
        await work.agent.get_prompt("nothing")


async def test_the_server_each_tool_and_each_prompt_have_an_icon_and_a_title(work: AgentAtWork) -> None:
    about = work.agent.server_info
    assert about is not None
    assert about.title == "Intercom"
    assert work.agent.instructions == INSTRUCTIONS
    tools, prompts = (await work.agent.list_tools()).tools, (await work.agent.list_prompts()).prompts
    assert len({each.title for each in (*tools, *prompts)} - {None, ""}) == len([*tools, *prompts])
    for each in (about, *tools, *prompts):
        (icon,) = each.icons or ()
        ElementTree.fromstring(b64decode(icon.src.removeprefix("data:image/svg+xml;base64,")))


#: A patch of a file that is not there.
GONE = "--- a/gone.txt\n+++ b/gone.txt\n@@ -1 +1 @@\n-a\n+b\n"

# What is asked -> the code of the refusal, and a part of its sentence
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("check_clearance", {}, "invalid_arguments", "title, file_path and one of diff and content"),
    ("check_clearance", {"title": 1, "diff": "x", "file_path": "a"}, "invalid_arguments", "title: must be a string"),
    ("check_clearance", {"titel": "x"}, "invalid_arguments", "did you mean title?"),
    ("check_clearance", {"title": "t", "diff": "x", "file_path": "../a"}, "path_violation", "workspace"),
    ("check_clearance", {"title": "t", "diff": "x", "file_path": "/etc/passwd"}, "path_violation", "workspace"),
    ("check_clearance", {"title": "t", "diff": GONE, "file_path": "gone.txt"}, "patch_conflict", "gone.txt"),
    ("check_clearance", {"title": "t", "diff": GONE, "file_path": "other.txt"}, "diff", "other.txt"),
    ("check_clearance", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    (
        "check_clearance",
        {"title": "t", "diff": "x", "file_path": "a", "risk_level": "huge"},
        "invalid_arguments",
        "low",
    ),
    ("check_diff", {}, "invalid_arguments", "request_id: missing"),
    ("check_diff", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    ("auto_check", {"tool_name": "read", "context": {"file_path": "/etc/shadow"}}, "path_violation", "workspace"),
    ("auto_check", {"context": {}}, "invalid_arguments", "tool_name: missing"),
    ("auto_check", {"tool_name": "x", "context": {"args": [1]}}, "invalid_arguments", "context.args"),
    ("transmit", {}, "invalid_arguments", "prompt_text"),
    ("transmit", {"prompt_text": "x", "elapsed_seconds": -1}, "invalid_arguments", "at least 0"),
    ("transmit", {"prompt_text": "   "}, "invalid_arguments", "prompt_text"),
    ("transmit", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    ("broadcast", {"message": ""}, "invalid_arguments", "must not be empty"),
    ("broadcast", {"message": "x", "level": "loud"}, "invalid_arguments", "info, success, warning, error"),
    ("reboot", {"session_id": "nonsense"}, "not_found", "nonsense"),
    ("switch_freq", {"mode": "sideways"}, "invalid_arguments", "remote, local, hybrid"),
    ("standby", {"timeout_seconds": "soon"}, "invalid_arguments", "a whole number"),
    ("standby", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    ("ping", {"progress_snapshot": [{"label": "a"}]}, "invalid_arguments", "status: missing"),
    ("ping", {"progress_snapshot": "all"}, "invalid_arguments", "must be a list"),
    ("no_such_tool", {}, "unknown_tool", "check_clearance"),
    ("heartbeat", {}, "unknown_tool", "check_clearance"),
]


async def test_what_is_refused_says_so_in_one_shape(work: AgentAtWork) -> None:
    for tool, given, code, part in REFUSED:
        said = await work.call(tool, **given)
        assert set(said) == {"status", "error_code", "error_message"}, (tool, given)
        assert (said["status"], said["error_code"]) == ("error", code), (tool, given, said)
        assert part in said["error_message"], (tool, given)
        assert "Traceback" not in said["error_message"]
    # And none of that did any harm.
    assert (await work.call("ping"))["acknowledged"]


async def test_the_policy_lets_a_change_pass_and_says_by_which_rule(work: AgentAtWork) -> None:
    (work.root / ".intercom").mkdir()
    (work.root / ".intercom/settings.json").write_text(
        '{"enabled": true, "file_patterns": {"write": ["notes/*.md"]}, "log_auto_approved": true,'
        ' "summary_interval_seconds": 0}'
    )
    published = await work.schemas()
    await work.person.do("policy-accept", workspace=str(work.root))
    said = await work.call("check_clearance", title="Note", diff="one\n", file_path="notes/a.md")
    assert said["status"] == "approved"
    assert said["auto_approved"] == "file_pattern:write:notes/*.md"
    jsonschema.validate(said, published["check_clearance"])
    assert (await work.call("check_diff", request_id=said["request_id"]))["status"] == "applied"
    await work.person.notice(text="the policy let pass: Note (file_pattern:write:notes/*.md)")

    judged = await work.call("auto_check", tool_name="write", context={"file_path": "notes/b.md"})
    assert judged == {"auto_approved": True, "matched_rule": "file_pattern:write:notes/*.md"}
    jsonschema.validate(judged, published["auto_check"])


async def test_the_older_names_work_where_the_configuration_says_so() -> None:
    with user_home(TRUSTING + "[mcp]\nlegacy_tool_names = true\n") as home, home.serving():
        async with home.agent(home.workspace()) as agent:
            names = [tool.name for tool in (await agent.list_tools()).tools]
            assert len(names) == 18
            assert "ask_approval" in names
            assert (await call(agent, "heartbeat"))["acknowledged"]
            assert (await call(agent, "recover_state")) == {"status": "clean"}


def test_a_result_may_hold_more_than_its_schema_names() -> None:
    # A validator in a client must not refuse what rides on an answer.
    from intercom.agents import argument_schemas
    from intercom.sessions.tools.tool_table import TOOLS

    for tool in TOOLS:
        schema = argument_schemas.of_answer(tool.result)
        assert {"late_verdicts", "instructions"} <= set(schema["properties"])
        assert schema.get("additionalProperties", True) is True
