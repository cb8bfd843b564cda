"""Rooms over plain HTTP: what curl can do, how bad requests are refused, who may call, and what lost clients leave."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from intercom.agents.http import listener
from intercom.agents.rooms import http as rooms_http
from intercom.agents.rooms import room_call
from intercom.local import peer_processes
from intercom.model.room import RoomErrorCode, RoomRefused
from intercom.rooms.tools.room_tool_table import BY_NAME, OVER_HTTP
from intercom.rooms.tools.tool import DESCRIPTION, DOCUMENT, MESSAGE_TEXT
from intercom.web_server import acceptor
from tests.agents.http.rig import Reply, read_reply, until
from tests.rooms.http_rig import CREATE, SECRET, Server, Team, server_with_rooms

pytestmark = pytest.mark.real_time

EVENTS = "text/event-stream"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with server_with_rooms() as made:
        yield made


@pytest.fixture
async def alex(server: Server) -> Team:
    return await server.create()


# --- what teams do ---------------------------------------------------------------------------------------------------


async def test_two_teams_talk_write_the_document_and_conclude(server: Server, alex: Team) -> None:
    kim = await alex.join()
    assert await kim.say("I take the lexer") == 2
    heard = await alex.get("/messages/wait?since_cursor=0")
    joined, said = heard["messages"]
    assert (joined["event"], joined["team"], joined["from"]) == ("team_joined", "Kim's Team", "server")
    assert (said["content"], said["from"], said["cursor"]) == ({"text": "I take the lexer"}, "peer", 2)
    assert said["posted_by_team_id"] == kim.token.partition(".")[0]
    assert "notice" in heard
    own = (await kim.get("/messages?limit=1"))["messages"][0]
    assert (own["from"], own["posted_by_team_id"]) == ("you", kim.token)
    await kim.post("/doc/append", {"text": "- lexer done", "section": "Notes"})
    doc = await alex.get("/doc")
    await alex.post("/doc", {"content": "# All\n" + doc["content"], "expected_version": doc["version"]})
    late = await server.ask("POST", f"{alex.path}/doc", {"content": "", "expected_version": 1}, alex.token)
    assert (late.status, late.error["code"], late.error["details"]["current_version"]) == (409, "version_conflict", 2)
    await alex.post("/conclude", {"summary_section": "Done."})
    end = await kim.get("/messages/wait?since_cursor=2")
    assert end["session_closed"] is True
    assert (await kim.get("/doc"))["content"].endswith("## Conclusion\n\nDone.\n")
    closed = await server.ask("POST", f"{alex.path}/messages", {"content": "more"}, alex.token)
    assert (closed.status, closed.error["code"]) == (403, "session_closed")
    assert b"## Conclusion" in (await server.ask("GET", f"{alex.path}/export", None, kim.token)).body
    assert (await kim.get("/export?format=json"))["format"] == "intercom-room"


async def test_an_export_of_many_pages_has_each_message_once(server: Server, alex: Team) -> None:
    for number in range(120):
        await alex.say(f"message {number}")
    found = await alex.get("/export?format=json")
    assert [each["cursor"] for each in found["messages"]] == list(range(1, 121))
    text = (await server.ask("GET", f"{alex.path}/export", None, alex.token)).body.decode()
    assert [line for line in text.splitlines() if line.startswith("message ")] == [f"message {n}" for n in range(120)]


async def test_a_wait_is_answered_by_the_next_post_and_by_its_end(server: Server, alex: Team) -> None:
    answers: list[Any] = []

    async def wait(query: str) -> None:
        answers.append(await alex.get(f"/messages/wait?{query}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "since_cursor=0&timeout=30")
        await until(alex.has_waiters)
        await alex.say("hello")
    assert [each["content"] for each in answers.pop()["messages"]] == [{"text": "hello"}]
    await wait("since_cursor=1&timeout=0.2")
    assert answers.pop() == {"messages": [], "next_cursor": 1, "session_closed": False}


async def test_every_route_of_the_table_is_served_with_head_where_get_is(server: Server, alex: Team) -> None:
    for tool in OVER_HTTP:
        path = tool.route.path.replace("{session_id}", alex.session_id)
        found = rooms_http.find(path, tool.route.method)
        assert found == (tool, alex.session_id if "{session_id}" in tool.route.path else None)
    for path in ("", "/participants", "/doc", "/messages", "/messages/wait?since_cursor=0&timeout=0", "/export"):
        get, headed = [await server.ask(method, alex.path + path, None, alex.token) for method in ("GET", "HEAD")]
        assert (headed.status, headed.body) == (200, b"")
        assert headed.headers["content-type"] == get.headers["content-type"]


async def test_a_stream_begins_with_comments_and_ends_with_the_result(
    server: Server, alex: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms_http, "FIRST_COMMENT_SECONDS", 0.05)
    monkeypatch.setattr(rooms_http, "COMMENT_SECONDS", 0.05)
    replies: list[Reply] = []

    async def wait(query: str) -> None:
        path = f"{alex.path}/messages/wait?{query}"
        replies.append(await server.ask("GET", path, None, alex.token, Accept=EVENTS))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "since_cursor=0")
        await trio.sleep(0.3)
        await alex.say("hello")
    reply = replies.pop()
    assert (reply.status, reply.headers["content-type"]) == (200, EVENTS)
    assert reply.body.count(b": waiting\n\n") > 1
    assert b"event: result\ndata: {" in reply.body
    assert json.loads(reply.body.partition(b"data: ")[2].partition(b"\n")[0])["next_cursor"] == 1
    refused = await server.ask("GET", f"{alex.path}/messages/wait", None, "nobody", Accept=EVENTS)
    assert (refused.status, refused.error["code"]) == (401, "unauthorized")


async def test_arguments_are_clamped_and_never_out_of_range(server: Server, alex: Team) -> None:
    for number in range(3):
        await alex.say(f"{number}")
    huge = "9" * 400
    for query, cursors in (
        ("limit=501", [1, 2, 3]),
        ("limit=0", [3]),
        (f"limit=-{huge}", [3]),
        (f"before_cursor={huge}&limit=2", [2, 3]),
        ("before_cursor=-4", []),
        ("before_cursor=&limit=", [1, 2, 3]),
    ):
        assert [each["cursor"] for each in (await alex.get(f"/messages?{query}"))["messages"]] == cursors, query
    for query in (f"since_cursor=0&timeout={huge}", "since_cursor=-5&timeout=-1", "since_cursor=2&timeout=1e30"):
        assert (await alex.get(f"/messages/wait?{query}"))["messages"], query


# --- requests that are refused ---------------------------------------------------------------------------------------


async def test_bad_requests_get_an_error_of_the_documented_form(server: Server, alex: Team) -> None:
    doc, messages, wait = f"{alex.path}/doc", f"{alex.path}/messages", f"{alex.path}/messages/wait"
    cases: list[tuple[str, str, Any, int, str, str]] = [
        ("POST", "/api/sessions", {"title": "x"}, 400, "invalid_arguments", "missing"),
        ("POST", "/api/sessions", CREATE | {"titel": "x"}, 400, "invalid_arguments", "did you mean title"),
        ("POST", "/api/sessions", CREATE | {"title": 5}, 400, "invalid_arguments", "title: must be a string"),
        ("POST", "/api/sessions", CREATE | {"title": ""}, 400, "invalid_arguments", "must not be empty"),
        ("POST", "/api/sessions", CREATE | {"title": "x" * 201}, 400, "invalid_arguments", "at most 200"),
        ("POST", "/api/sessions?title=x", CREATE, 400, "invalid_arguments", "in the body"),
        ("POST", "/api/sessions", b"{", 400, "invalid_arguments", "no JSON object"),
        ("POST", "/api/sessions", b"[]", 400, "invalid_arguments", "must be a JSON object"),
        ("POST", "/api/sessions", b"[" * 60_000, 400, "invalid_arguments", "no JSON object"),
        ("POST", "/api/sessions", b"[" * 100_000, 400, "invalid_arguments", "too many values"),
        ("POST", "/api/sessions", b'{"title": "\xff"}', 400, "invalid_arguments", "no JSON object"),
        ("POST", "/api/sessions", b'{"title": NaN}', 400, "invalid_arguments", "NaN"),
        ("POST", "/api/sessions", b'{"\\ud800": 1}', 400, "invalid_arguments", "no such argument"),
        ("POST", messages, {"content": "x", "type": "system"}, 400, "invalid_arguments", "must be one of chat"),
        ("POST", messages, {"content": {"txt": "x"}}, 400, "invalid_arguments", "did you mean text"),
        ("POST", messages, {"content": 5}, 400, "invalid_arguments", "an object or a string"),
        ("POST", messages, {"content": {"text": None}}, 400, "invalid_arguments", "content.text: missing"),
        ("POST", messages, {"content": "x", "session_id": "y"}, 400, "invalid_arguments", "in the path"),
        ("POST", messages, {"content": "x", "team_id": "y"}, 400, "invalid_arguments", "twice"),
        ("POST", doc, {"content": "x", "expected_version": "1"}, 400, "invalid_arguments", "a whole number"),
        ("GET", f"{messages}?limit=many", None, 400, "invalid_arguments", "a whole number"),
        ("GET", f"{messages}?limit=1&limit=2", None, 400, "invalid_arguments", "given twice"),
        ("GET", f"{messages}?team_id=x", None, 400, "invalid_arguments", "X-Team-ID"),
        ("GET", f"{messages}?%ff=1", None, 400, "invalid_arguments", "percent-encoded"),
        ("GET", f"{wait}?timeout=nan", None, 400, "invalid_arguments", "timeout: must be a number"),
        ("GET", f"{wait}?timeout=1&since=2", None, 400, "invalid_arguments", "since_cursor"),
        ("GET", f"{doc}?history=maybe", None, 400, "invalid_arguments", "true or false"),
        ("GET", "/api/sessions/nothing/doc", None, 404, "not_found", "list_sessions"),
        ("GET", "/api/sessions//doc", None, 404, "not_found", "/agents.md"),
        ("GET", f"{alex.path}/nothing", None, 404, "not_found", "/agents.md"),
        ("GET", "/api", None, 404, "not_found", "/agents.md"),
        ("DELETE", doc, None, 405, "method_not_allowed", "GET and HEAD and POST"),
        ("OPTIONS", "/api/sessions", None, 405, "method_not_allowed", "GET and HEAD and POST"),
        ("POST", "/agents.md", None, 405, "method_not_allowed", "GET and HEAD"),
    ]
    for method, path, body, status, code, said in cases:
        reply = await server.ask(method, path, body, alex.token)
        assert (reply.status, reply.error["code"]) == (status, code), (method, path, body, reply)
        assert said in reply.error["message"], reply
        assert reply.error["details"].keys() <= {"tool"}
        assert ("allow" in reply.headers) == (status == 405)
    form = await server.ask("POST", "/api/sessions", b"title=x", Content_Type="application/x-www-form-urlencoded")
    assert (form.status, form.error["code"]) == (415, "unsupported_media_type")
    assert await alex.get() == await alex.get() | {"title": CREATE["title"]}


async def test_a_request_that_is_too_large_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    large = CREATE | {"description": "x" * (rooms_http.MOST_BYTES + 1)}
    reply = await server.ask("POST", "/api/sessions", large)
    assert (reply.status, reply.error["code"]) == (413, "request_too_large")


async def test_each_tool_takes_requests_as_large_as_its_texts_may_be(server: Server, alex: Team) -> None:
    for below, tool in (("/join", "join_session"), ("/ack", "ack"), ("/messages", "post_message")):
        most = room_call.most_bytes(BY_NAME[tool])
        for size, status in ((most, 400), (most + 1, 413)):
            reply = await server.ask("POST", alex.path + below, b"{}" + b" " * (size - 2), alex.token)
            assert reply.status == status, (tool, size, reply)
        assert reply.error["message"] == f"a request of {tool} has at most {most} bytes: send less at once"
    sizes = {tool.name: room_call.most_bytes(tool) for tool in OVER_HTTP}
    assert {name for name, size in sizes.items() if size > rooms_http.MOST_BYTES // 2} == {
        "update_session_doc",
        "conclude_session",
    }
    assert sizes["join_session"] < 80_000
    assert sizes["post_message"] < 512 * 2**10


async def test_the_longest_texts_can_be_sent_in_escapes(server: Server, alex: Team) -> None:
    described = CREATE | {"description": "\N{PARTY POPPER}" * DESCRIPTION}
    assert len(json.dumps(described)) > 12 * DESCRIPTION
    assert (await server.good("POST", "/api/sessions", described))["description"] == described["description"]
    assert await alex.say("\x01" * MESSAGE_TEXT) == 1
    document = {"content": "\x01" * DOCUMENT, "expected_version": 0}
    assert (await alex.post("/doc", document))["version"] == 1


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({f"k{number}": 1 for number in range(20_000)}),
        '{"content": [' + "[]," * 50_000 + "1]}",
        '{"content": ["' + '","' * 50_000 + '"]}',
        '{"content": "' + '\\"' * 50_000 + '", "a": [' + "1," * 50_000 + "1]}",
    ],
)
async def test_a_large_request_of_many_values_is_refused_before_it_is_decoded(
    server: Server, alex: Team, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    json.loads(body)
    monkeypatch.setattr(rooms_http, "_decode", lambda _text: pytest.fail("it was decoded"))
    reply = await server.ask("POST", f"{alex.path}/doc", body.encode(), alex.token)
    assert (reply.status, reply.error["code"]) == (400, "invalid_arguments")
    assert "too many values" in reply.error["message"]


async def test_hostile_arguments_are_refused_with_a_sentence(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    cases = (
        (b"{" + b",".join(b'"k%d":1' % number for number in range(5000)) + b"}", "k0: no such argument"),
        (b'{"title":[' + b"1," * 30_000 + b"1]}", "title: must be a string"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "a: no such argument"),
    )
    for body, said in cases:
        reply = await server.ask("POST", "/api/sessions", body)
        assert (reply.status, reply.error["code"]) == (400, "invalid_arguments")
        assert said in reply.error["message"]
        assert len(reply.error["message"]) < 1000
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_text_that_cannot_be_stored_is_refused_and_its_argument_named(server: Server, alex: Team) -> None:
    messages, doc, kept = f"{alex.path}/messages", f"{alex.path}/doc", "a character that cannot be stored"
    cases: list[tuple[str, str, Any, str]] = [
        ("POST", "/api/sessions", CREATE | {"title": "\ud800"}, f"title: text has {kept} (U+D800): leave it out"),
        (
            "POST",
            "/api/sessions",
            CREATE | {"creator_team_name": "a\0"},
            f"creator_team_name: text has {kept} (U+0000)",
        ),
        ("POST", "/api/sessions", CREATE | {"passcode": "\udfff"}, f"passcode: text has {kept} (U+DFFF)"),
        ("POST", messages, {"content": {"text": "a\udc00"}}, f"content.text: text has {kept} (U+DC00)"),
        ("POST", messages, {"content": "\0"}, f"content: text has {kept} (U+0000)"),
        ("POST", messages, {"content": "x", "key": "\ud800"}, f"key: text has {kept}"),
        ("POST", messages, {"content": {"text": "x", "\ud800": "x"}}, "no such argument"),
        ("POST", doc, {"content": "\0", "expected_version": 0}, f"content: text has {kept}"),
        ("POST", f"{alex.path}/join", {"team_name": "\ud800"}, f"team_name: text has {kept}"),
        ("POST", "/api/sessions/x/join", {"team_name": "a", "team_id": "\0"}, f"team_id: text has {kept}"),
        ("GET", "/api/sessions/search?query=a%00b", None, f"query: text has {kept}"),
        ("GET", "/api/sessions/a%00b/doc", None, f"session_id: text has {kept}"),
    ]
    for method, path, body, said in cases:
        token = None if path.startswith("/api/sessions/x") else alex.token
        reply = await server.ask(method, path, body, token)
        assert (reply.status, reply.error["code"]) == (400, "invalid_arguments"), (path, body, reply)
        assert said in reply.error["message"], reply


async def test_a_null_is_an_absent_argument_and_an_empty_body_an_empty_object(server: Server, alex: Team) -> None:
    assert (await server.good("POST", "/api/sessions", CREATE | {"passcode": None}))["session_id"]
    assert (await server.good("POST", f"{alex.path}/leave", b"", alex.token))["team_name"] == "Alex's Team"


async def test_without_a_token_of_the_session_nothing_can_be_read_or_written(server: Server, alex: Team) -> None:
    other = await server.create()
    for tool in OVER_HTTP:
        if not tool.needs_token:
            continue
        path = tool.route.path.replace("{session_id}", alex.session_id)
        path += "?evidence_id=x" if tool.name == "read_evidence" else ""
        for token in (None, "", "nonsense", other.token, alex.token + "x"):
            body = {"content": "x", "expected_version": 0, "text": "x", "cursor": 1, "reason": "x"}
            fitting = {name: value for name, value in body.items() if name in tool.takes.__annotations__}
            given = None if tool.route.method == "GET" else fitting | {"summary_section": "x"}
            if tool.name != "conclude_session" and given:
                given.pop("summary_section", None)
            reply = await server.ask(tool.route.method, path, given, token)
            assert (reply.status, reply.error["code"]) == (401, "unauthorized"), (tool.name, token)
            assert "www-authenticate" in reply.headers
    assert (await alex.get())["status"] == "active"


async def test_a_token_in_the_body_is_as_good_as_the_header(server: Server, alex: Team) -> None:
    body = {"team_id": alex.token, "session_id": alex.session_id, "content": "hello"}
    assert (await server.good("POST", f"{alex.path}/messages", body))["cursor"] == 1
    again = await server.good("POST", f"{alex.path}/join", {"team_name": "x"}, alex.token)
    assert (again["resumed"], again["team_id"]) == (True, alex.token)


async def test_what_the_service_cannot_do_now_is_said_without_its_reasons(
    server: Server, alex: Team, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cases: list[tuple[Exception, int, str]] = [
        (ZeroDivisionError("secret reasons"), 500, "internal"),
        (trio.TooSlowError(), 503, "unavailable"),
        (RoomRefused(RoomErrorCode.RATE_LIMITED, "too often", retry_after=6.2), 429, "rate_limited"),
        (RoomRefused(RoomErrorCode.FORBIDDEN, "half a \ud800 pair"), 403, "forbidden"),
    ]
    for failure, status, code in cases:

        async def fail(*_args: object, failure: Exception = failure) -> None:
            raise failure

        monkeypatch.setattr(type(server.service), "call", fail)
        for path in ("/doc", "/messages/wait"):
            reply = await server.ask("GET", alex.path + path, None, alex.token)
            assert (reply.status, reply.error["code"]) == (status, code)
            assert b"secret reasons" not in reply.body
            assert reply.headers.get("retry-after") == {503: "1", 429: "7"}.get(status)
    assert [record.exc_info is not None for record in caplog.records if "failed" in record.getMessage()] == [True] * 2


# --- clients that go, and servers that stop --------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", EVENTS])
@pytest.mark.parametrize("is_abrupt", [True, False])
async def test_a_client_that_goes_frees_its_place_at_once(
    server: Server, alex: Team, accept: str, is_abrupt: bool
) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    path = f"{alex.path}/messages/wait?since_cursor=0&timeout=50"
    await stream.send_all(server.request("GET", path, None, alex.token, Accept=accept))
    await until(alex.has_waiters)
    if is_abrupt:
        await trio.aclose_forcefully(stream)
    else:
        await stream.send_eof()
    with trio.fail_after(120):
        await until(alex.has_none)
    await trio.aclose_forcefully(stream)


async def test_a_server_that_stops_answers_waiting_calls_first(alex: Team, server: Server) -> None:
    replies: list[Reply] = []

    async def wait(**headers: str) -> None:
        path = f"{alex.path}/messages/wait?since_cursor=0&timeout=50"
        replies.append(await server.ask("GET", path, None, alex.token, **headers))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(lambda: wait(Accept=EVENTS))
        await until(alex.has_waiters)
        await trio.sleep(rooms_http.FIRST_COMMENT_SECONDS + 0.3)
        http = server.app.system.ref("http")
        assert http is not None
        http.stop(block=False)
    plain, stream = sorted(replies, key=lambda reply: -reply.status)
    assert (plain.status, plain.error["code"], plain.headers["retry-after"]) == (503, "unavailable", "1")
    assert b"event: error\ndata: {" in stream.body


async def test_one_connection_carries_many_calls(server: Server, alex: Team) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        for number in range(1, 4):
            await stream.send_all(server.request("POST", f"{alex.path}/messages", {"content": "x"}, alex.token))
            assert json.loads((await read_reply(stream)).body)["cursor"] == number
            wait = f"{alex.path}/messages/wait?since_cursor={number - 1}"
            await stream.send_all(server.request("GET", wait, None, alex.token))
            assert json.loads((await read_reply(stream)).body)["next_cursor"] == number


# --- who may call ----------------------------------------------------------------------------------------------------


async def test_a_host_must_be_this_server_and_a_page_its_own_or_allowed() -> None:
    config = {"http_allowed_hosts": ("rooms.lan", "other.lan:81"), "http_allowed_origins": ("https://web.example",)}
    async with server_with_rooms(config=config, public_url="https://rooms.example.org") as server:
        cases: list[tuple[dict[str, str | None], int]] = [
            ({}, 200),
            ({"Host": "localhost"}, 200),
            ({"Host": "LOCALHOST:99"}, 200),
            ({"Host": "192.168.1.7:7423"}, 200),
            ({"Host": "[fe80::1]:7423"}, 200),
            ({"Host": "rooms.lan:8080"}, 200),
            ({"Host": "other.lan:81"}, 200),
            ({"Host": "other.lan"}, 421),
            ({"Host": "rooms.example.org"}, 200),
            ({"Host": "evil.example"}, 421),
            ({"Host": "localhost.evil.example"}, 421),
            ({"Host": "192.168.1.7.evil.example"}, 421),
            ({"Host": "localhost:x"}, 421),
            ({"Host": "localhost:"}, 200),
            ({"Host": "localhost."}, 200),
            ({"Host": "localhost.:7423"}, 200),
            ({"Host": "rooms.lan.:8080"}, 200),
            ({"Host": "localhost.."}, 421),
            ({"Host": "localhost:65535"}, 200),
            ({"Host": "localhost:65536"}, 421),
            ({"Host": "localhost:99999999"}, 421),
            ({"Host": "127.0.0.1]"}, 421),
            ({"Host": "[127.0.0.1]"}, 421),
            ({"Host": "[localhost]"}, 421),
            ({"Host": "[::1%25lo]"}, 421),
            ({"Host": "[::1%lo]"}, 421),
            ({"Host": "[::1]x"}, 421),
            ({"Host": "[[::1]]"}, 421),
            ({"Host": "[::1]:"}, 200),
            ({"Host": "::1"}, 421),
            ({"Host": "[::1"}, 421),
            ({"Host": ""}, 421),
            ({"Origin": server.base}, 200),
            ({"Host": "192.168.1.7:7423", "Origin": "http://192.168.1.7:7423"}, 200),
            ({"Host": "192.168.1.7:7423", "Origin": "http://192.168.1.8:7423"}, 403),
            ({"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
            ({"Origin": "https://rooms.example.org"}, 200),
            ({"Origin": "https://web.example"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
        ]
        for headers, status in cases:
            for path in ("/api/sessions", "/agents.md"):
                reply = await server.ask("GET", path, **headers)
                assert reply.status == status, headers
                if status != 200:
                    assert reply.error["code"] == {421: "host_refused", 403: "origin_refused"}[status]
        # People change the public URL while the server runs.
        await server.service.people.set_address("https://moved.example.org", by="ann")
        assert (await server.ask("GET", "/api/sessions", Host="moved.example.org")).status == 200
        assert b"https://moved.example.org/api/mcp" in (await server.ask("GET", "/agents.md")).body


async def test_the_token_of_the_server_is_not_needed_and_a_secret_is() -> None:
    async with server_with_rooms() as server:
        assert (await server.ask("GET", "/api/sessions")).status == 200
        assert (await server.ask("POST", "/mcp", {})).status == 401
    async with server_with_rooms(secret=SECRET) as server:
        for shown in (None, "Bearer wrong", f"Basic {SECRET}", f"Bearer {SECRET}x"):
            for path in ("/api/sessions", "/api/openapi.json", "/api/mcp-config", "/api/nothing"):
                reply = await server.ask("GET", path, Authorization=shown)
                assert (reply.status, reply.error["code"]) == (401, "unauthorized")
                assert reply.headers["www-authenticate"].startswith("Bearer")
            assert (await server.ask("POST", "/api/mcp", {}, Authorization=shown)).status == 401
        assert (await server.ask("GET", "/api/sessions", Authorization=f"bearer {SECRET}")).status == 200
        instructions = (await server.ask("GET", "/agents.md")).body
        assert b"$INTERCOM_ROOMS_SECRET" in instructions
        assert SECRET.encode() not in instructions


@pytest.mark.parametrize("only_rooms", [False, True])
async def test_other_machines_reach_the_rooms_only(monkeypatch: pytest.MonkeyPatch, only_rooms: bool) -> None:
    async with server_with_rooms(only_rooms=only_rooms) as server:
        http = server.app.http
        assert http is not None
        token: dict[str, str | None] = {"Authorization": f"Bearer {http.token}"}
        if not only_rooms:
            assert (await server.ask("GET", "/metrics", **token)).status == 200
            monkeypatch.setattr(peer_processes, "is_local", lambda _peer, _here: False)
        for path in ("/mcp", "/sse", "/message", "/metrics", "/nothing"):
            assert (await server.ask("GET", path, **token)).status == 404, path
        assert (await server.ask("GET", "/api/sessions")).status == 200
        assert (await server.ask("GET", "/healthz", Host="192.168.1.7:7423")).status == 200


async def test_a_person_with_curl_does_not_become_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    async def look(_records: object, connection: Any) -> None:
        looked.append(connection.number)
        connection.processes = frozenset()

    monkeypatch.setattr(listener.ClientRecords, "look", look)
    async with server_with_rooms() as server:
        await server.create()
        assert (await server.ask("GET", "/agents.md")).status == 200
        assert not looked
        async with server.client() as client:
            await client.list_tools()
        assert looked


async def test_calls_of_rooms_are_not_limited_like_clients_without_a_token(
    server: Server, alex: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MOST_UNAUTHENTICATED", 3)
    monkeypatch.setattr(acceptor, "MOST_NEW_UNAUTHENTICATED", 3)
    replies: list[Reply] = []

    async def wait() -> None:
        path = f"{alex.path}/messages/wait?since_cursor=0&timeout=50"
        replies.append(await server.ask("GET", path, None, alex.token))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(wait)
            await until(alex.has_waiters)
            await trio.sleep(0.05)
        await alex.say("hello")
    assert [reply.status for reply in replies] == [200] * 8


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_the_instructions_name_the_public_url_and_every_tool(server: Server) -> None:
    shown = await server.ask("GET", "/agents.md")
    assert shown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert len(shown.body) < 8192
    text = shown.body.decode()
    assert f"{server.base}/api/mcp" in text
    for tool in OVER_HTTP[:-1]:
        assert f"`{tool.name}`" in text
    # Without a public URL, the address is the one that the client has used.
    elsewhere = await server.ask("GET", "/api/mcp-config", Host="192.168.1.7:7423")
    assert json.loads(elsewhere.body)["mcp_url"] == "http://192.168.1.7:7423/api/mcp"


def test_a_long_message_of_an_error_is_cut_in_the_middle() -> None:
    found: Any = room_call.error_json("internal", "x" * 10_000, {"a": 1})
    assert len(found["error"]["message"]) < room_call.LONGEST_MESSAGE + 20
    assert found["error"]["details"] == {"a": 1}


def test_an_answer_that_could_not_be_sent_is_noticed() -> None:
    encode: Callable[[Any], str] = room_call.to_text
    with pytest.raises(TypeError):
        encode({"x": object()})
