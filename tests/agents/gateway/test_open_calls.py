"""Held calls: what an agent of 2026-07-28 is asked by a downstream that asks in mid-call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from intercom.agents.gateway import open_calls
from intercom.agents.gateway.client_peer import ClientPeer
from intercom.agents.gateway.open_calls import AskedPeer, OpenCalls
from intercom.gateway.messages import RpcError
from intercom.model.errors import IntercomError
from intercom.model.json_types import Json, JsonObject, part

PROGRESS = "notifications/progress"


class Channel:
    """Takes what is sent to a client."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, JsonObject]] = []

    async def notify(self, method: str, params: JsonObject) -> None:
        self.sent.append((method, params))


def port(channel: Channel | None = None) -> ClientPeer:
    return ClientPeer("agent", {"roots": {}, "sampling": {}}, channel or Channel())


async def run(
    held: OpenCalls, act: Callable[[AskedPeer], Awaitable[JsonObject]], owner: str = "agent", **more: Any
) -> JsonObject:
    return await held.run(owner, "a tool", more.get("port") or port(), more.get("token"), act)


async def resume(held: OpenCalls, asked: JsonObject, answers: Json = None, owner: str = "agent") -> JsonObject:
    return await held.resume(owner, "a tool", port(), None, str(asked["requestState"]), answers)


async def roots(asked: AskedPeer) -> JsonObject:
    return {"got": await asked.request("roots/list", {})}


async def test_a_call_without_questions_is_not_held() -> None:
    async def act(_asked: AskedPeer) -> JsonObject:
        return {"content": []}

    assert await run(OpenCalls(), act) == {"content": []}


async def test_a_question_that_comes_later_waits_for_its_own_answer() -> None:
    """The agent has not seen it when it answers the first one."""
    held, second = OpenCalls(), trio.Event()
    got: dict[str, JsonObject] = {}

    async def act(asked: AskedPeer) -> JsonObject:
        async def ask(method: str) -> None:
            got[method] = await asked.request(method, {})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "roots/list")
            await second.wait()
            nursery.start_soon(ask, "sampling/createMessage")
        return {"content": []}

    first = await run(held, act)
    assert list(part(first, "inputRequests")) == ["roots-1"]
    second.set()
    await trio.testing.wait_all_tasks_blocked()
    then = await resume(held, first, {"roots-1": {"roots": []}, "sampling-2": {"forged": True}})
    assert list(part(then, "inputRequests")) == ["sampling-2"]
    assert await resume(held, then, {"sampling-2": {"model": "m"}}) == {"content": []}
    assert got == {"roots/list": {"roots": []}, "sampling/createMessage": {"model": "m"}}


async def test_progress_goes_to_the_request_that_waits_now() -> None:
    held, before, after = OpenCalls(), Channel(), Channel()

    async def act(asked: AskedPeer) -> JsonObject:
        asked.notify(PROGRESS, {"progressToken": "first", "progress": 1})
        await asked.request("roots/list", {})
        asked.notify(PROGRESS, {"progressToken": "first", "progress": 2})
        return {}

    first = await run(held, act, port=port(before), token="first")
    answers: Json = {"roots-1": {"roots": []}}
    await held.resume("agent", "a tool", port(after), "second", str(first["requestState"]), answers)
    await trio.testing.wait_all_tasks_blocked()
    assert before.sent == [(PROGRESS, {"progressToken": "first", "progress": 1})]
    assert after.sent == [(PROGRESS, {"progressToken": "second", "progress": 2})]


async def test_a_state_is_used_once_by_its_owner_for_its_tool() -> None:
    held = OpenCalls()
    asked = await run(held, roots)
    state = str(asked["requestState"])
    assert held.is_open_call(state)
    assert not held.is_open_call("state of a downstream")
    for owner, label in (("another", "a tool"), ("agent", "another tool"), ("", "a tool")):
        with pytest.raises(IntercomError, match="is over"):
            await held.resume(owner, label, port(), None, state, {})
    assert await resume(held, asked, {"roots-1": {"roots": []}}) == {"got": {"roots": []}}
    with pytest.raises(IntercomError, match="without requestState"):
        await resume(held, asked)


async def test_a_question_without_an_answer_fails_and_the_call_goes_on() -> None:
    held = OpenCalls()
    wrong: list[Json] = [{}, {"roots-1": "no object"}, "no object"]
    for answers in wrong:
        asked = await run(held, roots)
        with pytest.raises(RpcError, match="did not answer"):
            await resume(held, asked, answers)
    asked = await run(held, roots)
    await trio.sleep(open_calls.ANSWER_SECONDS + 1)
    with pytest.raises(RpcError, match="did not answer"):
        await resume(held, asked, {"roots-1": {}})


async def test_a_cancelled_request_cancels_its_call() -> None:
    held, cancelled = OpenCalls(), trio.Event()

    async def act(_asked: AskedPeer) -> JsonObject:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    with trio.move_on_after(1):
        await run(held, act)
    await cancelled.wait()


async def test_a_flood_of_one_agent_ends_its_own_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_calls, "MOST_OF_ONE", 3)
    held = OpenCalls()
    others = await run(held, roots, owner="another")
    own = [await run(held, roots) for _ in range(5)]
    for asked in own[:2]:
        with pytest.raises(IntercomError, match="is over"):
            await resume(held, asked)
    for owner, asked in (("another", others), *(("agent", each) for each in own[2:])):
        assert await resume(held, asked, {"roots-1": {}}, owner) == {"got": {}}


async def test_the_calls_of_an_agent_that_leaves_end() -> None:
    held = OpenCalls()
    asked, other = await run(held, roots), await run(held, roots, owner="another")
    held.leave("agent")
    with pytest.raises(IntercomError, match="is over"):
        await resume(held, asked)
    assert await resume(held, other, {"roots-1": {}}, "another") == {"got": {}}
