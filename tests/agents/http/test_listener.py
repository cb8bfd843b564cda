"""The open port: how it closes, how many connections fit, and which connection a request came on."""

from __future__ import annotations

import errno
import logging
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.agents.http import listener
from intercom.web_server import acceptor
from tests.agents.http.rig import Place, call, head, place, read_reply, until

pytestmark = pytest.mark.real_time


def health(at: Place) -> bytes:
    return head("GET", "/healthz", {"Host": f"127.0.0.1:{at.port}"})


async def everything(stream: trio.SocketStream) -> bytes:
    found = b""
    try:
        while data := await stream.receive_some(65536):
            found += data
    except trio.BrokenResourceError:
        found += b"<reset>"
    return found


# --- how it closes ---------------------------------------------------------------------------------------------------


async def test_a_server_that_stops_answers_requests_in_service_and_closes_idle_connections_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long after the idle connection is closed, also on a slow machine.
    monkeypatch.setattr(listener, "SHUTDOWN_SECONDS", 45.0)
    entered, go = trio.Event(), trio.Event()
    answer = listener.answer

    async def held(*arguments: Any) -> None:
        entered.set()
        await go.wait()
        await answer(*arguments)

    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        up: list[Place] = []

        async def serve() -> None:
            async with place(root) as at:
                up.append(at)
                await stop.wait()

        nursery.start_soon(serve)
        await until(lambda: bool(up))
        at = up[0]
        idle = await trio.open_tcp_stream("127.0.0.1", at.port)
        await idle.send_all(health(at))
        assert (await read_reply(idle)).status == 200
        monkeypatch.setattr(listener, "answer", held)
        busy = await trio.open_tcp_stream("127.0.0.1", at.port)
        await busy.send_all(health(at))
        await entered.wait()
        stop.set()
        with trio.fail_after(listener.SHUTDOWN_SECONDS - 15):
            assert await everything(idle) == b""
        # The server has nothing left to do but to wait for the answer.
        await trio.testing.wait_all_tasks_blocked()
        go.set()
        answered = await everything(busy)
        assert answered.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answered.lower()


async def test_what_was_sent_before_a_server_stops_is_answered(root: Path) -> None:
    async with place(root) as at:
        clients = [socket.create_connection(("127.0.0.1", at.port)) for _ in range(20)]
        # The server had no turn yet: none of these connections is accepted.
        for client in clients:
            client.sendall(health(at))
    for client in clients:
        with client:
            # Health of a server that stops is 503.
            assert client.recv(65536).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))


async def test_a_stream_without_an_end_does_not_delay_the_stop(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SHUTDOWN_SECONDS", 60.0)
    async with place(root) as at:
        asked = {"Host": f"127.0.0.1:{at.port}", "Accept": "text/event-stream", **at.headers}
        stream = await trio.open_tcp_stream("127.0.0.1", at.port)
        await stream.send_all(head("GET", "/sse?agent=one", asked))
        assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200")
        began = trio.current_time()
    assert trio.current_time() - began < 3
    await everything(stream)


# --- how many fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("allowed", "fit"), [(64, 32), (128, 64), (1024, 960), (resource.RLIM_INFINITY, sys.maxsize)])
def test_the_limit_of_open_files_limits_connections(allowed: int, fit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (allowed, allowed))
    assert acceptor.most_files() == fit


async def test_where_few_files_may_be_open_a_crowd_leaves_room_for_a_client(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "most_files", lambda: 8)
    async with place(root) as at:
        crowd = [await trio.open_tcp_stream("127.0.0.1", at.port) for _ in range(20)]
        for stream in crowd[:16]:
            assert await everything(stream) == b""
        assert at.app.http.counts().connections <= 4
        async with at.client("agent=one") as client:
            assert (await call(client, "ping"))["acknowledged"]
        for stream in crowd:
            await trio.aclose_forcefully(stream)


async def test_a_system_without_room_closes_the_oldest_and_says_so_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept = trio.SocketListener.accept
    failures = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM]

    async def failing(port: trio.SocketListener) -> trio.SocketStream:
        if failures:
            raise OSError(failures.pop(), "no room")
        return await accept(port)

    async with place(root) as at:
        # The accept that waits already takes the first one.
        monkeypatch.setattr(trio.SocketListener, "accept", failing)
        silent = await trio.open_tcp_stream("127.0.0.1", at.port)
        assert await everything(silent) == b""
        async with at.client("agent=one") as client:
            assert (await call(client, "ping"))["acknowledged"]
    assert failures == []
    (said,) = (each for each in caplog.records if each.levelno >= logging.ERROR)
    assert "raise the limit of open files" in said.getMessage()


# --- which connection ------------------------------------------------------------------------------------------------


async def test_connections_with_the_same_client_port_are_told_apart(root: Path) -> None:
    def connect(address: str, port: int) -> socket.socket:
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("127.0.0.1", port))
        opened.connect((address, at.port))
        return opened

    async with place(root, http_host="0.0.0.0") as at:
        one = connect("127.0.0.1", 0)
        try:
            other = connect("127.0.0.2", one.getsockname()[1])
        except OSError:
            pytest.skip("this system has no second loopback address")
        streams = [trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in (one, other)]
        for stream in (*streams, streams[0]):
            await stream.send_all(health(at))
            assert (await read_reply(stream)).status == 200
        assert at.app.http.counts().connections == 2
        await streams[1].aclose()
        await until(lambda: at.app.http.counts().connections == 1)
        await streams[0].send_all(health(at))
        assert (await read_reply(streams[0])).status == 200
        await streams[0].aclose()
