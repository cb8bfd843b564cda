"""A connection: the handshake in either version, requests and what a hostile downstream cannot do to them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from intercom.gateway.breaker import Failure
from intercom.gateway.carrier import CarrierDetail, CarrierLost, Incoming, Received, RequestFailed
from intercom.gateway.connection import Connection
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.handshake import PROBE_SECONDS, HandshakeError, connect
from intercom.gateway.messages import AgentPeer, CallFailed, RpcError
from intercom.gateway.stdio_carrier import open_process
from intercom.model.json_types import JsonObject, part
from tests.gateway.programs import environ, is_alive, program

OLD, MODERN = "2025-11-25", "2026-07-28"
INFO: JsonObject = {"name": "fake", "version": "1"}


@define(eq=False)
class Heard:
    """What a downstream said on its own."""

    methods: list[str] = field(factory=list)
    lines: list[str] = field(factory=list)

    def notified(self, method: str, params: JsonObject, agent: AgentPeer | None) -> None:
        self.methods.append(method)

    def junk(self, text: str) -> None:
        self.lines.append(text)


@define(eq=False)
class Agent:
    """An agent whose client answers with what `answer` returns."""

    id: str = "agent"
    capabilities: JsonObject = field(factory=lambda: {"sampling": {}, "elicitation": {}, "roots": {}})
    answer: Callable[[str, JsonObject], JsonObject] = lambda method, params: {"of": method}
    waits: bool = False
    gate: trio.Event | None = None
    told: list[tuple[str, JsonObject]] = field(factory=list)
    asked: list[str] = field(factory=list)
    given_up: int = 0

    def notify(self, method: str, params: JsonObject) -> None:
        self.told.append((method, params))

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        self.asked.append(method)
        if self.waits:
            try:
                await trio.sleep_forever()
            finally:
                self.given_up += 1
        if self.gate is not None:
            await self.gate.wait()
        return self.answer(method, params)


# --- A downstream in memory, in virtual time

Script = Callable[["Fake", JsonObject], Iterable[object] | None]


class Fake:
    """A carrier whose downstream is a function: it gets each message, and returns what comes back, or None for nothing.
    Objects come back as JSON, a text is the reason why the carrier is lost."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.sent: list[JsonObject] = []
        self.closed: list[int] = []
        self.closes_posts = False
        self.version = ""
        self.ended = False
        self._in, self._out = trio.open_memory_channel[object](100_000)

    def says(self, *answers: object) -> None:
        for answer in answers:
            self._in.send_nowait(answer)

    async def send(self, message: JsonObject) -> None:
        json.dumps(message, allow_nan=False)
        await trio.lowlevel.checkpoint()
        self.sent.append(message)
        self.says(*(self.script(self, message) or ()))

    async def receive(self) -> Incoming:
        came = await self._out.receive()
        if isinstance(came, str):
            self.says(came)
            raise CarrierLost(came)
        if isinstance(came, bytes | Received | RequestFailed):
            return came
        return json.dumps(came).encode()

    def cancel(self, id: int) -> bool:
        self.closed.append(id)
        return self.closes_posts

    def negotiated(self, version: str) -> None:
        self.version = version

    def detail(self) -> CarrierDetail:
        return CarrierDetail(stderr="last words")

    def methods(self) -> list[object]:
        return [message.get("method") for message in self.sent]


@define(eq=False)
class Fakes:
    """Opens one fake after the other, each with its own script; the last one again and again."""

    scripts: Sequence[Script]
    opened: list[Fake] = field(factory=list)

    @asynccontextmanager
    async def __call__(self, config: DownstreamConfig) -> AsyncIterator[Fake]:
        fake = Fake(self.scripts[min(len(self.opened), len(self.scripts) - 1)])
        self.opened.append(fake)
        try:
            yield fake
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            fake.ended = True


def result(message: JsonObject, **values: Any) -> JsonObject:
    return {"jsonrpc": "2.0", "id": message["id"], "result": values}


def error(message: JsonObject, code: int, text: str = "no", data: object = None) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text, "data": data}}


def greets(fake: Fake, message: JsonObject) -> Iterable[object] | None:
    """A handshake of 2025-11-25."""
    if message["method"] == "initialize":
        return [result(message, protocolVersion=OLD, capabilities={"tools": {}}, serverInfo=INFO, instructions="do")]
    return [error(message, -32601)] if message["method"] == "server/discover" else None


