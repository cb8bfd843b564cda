"""HTTP carriers against servers that misbehave, and against the SDK's own, over real sockets."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as t
import pytest
import trio
import trio.testing
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from intercom.gateway import http_carrier
from intercom.gateway.breaker import Failure
from intercom.gateway.carrier import CarrierLost, Incoming, Received, RequestFailed
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.http_carrier import HttpCarrier, open_http
from intercom.gateway.http_exchange import ExchangeFailed, NoToken
from intercom.gateway.http_messages import Answer, judge, mirrored_headers
from tests.gateway.http_servers import Request, Scripted, asgi_server, scripted

pytestmark = pytest.mark.real_time

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


def config(url: str, transport: Transport = Transport.HTTP, **values: Any) -> DownstreamConfig:
    return DownstreamConfig("far", transport, ("far.*",), "1.0.0", base_url=url, **values)


def request(id: int, method: str = "tools/list", *, modern: bool = False, **params: Any) -> dict[str, Any]:
    if modern:
        params["_meta"] = ENVELOPE
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


INITIALIZE = request(
    0, "initialize", protocolVersion=LEGACY, capabilities={"sampling": {}}, clientInfo={"name": "test", "version": "1"}
)


def message(incoming: Incoming) -> Any:
    if isinstance(incoming, Received):
        incoming = incoming.data
    assert isinstance(incoming, bytes), incoming
    return json.loads(incoming)


async def answer(carrier: HttpCarrier, sent: dict[str, Any]) -> Any:
    """Send a request and return what comes next, which must belong to it."""
    await carrier.send(sent)
    found = await carrier.receive()
    if isinstance(found, Received):
        assert found.request == sent["id"]
    return found if isinstance(found, RequestFailed) else message(found)


async def shake_hands(carrier: HttpCarrier) -> None:
    assert "result" in await answer(carrier, INITIALIZE)
    carrier.negotiated(LEGACY)
    await carrier.send(notification("notifications/initialized"))


async def lost(carrier: HttpCarrier) -> str:
    """Return why the carrier is lost; what else comes is passed over."""
    while True:
        try:
            await carrier.receive()
        except CarrierLost as error:
            return error.reason


@asynccontextmanager
async def carrier_to(handler: Any, **values: Any) -> AsyncIterator[tuple[HttpCarrier, Scripted]]:
    async with scripted(handler) as server, open_http(config(server.url, **values)) as carrier:
        yield carrier, server


class Session:
    """Handles the handshake of a server that has sessions, and leaves the rest to `rest`."""

    def __init__(self, rest: Any, *, stream: Any = None) -> None:
        self.rest = rest
        self.stream = stream

    async def __call__(self, request: Request) -> object:
        method = request.json.get("method") if request.method == "POST" else request.method
        if method == "GET" and self.stream is not None:
            return await self.stream(request)
        if method == "initialize":
            await request.result(mcp_session_id="s-1")
        elif method in ("GET", "DELETE", "notifications/initialized"):
            await request.respond({"GET": 405, "DELETE": 200}.get(method, 202))
        else:
            return await self.rest(request)
        return None


# --- one POST


async def test_the_answer_comes_with_the_request_it_belongs_to() -> None:
    async def handler(request: Request) -> None:
        await request.result({"tools": []})

    async with carrier_to(handler) as (carrier, server):
        await carrier.send(request(7))
        assert await carrier.receive() == Received(b'{"jsonrpc": "2.0", "id": 7, "result": {"tools": []}}', 7)
        assert server.requests[0].headers["accept"] == "application/json, text/event-stream"
        assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_messages_of_a_stream_come_in_order_before_the_answer() -> None:
    async def handler(request: Request) -> bool:
        await request.begin_events()
        for number in range(50):
            await request.event(notification("notifications/progress", progress=number))
        await request.event({"jsonrpc": "2.0", "id": 1, "result": {}})
        await request.event(notification("too late"))
        return False

    async with carrier_to(handler) as (carrier, _):
        await carrier.send(request(1))
        found = [message(await carrier.receive()) for _ in range(51)]
        assert [each["params"]["progress"] for each in found[:50]] == list(range(50))
        assert found[50]["result"] == {}


async def test_a_broken_post_fails_only_its_request() -> None:
    slow = trio.Event()

    async def handler(request: Request) -> bool | None:
        if request.id == 1:
            await slow.wait()
            await request.result({"late": True})
            return None
        await request.stream.send_all(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{")
        return False

    async with carrier_to(handler) as (carrier, _):
        await carrier.send(request(1))
        failed = await answer(carrier, request(2))
        assert (failed.id, failed.failure, failed.was_sent) == (2, Failure.TRANSPORT, True)
        slow.set()
        assert message(await carrier.receive())["result"] == {"late": True}


async def test_a_server_that_is_gone_got_nothing() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with open_http(config(f"http://127.0.0.1:{unused.getsockname()[1]}/mcp")) as carrier:
            failed = await answer(carrier, request(1))
            assert failed == RequestFailed(1, Failure.TRANSPORT, "nothing listens at the address", was_sent=False)


@pytest.mark.parametrize(
    ("status", "was_sent", "part"),
    [
        (401, False, "needs sign-in"),
        (403, True, "denies access"),
        (404, False, "correct baseURL"),
        (429, False, "limits requests"),
        (500, True, "HTTP 500"),
        (202, True, "without an answer"),
        (302, False, "redirects"),
    ],
)
async def test_a_status_says_what_to_do(status: int, was_sent: bool, part: str) -> None:
    async def handler(request: Request) -> None:
        await request.respond(status, b"secret", location="http://secret.example/")

    async with carrier_to(handler) as (carrier, _):
        failed = await answer(carrier, request(1))
        assert part in failed.reason
        assert "secret" not in failed.reason
        assert failed.was_sent is was_sent
        if status != 202:
            assert carrier.detail().http_status == status


@pytest.mark.parametrize("id", [None, "server-error", 1])
async def test_an_error_in_the_body_of_a_failure_is_the_answer(id: object) -> None:
    async def handler(request: Request) -> None:
        error = {"code": -32601, "message": "no such method", "data": {"x": 1}}
        await request.json_response({"jsonrpc": "2.0", "id": id, "error": error}, status=404)

    async with carrier_to(handler) as (carrier, _):
        found = await answer(carrier, request(1))
        assert found == {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": -32601, "message": "no such method", "data": {"x": 1}},
        }


@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"method":"x"',
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n\xff\xfe\xfd",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {}\n\n",
        b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {"id":1,"result":{}}',
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 300_000 + b"\r\n\r\n",
        b"HTTP/1.1 307 X\r\nlocation: http://[::1\r\ncontent-length: 0\r\n\r\n",
        b"",
    ],
)
async def test_what_is_no_answer_fails_the_request_and_nothing_else(body: bytes) -> None:
    async def handler(request: Request) -> bool | None:
        if request.id == 2:
            await request.result({"fine": True})
            return None
        await request.stream.send_all(body)
        return False

    async with carrier_to(handler) as (carrier, _):
        await carrier.send(request(1))
        while not isinstance(found := await carrier.receive(), RequestFailed):
            pass  # junk is handed on, and counted by its reader
        assert found.id == 1
        assert (await answer(carrier, request(2)))["result"] == {"fine": True}


async def test_an_answer_to_another_request_is_not_delivered() -> None:
    async def handler(request: Request) -> None:
        await request.json_response({"jsonrpc": "2.0", "id": 99, "result": {}})

    async with carrier_to(handler) as (carrier, _):
        failed = await answer(carrier, request(1))
        assert failed == RequestFailed(1, Failure.PROTOCOL, "the server answered with the id of another request")


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_endless_response_fails_its_request(kind: str) -> None:
    async def handler(request: Request) -> bool:
        await request.stream.send_all(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\ndata: ".encode())
        while True:
            await request.stream.send_all(b"a" * 65_536)

    async with scripted(handler) as server, open_http(config(server.url), longest=1_000_000) as carrier:
        failed = await answer(carrier, request(1))
        assert failed == RequestFailed(1, Failure.PROTOCOL, "the server sent more than 1000000 bytes at once")


async def test_a_large_answer_arrives_and_the_end_of_its_guess_too() -> None:
    async def handler(request: Request) -> None:
        await request.result({"text": "x" * 5_000_000})

    async with carrier_to(handler) as (carrier, _):
        assert len((await answer(carrier, request(1)))["result"]["text"]) == 5_000_000
        # Too long to be decoded twice: in case it was none, the request ends anyway.
        assert isinstance(await carrier.receive(), RequestFailed)


async def test_a_compressed_response_is_refused() -> None:
    async def handler(request: Request) -> None:
        await request.respond(200, gzip.compress(b"a" * 1_000_000), content_encoding="gzip")

    async with carrier_to(handler) as (carrier, _):
        assert "compressed" in (await answer(carrier, request(1))).reason


async def test_a_stream_that_stays_open_after_the_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_carrier, "GRACE_SECONDS", 0.0)
    closed = trio.Event()

    async def handler(request: Request) -> bool:
        await request.begin_events()
        await request.event({"jsonrpc": "2.0", "id": "1", "result": {}})
        await request.wait_closed()
        closed.set()
        return False

    async with carrier_to(handler) as (carrier, _):
        assert (await answer(carrier, request(1)))["id"] == "1"
        await closed.wait()


async def test_a_flood_waits_for_its_reader() -> None:
    sent = 0

    async def handler(request: Request) -> bool:
        nonlocal sent
        await request.begin_events()
        while True:
            await request.event("x" * 10_000)
            sent += 10_000

    async with carrier_to(handler) as (carrier, _):
        await carrier.send(request(1))
        await trio.testing.wait_all_tasks_blocked(0.05)
        before = sent
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert sent == before < 50_000_000  # what the kernel buffers
        for _ in range(100):
            await carrier.receive()


async def test_a_message_that_is_no_json_is_refused() -> None:
    async with carrier_to(None) as (carrier, server):
        for bad in (float("nan"), object()):
            with pytest.raises(ValueError, match="JSON"):
                await carrier.send(request(1, x=bad))
        assert server.requests == []


async def test_half_a_surrogate_pair_passes() -> None:
    async def handler(request: Request) -> None:
        await request.result(request.json["params"])

    async with carrier_to(handler) as (carrier, _):
        assert (await answer(carrier, request(1, x="\ud800")))["result"] == {"x": "\ud800"}


# --- headers and hosts


async def test_own_headers_are_sent_below_those_of_the_protocol() -> None:
    async def handler(request: Request) -> None:
        await request.result()

    headers = {"Authorization": "Bearer mine", "Mcp-Method": "wrong", "User-Agent": "me"}
    async with carrier_to(handler, headers=headers) as (carrier, server):
        await answer(carrier, request(1, "tools/call", modern=True, name="é"))
        sent = server.requests[0].headers
        assert sent["authorization"] == "Bearer mine"
        assert sent["mcp-method"] == "tools/call"
        assert sent["user-agent"] == "me"
        assert sent["mcp-name"] == "=?base64?w6k=?="
        assert sent["mcp-protocol-version"] == MODERN


async def test_a_redirect_within_the_origin_is_followed_with_the_body() -> None:
    async def handler(request: Request) -> None:
        if request.path == "/mcp":
            await request.respond(307, location="/mcp/")
        else:
            await request.result()

    async with carrier_to(handler, headers={"x-key": "k"}) as (carrier, server):
        assert "result" in await answer(carrier, request(1))
        assert [(each.path, each.headers["x-key"]) for each in server.requests] == [("/mcp", "k"), ("/mcp/", "k")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_is_not_followed(status: int) -> None:
    async with scripted(None) as other:  # type: ignore[arg-type]

        async def handler(request: Request) -> None:
            await request.respond(status, location=other.url)

        async with carrier_to(handler) as (carrier, server):
            failed = await answer(carrier, request(1))
            assert "redirects to another address" in failed.reason
            assert failed.was_sent is False
            assert (len(server.requests), other.requests) == (1, [])


async def test_a_circle_of_redirects_ends() -> None:
    async def handler(request: Request) -> None:
        await request.respond(307, location="/mcp")

    async with carrier_to(handler) as (carrier, server):
        assert "redirects" in (await answer(carrier, request(1))).reason
        assert len(server.requests) == 4


async def test_the_environment_chooses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Request) -> None:
        await request.result()

    async with scripted(None) as proxy:  # type: ignore[arg-type]
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with carrier_to(handler) as (carrier, _):
            assert "result" in await answer(carrier, request(1))
        assert proxy.requests == []


async def test_cookies_keep_a_session_on_its_server() -> None:
    async def handler(request: Request) -> None:
        await request.result(set_cookie="node=a; Path=/")

    async with carrier_to(handler) as (carrier, server):
        await answer(carrier, request(1))
        await answer(carrier, request(2))
        assert [each.headers.get("cookie") for each in server.requests] == [None, "node=a"]


@pytest.mark.parametrize("url", ["ftp://a/", "file:///etc/passwd", "http://", "http://[", "http://user:pw@host/", ""])
async def test_an_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(CarrierLost, match="correct baseURL"):
        async with open_http(config(url)):
            pass


# --- tokens


async def test_a_refused_token_is_replaced_once() -> None:
    async def handler(request: Request) -> None:
        if request.headers["authorization"] == "Bearer new":
            await request.result()
        else:
            await request.respond(401)

    async def token(refused: str | None = None) -> str:
        return "new" if refused == "old" else "old"

    async with scripted(handler) as server, open_http(config(server.url), token) as carrier:
        assert "result" in await answer(carrier, request(1))

    async def stubborn(refused: str | None = None) -> str:
        return "old"

    async with scripted(handler) as server, open_http(config(server.url), stubborn) as carrier:
        assert (await answer(carrier, request(1))).reason.startswith("needs sign-in")
        assert len(server.requests) == 2


async def test_without_a_token_nothing_is_sent() -> None:
    async def token(refused: str | None = None) -> NoToken:
        return NoToken("needs sign-in: nobody has signed in")

    async with scripted(None) as server, open_http(config(server.url), token) as carrier:  # type: ignore[arg-type]
        failed = await answer(carrier, request(1))
        assert (failed.reason, failed.was_sent) == ("needs sign-in: nobody has signed in", False)
        assert server.requests == []


async def test_before_the_first_sign_in_the_server_may_not_ask_for_a_token() -> None:
    async def token(refused: str | None = None) -> NoToken:
        return NoToken("needs sign-in: nobody has signed in", may_try=True)

    async def open_to_all(request: Request) -> None:
        assert "authorization" not in request.headers
        await request.result()

    async with scripted(open_to_all) as server, open_http(config(server.url), token) as carrier:
        assert "result" in await answer(carrier, request(1))

    async def closed(request: Request) -> None:
        await request.respond(401)

    async with scripted(closed) as server, open_http(config(server.url), token) as carrier:
        failed = await answer(carrier, request(1))
        assert (failed.reason, failed.was_sent) == ("needs sign-in: nobody has signed in", False)
        assert carrier.detail().http_status == 401
        assert len(server.requests) == 1


# --- sessions and the GET stream


async def test_a_session_goes_with_each_later_request_and_is_ended() -> None:
    async def rest(request: Request) -> None:
        await request.result()

    async with carrier_to(Session(rest)) as (carrier, server):
        await shake_hands(carrier)
        await answer(carrier, request(1))
    first, *later = [each for each in server.requests if each.method == "POST"]
    assert "mcp-session-id" not in first.headers
    assert "mcp-protocol-version" not in first.headers
    for each in later:
        assert (each.headers["mcp-session-id"], each.headers["mcp-protocol-version"]) == ("s-1", LEGACY)
    assert server.requests[-1].method == "DELETE"
    assert server.requests[-1].headers["mcp-session-id"] == "s-1"


@pytest.mark.parametrize("status", [404, 400])
async def test_a_forgotten_session_ends_the_carrier(status: int) -> None:
    async def rest(request: Request) -> None:
        error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
        await request.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=status)

    async with carrier_to(Session(rest)) as (carrier, server):
        await shake_hands(carrier)
        failed = await answer(carrier, request(1))
        assert failed == RequestFailed(1, Failure.TRANSPORT, "the server has forgotten the session", was_sent=False)
        for _ in range(2):
            with pytest.raises(CarrierLost, match="forgotten"):
                await carrier.receive()
        with pytest.raises(CarrierLost, match="forgotten"):
            await carrier.send(request(2))
    assert "DELETE" not in [each.method for each in server.requests]


async def test_a_session_forgotten_on_the_get_stream_ends_the_carrier() -> None:
    async def stream(request: Request) -> None:
        await request.respond(404)

    async with carrier_to(Session(None, stream=stream)) as (carrier, _):
        await shake_hands(carrier)
        assert await lost(carrier) == "the server has forgotten the session"


async def test_the_get_stream_continues_after_the_last_event() -> None:
    ids: list[str | None] = []

    async def stream(request: Request) -> bool | None:
        ids.append(request.headers.get("last-event-id"))
        if len(ids) == 3:
            await request.respond(405)
            return None
        await request.begin_events()
        await request.stream.send_all(b"retry: 0\n")
        await request.event(notification("notifications/tools/list_changed"), id=f"e{len(ids)}")
        return False

    async with carrier_to(Session(None, stream=stream)) as (carrier, _):
        await shake_hands(carrier)
        for _ in range(2):
            found = await carrier.receive()
            assert isinstance(found, bytes)  # no request is known for it
            assert message(found)["method"] == "notifications/tools/list_changed"
        while len(ids) < 3:
            await trio.testing.wait_all_tasks_blocked()
        assert ids == [None, "e1", "e2"]


async def test_a_broken_stream_of_a_request_is_continued() -> None:
    async def rest(request: Request) -> bool:
        await request.begin_events()
        await request.stream.send_all(b"id: p1\nretry: 0\ndata:\n\ndata: {")
        return False

    async def stream(request: Request) -> bool | None:
        if "last-event-id" not in request.headers:
            await request.respond(405)
            return None
        assert request.headers["last-event-id"] == "p1"
        await request.begin_events()
        await request.event({"jsonrpc": "2.0", "id": 1, "result": {"resumed": True}})
        return False

    async with carrier_to(Session(rest, stream=stream)) as (carrier, server):
        await shake_hands(carrier)
        assert (await answer(carrier, request(1)))["result"] == {"resumed": True}
        assert len([each for each in server.requests if each.method == "POST"]) == 3


async def test_a_stream_that_cannot_be_continued_fails_its_request() -> None:
    async def rest(request: Request) -> bool:
        await request.begin_events()
        await request.stream.send_all(b"id: p1\nretry: 0\ndata:\n\n")
        return False

    async with carrier_to(Session(rest)) as (carrier, _):
        await shake_hands(carrier)
        assert await answer(carrier, request(1)) == RequestFailed(
            1, Failure.TRANSPORT, "the stream ended before the answer"
        )


async def test_the_end_of_the_handshake_is_not_overtaken() -> None:
    seen: list[str] = []
    release = trio.Event()

    async def handler(request: Request) -> None:
        if request.method == "GET":
            await request.respond(405)
            return
        seen.append(request.json["method"])
        if request.json["method"] == "notifications/initialized":
            await release.wait()
            seen.append("accepted")
            await request.respond(202)
        else:
            await request.result()

    async with carrier_to(handler) as (carrier, _), trio.open_nursery() as nursery:
        await answer(carrier, INITIALIZE)

        async def go_on() -> None:
            await carrier.send(notification("notifications/initialized"))
            await carrier.send(request(1))

        nursery.start_soon(go_on)
        await trio.testing.wait_all_tasks_blocked()
        release.set()
        await carrier.receive()
        assert seen == ["initialize", "notifications/initialized", "accepted", "tools/list"]


async def test_notifications_that_nobody_accepts_do_not_pile_up() -> None:
    async def handler(request: Request) -> None:
        await trio.sleep_forever()

    async with carrier_to(handler) as (carrier, server):
        for _ in range(32):
            await carrier.send(notification("notifications/cancelled", requestId=1))
        with trio.move_on_after(0) as scope:
            await carrier.send(notification("notifications/cancelled", requestId=1))
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(server.requests) == 32


# --- cancelling


async def test_to_cancel_a_request_of_the_modern_version_closes_its_post() -> None:
    begun, closed = trio.Event(), trio.Event()

    async def handler(request: Request) -> bool:
        begun.set()
        await request.wait_closed()
        closed.set()
        return False

    async with carrier_to(handler) as (carrier, _):
        carrier.negotiated(MODERN)
        await carrier.send(request(1, modern=True))
        await begun.wait()
        assert carrier.cancel(1) is True
        await closed.wait()
        assert carrier.cancel(1) is True


async def test_to_cancel_an_older_request_needs_a_notification_and_frees_its_post(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_carrier, "GRACE_SECONDS", 0.0)
    begun, closed = trio.Event(), trio.Event()

    async def rest(request: Request) -> bool:
        begun.set()
        await request.wait_closed()
        closed.set()
        return False

    async with carrier_to(Session(rest)) as (carrier, _):
        await shake_hands(carrier)
        await carrier.send(request(1))
        await begun.wait()
        assert carrier.cancel(1) is False
        await closed.wait()
        assert carrier.cancel(1) is False


async def test_a_request_that_is_cancelled_at_once_is_not_sent() -> None:
    async def handler(request: Request) -> None:
        await request.result()

    async with carrier_to(handler) as (carrier, server):
        await carrier.send(request(1))
        assert carrier.cancel(1) is True
        await answer(carrier, request(2))
        assert [each.id for each in server.requests] == [2]


# --- the end


async def test_the_end_closes_connections_and_raises_what_the_block_raised() -> None:
    begun, closed = trio.Event(), trio.Event()

    async def handler(request: Request) -> bool:
        begun.set()
        await request.wait_closed()
        closed.set()
        return False

    found: list[HttpCarrier] = []

    async def use() -> None:
        async with open_http(config(server.url)) as carrier:
            found.append(carrier)
            await carrier.send(request(1))
            await begun.wait()
            raise KeyError

    async with scripted(handler) as server:
        with pytest.raises(KeyError):
            await use()
        await closed.wait()
        with pytest.raises(CarrierLost, match="closed"):
            await found[0].send(request(2))
        with pytest.raises(CarrierLost, match="closed"):
            await found[0].receive()


async def test_a_cancelled_block_ends_though_the_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_carrier, "GOODBYE_SECONDS", 0.05)

    async def handler(request: Request) -> None:
        if request.method == "DELETE":
            await trio.sleep_forever()
        await Session(None)(request)

    async with scripted(handler) as server:
        with trio.CancelScope() as scope:
            async with open_http(config(server.url)) as carrier:
                await shake_hands(carrier)
                scope.cancel()
                await trio.sleep_forever()
        assert server.requests[-1].method == "DELETE"


@pytest.mark.parametrize("step", range(0, 60, 3))
async def test_cancellation_at_any_step_leaves_nothing(step: int) -> None:
    """Each step is one run of the scheduler later."""

    async def handler(request: Request) -> bool | None:
        if request.method == "POST" and request.json["method"] == "tools/list":
            await request.begin_events()
            await request.event({"jsonrpc": "2.0", "id": request.id, "result": {}})
            return False
        return await Session(None)(request)  # type: ignore[return-value]

    async with scripted(handler) as server:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def use() -> None:
                    async with open_http(config(server.url)) as carrier:
                        await shake_hands(carrier)
                        for id in range(1, 5):
                            await answer(carrier, request(id))
                    scope.cancel()

                nursery.start_soon(use)
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        assert scope.cancelled_caught or not scope.cancel_called


# --- HTTP with SSE


class Sse:
    """A server of HTTP with SSE, with one stream."""

    def __init__(self, endpoint: str = "/message?session_id=1") -> None:
        self.endpoint = endpoint
        self.status = 202
        self.stream: Request | None = None

    async def __call__(self, request: Request) -> bool | None:
        if request.method == "GET":
            self.stream = request
            await request.begin_events()
            await request.stream.send_all(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            await request.wait_closed()
            return False
        assert self.stream is not None
        await request.respond(self.status)
        if self.status == 202:
            await self.stream.event({"jsonrpc": "2.0", "id": request.json.get("id"), "result": {"path": request.path}})
        return None


async def test_sse_sends_to_the_endpoint_and_receives_on_the_stream() -> None:
    async with carrier_to(Sse(), transport=Transport.SSE) as (carrier, server):
        found = await answer(carrier, request(1))
        assert found["result"] == {"path": "/message?session_id=1"}
        assert server.requests[0].headers["accept"] == "text/event-stream"


async def test_sse_ends_with_its_stream() -> None:
    server = Sse()
    async with carrier_to(server, transport=Transport.SSE) as (carrier, _):
        assert server.stream is not None
        await server.stream.stream.aclose()
        assert await lost(carrier) == "the server closed the stream"


@pytest.mark.parametrize(("status", "reason"), [(500, "HTTP 500"), (404, "forgotten")])
async def test_sse_reports_a_post_that_failed(status: int, reason: str) -> None:
    server = Sse()
    server.status = status
    async with carrier_to(server, transport=Transport.SSE) as (carrier, _):
        failed = await answer(carrier, request(1))
        assert failed.id == 1
        assert reason in failed.reason


@pytest.mark.parametrize(
    "endpoint",
    ["http://other.example/m", "//other.example/m", "http://[", "ftp://127.0.0.1/m", "http://u:p@127.0.0.1/"],
)
async def test_sse_sends_nothing_to_another_host(endpoint: str) -> None:
    with pytest.raises(CarrierLost, match="address for messages"):
        async with carrier_to(Sse(endpoint), transport=Transport.SSE):
            pass


async def test_sse_without_a_stream_cannot_be_opened() -> None:
    async def handler(request: Request) -> None:
        await request.respond(200, b"hi", content_type="text/html")

    with pytest.raises(CarrierLost, match="no stream of events"):
        async with carrier_to(handler, transport=Transport.SSE):
            pass


async def test_sse_needs_a_notification_to_cancel() -> None:
    server = Sse()
    server.status = 500
    async with carrier_to(server, transport=Transport.SSE) as (carrier, _):
        await carrier.send(request(1))
        assert carrier.cancel(1) is True  # not sent yet
        await answer(carrier, request(2))
        assert carrier.cancel(2) is False


# --- the SDK's server


def sdk_server(stack: AsyncExitStack) -> Starlette:
    """A server with tools, on /mcp in each protocol version and on /sse."""

    async def list_tools(ctx: Any, params: Any) -> t.ListToolsResult:
        marked = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        return t.ListToolsResult(
            tools=[
                t.Tool(name="echo", input_schema=marked),
                t.Tool(name="big", input_schema={"type": "object"}),
                t.Tool(name="ask", input_schema={"type": "object"}),
            ]
        )

    async def call_tool(ctx: Any, params: Any) -> t.CallToolResult:
        text = json.dumps(params.arguments)
        if params.name == "big":
            text = "x" * 3_000_000
        if params.name == "ask":
            await ctx.session.report_progress(1, 2, "half")
            roots = await ctx.session.list_roots()
            text = str(roots.roots[0].uri)
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)])

    server = Server("far", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    manager = StreamableHTTPSessionManager(app=server)
    sse = SseServerTransport("/message")

    class Stream:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async with sse.connect_sse(scope, receive, send) as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())

    class Message:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await sse.handle_post_message(scope, receive, send)

    return Starlette(
        routes=[
            Route("/mcp", endpoint=StreamableHTTPASGIApp(manager)),
            Route("/sse", endpoint=Stream(), methods=["GET"]),
            Route("/message", endpoint=Message()),
        ],
        lifespan=lambda app: manager.run(),
    )


@asynccontextmanager
async def to_the_sdk(path: str, transport: Transport) -> AsyncIterator[HttpCarrier]:
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(asgi_server(sdk_server(stack)))
        yield await stack.enter_async_context(open_http(config(base + path, transport)))


async def test_the_sdks_server_in_the_modern_version() -> None:
    async with to_the_sdk("/mcp", Transport.HTTP) as carrier:
        assert (
            MODERN in (await answer(carrier, request(1, "server/discover", modern=True)))["result"]["supportedVersions"]
        )
        carrier.negotiated(MODERN)
        assert len((await answer(carrier, request(2, modern=True)))["result"]["tools"]) == 3
        # The server compares the header of a marked argument with the body.
        arguments = {"region": "Köln"}
        found = await answer(carrier, request(3, "tools/call", modern=True, name="echo", arguments=arguments))
        assert json.loads(found["result"]["content"][0]["text"]) == arguments
        found = await answer(carrier, request(4, "no/such", modern=True))
        assert found["error"]["code"] == -32601
        found = await answer(carrier, request(5, "tools/call", modern=True, name="big", arguments={}))
        assert len(found["result"]["content"][0]["text"]) == 3_000_000


@pytest.mark.filterwarnings("ignore:The roots capability is deprecated")
@pytest.mark.parametrize(("path", "transport"), [("/mcp", Transport.HTTP), ("/sse", Transport.SSE)])
async def test_the_sdks_server_in_an_older_version(path: str, transport: Transport) -> None:
    async with to_the_sdk(path, transport) as carrier:
        await shake_hands(carrier)
        assert len((await answer(carrier, request(2)))["result"]["tools"]) == 3
        found = await answer(carrier, request(3, "tools/call", name="big", arguments={}))
        assert len(found["result"]["content"][0]["text"]) == 3_000_000
        if transport is Transport.HTTP:
            assert isinstance(await carrier.receive(), RequestFailed)
        sent = request(4, "tools/call", name="ask", arguments={}, _meta={"progressToken": 9})
        assert (await answer(carrier, sent))["params"]["progress"] == 1
        # The SDK's server asks on the GET stream.
        asked = message(await carrier.receive())
        assert asked["method"] == "roots/list"
        await carrier.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///r"}]}})
        assert message(await carrier.receive())["result"]["content"][0]["text"] == "file:///r"


async def test_the_sdks_server_without_the_session() -> None:
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(asgi_server(sdk_server(stack)))
        first = await stack.enter_async_context(open_http(config(f"{base}/mcp")))
        second = await stack.enter_async_context(open_http(config(f"{base}/mcp")))
        await shake_hands(first)
        await shake_hands(second)
        await second.goodbye()
        await second.send(request(1))
        # Its GET stream may notice first.
        assert await lost(second) == "the server has forgotten the session"
        assert "result" in await answer(first, request(1))


# --- pure


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"id": 1, "result": {}}', Answer.YES),
        (b'{"id": "1", "error": {}}', Answer.YES),
        (b'[{"method": "x"}, {"id": 1, "result": {}}]', Answer.YES),
        (b'{"id": 1, "method": "x", "result": {}}', Answer.NO),
        (b'{"method": "x"}', Answer.NO),
        (b'{"id": 1}', Answer.NO),
        (b"[1, null, []]", Answer.NO),
        (b"nothing", Answer.NO),
        (b"[" * 50_000, Answer.NO),
        (b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + b"x" * 70_000 + b'"}}', Answer.GUESSED),
        (b'{"result":{"text":"' + b"x" * 70_000 + b'"},"jsonrpc":"2.0","id":1}', Answer.GUESSED),
        (b'{"jsonrpc":"2.0","method":"x","params":{"text":"' + b"x" * 70_000 + b'"}}', Answer.NO),
    ],
)
def test_whether_a_message_is_the_answer(data: bytes, found: Answer) -> None:
    assert judge(data, 1) == (data, found)


@pytest.mark.parametrize("data", [b'{"id": 2, "result": {}}', b'{"id": true, "result": {}}', b'{"result": {}}'])
def test_an_answer_to_another_request_is_a_fault(data: bytes) -> None:
    with pytest.raises(ExchangeFailed, match="another request"):
        judge(data, 1)


def test_the_headers_of_a_message() -> None:
    marked = {"t": {("a", "b"): "Deep", ("n",): "Number"}}
    call = request(1, "tools/call", name="t", arguments={"a": {"b": "x\ny"}, "n": True})
    assert mirrored_headers(call, marked) == {
        "mcp-method": "tools/call",
        "mcp-name": "t",
        "Mcp-Param-Deep": "=?base64?eAp5?=",
        "Mcp-Param-Number": "true",
    }
    assert mirrored_headers(request(1, "resources/read", uri="a://b"), {})["mcp-name"] == "a://b"
    assert mirrored_headers(request(1, "tools/list", name="t"), {}) == {"mcp-method": "tools/list"}
    with pytest.raises(ValueError):
        mirrored_headers(request(1, "tools/call", name="\ud800"), {})
