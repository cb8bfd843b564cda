"""HTTP/1.1 alone is spoken, a request ends where everybody sees its end, and who shows no token holds little."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import h2.config
import h2.connection
import h2.settings
import pytest
import trio

from intercom.web_server import acceptor
from intercom.web_server import server as web_server
from tests.agents.http.rig import INITIALIZE, Place, call, head, place, read_reply, rpc, until

pytestmark = pytest.mark.real_time

RESETS = 3000


def reset_flood(port: int) -> bytes:
    """What an HTTP/2 client sends at once, without waiting for an answer: its preface, then streams it takes back."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    # It counts only streams that are open, and those it resets are not.
    for stream in range(1, 2 * RESETS, 2):
        client.send_headers(
            stream,
            [(":method", "POST"), (":scheme", "http"), (":path", "/mcp"), (":authority", f"127.0.0.1:{port}")],
        )
        client.reset_stream(stream)
    return client.data_to_send()


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    """All bytes until the other side closes."""
    found = b""
    try:
        while data := await stream.receive_some(65536):
            found += data
    except trio.BrokenResourceError:
        pass  # an abrupt end, as where something was not read
    return found


async def test_an_http2_preface_and_its_frames_get_one_answer_in_http1_and_the_end(at: Place) -> None:
    for sent in (reset_flood(at.port), h2_preface_only()):
        async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
            try:
                await stream.send_all(sent)
            except trio.BrokenResourceError:
                pass  # it hung up in between
            answered = await everything(stream)
        # HTTP/2 would begin with a frame of settings.
        assert answered.startswith(b"HTTP/1.1 505 ") or answered == b""
        assert answered.count(b"HTTP/1.1 505") <= 1
    preface = await at.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert preface.status == 505
    assert "HTTP/1.1" in preface.error["message"]
    async with at.client("agent=one") as client:
        assert (await call(client, "ping"))["acknowledged"]


def h2_preface_only() -> bytes:
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    return client.data_to_send()


async def test_an_offer_to_change_to_http2_is_ignored(at: Place) -> None:
    settings = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABkAAQAoAAAAAIAAAAA",
    }
    healthy = head("GET", "/healthz", {"Host": f"127.0.0.1:{at.port}", **settings})
    assert (await at.raw(healthy)).status == 200
    # Nor does it help without the token, or with one.
    assert (await at.raw(head("GET", "/mcp", {"Host": f"127.0.0.1:{at.port}", **settings}))).status == 401
    assert (await at.post(rpc("initialize", INITIALIZE), headers=settings)).status == 200


@pytest.mark.parametrize(
    "framing",
    [
        {"Transfer-Encoding": "chunked", "Content-Length": "5"},
        {"Content-Length": "5", "Transfer-Encoding": "chunked"},
        {"Transfer-Encoding": "gzip, chunked"},
        {"Transfer-Encoding": "xchunked"},
        {"Transfer-Encoding ": "chunked"},
        {"Content-Length": "5, 6"},
        {"Content-Length": "+5"},
        {"Content-Length": "-5"},
        {"Content-Length": "0x5"},
    ],
)
async def test_a_request_whose_end_others_may_see_elsewhere_is_refused_with_its_connection(
    at: Place, framing: dict[str, str | None]
) -> None:
    hidden = head("GET", "/healthz", {"Host": f"127.0.0.1:{at.port}"})
    first = head("POST", "/mcp", {"Host": f"127.0.0.1:{at.port}", **at.headers, **framing})
    async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
        await stream.send_all(first + b"0\r\n\r\n" + hidden)
        answered = await everything(stream)
    assert answered.split()[1] in (b"400", b"501"), answered
    # What stood behind it was not read as the next request.
    assert answered.count(b"HTTP/1.1 ") == 1, answered


async def test_http_1_0_has_no_chunks(root: Path) -> None:
    async with place(root) as at:
        chunked = {"Host": "localhost", "Transfer-Encoding": "chunked", **at.headers}
        asked = head("POST", "/mcp", chunked).replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n"
        assert (await at.raw(asked)).status == 400