def discovers(fake: Fake, message: JsonObject) -> Iterable[object] | None:
    """A downstream of 2026-07-28."""
    if message["method"] == "server/discover":
        meta = {"io.modelcontextprotocol/serverInfo": INFO}
        return [result(message, supportedVersions=[MODERN], capabilities={"tools": {}}, _meta=meta)]
    return [error(message, -32022)] if message["method"] == "initialize" else None


def then(handshake: Script, script: Script) -> Script:
    """First the handshake, then the script."""

    def both(fake: Fake, message: JsonObject) -> Iterable[object] | None:
        if message["method"] in ("initialize", "server/discover", "notifications/initialized"):
            return handshake(fake, message)
        return script(fake, message)

    return both


def silent(fake: Fake, message: JsonObject) -> None:
    """A downstream that never answers."""


def dies(fake: Fake, message: JsonObject) -> Iterable[object]:
    """A downstream that ends at the first message."""
    return ["the process exited with status 1"]


CONFIG = DownstreamConfig("x", Transport.STDIO, ("x.*",), "1.0.0", command="x", startup_seconds=60.0)


def connected(
    fakes: Fakes, version: str | None = None, tell: Heard | None = None
) -> AbstractAsyncContextManager[Connection]:
    return connect(CONFIG, fakes, version=version, capabilities={"roots": {}}, tell=tell or Heard())


# --- The handshake


async def test_a_modern_downstream_is_discovered() -> None:
    fakes = Fakes([discovers])
    async with connected(fakes) as connection:
        assert (connection.version, connection.server, connection.capabilities) == (MODERN, INFO, {"tools": {}})
    (fake,) = fakes.opened
    assert (fake.methods(), fake.version, fake.ended) == (["server/discover"], MODERN, True)


async def test_an_older_downstream_gets_the_older_handshake_on_the_same_carrier() -> None:
    fakes = Fakes([greets])
    async with connected(fakes) as connection:
        assert (connection.version, connection.server, connection.instructions) == (OLD, INFO, "do")
    (fake,) = fakes.opened
    assert fake.methods() == ["server/discover", "initialize", "notifications/initialized"]
    assert part(fake.sent[1], "params")["capabilities"] == {"roots": {}}
    assert "_meta" not in part(fake.sent[1], "params")
    assert fake.version == OLD


async def test_a_version_that_is_known_saves_the_attempt() -> None:
    fakes = Fakes([greets])
    async with connected(fakes, version="2025-06-18"):
        assert fakes.opened[0].methods() == ["initialize", "notifications/initialized"]


async def test_a_downstream_that_now_speaks_only_the_new_version_is_discovered() -> None:
    fakes = Fakes([discovers])
    async with connected(fakes, version=OLD) as connection:
        assert connection.version == MODERN
    assert [fake.methods() for fake in fakes.opened] == [["initialize"], ["server/discover"]]


@pytest.mark.parametrize(
    "answer",
    [
        lambda m: result(m, supportedVersions=[OLD]),
        lambda m: result(m, supportedVersions=MODERN),
        lambda m: result(m, supportedVersions=[7, None, {}]),
        lambda m: result(m),
        lambda m: error(m, -32022, data={"supported": ["1999"]}),
        lambda m: {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "parse error"}},
        lambda m: {"jsonrpc": "2.0", "id": m["id"], "result": "text"},
        lambda m: RequestFailed(m["id"], Failure.PROTOCOL, "the server answered with status 400"),
        lambda m: b'{"jsonrpc":"2.0","id":%d,"result":{]}' % m["id"],
    ],
)
async def test_any_other_answer_to_the_discovery_leads_to_the_older_handshake(answer: Any) -> None:
    fakes = Fakes([lambda fake, m: [answer(m)] if m["method"] == "server/discover" else greets(fake, m)])
    async with connected(fakes) as connection:
        assert connection.version == OLD
    assert len(fakes.opened) == 1


async def test_a_downstream_that_dies_at_the_discovery_is_started_again_without_it() -> None:
    fakes = Fakes([dies, greets])
    async with connected(fakes) as connection:
        assert connection.version == OLD
        assert fakes.opened[0].ended
    assert fakes.opened[1].methods() == ["initialize", "notifications/initialized"]


async def test_a_downstream_that_ignores_the_discovery_gets_the_older_handshake_after_three_seconds() -> None:
    fakes = Fakes([lambda fake, m: None if m["method"] == "server/discover" else greets(fake, m)])
    async with connected(fakes) as connection:
        assert (connection.version, connection.handshake_seconds) == (OLD, 3.0)
    assert len(fakes.opened) == 1


