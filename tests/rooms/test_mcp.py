"""Rooms over MCP, in both kinds of protocol versions: tools, refusals as results, waits that end with their clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client

from intercom.agents.rooms import mcp
from intercom.agents.rooms.room_call import BASE_BYTES
from intercom.rooms.tools.room_tool_table import TOOLS
from tests.agents.http.rig import BOTH, INITIALIZE, MODERN, read_reply, rpc, until
from tests.agents.http.rig import modern as modern_call
from tests.rooms.http_rig import CREATE, Server, Team, server_with_rooms

pytestmark = pytest.mark.real_time

MODES = ("auto", "legacy")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with server_with_rooms() as made:
        yield made


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The answer of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return content(result)


async def refused(client: Client, tool: str, /, **arguments: Any) -> str:
    """The code of a call that is refused."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    error = content(result)["error"]
    assert error.keys() == {"code", "message", "details"}
    return str(error["code"])


def content(result: types.CallToolResult) -> dict[str, Any]:
    found = result.structured_content
    assert isinstance(found, dict)
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    assert json.loads(block.text) == found
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_a_session_from_its_creation_to_its_conclusion(server: Server, mode: str) -> None:
    async with server.client(mode) as client:
        made = await call(client, "create_session", **CREATE)
        id, alex = made["session_id"], made["team_id"]
        kim = (await call(client, "join_session", session_id=id, team_name="Kim's Team"))["team_id"]
        here = {"session_id": id, "team_id": kim}
        posted = await call(client, "post_message", **here, content="hello", key="one")
        assert await call(client, "post_message", **here, content={"text": "hello"}, key="one") == posted
        heard = await call(client, "wait_for_messages", session_id=id, team_id=alex, since_cursor=0)
        assert [each["from"] for each in heard["messages"]] == ["server", "peer"]
        await call(client, "append_to_session_doc", **here, text="noted")
        done = await call(client, "conclude_session", session_id=id, team_id=alex, summary_section="Done.")
        assert (done["status"], done["doc_version"]) == ("closed", 2)
        assert (await call(client, "wait_for_messages", **here))["session_closed"] is True
        assert (await call(client, "list_sessions"))["sessions"][0]["session_id"] == id


@pytest.mark.parametrize("mode", MODES)
async def test_the_tools_are_those_of_rooms_with_every_field_described(server: Server, mode: str) -> None:
    def described(schema: dict[str, Any], where: str) -> None:
        for name, each in schema.get("properties", {}).items():
            assert each.get("description"), f"{where}.{name}"
            described(each, f"{where}.{name}")
            described(each.get("items", {}), f"{where}.{name}")

    async with server.client(mode) as client:
        found = (await client.list_tools()).tools
        assert [tool.name for tool in found] == [tool.name for tool in TOOLS]
        for tool in found:
            assert tool.description
            assert tool.output_schema is not None
            described(tool.input_schema, tool.name)
            described(tool.output_schema, tool.name)
            needs_token = "team_id" in tool.input_schema.get("required", ())
            assert needs_token == (
                tool.name not in ("create_session", "join_session", "list_sessions", "search_sessions")
            )


@pytest.mark.parametrize("mode", MODES)
async def test_refusals_are_results_of_the_form_that_http_has(server: Server, mode: str) -> None:
    async with server.client(mode) as client:
        made = await call(client, "create_session", **CREATE)
        here = {"session_id": made["session_id"], "team_id": made["team_id"]}
        assert await refused(client, "get_session", session_id=made["session_id"]) == "unauthorized"
        assert await refused(client, "get_session", **here | {"team_id": "x"}) == "unauthorized"
        assert await refused(client, "get_session", **here | {"session_id": "x"}) == "not_found"
        assert await refused(client, "get_session", **here, more=1) == "invalid_arguments"
        assert await refused(client, "no_such_tool") == "invalid_arguments"
        assert await refused(client, "post_message", **here, content="x", type="system") == "invalid_arguments"
        assert await refused(client, "post_message", **here, content={"text": "a\0"}) == "invalid_arguments"
        conflict = await client.call_tool("update_session_doc", {**here, "content": "x", "expected_version": 7})
        assert content(conflict)["error"]["details"]["current_version"] == 0
        assert (await call(client, "get_history", **here, limit=10_000))["messages"] == []
        await call(client, "wait_for_messages", **here, since_cursor=-(10**30), timeout=-(10**400))


@pytest.mark.parametrize("mode", MODES)
async def test_a_wait_reports_progress_and_is_answered_by_the_next_post(
    server: Server, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "PROGRESS_SECONDS", 0.05)
    alex = await server.create()
    told: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        assert message
        told.append(progress)

    async with server.client(mode) as client, trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def wait() -> None:
            given = {"session_id": alex.session_id, "team_id": alex.token, "since_cursor": 0}
            answers.append(await client.call_tool("wait_for_messages", given, progress_callback=report))

        nursery.start_soon(wait)
        await until(lambda: len(told) > 1)
        await alex.say("hello")
        await until(lambda: bool(answers))
        assert content(answers[0])["next_cursor"] == 1
    assert told == sorted(told)


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_frees_its_place_at_once(server: Server, mode: str) -> None:
    alex = await server.create()
    async with server.client(mode) as client, trio.open_nursery() as nursery:
        given = {"session_id": alex.session_id, "team_id": alex.token, "since_cursor": 0}
        nursery.start_soon(client.call_tool, "wait_for_messages", given)
        await until(alex.has_waiters)
        nursery.cancel_scope.cancel()
    with trio.fail_after(120):
        await until(alex.has_none)


