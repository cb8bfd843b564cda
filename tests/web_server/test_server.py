"""The web server by itself, in front of a small application, with clients that send bytes by hand."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from intercom.web_server import server as web_server
from intercom.web_server.server import Connection, HttpServer
from tests.agents.http.rig import read_reply

HOST = b"Host: localhost\r\n"
#: What the limits of time are measured with: real sockets, and a clock that jumps when all tasks wait.
PROMPT = 0.5
#: More than the system keeps for a client that does not read.
LARGE = b"x" * 50_000_000


@define(eq=False, slots=False)
class Application:
    """Answers each path in its own way, and notes what reached it."""

    seen: list[Scope] = field(factory=list)
    reached: list[bool] = field(factory=list)
    gone: trio.Event = field(factory=trio.Event)
    go: trio.Event = field(factory=trio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope)
        await getattr(self, scope["path"].strip("/") or "echo", self.nothing)(scope, receive, send)

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the request."""
        body = await everything(receive)
        if body is not None:
            told = {"method": scope["method"], "query": scope["query_string"].decode(), "body": body.decode("latin-1")}
            await answer(send, 200, json.dumps(told).encode())

    async def nothing(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer without reading."""
        await answer(send, 404, b'{"early": true}')

    async def empty(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def parts(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in parts, each once it is let go."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await self.go.wait()
        await send({"type": "http.response.body", "body": b"three"})

    async def wait(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the client's end in one task, and for the answer in another."""
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.gone.set()
                nursery.cancel_scope.cancel()

            nursery.start_soon(listen)
            nursery.start_soon(listen)
            await self.go.wait()
            await answer(send, 200, b"{}")

    async def park(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Wait as a room's call does: in one task."""
        connection = scope["state"]["connection"]
        waiting = trio.CancelScope()
        connection.on_end = waiting.cancel
        with waiting:
            await self.go.wait()
        connection.on_end = None
        if waiting.cancelled_caught:
            self.gone.set()
        else:
            await answer(send, 200, b"{}")

    async def fails(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("a secret")

    async def silent(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        """Return without an answer."""

    async def breaks(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Fail in the middle of an answer."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a secret")

    async def short(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with less than was said."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"half"})

    async def large(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with more than a client that does not read can take."""
        with scope["state"]["connection"].reaching(lambda: self.reached.append(True)):
            await answer(send, 200, LARGE)
        self.gone.set()


async def everything(receive: Receive) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message["body"]
        body += part
        if not message["more_body"]:
            return body


async def answer(send: Send, status: int, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@define(eq=False)
class Site:
    """A port with the application behind it."""

    application: Application
    server: HttpServer
    port: int

    @asynccontextmanager
    async def client(self, *sent: bytes) -> AsyncIterator[trio.SocketStream]:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            for part in sent:
                await stream.send_all(part)
            yield stream

    async def answered(self, *sent: bytes) -> bytes:
        """All that comes until the server closes."""
        async with self.client(*sent) as stream:
            return await rest(stream)


async def rest(stream: trio.SocketStream) -> bytes:
    found = b""
    try:
        while data := await stream.receive_some(65536):
            found += data
    except trio.BrokenResourceError:
        found += b"<reset>"
    return found


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    application = Application()
    server = HttpServer(application)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        await server.serve(Connection(stream, 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        nursery.start_soon(functools.partial(trio.serve_listeners, serve, [listener], handler_nursery=nursery))
        yield Site(application, server, listener.socket.getsockname()[1])
        nursery.cancel_scope.cancel()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as made:
        yield made


def get(path: str, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return method + b" " + path.encode() + b" HTTP/" + version + b"\r\n" + HOST + lines + b"\r\n"


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    return get(path, b"Content-Length: %d" % len(body), *headers, method=b"POST") + body


LAST = get("/", b"Connection: close")


def statuses(answered: bytes) -> list[bytes]:
    return [part[:3] for part in answered.split(b"HTTP/1.1 ")[1:]]


# --- what is no HTTP/1.1 ---------------------------------------------------------------------------------------------

MALFORMED = {
    "a folded line": get("/", b"X-One: a", b" b"),
    "a folded first header": b"GET / HTTP/1.1\r\n " + HOST + b"\r\n",
    "a line that ends with LF": b"GET / HTTP/1.1\n" + HOST + b"\r\n",
    "a head that ends with LF": b"GET / HTTP/1.1\r\nHost: localhost\n\n",
    "CR in a value": get("/", b"X-One: a\rb"),
    "CR before CR LF": get("/", b"X-One: a\r"),
    "CR in the first line": b"GET /\r HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in a value": get("/", b"X-One: a\0b"),
    "NUL in a name": get("/", b"X-\0One: a"),
    "a control character": get("/", b"X-One: a\x08b"),
    "a vertical tab": get("/", b"X-One: a\x0bb"),
    "a space before the colon": get("/", b"X-One : a"),
    "a header without a name": get("/", b": a"),
    "a header without a colon": get("/", b"X-One"),
    "two Content-Lengths": get("/", b"Content-Length: 5", b"Content-Length: 6", method=b"POST") + b"hello",
    "the same Content-Length twice": get("/", b"Content-Length: 5", b"content-length: 5", method=b"POST") + b"hello",
    "a list of Content-Lengths": get("/", b"Content-Length: 5, 5", method=b"POST") + b"hello",
    "a negative Content-Length": get("/", b"Content-Length: -5", method=b"POST"),
    "a signed Content-Length": get("/", b"Content-Length: +5", method=b"POST") + b"hello",
    "an empty Content-Length": get("/", b"Content-Length:", method=b"POST"),
    "a Content-Length in another script": get("/", b"Content-Length: \xb2", method=b"POST"),
    "a huge Content-Length": get("/", b"Content-Length: 9999999999999999", method=b"POST"),
    "a far too huge Content-Length": get("/", b"Content-Length: " + b"9" * 5000, method=b"POST"),
    "both lengths": get("/", b"Content-Length: 5", b"Transfer-Encoding: chunked", method=b"POST") + b"0\r\n\r\n",
    "chunks in HTTP/1.0": get("/", b"Transfer-Encoding: chunked", method=b"POST", version=b"1.0") + b"0\r\n\r\n",
    "an unknown coding": get("/", b"Transfer-Encoding: gzip, chunked", method=b"POST"),
    "chunked twice": get("/", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", method=b"POST"),
    "a coding that only looks like chunked": get("/", b"Transfer-Encoding: \x0bchunked", method=b"POST"),
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": get("/", b"Host: other"),
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": get("/", version=b"2.0"),
    "HTTP/1.2": get("/", version=b"1.2"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a space in the path": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path that is not ASCII": b"GET /\xe9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "an empty first line": b"\r\n" + get("/"),
    "a long head": get("/", b"X-Long: " + b"y" * 40_000),
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
async def test_what_others_may_read_differently_never_reaches_the_application(site: Site, sent: bytes) -> None:
    answered = await site.answered(sent, LAST)
    assert site.application.seen == []
    assert len(statuses(answered)) == 1, answered
    assert statuses(answered)[0] in (b"400", b"431", b"501", b"505")
    top, _, body = answered.removesuffix(b"<reset>").partition(b"\r\n\r\n")
    assert b"connection: close" in top.lower()
    assert json.loads(body)["error"]["code"] in ("invalid_arguments", "request_too_large")


BROKEN_BODIES = {
    "a chunk of no size": b"x\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": b"3\r\nhello\r\n0\r\n\r\n",
    "a chunk with a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "a huge chunk": b"f" * 30 + b"\r\nhello",
    "CR in an extension": b"5;a=\rb\r\nhello\r\n0\r\n\r\n",
    "NUL in an extension": b"5;a=\0b\r\nhello\r\n0\r\n\r\n",
    "a size that ends with LF": b"5\nhello\r\n0\r\n\r\n",
    "a last size that ends with LF": b"5\r\nhello\r\n0\n\r\n",
    "an end that is LF": b"5\r\nhello\r\n0\r\n\n",
    "a trailer that ends with LF": b"5\r\nhello\r\n0\r\nX-T: 1\n\r\n",
    "a folded trailer": b"5\r\nhello\r\n0\r\nX-T: 1\r\n b\r\n\r\n",
    "a control character in a trailer": b"5\r\nhello\r\n0\r\nX-T: \x0b\r\n\r\n",
    "Content-Length in a trailer": b"5\r\nhello\r\n0\r\ncontent-Length: 9\r\n\r\n",
    "Transfer-Encoding in a trailer": b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a chunk that ends with LF": b"5\r\nhello\n0\r\n\r\n",
    "an endless extension": b"5;" + b"x" * 100_000,
    "a trailer that is none": b"5\r\nhello\r\n0\r\nnonsense\r\n\r\n",
}


@pytest.mark.parametrize("sent", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
async def test_a_body_that_is_malformed_gets_400_and_the_end(site: Site, sent: bytes) -> None:
    answered = await site.answered(get("/", b"Transfer-Encoding: chunked", method=b"POST") + sent, LAST)
    assert statuses(answered) in ([b"400"], [b"431"]), answered
    assert len(site.application.seen) == 1


@pytest.mark.parametrize("sent", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
async def test_nothing_is_read_behind_a_malformed_body_that_nobody_wanted(site: Site, sent: bytes) -> None:
    begun = get("/nothing", b"Transfer-Encoding: chunked", method=b"POST")
    assert statuses(await site.answered(begun + sent + LAST)) == [b"404"]
    async with site.client(begun) as client:
        assert (await read_reply(client)).status == 404
        with suppress(trio.BrokenResourceError):
            await client.send_all(sent + LAST)
        assert statuses(await rest(client)) == []


async def test_a_target_may_be_a_url_and_its_host_counts(site: Site) -> None:
    seen = {
        "http://one:80/echo?a": ("/echo", b"a", b"one:80"),
        "HTTPS://one": ("/", b"", b"one"),
        "http://[::1]?b=/": ("/", b"b=/", b"[::1]"),
        "/http://one": ("/http://one", b"", b"localhost"),
    }
    for target, (path, query, host) in seen.items():
        await site.answered(get(target, b"X-One: a", b"Connection: close"))
        scope = site.application.seen.pop()
        assert (scope["path"], scope["query_string"]) == (path, query)
        assert [value for name, value in scope["headers"] if name == b"host"] == [host]
    await site.answered(b"GET http://one/ HTTP/1.0\r\n\r\n")
    assert site.application.seen.pop()["headers"] == [(b"host", b"one")]
    await site.answered(get("*", b"Connection: close", method=b"OPTIONS"))
    assert site.application.seen.pop()["path"] == "*"


@pytest.mark.parametrize(
    "target", ["*", "echo", "?a", "http://", "http:///a", "http://me@one/", "ftp://one/", "one:80"]
)
async def test_what_is_no_target_gets_400_and_the_end(site: Site, target: str) -> None:
    assert statuses(await site.answered(get(target), LAST)) == [b"400"]
    assert site.application.seen == []


@pytest.mark.parametrize("target", ["localhost:80", "/echo"])
async def test_the_server_is_no_proxy(site: Site, target: str) -> None:
    assert statuses(await site.answered(get(target, method=b"CONNECT"), LAST)) == [b"501"]
    assert site.application.seen == []


async def test_an_upgrade_is_ignored(site: Site) -> None:
    for protocol in (b"h2c", b"websocket"):
        asked = get("/", b"Upgrade: " + protocol, b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABk")
        assert statuses(await site.answered(asked, asked, LAST)) == [b"200"] * 3


# --- requests and answers --------------------------------------------------------------------------------------------


async def test_the_application_gets_what_asgi_says(site: Site) -> None:
    asked = get("/%65cho/%C3%A9?a=%20b&c", b"X-One: \xe9 ", b"x-one: two", method=b"DELETE")
    async with site.client(asked) as client:
        await read_reply(client)
        here = client.socket.getsockname()
    (scope,) = site.application.seen
    assert scope.pop("state")["connection"].peer == here
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "DELETE",
        "scheme": "http",
        "path": "/echo/é",
        "raw_path": b"/%65cho/%C3%A9",
        "query_string": b"a=%20b&c",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"x-one", b"\xe9"), (b"x-one", b"two")],
        "client": here,
        "server": ("127.0.0.1", site.port),
    }


async def test_pipelined_requests_are_answered_one_after_the_other(site: Site) -> None:
    chunked = (
        get("/?2", b"Transfer-Encoding: chunked", method=b"POST") + b"3\r\ntwo\r\n2;x=y\r\n..\r\n0\r\nX-T: 1\r\n\r\n"
    )
    answered = await site.answered(post("/?1", b"one") + chunked + get("/nothing") + post("/nothing", b"x") + LAST)
    assert statuses(answered) == [b"200", b"200", b"404", b"404", b"200"]
    assert [scope["query_string"] for scope in site.application.seen[:2]] == [b"1", b"2"]
    assert b'"body": "two.."' in answered


async def test_a_thousand_requests_at_once_do_not_stop_another_client(site: Site) -> None:
    async with site.client(get("/nothing") * 1000) as many:
        assert b"body" in await site.answered(LAST)
        paths = [scope["path"] for scope in site.application.seen]
        assert paths.index("/") < 500
        while len(site.application.seen) < 1001:
            await many.receive_some(65536)


async def test_what_is_sent_behind_a_waiting_call_waits(site: Site) -> None:
    async with site.client(get("/wait") + LAST) as client:
        await trio.testing.wait_all_tasks_blocked()
        assert len(site.application.seen) == 1
        site.application.go.set()
        assert statuses(await rest(client)) == [b"200", b"200"]


async def test_the_server_knows_when_all_are_answered(site: Site) -> None:
    await site.server.quiet()
    async with trio.open_nursery() as nursery, site.client(get("/wait")) as client, site.client(get("/wait")) as other:
        await trio.testing.wait_all_tasks_blocked()
        assert site.server.busy == 2
        nursery.start_soon(site.server.quiet)
        await other.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (site.server.busy, len(nursery.child_tasks)) == (1, 1)
        site.application.go.set()
        assert (await read_reply(client)).status == 200
    assert site.server.busy == 0


async def test_a_client_that_waits_for_100_gets_it_when_its_body_is_wanted(site: Site) -> None:
    expects = (b"Content-Length: 5", b"Expect: 100-continue")
    async with site.client(get("/", *expects, method=b"POST")) as client:
        assert await client.receive_some(1000) == b"HTTP/1.1 100 \r\n\r\n"
        await client.send_all(b"hello")
        assert b"hello" in (await read_reply(client)).body
        # And on the same connection, one that does not wait.
        await client.send_all(post("/", b"hello", b"Expect: 100-continue"))
        assert (await read_reply(client)).status == 200
    refused = await site.answered(get("/nothing", *expects, method=b"POST"))
    assert statuses(refused) == [b"404"]
    assert b"connection: close" in refused.lower()


async def test_an_answer_to_head_has_the_head_of_get(site: Site) -> None:
    asked = get("/nothing", method=b"HEAD")
    site.application.go.set()
    answered = await site.answered(asked, get("/parts", method=b"HEAD"), get("/empty"), LAST)
    assert statuses(answered) == [b"404", b"200", b"204", b"200"]
    assert b"early" not in answered
    assert b"content-length: 15\r\n" in answered.lower()
    assert b"two" not in answered
    assert answered.lower().count(b"\r\ndate: ") == 4


async def test_each_part_of_a_stream_leaves_at_once(site: Site) -> None:
    async with site.client(get("/parts")) as client:
        assert (await client.receive_some(1000)).endswith(b"\r\n\r\n3\r\none\r\n")
        site.application.go.set()
        assert (await rest_of(client, b"0\r\n\r\n")) == b"3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"
        await client.send_all(get("/"))
        assert (await read_reply(client)).status == 200


async def rest_of(client: trio.SocketStream, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        found += await client.receive_some(1000)
    return found


async def test_in_http_1_0_a_stream_ends_with_its_connection(site: Site) -> None:
    site.application.go.set()
    answered = await site.answered(get("/parts", version=b"1.0"))
    assert answered.endswith(b"\r\n\r\nonetwothree")
    assert b"chunked" not in answered
    kept = await site.answered(get("/", b"Connection: keep-alive", version=b"1.0"), get("/"))
    assert statuses(kept) == [b"200"]


# --- clients that go -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["epoll", "tasks"])
def watched_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tasks":
        monkeypatch.setattr(web_server, "_HAS_EPOLL", False)
    return str(request.param)


@pytest.mark.parametrize("path", ["/wait", "/park"])
async def test_a_call_whose_client_goes_is_told_at_once(watched_by: str, path: str) -> None:
    async with serving() as site:
        async with site.client(get(path)):
            await trio.testing.wait_all_tasks_blocked()
            assert not site.application.gone.is_set()
        with trio.fail_after(PROMPT):
            await site.application.gone.wait()


@pytest.mark.parametrize("path", ["/wait", "/park"])
async def test_a_call_that_is_answered_is_watched_no_more(watched_by: str, path: str) -> None:
    async with serving() as site, site.client(get(path)) as client:
        await trio.testing.wait_all_tasks_blocked()
        site.application.go.set()
        assert (await read_reply(client)).status == 200
        for _ in range(3):
            await client.send_all(get(path))
            assert (await read_reply(client)).status == 200


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="without it an end behind unread data is not noticed")
async def test_nor_does_the_next_request_hide_it(site: Site) -> None:
    async with site.client(get("/wait") + get("/")):
        await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(PROMPT):
        await site.application.gone.wait()


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="without it nothing behind a call is noticed")
@pytest.mark.parametrize("path", ["/wait", "/park"])
async def test_a_client_that_sends_without_end_behind_a_waiting_call_is_closed(site: Site, path: str) -> None:
    async with site.client(get(path)) as client:
        await trio.testing.wait_all_tasks_blocked()
        with suppress(trio.BrokenResourceError):
            while not site.application.gone.is_set():
                await client.send_all(get("/") * 1000)
        with trio.fail_after(PROMPT):
            await site.application.gone.wait()


async def test_a_few_requests_behind_a_waiting_call_are_not_too_much(site: Site) -> None:
    async with site.client(get("/park")) as client:
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
            await client.send_all(get("/nothing"))
        await trio.testing.wait_all_tasks_blocked()
        site.application.go.set()
        await client.send_all(LAST)
        assert statuses(await rest(client)) == [b"200", *[b"404"] * 20, b"200"]


async def test_a_client_that_goes_with_its_request_half_sent_harms_nobody(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    whole = post("/", b"hello")
    for size in range(0, len(whole), 7):
        async with site.client(whole[:size]) as client:
            await client.send_eof()
            assert await rest(client) == b""
    assert statuses(await site.answered(LAST)) == [b"200"]
    assert caplog.records == []


async def test_a_client_that_only_sends_no_more_gets_its_answers(site: Site) -> None:
    async with site.client(post("/", b"hello") + get("/nothing")) as client:
        await client.send_eof()
        assert statuses(await rest(client)) == [b"200", b"404"]


# --- answers that come early, or not at all --------------------------------------------------------------------------


async def test_an_early_answer_comes_before_the_body_and_the_connection_lasts(site: Site) -> None:
    async with site.client(get("/nothing", b"Content-Length: 5", method=b"POST")) as client:
        assert (await read_reply(client)).status == 404
        await client.send_all(b"hello" + get("/"))
        assert (await read_reply(client)).status == 200


async def test_an_early_answer_is_not_lost_on_a_client_that_sends_on(site: Site) -> None:
    begun = get("/nothing", b"Content-Length: 40000000", method=b"POST")
    async with site.client(begun) as client:
        for _ in range(400):
            await client.send_all(b"x" * 100_000)
        assert (await read_reply(client)).status == 404
    chunked = get("/nothing", b"Transfer-Encoding: chunked", b"Connection: close", method=b"POST")
    async with site.client(chunked) as client:
        for _ in range(400):
            await client.send_all(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
        assert (await read_reply(client)).status == 404


async def test_a_body_that_does_not_come_after_its_answer_is_not_waited_for(site: Site) -> None:
    began = trio.current_time()
    answered = await site.answered(get("/nothing", b"Content-Length: 5", method=b"POST"), b"hel")
    assert statuses(answered) == [b"404"]
    assert trio.current_time() - began < web_server.LINGER_SECONDS + PROMPT


async def test_what_drips_in_after_an_answer_has_an_end(site: Site) -> None:
    began = trio.current_time()
    async with site.client(get("/nothing", b"Content-Length: 500", method=b"POST")) as client:
        assert (await read_reply(client)).status == 404
        with suppress(trio.BrokenResourceError):
            while True:
                await client.send_all(b"x")
                await trio.sleep(0.8)
    assert trio.current_time() - began < 2 * web_server.LINGER_SECONDS_IN_ALL + 3


@pytest.mark.parametrize("path", ["/fails", "/silent"])
async def test_an_application_that_fails_answers_500_and_says_nothing_of_why(
    site: Site, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.client(get("/wait")) as other:
        await trio.testing.wait_all_tasks_blocked()
        answered = await site.answered(get(path), LAST)
        assert statuses(answered) == [b"500"]
        assert b"secret" not in answered
        assert b"Traceback" not in answered
        site.application.go.set()
        assert (await read_reply(other)).status == 200
    assert [record.levelno for record in caplog.records] == ([logging.ERROR] if path == "/fails" else [])


@pytest.mark.parametrize("path", ["/breaks", "/short"])
async def test_half_an_answer_does_not_look_whole(site: Site, path: str) -> None:
    answered = await site.answered(get(path), LAST)
    assert len(statuses(answered)) <= 1
    assert b"0\r\n\r\n" not in answered
    assert b"secret" not in answered


async def test_a_task_that_outlives_its_answer_says_and_hears_nothing(site: Site) -> None:
    late: list[Callable[[], Awaitable[Any]]] = []

    async def lasting(_scope: Scope, receive: Receive, send: Send) -> None:
        late.extend((receive, functools.partial(send, {"type": "http.response.body", "body": b"late"})))
        await answer(send, 200, b"{}")
        assert await receive() == {"type": "http.disconnect"}

    site.application.lasting = lasting  # type: ignore[attr-defined]
    async with site.client(get("/lasting")) as client:
        assert (await read_reply(client)).body == b"{}"
        heard: list[Message | None] = [await each() for each in late]
        assert heard == [{"type": "http.disconnect"}, None]
        await client.send_all(get("/"))
        assert b"late" not in (await read_reply(client)).body


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_a_connection_without_a_request_lasts_so_long(site: Site) -> None:
    async with site.client(get("/")) as client:
        assert (await read_reply(client)).status == 200
        began = trio.current_time()
        assert await rest(client) == b""
    assert trio.current_time() - began == pytest.approx(web_server.KEEP_ALIVE_SECONDS, abs=3)


async def test_a_call_may_wait_for_longer_than_that(site: Site) -> None:
    async with site.client(get("/wait")) as client:
        await trio.sleep(10 * web_server.KEEP_ALIVE_SECONDS)
        site.application.go.set()
        assert (await read_reply(client)).status == 200


async def test_a_client_that_reads_nothing_loses_its_connection(site: Site) -> None:
    began = trio.current_time()
    async with site.client(get("/large")):
        await site.application.gone.wait()
    assert trio.current_time() - began == pytest.approx(web_server.STALLED_SECONDS, abs=3)
    assert site.application.reached == []


async def test_a_client_that_reads_slowly_but_steadily_gets_all(site: Site) -> None:
    began = trio.current_time()
    size = 0
    async with site.client(get("/large")) as client:
        while size < len(LARGE):
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(web_server.STALLED_SECONDS / 3)
            for _ in range(80):
                size += len(await client.receive_some(65536))
                if size > len(LARGE):
                    break
        await site.application.gone.wait()
    assert trio.current_time() - began > 2 * web_server.STALLED_SECONDS
    assert site.application.reached == [True]


async def test_a_large_answer_is_not_copied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = Connection._write

    def noted(connection: Connection, data: bytes) -> int:
        written.append(data)
        return write(connection, data)

    monkeypatch.setattr(Connection, "_write", noted)
    async with site.client(get("/nothing") + get("/large")) as client:
        size = 0
        while size < len(LARGE):
            size += len(await client.receive_some(2**20))
    small, top, large = written
    assert small.endswith(b'{"early": true}')
    assert top.endswith(b"\r\n\r\n")
    assert large is LARGE


async def test_what_reached_a_client_is_known(site: Site) -> None:
    async with site.client(get("/large")) as client:
        size = 0
        while size < 50_000_000:
            size += len(await client.receive_some(2**20))
        await site.application.gone.wait()
        assert site.application.reached == [True]


async def test_a_server_that_stops_answers_waiting_calls_and_closes(site: Site) -> None:
    async with site.client(get("/wait"), get("/")) as client:
        await trio.testing.wait_all_tasks_blocked()
        site.server.is_stopping = True
        site.application.go.set()
        answered = await rest(client)
    assert statuses(answered) == [b"200"]
    assert b"connection: close" in answered.lower()


# --- however it comes ------------------------------------------------------------------------------------------------

PIPELINES = st.lists(
    st.sampled_from(
        [
            get("/?a"),
            get("/nothing", method=b"HEAD"),
            get("/empty"),
            post("/", b"hello"),
            post("/", b"GET / HTTP/1.1\r\n\r\n"),
            post("/nothing", b"unread" * 10),
            get("/", b"Transfer-Encoding: chunked", method=b"POST") + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
            get("/", b"X-One: a", b" b"),
            get("/", b"Content-Length: 5", b"Transfer-Encoding: chunked", method=b"POST"),
            b"nonsense\r\n\r\n",
        ]
    ),
    min_size=1,
    max_size=5,
).map(b"".join)


def without_dates(answered: bytes) -> bytes:
    return b"\r\n".join(line for line in answered.split(b"\r\n") if not line.lower().startswith(b"date: "))


@given(PIPELINES, st.lists(st.integers(0, 600), max_size=8))
def test_requests_in_any_parts_get_the_same_answers(sent: bytes, cuts: list[int]) -> None:
    async def main() -> None:
        places = [0, *sorted({cut % (len(sent) + 1) for cut in cuts}), len(sent)]
        parts = [sent[one:other] for one, other in itertools.pairwise(places)]
        async with serving() as site:
            whole = await site.answered(sent + LAST)
            async with site.client() as client:
                for part in (*parts, LAST):
                    with suppress(trio.BrokenResourceError):
                        await client.send_all(part)
                    await trio.testing.wait_all_tasks_blocked()
                split = await rest(client)
        assert without_dates(split) == without_dates(whole)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))


@given(
    st.lists(st.binary(max_size=12) | st.sampled_from([b"\r\n", b"GET ", b"/ HTTP/1.1\r\n", HOST, b": ", b"5", b"\n"]))
)
def test_whatever_comes_is_answered_or_ends(parts: list[bytes]) -> None:
    async def main() -> None:
        async with serving() as site, site.client() as client:
            with suppress(trio.BrokenResourceError):
                await client.send_all(b"".join(parts))
                await client.send_eof()
            answered = (await rest(client)).removesuffix(b"<reset>")
            assert answered == b"" or answered.startswith(b"HTTP/1.1 "), answered
            assert statuses(await site.answered(LAST)) == [b"200"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))