async def test_a_slow_modern_downstream_is_not_taken_for_an_old_one() -> None:
    """As a program that is first downloaded: both requests wait in its pipe."""
    late: list[JsonObject] = []

    def script(fake: Fake, message: JsonObject) -> Iterable[object] | None:
        late.append(message)
        if len(late) < 2:
            return None
        return [answer for each in late for answer in discovers(fake, each) or ()]

    async with connected(Fakes([script])) as connection:
        assert connection.version == MODERN


async def test_an_error_to_the_older_handshake_does_not_hide_a_later_discovery() -> None:
    late: list[JsonObject] = []

    def script(fake: Fake, message: JsonObject) -> Iterable[object] | None:
        late.append(message)
        return None if len(late) < 2 else [*discovers(fake, late[1]), *discovers(fake, late[0])]  # type: ignore[misc]

    async with connected(Fakes([script])) as connection:
        assert connection.version == MODERN


async def test_a_downstream_that_the_discovery_has_silenced_is_started_again_in_half_of_the_time() -> None:
    fakes = Fakes([silent, greets])
    async with connected(fakes) as connection:
        # A fake takes a second to end.
        assert (connection.version, connection.handshake_seconds) == (OLD, 31.0)
    assert fakes.opened[0].ended


@pytest.mark.parametrize(
    ("script", "version", "reason", "detail"),
    [
        (silent, None, "the handshake was not answered within 60 s", ""),
        (silent, OLD, "the handshake was not answered within 60 s", ""),
        (dies, None, "the process exited with status 1", ""),
        (dies, OLD, "the process exited with status 1", ""),
        (
            lambda f, m: [error(m, -32000, "no\x1b[1m")],
            None,
            "the downstream answered the handshake with error -32000",
            "no",
        ),
        (lambda f, m: [error(m, -32022)], OLD, "the downstream answered the handshake with error -32022", "no"),
        (
            lambda f, m: [result(m, protocolVersion="1999")],
            None,
            "the downstream speaks no protocol version that Intercom knows",
            "version 1999",
        ),
        (
            lambda f, m: [result(m, protocolVersion=MODERN)],
            OLD,
            "the downstream speaks no protocol version that Intercom knows",
            f"version {MODERN}",
        ),
        (
            lambda f, m: [{"id": None, "error": {"code": -32700, "message": "parse"}}],
            None,
            "the downstream answered the handshake with error -32700",
            "parse",
        ),
        (
            lambda f, m: [b"Usage: server [--port]", "the process exited with status 2"],
            None,
            "the process exited with status 2",
            "Usage: server [--port]",
        ),
    ],
)
async def test_a_handshake_that_fails_has_a_reason(
    script: Script, version: str | None, reason: str, detail: str
) -> None:
    fakes = Fakes([script])
    with pytest.raises(HandshakeError) as caught:
        async with connected(fakes, version=version):
            raise AssertionError
    assert caught.value.reason == f"could not be made: {reason}"
    assert caught.value.detail == f"{detail}\nlast words".lstrip()
    assert caught.value.carrier.stderr == "last words"
    assert all(fake.ended for fake in fakes.opened)
    assert len(fakes.opened) <= 2


async def test_a_carrier_that_does_not_open_has_a_reason_too() -> None:
    @asynccontextmanager
    async def missing(config: DownstreamConfig) -> AsyncIterator[Fake]:
        raise CarrierLost("the program x does not exist")
        yield Fake(silent)

    @asynccontextmanager
    async def slow(config: DownstreamConfig) -> AsyncIterator[Fake]:
        await trio.sleep_forever()
        yield Fake(silent)

    for opener, reason in ((missing, "the program x does not exist"), (slow, "was not answered within 60 s")):
        with pytest.raises(HandshakeError, match=reason):
            async with connect(CONFIG, opener, tell=Heard()):
                raise AssertionError


async def test_a_handshake_can_be_cancelled_at_any_moment() -> None:
    for after in range(40):
        fakes = Fakes([silent, then(greets, silent)])
        with trio.move_on_after(after) as scope:
            async with connected(fakes):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert all(fake.ended for fake in fakes.opened)


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    for raised in (KeyError("own"), HandshakeError("could not be used"), RpcError(1, "x")):
        with pytest.raises(type(raised)) as caught:
            async with connected(Fakes([greets])):
                raise raised
        assert caught.value is raised


# --- Requests


