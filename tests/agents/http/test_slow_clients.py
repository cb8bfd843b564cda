"""Clients that send nothing, or take nothing, hold nobody up."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from intercom.web_server import acceptor
from intercom.web_server import server as web_server
from tests.agents.http.rig import call, head, place

pytestmark = pytest.mark.real_time


async def test_a_connection_on_which_nothing_is_asked_is_closed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "FIRST_SECONDS", 2.0)
    async with place(root) as at:
        silent = await trio.open_tcp_stream("127.0.0.1", at.port)
        slow = await trio.open_tcp_stream("127.0.0.1", at.port)
        await slow.send_all(b"POST /mcp HTTP/1.1\r\nHost: loc")
        async with at.client("agent=one") as client:
            assert (await call(client, "ping"))["acknowledged"]
            for stream in (silent, slow):
                try:
                    assert await stream.receive_some(1) == b""
                except trio.BrokenResourceError:
                    pass  # as an abrupt end shows where something was not read
            # Who has asked for something may take its time.
            assert (await call(client, "ping"))["acknowledged"]


async def test_who_comes_last_is_let_in_for_who_came_first_and_asks_for_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MOST_UNAUTHENTICATED", 3)
    monkeypatch.setattr(acceptor, "UNAUTHENTICATED_SECONDS", 0.0)
    async with place(root) as at:
        silent = [await trio.open_tcp_stream("127.0.0.1", at.port) for _ in range(5)]
        for early in silent[:2]:
            try:
                assert await early.receive_some(1) == b""
            except trio.BrokenResourceError:
                pass  # the same
        last = silent[-1]
        await last.send_all(head("GET", "/healthz", {"Host": f"127.0.0.1:{at.port}"}))
        assert (await last.receive_some(100)).startswith(b"HTTP/1.1 200")
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_a_client_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "STALLED_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = await trio.open_tcp_stream(*listener.getsockname())
        accepted, _ = listener.accept()
        ours = web_server.Connection(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)), 1)
        reached: list[bool] = []
        with pytest.raises(trio.BrokenResourceError), ours.reaching(lambda: reached.append(True)):
            await ours.send_all(b"x" * 50_000_000)
        assert ours.broken
        assert not reached
        await trio.aclose_forcefully(client)


async def test_a_connection_that_is_being_closed_is_read_to_its_end_by_one_task() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = await trio.open_tcp_stream(*listener.getsockname())
        accepted, _ = listener.accept()
        ours = web_server.Connection(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)), 1)
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(ours.aclose)
            await trio.testing.wait_all_tasks_blocked()
            assert await ours.receive_some(100) == b""
            await client.send_eof()
