"""What becomes of calls and sessions when clients go, come back, or the server does."""

from __future__ import annotations

import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server import _streamable_http_modern as modern_transport
from sse_starlette import EventSourceResponse

from actors import Actor, System
from intercom.agents.agent_connection import PendingResponse
from intercom.agents.http import access_rules, http_sessions, listener, streamable
from intercom.model.session import SessionStatus
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.sessions.request_kinds import APPROVED
from intercom.web_server.http_request import Refusal
from tests.agents.http.rig import BOTH, INITIALIZE, LEGACY, Place, call, head, modern, place, rpc, until

PROPOSAL = {"title": "new", "diff": "a\n", "file_path": "a.txt"}


async def is_away(at: Place) -> bool:
    return any(card.away for card in await at.board.service.pending())


async def is_open_again(at: Place, fallen: Any) -> bool:
    return at.app.system.named("http").ref not in (None, fallen) and at.app.http.port is not None


def broken_off(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Set once the server has seen that a stream broke off, and keeps its answer for who comes back; after that only
    who does is served it."""
    seen = trio.Event()
    wait = PendingResponse.returns_within

    async def returns_within(exchange: PendingResponse, seconds: float) -> bool:
        seen.set()
        return await wait(exchange, seconds)

    monkeypatch.setattr(PendingResponse, "returns_within", returns_within)
    return seen


class Session:
    """A client of the era of sessions, by hand: what it does not send, it does not send."""

    def __init__(self, at: Place, query: str = "agent=one") -> None:
        self.at = at
        self.path = f"/mcp?{query}"
        self.id: str | None = None

    async def open(self) -> None:
        reply = await self.at.post(rpc("initialize", INITIALIZE), path=self.path)
        assert reply.status == 200
        self.id = reply.headers["mcp-session-id"]
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202

    @property
    def told(self) -> dict[str, str | None]:
        return {"Mcp-Session-Id": self.id, "Mcp-Protocol-Version": LEGACY}

    async def post(self, message: Any, path: str | None = None, **more: str) -> Any:
        return await self.at.post(message, path=path or self.path, headers={**self.told, **more})

    async def begin(self, message: dict[str, Any]) -> tuple[trio.SocketStream, Events]:
        """A request whose answer is a stream, read as far as wanted."""
        return await self._stream("POST", json.dumps(message).encode())

    async def resume(self, last: str) -> tuple[trio.SocketStream, Events]:
        return await self._stream("GET", b"", **{"Last-Event-ID": last})

    async def _stream(self, method: str, data: bytes, **more: str) -> tuple[trio.SocketStream, Events]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.at.port)
        told: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.at.port}",
            "Content-Type": "application/json",
            "Accept": BOTH,
            "Content-Length": str(len(data)),
            **self.at.headers,
            **self.told,
            **more,
        }
        await stream.send_all(head(method, self.path, told) + data)
        return stream, Events(stream)


class Events:
    """The events of a stream: (id, message), of which a message may be empty."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._text = b""

    async def next(self) -> tuple[str, Any]:
        while True:
            while b"\r\n\r\n" not in self._text:
                data = await self._stream.receive_some(65536)
                assert data, "the stream has ended"
                self._text += data
            event, _, self._text = self._text.partition(b"\r\n\r\n")
            lines = event.decode().split("\r\n")
            ids = [line[4:] for line in lines if line.startswith("id: ")]
            if ids:
                data_lines = [line[6:] for line in lines if line.startswith("data: ")]
                return ids[0], json.loads(data_lines[0]) if data_lines and data_lines[0] else None


def ask(id: int = 7, **meta: Any) -> dict[str, Any]:
    return rpc("tools/call", {"name": "check_clearance", "arguments": PROPOSAL, "_meta": meta}, id)


async def begun(at: Place, path: str = "/mcp?agent=one") -> tuple[trio.SocketStream, str]:
    """A call of the era without sessions that waits, and its request's id."""
    tool, told = modern("check_clearance", PROPOSAL)
    data = json.dumps(tool).encode()
    stream = await trio.open_tcp_stream("127.0.0.1", at.port)
    headers: dict[str, str | None] = {
        "Host": f"127.0.0.1:{at.port}",
        "Content-Type": "application/json",
        "Accept": BOTH,
        "Content-Length": str(len(data)),
        **at.headers,
        **told,
    }
    await stream.send_all(head("POST", path, headers) + data)
    return stream, (await at.card()).id


@pytest.mark.real_time
async def test_a_client_that_goes_is_away_at_once_and_asks_again_for_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At once: not when nobody has come back in time, for which this test would have to wait too long.
    monkeypatch.setattr(streamable, "RESUME_SECONDS", 3600)
    async with place(root) as at:
        stream, id = await begun(at)
        await trio.aclose_forcefully(stream)
        await until(lambda: is_away(at))
        await at.board.operator("ann").approve(id)
        async with at.client("agent=one") as client:
            # Nobody had the answer, so the next call does.
            (late,) = (await call(client, "ping"))["late_verdicts"]
            assert (late["request_id"], late["answer"]["status"]) == (id, "approved")
            assert "late_verdicts" not in await call(client, "ping")


@pytest.mark.real_time
async def test_what_no_later_call_has_confirmed_is_told_again_when_the_listener_falls(at: Place) -> None:
    stream, id = await begun(at)
    await trio.aclose_forcefully(stream)
    await until(lambda: is_away(at))
    await at.board.operator("ann").approve(id)
    told = []
    for _ in range(2):
        fallen = at.app.system.named("http").present()
        async with at.client("agent=one") as client:
            told += (await call(client, "ping"))["late_verdicts"]
            fallen._crash(RuntimeError("as a test wants it"))
            await until(partial(is_open_again, at, fallen))
    assert [late["request_id"] for late in told] == [id, id]
    async with at.client("agent=one") as client:
        assert [late["request_id"] for late in (await call(client, "ping"))["late_verdicts"]] == [id]
        assert "late_verdicts" not in await call(client, "ping")


@pytest.mark.real_time
async def test_a_stream_that_broke_off_is_taken_up_where_it_was_left(
    at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(at)
    await session.open()
    stream, events = await session.begin(ask(progressToken=1))
    marked, nothing = await events.next()
    assert nothing is None
    id = (await at.card()).id
    seen = broken_off(monkeypatch)
    await trio.aclose_forcefully(stream)
    await seen.wait()
    again, more = await session.resume(marked)
    _, progress = await more.next()
    assert progress["method"] == "notifications/progress"
    assert not await is_away(at)
    await at.board.operator("ann").approve(id)
    while True:
        _, message = await more.next()
        if message and "result" in message:
            break
    assert message["result"]["structuredContent"] == {"status": "approved", "request_id": id, "message": APPROVED}
    reply = await session.post(rpc("tools/call", {"name": "ping", "arguments": {}}, 8))
    assert b"late_verdicts" not in reply.body
    await trio.aclose_forcefully(again)


@pytest.mark.real_time
async def test_an_answer_that_came_while_nobody_read_is_there_for_who_comes_back(
    at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(at)
    await session.open()
    stream, events = await session.begin(ask())
    marked, _ = await events.next()
    id = (await at.card()).id
    seen = broken_off(monkeypatch)
    await trio.aclose_forcefully(stream)
    await seen.wait()
    await at.board.operator("ann").approve(id)
    again, more = await session.resume(marked)
    _, message = await more.next()
    assert message["result"]["structuredContent"] == {"status": "approved", "request_id": id, "message": APPROVED}
    await trio.aclose_forcefully(again)


@pytest.mark.real_time
async def test_who_does_not_come_back_is_away_and_is_told_with_the_next_call(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable, "RESUME_SECONDS", 0.2)
    async with place(root) as at:
        session = Session(at)
        await session.open()
        stream, events = await session.begin(ask())
        await events.next()
        id = (await at.card()).id
        await trio.aclose_forcefully(stream)
        await until(lambda: is_away(at))
        await at.board.operator("ann").approve(id)
        reply = await session.post(rpc("tools/call", {"name": "ping", "arguments": {}}, 8))
        assert b"late_verdicts" in reply.body


@pytest.mark.real_time
async def test_a_session_says_the_same_of_itself_for_as_long_as_it_lasts(at: Place) -> None:
    session = Session(at)
    await session.open()
    for query in ("agent=two", "agent=one&channel_id=C0123456789", ""):
        reply = await session.post(rpc("tools/list", {}, 3), path=f"/mcp?{query}")
        assert (reply.status, reply.error["data"]["error_code"]) == (400, "invalid_arguments")
    assert (await session.post(rpc("tools/list", {}, 3), path="/mcp", **{"X-Intercom-Agent": "one"})).status == 200


@pytest.mark.real_time
async def test_an_agent_that_ends_its_session_is_gone_for_good_and_its_work_is_its_own(at: Place) -> None:
    async with at.client("agent=one", "legacy") as client:
        session_id = (await call(client, "ping"))["session_id"]
    assert not at.app.connected_agents.connected("http:one")

    async def interrupted() -> bool:
        (session,) = await at.board.service.sessions()
        return session.status is SessionStatus.INTERRUPTED

    await until(interrupted)
    async with at.client("agent=two") as other:
        assert (await call(other, "reboot"))["status"] == "clean"
    async with at.client("agent=one") as client:
        assert (await call(client, "ping"))["session_id"] == session_id


@pytest.mark.real_time
async def test_after_a_restart_a_session_is_unknown_and_its_agent_finds_all_again(root: Path) -> None:
    async with place(root) as at:
        session = Session(at)
        await session.open()
        stream, id = await begun(at)
    # The call that waited was told so before the server left.
    told = b""
    while data := await stream.receive_some(65536):
        told += data
    assert b'"pending"' in told
    assert id.encode() in told
    async with place(root) as at:
        session.at = at
        reply = await session.post(rpc("tools/list", {}, 3))
        assert (reply.status, reply.error["data"]["error_code"]) == (404, "not_found")
        await at.board.operator("ann").approve(id)
        for mode in ("legacy", "auto"):
            async with at.client("agent=one", mode) as client:
                answer = await call(client, "check_clearance", request_id=id)
                assert answer["status"] == "approved"


@pytest.mark.real_time
async def test_a_port_that_is_taken_is_told_of_and_opened_when_it_is_free(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_RETRY_SECONDS", (0.05, 0.05))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with place(root, http_port=port) as at:
            assert "another program listens there" in str(at.app.http.fault)
            agent = at.board.agent("inside")
            assert (await agent.ping()).answer.acknowledged
            taken.close()
            await until(lambda: at.app.http is not None and at.app.http.port == port)
            async with at.client("agent=one") as client:
                assert (await call(client, "ping"))["acknowledged"]
            where = trio.Path(at.app.places.http_address_file)
            assert await where.read_text() == f"http://127.0.0.1:{port}\n"
        assert not await where.exists()


@pytest.mark.real_time
async def test_without_its_token_nobody_is_served_over_http_and_all_others_are(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_RETRY_SECONDS", (0.05, 0.05))
    async with place(root) as at:
        file = trio.Path(at.app.places.http_token_file)
    await file.chmod(0o644)
    async with place(root) as at:
        http = at.app.http
        assert "run chmod go-rwx" in str(http.fault)
        assert (http.port, http.token) == (None, None)
        assert (await at.board.agent("inside").ping()).answer.acknowledged
        await file.chmod(0o600)
        await until(lambda: http.port is not None)
        assert http.token == (await file.read_text()).strip()
        assert (await at.post(b"{}", headers={"Authorization": None})).status == 401


@pytest.mark.real_time
async def test_a_machine_has_so_many_calls_without_a_name_under_way(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_ANONYMOUS", 1)
    ping, told = modern("ping", {})
    async with place(root) as at:
        stream, _ = await begun(at, "/mcp")
        refused = await at.post(ping, headers=told)
        assert (refused.status, refused.error["data"]["error_code"]) == (429, "busy")
        assert (await at.post(ping, path="/mcp?agent=one", headers=told)).status == 200
        await trio.aclose_forcefully(stream)
        await until(lambda: is_away(at))

        async def is_let_in() -> bool:
            return (await at.post(ping, headers=told)).status == 200

        await until(is_let_in)


@pytest.mark.real_time
async def test_who_opens_sessions_without_end_gets_those_it_uses(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_EACH", 2)
    async with place(root) as at:
        first = Session(at)
        await first.open()
        stream, events = await first.begin(ask())
        await events.next()
        second, third = Session(at), Session(at)
        await second.open()
        # The one that waits is in use; the other makes room.
        await third.open()
        assert (await second.post(rpc("tools/list", {}, 3))).status == 404
        busy, more = await third.begin(ask(9))
        await more.next()
        refused = await at.post(rpc("initialize", INITIALIZE), path="/mcp?agent=one")
        assert (refused.status, refused.error["data"]["error_code"]) == (429, "busy")
        for each in (stream, busy):
            await trio.aclose_forcefully(each)


@pytest.mark.real_time
async def test_what_opens_no_session_costs_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_EACH", 1)
    async with place(root) as at:
        session = Session(at)
        await session.open()
        for message in (b"{", b"[]", rpc("tools/list"), {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            assert (await at.post(message, path="/mcp?agent=one")).status == 400
        for method in ("GET", "DELETE"):
            assert (await at.post(b"", path="/mcp?agent=one", method=method)).status == 400
        assert (await session.post(rpc("tools/list", {}, 3))).status == 200


@pytest.mark.real_time
async def test_sessions_that_are_opened_at_once_are_counted_and_so_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS_EACH", 1)
    monkeypatch.setattr(http_sessions, "MOST_NAMED", 1)
    nothing: Any = None
    at = http_sessions.HttpSessions(http_sessions.ConnectionFactory(nothing, nothing, nothing), nothing)
    one, two = access_rules.Identity(agent="one"), access_rules.Identity(agent="two")
    coming = await at.begin(one, "")
    with pytest.raises(Refusal):
        await at.begin(one, "")
    at.forget(coming)
    await at.begin(one, "")
    first = at.of(one)
    assert at.of(one) is first
    assert at.of(two) is not first
    assert list(at.named) == [two]
    at.named[two].requests = 1
    with pytest.raises(Refusal):
        at.of(one)


async def test_nobody_is_waited_for_who_came_for_a_session_that_has_ended() -> None:
    nothing: Any = None
    ended: list[str] = []

    async def end_session(id: str) -> None:
        ended.append(id)

    async with System([]) as system:
        at = http_sessions.HttpSessions(
            http_sessions.ConnectionFactory(system, nothing, ConnectedAgents()), end_session
        )
        system.adopt(Actor(), "session/lives")
        for number, who in enumerate(("over", "lives", "over", "over")):
            visit = await at.begin(access_rules.Identity(session_id=who), "")
            at.opened(visit, f"{who} {number}")
            visit.requests = 1
            if number < 3:
                visit.ended()
        with trio.move_on_after(http_sessions.ENDED_SECONDS + 10):
            await at.expire()
    assert ended == ["over 0", "over 2"]
    assert list(at.sessions) == ["lives 1", "over 3"]


async def test_a_client_whose_processes_have_ended_is_gone_and_no_stall_until_another_comes() -> None:
    nothing: Any = None
    gone = 2**22 + 1
    connected_agents = ConnectedAgents()
    async with System([]) as system:
        at = http_sessions.HttpSessions(http_sessions.ConnectionFactory(system, nothing, connected_agents), nothing)

        async def next_look() -> None:
            with trio.move_on_after(6):
                await at.expire()

        asked: dict[str, http_sessions.HttpSession] = {}
        for name, pids in {
            "ended": frozenset({gone}),
            "one lives": frozenset({gone, os.getpid()}),
            "unknown": frozenset(),
            "at work": frozenset({gone}),
        }.items():
            asked[name] = visit = at.of(access_rules.Identity(agent=name))
            visit.begun(pids)
            if name != "at work":
                visit.ended()
        keys = {name: visit.agent.key for name, visit in asked.items()}
        await next_look()
        assert [name for name in asked if not connected_agents.connected(keys[name])] == ["ended"]
        # It is the same agent when it comes again, and what was sent to it was not lost.
        again = at.of(access_rules.Identity(agent="ended"))
        assert again is asked["ended"]
        again.begun(frozenset({os.getpid()}))
        assert connected_agents.connected(keys["ended"])
        again.ended()
        await next_look()
        assert connected_agents.connected(keys["ended"])
        asked["at work"].ended()
        await next_look()
        assert not connected_agents.connected(keys["at work"])
        at.close()
        assert not any(connected_agents.connected(key) for key in keys.values())


@pytest.mark.real_time
async def test_a_call_that_waits_without_progress_is_kept_alive_by_bytes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EventSourceResponse.DEFAULT_PING_INTERVAL <= 15
    assert modern_transport._SSE_PING_INTERVAL <= 15
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.05)
    monkeypatch.setattr(modern_transport, "_SSE_PING_INTERVAL", 0.05)
    async with place(root) as at:
        session = Session(at, "agent=two")
        await session.open()
        alone, _ = await begun(at)
        within, _ = await session.begin(ask())
        for stream in (alone, within):
            told = b""
            while told.count(b": ping") < 3:
                told += await stream.receive_some(65536)
            assert b"text/event-stream" in told
            await trio.aclose_forcefully(stream)