def echoes(fake: Fake, message: JsonObject) -> Iterable[object] | None:
    return [result(message, echo=message["params"])] if "id" in message else None


async def test_a_request_returns_its_result_or_raises_its_error() -> None:
    def script(fake: Fake, message: JsonObject) -> Iterable[object] | None:
        return [error(message, -32602, "bad", {"x": 1})] if message["method"] == "bad" else echoes(fake, message)

    async with connected(Fakes([then(greets, script)])) as connection:
        assert await connection.request("tools/call", {"a": 1}) == {"echo": {"a": 1}}
        with pytest.raises(RpcError) as caught:
            await connection.request("bad", {})
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "bad", {"x": 1})
        for bad in (float("nan"), {1, 2}):
            with pytest.raises(RpcError, match="the request is not valid JSON"):
                await connection.request("tools/call", {"a": bad})  # type: ignore[dict-item]
        assert connection.running == 0


async def test_a_check_uses_the_request_that_the_version_has() -> None:
    for handshake, method in ((greets, "ping"), (discovers, "server/discover")):
        fakes = Fakes([then(handshake, echoes)])
        async with connected(fakes) as connection:
            await connection.check()
        assert fakes.opened[0].methods()[-1] == method


async def test_a_cancelled_request_is_cancelled_at_the_downstream_and_its_late_answer_dropped() -> None:
    fakes = Fakes([then(greets, silent)])
    async with connected(fakes) as connection:
        with trio.move_on_after(5):
            await connection.request("tools/call", {})
        (fake,) = fakes.opened
        id = fake.sent[-1]["id"]
        fake.says({"id": id, "result": {}})
        await trio.testing.wait_all_tasks_blocked()
        assert fake.sent[-1] == {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        assert (connection.dropped_answers, connection.running) == (1, 0)


async def test_a_request_whose_post_is_closed_needs_no_notification() -> None:
    fakes = Fakes([then(discovers, silent)])
    async with connected(fakes) as connection:
        fakes.opened[0].closes_posts = True
        with trio.move_on_after(5):
            await connection.request("tools/call", {})
        await trio.testing.wait_all_tasks_blocked()
        assert fakes.opened[0].methods() == ["server/discover", "tools/call"]
        assert fakes.opened[0].closed == [fakes.opened[0].sent[-1]["id"]]


async def test_a_lost_connection_fails_what_runs_and_what_comes() -> None:
    fakes = Fakes([then(greets, silent)])
    async with connected(fakes) as connection, trio.open_nursery() as nursery:
        failed: list[CallFailed] = []

        async def call() -> None:
            with pytest.raises(CallFailed) as caught:
                await connection.request("tools/call", {})
            failed.append(caught.value)

        for _ in range(3):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        assert not connection.is_lost
        fakes.opened[0].says("the process was ended by SIGKILL")
        assert await connection.wait_lost() == "was lost: the process was ended by SIGKILL"
        await call()
        assert connection.is_lost
    assert {each.reason for each in failed} == {"the process was ended by SIGKILL"}
    assert sorted(each.was_sent for each in failed) == [False, True, True, True]


async def test_a_request_that_outlives_the_block_fails() -> None:
    async with trio.open_nursery() as nursery:
        failed: list[str] = []

        async def call() -> None:
            with pytest.raises(CallFailed) as caught:
                await connection.request("tools/call", {})
            failed.append(caught.value.reason)

        async with connected(Fakes([then(greets, silent)])) as connection:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
    assert failed == ["the gateway closed it"]


async def test_a_failed_post_fails_one_request() -> None:
    fakes = Fakes([then(discovers, silent)])
    async with connected(fakes) as connection, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(CallFailed) as caught:
                await connection.request("tools/call", {})
            assert (caught.value.failure, caught.value.was_sent) == (Failure.TRANSPORT, False)

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        id = fakes.opened[0].sent[-1]["id"]
        assert isinstance(id, int)
        fakes.opened[0].says(RequestFailed(id, Failure.TRANSPORT, "the server cannot be reached", was_sent=False))
        await trio.testing.wait_all_tasks_blocked()
        assert not connection.is_lost


# --- What the downstream says and asks


async def test_progress_comes_in_order_and_not_after_the_answer() -> None:
    def script(fake: Fake, message: JsonObject) -> Iterable[object]:
        told = [
            {"method": "notifications/progress", "params": {"progressToken": message["id"], "progress": n}}
            for n in (1, 2.5, 3)
        ]
        return [*told, result(message), told[0]]

    agent = Agent()
    async with connected(Fakes([then(greets, script)])) as connection:
        await connection.request("tools/call", {}, agent=agent, progress_token="t")
        await trio.testing.wait_all_tasks_blocked()
    assert [params["progress"] for _, params in agent.told] == [1, 2.5, 3]
    assert {params["progressToken"] for _, params in agent.told} == {"t"}


async def test_an_agent_that_cannot_be_told_costs_nobody_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Agent):
        def notify(self, method: str, params: JsonObject) -> None:
            raise KeyError(method)

    def script(fake: Fake, message: JsonObject) -> Iterable[object]:
        log: JsonObject = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
        return [log, result(message)]

    async with connected(Fakes([then(greets, script)])) as connection:
        assert await connection.request("tools/call", {}, agent=Broken()) == {}
        assert not connection.is_lost
    assert "an agent could not be told notifications/message" in caplog.text