@pytest.mark.parametrize("is_modern", [True, False])
@pytest.mark.parametrize("has_progress", [True, False])
async def test_a_dropped_connection_frees_its_place_at_once(
    server: Server, is_modern: bool, has_progress: bool
) -> None:
    alex = await server.create()
    given = {"session_id": alex.session_id, "team_id": alex.token, "since_cursor": 0}
    body, headers = modern_call("wait_for_messages", given)
    if has_progress:
        body["params"]["_meta"]["progressToken"] = 1
    told = {name.replace("-", "_"): value for name, value in headers.items()} | {"Accept": BOTH}
    if not is_modern:
        opened = await server.ask("POST", "/api/mcp", rpc("initialize", INITIALIZE), Accept=BOTH)
        told = {"Accept": BOTH, "Mcp_Session_Id": opened.headers["mcp-session-id"]}
        begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await server.ask("POST", "/api/mcp", begun, **told)).status == 202
        meta = {"progressToken": 1} if has_progress else {}
        body = rpc("tools/call", {"name": "wait_for_messages", "arguments": given, "_meta": meta})
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    await stream.send_all(server.request("POST", "/api/mcp", body, **told))
    await until(alex.has_waiters)
    await trio.aclose_forcefully(stream)
    with trio.fail_after(120):
        await until(alex.has_none)


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_server_that_stops_answers_waiting_calls_first(is_modern: bool) -> None:
    results: list[Any] = []
    async with server_with_rooms() as server:
        alex = await server.create()
        async with server.client("auto" if is_modern else "legacy") as client, trio.open_nursery() as nursery:

            async def wait() -> None:
                given = {"session_id": alex.session_id, "team_id": alex.token, "since_cursor": 0}
                results.append(await client.call_tool("wait_for_messages", given))

            nursery.start_soon(wait)
            await until(alex.has_waiters)
            http = server.app.system.ref("http")
            assert http is not None
            http.stop(block=False)
            await until(lambda: bool(results))
    assert content(results[0])["error"]["code"] == "unavailable"


async def test_what_is_no_request_gets_an_error_in_json_rpc(server: Server) -> None:
    cases: list[tuple[str, Any, dict[str, str | None], int]] = [
        ("PUT", b"", {}, 405),
        ("POST", b"{", {"Accept": BOTH}, 400),
        ("POST", rpc("tools/list"), {"Accept": BOTH}, 400),
        ("POST", rpc("initialize", INITIALIZE), {"Accept": BOTH, "Content_Type": "text/plain"}, 415),
        ("POST", rpc("initialize", INITIALIZE), {"Accept": BOTH, "Mcp_Session_Id": "unknown"}, 404),
        ("POST", rpc("initialize", INITIALIZE), {"Accept": BOTH, "Host": "evil.example"}, 421),
        ("POST", rpc("initialize", INITIALIZE), {"Accept": BOTH, "Origin": "http://evil.example"}, 403),
        ("POST", b"x" * (9 * 2**20), {"Accept": BOTH}, 413),
        ("POST", rpc("initialize", INITIALIZE | {"x": "x" * BASE_BYTES}), {"Accept": BOTH}, 413),
        ("POST", rpc("tools/call", {"name": "ack", "x": "x" * 2 * BASE_BYTES}), {"Accept": BOTH}, 413),
        ("POST", rpc("tools/call", {"name": "update_session_doc", "x": [1] * BASE_BYTES}), {"Accept": BOTH}, 400),
    ]
    for method, body, headers, status in cases:
        reply = await server.ask(method, "/api/mcp", body, **headers)
        assert reply.status == status, (method, headers, reply)
        assert reply.error["message"]
        assert json.loads(reply.body)["jsonrpc"] == "2.0"


async def test_a_call_needs_no_session_before_it_in_the_version_without_sessions(server: Server) -> None:
    body, headers = modern_call("create_session", CREATE)
    told = {name.replace("-", "_"): value for name, value in headers.items()} | {"Accept": BOTH}
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all(server.request("POST", "/api/mcp", body, **told))
        reply = await read_reply(stream)
    assert reply.status == 200
    assert json.loads(reply.body)["result"]["structuredContent"]["session_id"]
    assert headers["mcp-protocol-version"] == MODERN


async def test_a_token_over_mcp_is_the_token_over_http(server: Server) -> None:
    async with server.client() as client:
        made = await call(client, "create_session", **CREATE)
        assert await Team(server, made["session_id"], made["team_id"]).say("over http") == 1
        heard = await call(client, "get_history", session_id=made["session_id"], team_id=made["team_id"])
        assert heard["messages"][0]["content"] == {"text": "over http"}
