"""A request that is cancelled while its answer is on the way: nobody heeds that answer, so what it carries rides again;
and of one that is never answered nothing is left.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.types import Message

from intercom.agents.http import sse
from intercom.agents.http.access_rules import NOBODY
from intercom.agents.http.http_sessions import ConnectionFactory, HttpSessions
from intercom.agents.http.sse import SseStream
from intercom.web_server.server import Connection
from tests.agents.http.rig import INITIALIZE, Place, Reply, head, place, rpc, until
from tests.agents.http.test_life import Session, ask

pytestmark = pytest.mark.real_time

CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
PING = rpc("tools/call", {"name": "ping", "arguments": {}}, 8)


class Classic:
    """A client of /sse, by hand."""

    def __init__(self, at: Place, stream: trio.SocketStream) -> None:
        self._at = at
        self._stream = stream
        self._text = b""
        self.path = ""

    async def data(self) -> str:
        """What the next event says."""
        while True:
            while b"\r\n\r\n" not in self._text:
                more = await self._stream.receive_some(65536)
                assert more, "the stream has ended"
                self._text += more
            event, _, self._text = self._text.partition(b"\r\n\r\n")
            for line in event.decode().split("\r\n"):
                if line.startswith("data: "):
                    return line[6:]

    async def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.data())
        return found

    async def post(self, message: dict[str, Any], **headers: str) -> Reply:
        told: dict[str, str | None] = {**headers}
        return await self._at.post(message, path=self.path, headers=told)


@asynccontextmanager
async def classic_client(at: Place) -> AsyncIterator[Classic]:
    async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
        told: dict[str, str | None] = {"Host": f"127.0.0.1:{at.port}", **at.headers}
        await stream.send_all(head("GET", "/sse?agent=one", told))
        client = Classic(at, stream)
        client.path = await client.data()
        assert (await client.post(rpc("initialize", INITIALIZE))).status == 202
        await client.answer()
        await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client


def under_way(at: Place) -> int:
    return at.app.http.counts().requests


async def test_an_answer_that_crossed_with_its_cancellation_was_not_delivered(at: Place) -> None:
    session = Session(at)
    await session.open()
    stream, events = await session.begin(ask())
    await at.board.operator("ann").approve((await at.card()).id)
    message = None
    while not message:
        _, message = await events.next()
    assert (await session.post(CANCEL)).status == 202
    assert b"late_verdicts" in (await session.post(PING)).body
    await trio.aclose_forcefully(stream)


async def test_nor_was_it_by_the_older_transport(at: Place) -> None:
    async with classic_client(at) as client:
        await client.post(ask())
        await at.board.operator("ann").approve((await at.card()).id)
        assert (await client.answer())["id"] == 7
        await client.post(CANCEL)
        await client.post(PING)
        assert "late_verdicts" in (await client.answer())["result"]["structuredContent"]


async def test_of_a_cancelled_call_of_the_older_transport_nothing_is_left(at: Place) -> None:
    async with classic_client(at) as client:
        await client.post(ask())
        await at.card()
        assert under_way(at) == 1
        await client.post(CANCEL)
        await until(lambda: under_way(at) == 0)


async def test_a_stream_has_so_many_requests_and_one_agent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "REQUESTS_EACH", 1)
    async with place(root) as at, classic_client(at) as client:
        await client.post(ask())
        await at.card()
        refused = await client.post(PING)
        assert (refused.status, refused.error["data"]["error_code"]) == (429, "busy")
        other = await client.post(CANCEL, **{"X-Intercom-Agent": "two"})
        assert (other.status, other.error["data"]["error_code"]) == (400, "invalid_arguments")
        assert (await client.post(CANCEL, **{"X-Intercom-Agent": "one"})).status == 202


async def test_an_answer_counts_as_written_when_it_has_left() -> None:
    nothing: Any = None
    sessions = HttpSessions(ConnectionFactory(nothing, nothing, nothing), nothing)
    answer: Message = {"type": "http.response.body", "body": b'event: message\r\ndata: {"id":7,"result":{}}\r\n\r\n'}
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()) as mine, await listener.accept():
        connection = Connection(mine, 1)
        stream = SseStream(sessions.new(NOBODY, ""), sessions, connection)

        async def fails(_message: Message) -> None:
            raise trio.BrokenResourceError

        async def leaves(message: Message) -> None:
            await connection.send_all(message["body"])

        exchange = stream.came(7).request_context
        with pytest.raises(trio.BrokenResourceError):
            await stream.watched(fails)(answer)
        assert (exchange.is_written, stream.requests) == (False, 1)
        await stream.watched(leaves)(answer)
        assert (exchange.is_written, stream.requests) == (True, 0)