def asks(method: str = "sampling/createMessage") -> Script:
    """Asks for each call, and answers the call with the answer."""
    calls: list[JsonObject] = []

    def script(fake: Fake, message: JsonObject) -> Iterable[object] | None:
        if message.get("method") == "tools/call":
            calls.append(message)
            return [{"id": 0, "method": method}]
        return [result(calls.pop(), got=message)] if "method" not in message else None

    return lambda fake, message: (
        script(fake, message) if "method" not in message else then(greets, script)(fake, message)
    )


async def test_a_question_is_answered_by_the_agent_of_the_only_request() -> None:
    async with connected(Fakes([asks()])) as connection:
        found = await connection.request("tools/call", {}, agent=Agent())
    assert found["got"] == {"jsonrpc": "2.0", "id": 0, "result": {"of": "sampling/createMessage"}}


async def raises(exception: BaseException) -> object:
    def answer(method: str, params: JsonObject) -> JsonObject:
        raise exception

    async with connected(Fakes([asks()])) as connection:
        found = await connection.request("tools/call", {}, agent=Agent(answer=answer))
    return part(part(found, "got"), "error").get("code")


async def test_an_agent_that_cannot_be_asked_is_an_error_for_the_downstream() -> None:
    assert await raises(RpcError(-1, "rejected")) == -1
    assert await raises(KeyError("bug")) == -32603


async def test_an_agents_answer_that_is_not_json_is_an_error_for_the_downstream() -> None:
    async with connected(Fakes([asks()])) as connection:
        found = await connection.request("tools/call", {}, agent=Agent(answer=lambda m, p: {"x": float("inf")}))
    assert part(part(found, "got"), "error")["code"] == -32603


async def test_a_question_is_withdrawn_from_the_agent_when_its_request_ends() -> None:
    agent, fakes = Agent(waits=True), Fakes([asks()])
    async with connected(fakes) as connection:
        with trio.move_on_after(5):
            await connection.request("tools/call", {}, agent=agent)
        await trio.testing.wait_all_tasks_blocked()
        assert agent.given_up == 1
        assert {"requestId": 1} not in [message.get("params") for message in fakes.opened[0].sent]
        assert any("error" in message for message in fakes.opened[0].sent[-3:])


async def test_the_time_limit_of_a_call_stands_still_while_the_agent_answers() -> None:
    answers = trio.Event()
    async with connected(Fakes([asks()])) as connection, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def answer() -> None:
            await trio.sleep(100)
            answers.set()

        with trio.fail_after(30) as limit:
            found = await connection.request("tools/call", {}, agent=Agent(gate=answers), limit=limit)
    assert part(found, "got")["result"] == {"of": "sampling/createMessage"}


async def test_a_question_is_withdrawn_when_the_downstream_cancels_it_or_is_lost() -> None:
    for end in ({"method": "notifications/cancelled", "params": {"requestId": 0}}, "the process closed its output"):
        agent, fakes = Agent(waits=True), Fakes([asks()])
        async with connected(fakes) as connection, trio.open_nursery() as nursery:

            async def call(connection: Connection = connection, agent: Agent = agent) -> None:
                with trio.CancelScope(), pytest.raises(CallFailed):
                    await connection.request("tools/call", {}, agent=agent)

            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            assert agent.asked == ["sampling/createMessage"]
            fakes.opened[0].says(end)
            await trio.testing.wait_all_tasks_blocked()
            assert agent.given_up == 1
            connection.close()