async def test_nothing_is_kept_of_connections_whose_requests_are_refused(at: Place) -> None:
    def connections() -> list[web_server.Connection]:
        gc.collect()
        return [each for each in gc.get_objects() if type(each) is web_server.Connection]

    # Those that other tests of this process left are not meant.
    others = weakref.WeakSet(connections())
    twice = {"Host": "localhost", "Transfer-Encoding": "chunked", "Content-Length": "5", **at.headers}
    for refused in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", head("POST", "/mcp", twice), head("POST", "/mcp", {})):
        assert (await at.raw(refused)).status >= 400
    await until(lambda: others.issuperset(connections()))


async def test_heads_of_chunks_and_trailers_have_an_end(at: Place) -> None:
    begun = head("POST", "/mcp", {"Host": f"127.0.0.1:{at.port}", "Transfer-Encoding": "chunked", **at.headers})
    for endless in (b"5;" + b"x" * 300_000, b"0\r\n" + b"X-Long: " + b"y" * 300_000, b"f" * 300_000):
        async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
            try:
                await stream.send_all(begun + endless)
            except trio.BrokenResourceError:
                pass  # it hung up in between
            answered = await everything(stream)
        assert not answered or answered.split()[1] in (b"400", b"413", b"431"), answered
    async with at.client("agent=one") as client:
        assert (await call(client, "ping"))["acknowledged"]


async def silent(at: Place, count: int) -> list[trio.SocketStream]:
    return [await trio.open_tcp_stream("127.0.0.1", at.port) for _ in range(count)]


async def test_a_sudden_crowd_that_shows_no_token_makes_room_for_who_does(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MOST_UNAUTHENTICATED", 3)
    monkeypatch.setattr(acceptor, "MOST_NEW_UNAUTHENTICATED", 6)
    # Nobody of them has had the time yet.
    monkeypatch.setattr(acceptor, "UNAUTHENTICATED_SECONDS", 1000.0)
    async with place(root) as at, at.client("agent=early") as early:
        assert (await call(early, "ping"))["acknowledged"]
        crowd = await silent(at, 40)
        for stream in crowd[:30]:
            assert await everything(stream) == b""
        http = at.app.http
        # Nor is anything kept for those who are gone, which would fill all places in the end.
        await until(lambda: http.counts().connections <= 12)
        async with at.client("agent=late") as late:
            assert (await call(late, "ping"))["acknowledged"]
        assert (await call(early, "ping"))["acknowledged"]
        for stream in crowd:
            await trio.aclose_forcefully(stream)


async def test_a_page_that_anybody_may_read_earns_no_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "MOST_UNAUTHENTICATED", 3)
    monkeypatch.setattr(acceptor, "UNAUTHENTICATED_SECONDS", 0.0)
    async with place(root) as at:
        asked = head("GET", "/healthz", {"Host": f"127.0.0.1:{at.port}"})
        first = await trio.open_tcp_stream("127.0.0.1", at.port)
        await first.send_all(asked)
        assert (await read_reply(first)).status == 200
        crowd = await silent(at, 6)
        assert await everything(first) == b""
        for stream in crowd:
            await trio.aclose_forcefully(stream)


async def test_a_probe_may_keep_its_connection_while_there_is_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "FIRST_SECONDS", 0.0)
    async with place(root) as at:
        asked = head("GET", "/healthz", {"Host": f"127.0.0.1:{at.port}"})
        async with await trio.open_tcp_stream("127.0.0.1", at.port) as probe:
            await probe.send_all(asked)
            assert (await read_reply(probe)).status == 200
            idle = (await silent(at, 1))[0]
            assert await everything(idle) == b""
            await probe.send_all(asked)
            assert (await read_reply(probe)).status == 200
        http = at.app.http
        await until(lambda: http.counts().connections == 0)