async def test_a_downstream_that_asks_and_never_reads_is_lost() -> None:
    fakes = Fakes([then(greets, silent)])
    async with connected(fakes) as connection:
        (fake,) = fakes.opened

        async def never(message: JsonObject) -> None:
            await trio.sleep_forever()

        fake.send = never  # type: ignore[method-assign]
        fake.says(*({"id": n, "method": "ping"} for n in range(5000)))
        assert await connection.wait_lost() == "was lost: the downstream does not read what it is sent"


async def test_a_flood_is_read_slowly_and_does_not_stop_calls() -> None:
    heard = Heard()
    fakes = Fakes([then(greets, echoes)])
    async with connected(fakes, tell=heard) as connection:
        began = trio.current_time()
        fakes.opened[0].says(*({"method": "notifications/tools/list_changed"} for _ in range(20_000)))
        assert await connection.request("tools/call", {}) == {"echo": {}}
        assert len(heard.methods) == 20_000
        # The first 10,000 come at once, and the others at 2,000 in a second.
        assert trio.current_time() - began == pytest.approx(5.0, abs=0.1)


# --- Input before the answer (2026-07-28)

WANTS: JsonObject = {
    "resultType": "input_required",
    "requestState": "opaque",
    "inputRequests": {"q": {"method": "elicitation/create", "params": {"message": "Name?"}}},
}


def wants(wanted: JsonObject = WANTS, rounds: int = 1) -> tuple[Script, list[JsonObject]]:
    seen: list[JsonObject] = []

    def script(fake: Fake, message: JsonObject) -> Iterable[object] | None:
        if "id" not in message:
            return None
        seen.append(part(message, "params"))
        return [{"id": message["id"], "result": wanted if len(seen) <= rounds else {"done": len(seen)}}]

    return then(discovers, script), seen


async def test_a_modern_agent_gets_the_question_itself() -> None:
    script, seen = wants()
    async with connected(Fakes([script])) as connection:
        found = await connection.request("tools/call", {"name": "a"}, agent=Agent(), modern_agent=True)
    assert (found, len(seen)) == (WANTS, 1)


async def test_an_older_agent_is_asked_and_the_request_repeated() -> None:
    script, seen = wants(rounds=3)
    agent = Agent(answer=lambda method, params: {"action": "accept", "content": dict(params)})
    async with connected(Fakes([script])) as connection:
        assert await connection.request("tools/call", {"name": "a"}, agent=agent) == {"done": 4}
    assert agent.asked == ["elicitation/create"] * 3
    assert seen[3]["inputResponses"] == {"q": {"action": "accept", "content": {"message": "Name?"}}}
    assert (seen[3]["requestState"], seen[3]["name"]) == ("opaque", "a")


async def test_a_result_with_a_state_only_is_asked_for_again_after_a_pause() -> None:
    script, seen = wants({"resultType": "input_required", "requestState": "s"})
    async with connected(Fakes([script])) as connection:
        assert await connection.request("tools/call", {"name": "a"}) == {"done": 2}
    assert "inputResponses" not in seen[1]


async def test_a_downstream_that_always_asks_is_given_up() -> None:
    script, seen = wants(rounds=1000)
    async with connected(Fakes([script])) as connection:
        with pytest.raises(CallFailed, match="more than 10 times") as caught:
            await connection.request("tools/call", {}, agent=Agent())
    assert (caught.value.failure, len(seen)) == (Failure.PROTOCOL, 11)


@pytest.mark.parametrize(
    "wanted",
    [
        "text",
        ["q"],
        {"q": "text"},
        {"q": {"method": 7}},
        {"q": {"method": "roots/list", "params": []}},
        {str(n): {"method": "roots/list"} for n in range(21)},
    ],
)
async def test_input_that_nobody_can_give_fails_the_call(wanted: Any) -> None:
    script, _ = wants({"resultType": "input_required", "inputRequests": wanted})
    async with connected(Fakes([script])) as connection:
        with pytest.raises(CallFailed) as caught:
            await connection.request("tools/call", {}, agent=Agent())
    assert caught.value.failure is Failure.PROTOCOL


async def test_an_agent_without_forms_declines_and_one_without_sampling_gets_an_error() -> None:
    script, seen = wants()
    async with connected(Fakes([script])) as connection:
        await connection.request("tools/call", {}, agent=Agent(capabilities={}))
    assert seen[1]["inputResponses"] == {"q": {"action": "decline"}}

    for method in ("sampling/createMessage", "tools/call"):
        script, _ = wants({"resultType": "input_required", "inputRequests": {"q": {"method": method}}}, 9)
        async with connected(Fakes([script])) as connection:
            with pytest.raises(RpcError, match="cannot give"):
                await connection.request("tools/call", {}, agent=Agent(capabilities={}))
            with pytest.raises(RpcError, match="no agent made this request"):
                await connection.request("tools/call", {})
            assert connection.running == 0


# --- Hostile programs


@asynccontextmanager
async def hostile(code: str, heard: Heard | None = None, **settings: Any) -> AsyncIterator[Connection]:
    """A connection to a program, which is gone at the end."""
    config = program(code, **settings)
    async with connect(config, partial(open_process, environ=environ()), version=OLD, tell=heard or Heard()) as made:
        pid = made.pid
        assert pid is not None
        yield made
    assert not is_alive(pid)


async def call(connection: Connection, **params: Any) -> JsonObject:
    return await connection.request("tools/call", params)


pytest_real = pytest.mark.real_time


async def test_a_few_long_messages_that_nobody_asked_for_count_as_many() -> None:
    fakes = Fakes([then(greets, echoes)])
    async with connected(fakes) as connection:
        began = trio.current_time()
        fakes.opened[0].says(*({"junk": "x" * 512_000} for _ in range(20)))
        await connection.request("tools/call", {})
        assert trio.current_time() - began == pytest.approx(5.0, abs=0.1)


@pytest_real
async def test_a_program_that_answers_wrong_calls_twice_and_with_texts_disturbs_only_itself() -> None:
    code = """
for message in calls():
    id = message["id"]
    raw(b"npm WARN deprecated\\n\\xff\\xfe\\n{broken\\n[]\\n")
    for wrong in (id + 1, str(id + 7), None, True, [id], {"a": id}, -id, 10 ** 30): put(id=wrong, result={"wrong": 1})
    put(id=str(id), result={"right": id})
    put(id=id, result={"again": 1})
    raw(json.dumps([{"id": id, "result": {}}, {"method": "notifications/tools/list_changed"}, 7]).encode() + b"\\n")
"""
    heard = Heard()
    async with hostile(code, heard) as connection:
        for _ in range(20):
            assert (await call(connection)).keys() == {"right"}
        await connection.check()
        assert connection.dropped_answers >= 200
        assert connection.junk_lines >= 100
    assert "npm WARN deprecated" in heard.lines
    assert "npm WARN deprecated" in connection.detail().output


@pytest_real
async def test_a_program_that_breaks_one_answer_fails_one_call_at_once() -> None:
    code = r"""
for message in calls():
    how = message["params"].get("how")
    head = b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % message["id"]
    if how == "utf8": raw(head + b'\xff"}}' + b"\n")
    elif how == "cut": raw(head + b"\n")
    elif how == "nan": raw(b'{"jsonrpc":"2.0","id":%d,"result":{"x":NaN}}' % message["id"] + b"\n")
    elif how == "deep": raw(b'{"id":%d,"result":' % message["id"] + b'{"a":' * 200000 + b"\n")
    else: echo(message)
"""
    async with hostile(code) as connection:
        for how in ("utf8", "cut", "nan", "deep"):
            with pytest.raises(CallFailed, match="the answer is not valid") as caught:
                await call(connection, how=how)
            assert caught.value.failure is Failure.PROTOCOL
            assert await call(connection) == {"echo": {}}


@pytest_real
async def test_a_program_that_floods_does_not_keep_others_from_running() -> None:
    flooding = """
import threading
def flood():
    while True: raw(b'{"method":"notifications/tools/list_changed"}\\n' * 500 + b"junk\\n" * 500 + b"\\n" * 50000)
for message in calls():
    echo(message)
    threading.Thread(target=flood, daemon=True).start()
"""
    async with hostile(flooding) as one, hostile("for message in calls(): echo(message)") as other:
        await call(one)
        for n in range(500):
            assert await call(other, n=n) == {"echo": {"n": n}}
        # A flood costs a part of the time, which the calls above have run in, and little memory.
        assert one.junk_lines < 20_000


@pytest_real
async def test_a_program_that_sends_a_huge_line_is_lost_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "for message in calls(): raw(b'x' * 3_000_000 + b'\\n')"
    opener = partial(open_process, environ=environ(), longest=1024 * 1024)
    async with connect(program(code), opener, tell=Heard()) as connection:
        with pytest.raises(CallFailed) as caught:
            await call(connection)
        assert caught.value.reason == "the process sent a message of more than 1 MiB"


@pytest_real
async def test_a_large_result_comes_whole() -> None:
    async with hostile("for message in calls(): put(id=message['id'], result={'x': 'é' * 2_000_000})") as connection:
        assert len(str((await call(connection))["x"])) == 2_000_000


@pytest_real
async def test_a_program_that_is_killed_in_mid_call_fails_that_call_with_its_reason() -> None:
    async with hostile("for message in calls(): os.kill(os.getpid(), signal.SIGKILL)") as connection:
        with pytest.raises(CallFailed) as caught:
            await call(connection)
        assert (caught.value.reason, caught.value.was_sent) == ("the process was ended by SIGKILL", True)
        assert await connection.wait_lost() == "was lost: the process was ended by SIGKILL"
        with pytest.raises(CallFailed) as caught:
            await call(connection)
        assert not caught.value.was_sent


@pytest_real
async def test_a_program_that_dies_at_the_handshake_says_why() -> None:
    with pytest.raises(HandshakeError) as caught:
        async with hostile("sys.stderr.write('no module named x'); sys.exit(5)"):
            raise AssertionError
    assert caught.value.reason == "could not be made: the process exited with status 5"
    assert caught.value.detail == "no module named x"
    assert caught.value.carrier.exit_status == 5


@pytest_real
async def test_a_program_that_reads_nothing_more_lets_calls_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hostile("next(calls()); time.sleep(900)") as connection:
        for _ in range(5):
            with trio.move_on_after(0.05) as scope:
                await call(connection, x="x" * 300_000)
            assert scope.cancelled_caught
        assert not connection.is_lost
        assert connection.running == 0


@pytest_real
async def test_a_program_that_asks_with_colliding_ids_gets_one_answer_for_each() -> None:
    code = """
stream = messages()
for message in stream:
    if greet(message): continue
    for id in (1, "1", 1, message["id"], "1", 1): put(id=id, method="roots/list")
    for id in (9, 9): put(id=id, method="ping")
    put(id="u", method="unknown/method")
    put(method="notifications/asked")
    found = [next(stream) for _ in range(6)]
    put(id=message["id"], result={"found": found})
"""
    gate = trio.Event()

    class Opens(Heard):
        def notified(self, method: str, params: JsonObject, agent: AgentPeer | None) -> None:
            gate.set()

    async with hostile(code, Opens()) as connection:
        found = await connection.request("tools/call", {}, agent=Agent(gate=gate))
        assert connection.junk_lines == 3

    answers: Any = found["found"]
    roots = {"of": "roots/list"}
    assert {repr(each["id"]): each.get("result") for each in answers} == {
        "1": roots,
        "'1'": roots,
        "2": roots,
        "9": {},
        "'u'": None,
    }


@pytest_real
async def test_many_agents_at_once_get_their_own_answers() -> None:
    code = """
import random
waiting = []
for message in calls():
    waiting.append(message)
    if len(waiting) == 10:
        random.shuffle(waiting)
        for each in waiting: echo(each)
        waiting.clear()
"""
    async with hostile(code) as connection, trio.open_nursery() as nursery:

        async def agent(name: str) -> None:
            port = Agent(name)
            for n in range(50):
                found = await connection.request("tools/call", {"by": name, "n": n}, agent=port)
                assert found == {"echo": {"by": name, "n": n}}

        for number in range(10):
            nursery.start_soon(agent, str(number))


@pytest_real
async def test_calls_that_are_cancelled_at_any_moment_leave_the_others_right() -> None:
    async with hostile("for message in calls(): echo(message)") as connection, trio.open_nursery() as nursery:

        async def agent(name: str, patience: float) -> None:
            port = Agent(name)
            for n in range(100):
                with trio.move_on_after(patience * n):
                    found = await connection.request("tools/call", {"by": name, "n": n}, agent=port)
                    assert found == {"echo": {"by": name, "n": n}}

        for number in range(8):
            nursery.start_soon(agent, f"hasty {number}", 0.00001 * number)
            nursery.start_soon(agent, f"patient {number}", 60.0)
    assert connection.running == 0


@pytest_real
async def test_a_process_that_is_stopped_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.gateway.stdio_carrier.GRACE_SECONDS", 0.1)
    async with hostile("for message in calls(): echo(message)") as connection:
        assert connection.pid is not None
        os.kill(connection.pid, signal.SIGSTOP)


def test_the_restart_leaves_time_for_the_second_attempt() -> None:
    assert CONFIG.startup_seconds / 2 > PROBE_SECONDS
