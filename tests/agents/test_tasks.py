"""MCP tasks over real stdio, in the forms of both eras: a client asks after its call instead of keeping it open."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
import trio

from intercom.sessions.request_kinds import APPROVED, PERSON_ANSWERED
from tests.agents.shim.by_hand import Hand
from tests.support.server_process import TRUSTING, Home, Person, user_home

pytestmark = [pytest.mark.real_time, pytest.mark.home(TRUSTING + "[clients.hasty]\ncall_wait_seconds = 0.2\n")]

CHANGE: dict[str, Any] = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}
EXTENSION = "io.modelcontextprotocol/tasks"
MODERN = "2026-07-28"


class Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Wire:
    """A client that says what the test says, of either era."""

    def __init__(self, hand: Hand, meta: dict[str, Any] | None) -> None:
        self._hand = hand
        self._meta = meta
        self._ids = count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = trio.Event()

    async def follow(self) -> None:
        while (message := await self._hand.hear()) is not None:
            if "method" not in message:
                self._answers[message["id"]] = message
                self._news.set()
                self._news = trio.Event()

    async def send(self, method: str, **params: Any) -> int:
        """Ask, and go on; the request's id."""
        id = next(self._ids)
        if self._meta is not None:
            params["_meta"] = self._meta
        await self._hand.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def answer(self, id: int) -> dict[str, Any]:
        """What the request of this id is answered. Raises Refused."""
        while id not in self._answers:
            await self._news.wait()
        message = self._answers[id]
        if "error" in message:
            raise Refused(message["error"])
        result: dict[str, Any] = message["result"]
        return result

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.answer(await self.send(method, **params))

    async def call(self, tool: str, arguments: dict[str, Any], **params: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=tool, arguments=arguments, **params)

    async def tell(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool without a task; what it says."""
        return said(await self.call(tool, arguments))


def said(result: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == told
    return told


@asynccontextmanager
async def wire(
    served: Home, version: str = "2025-11-25", *, extension: bool = True, name: str = "hasty"
) -> AsyncIterator[tuple[Wire, Person]]:
    """A client of this revision with a shim and a workspace of its own, and a person who sees its cards."""
    root = served.workspace()
    start = served.parameters("--workspace", str(root))
    process = await trio.lowlevel.open_process(
        [start.command, *start.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=start.env, cwd=root
    )
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}} if extension else {},
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
    }
    client = Wire(Hand(process.stdin, process.stdout), meta if version == MODERN else None)
    async with served.person(root) as person, trio.open_nursery() as nursery:
        nursery.start_soon(client.follow)
        try:
            if version != MODERN:
                info = {"name": "hasty", "version": "1"}
                hello = await client.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=info)
                assert hello["protocolVersion"] == version
                assert ("tasks" in hello["capabilities"]) is (version == "2025-11-25")
            yield client, person
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()


async def test_a_task_of_the_core_form_ends_with_the_result_of_its_call(served: Home) -> None:
    async with wire(served) as (client, person):
        begun = await client.call("check_clearance", CHANGE, task={"ttl": 60000})
        task = begun["task"]
        assert (task["status"], task["ttl"]) == ("working", None)
        assert "not approved yet" in begun["_meta"]["io.modelcontextprotocol/model-immediate-response"]
        card = await person.card(kind="approval")
        assert (await client.ask("tasks/get", taskId=task["taskId"]))["status"] == "working"

        waiting = await client.send("tasks/result", taskId=task["taskId"])
        await person.do("approve", id=card["request_id"])
        told = await client.answer(waiting)
        assert said(told) == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
        assert told["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task["taskId"]}}
        await person.card(request_id=card["request_id"], status="delivered")

        assert (await client.ask("tasks/get", taskId=task["taskId"]))["status"] == "completed"
        assert said(await client.ask("tasks/result", taskId=task["taskId"])) == said(told)
        assert [each["taskId"] for each in (await client.ask("tasks/list"))["tasks"]] == [task["taskId"]]
        assert not any(card["away"] for card in person.cards), "its client asks after it: the agent is not away"


async def test_a_task_of_the_extension_carries_its_result(served: Home) -> None:
    async with wire(served, MODERN) as (client, person):
        task = await client.call("transmit", {"prompt_text": "Well?"})
        assert (task["resultType"], task["status"], task["ttlMs"]) == ("task", "working", None)
        card = await person.card(kind="prompt")
        working = await client.ask("tasks/get", taskId=task["taskId"])
        assert (working["resultType"], working["status"]) == ("complete", "working")
        await person.do("answer", id=card["request_id"], decision="refine", text="smaller")
        done = await client.ask("tasks/get", taskId=task["taskId"])
        assert done["status"] == "completed"
        told = said(done["result"])
        assert told == {"decision": "refine", "instruction": "smaller", "message": PERSON_ANSWERED["refine"]}
        await person.card(request_id=card["request_id"], status="delivered")
        # What has arrived by the task rides on nothing else.
        assert "late_verdicts" not in await client.tell("ping")
        assert await client.ask("tasks/update", taskId=task["taskId"], inputResponses={}) | {"_meta": 0} == {
            "resultType": "complete",
            "_meta": 0,
        }


async def test_a_client_that_speaks_of_no_tasks_is_answered_without(served: Home) -> None:
    async with wire(served, MODERN, extension=False) as (client, _person):
        assert (await client.tell("check_clearance", **CHANGE))["status"] == "pending"
        with pytest.raises(Refused) as refused:
            await client.ask("tasks/get", taskId="any")
        assert refused.value.code == -32021
    async with wire(served, "2025-06-18") as (client, _person):
        plain = await client.call("check_clearance", CHANGE, task={})
        assert said(plain)["status"] == "pending"
        with pytest.raises(Refused) as refused:
            await client.ask("tasks/get", taskId="any")
        assert refused.value.code == -32601


async def test_claude_code_declares_the_extension_and_its_calls_wait_all_the_same(served: Home) -> None:
    async with wire(served, MODERN, name="claude-code") as (client, person):
        waiting = await client.send("tools/call", name="check_clearance", arguments=CHANGE)
        card = await person.card(kind="approval")
        await person.do("approve", id=card["request_id"])
        told = said(await client.answer(waiting))
        assert told == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}


async def test_a_cancelled_task_stays_so_and_its_verdict_rides_on_another_result(served: Home) -> None:
    async with wire(served) as (client, person):
        id = (await client.call("check_clearance", CHANGE, task={}))["task"]["taskId"]
        card = await person.card(kind="approval")
        waiting = await client.send("tasks/result", taskId=id)
        assert (await client.ask("tasks/cancel", taskId=id))["status"] == "cancelled"
        with pytest.raises(Refused) as refused:
            await client.answer(waiting)
        assert refused.value.code == -32800
        await person.card(request_id=card["request_id"], away=True)
        with pytest.raises(Refused) as refused:
            await client.ask("tasks/cancel", taskId=id)
        assert refused.value.code == -32602
        await person.do("reject", id=card["request_id"], reason="no")
        assert (await client.ask("tasks/get", taskId=id))["status"] == "cancelled"
        (late,) = (await client.tell("ping"))["late_verdicts"]
        assert late["request_id"] == card["request_id"]


async def test_what_can_be_no_task_is_refused_in_json_rpc(served: Home) -> None:
    async with wire(served) as (client, _person):
        for wrong, code in (
            (("tools/call", {"name": "ping", "arguments": {}, "task": {}}), -32601),
            (("tools/call", {"name": "check_clearance", "arguments": {"title": 1}, "task": {}}), -32602),
            (("tools/call", {"name": "transmit", "arguments": {"request_id": "none"}, "task": {}}), -32602),
            (("tasks/get", {"taskId": "none"}), -32602),
            (("tasks/get", {"taskId": ["none"]}), -32602),
            (("tasks/result", {}), -32602),
            (("tasks/list", {"cursor": "none"}), -32602),
            (("tasks/update", {"taskId": "none", "inputResponses": {}}), -32601),
        ):
            with pytest.raises(Refused) as refused:
                await client.ask(wrong[0], **wrong[1])
            assert refused.value.code == code, wrong


async def test_nobody_sees_anothers_tasks(served: Home) -> None:
    async with wire(served) as (one, _person), wire(served) as (other, _another):
        id = (await one.call("standby", {}, task={}))["task"]["taskId"]
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            with pytest.raises(Refused) as refused:
                await other.ask(method, taskId=id)
            assert refused.value.code == -32602
        assert (await other.ask("tasks/list"))["tasks"] == []


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_task_survives_its_server(version: str) -> None:
    with user_home(TRUSTING) as home, home.serving():
        async with wire(home, version) as (client, person):
            begun = await client.call("check_clearance", CHANGE, **({} if version == MODERN else {"task": {}}))
            id = (begun if version == MODERN else begun["task"])["taskId"]
            card = await person.card(kind="approval")
            home.kill()
            assert (await client.ask("tasks/get", taskId=id))["status"] == "working"
            await person.do("approve", id=card["request_id"])
            home.kill()
            if version == MODERN:
                told = (await client.ask("tasks/get", taskId=id))["result"]
            else:
                told = await client.ask("tasks/result", taskId=id)
            assert said(told)["status"] == "approved"
            assert "late_verdicts" not in await client.tell("ping")


@pytest.mark.parametrize("point", ["request.recorded:1", "answer.left:2", "answer.left:3"])
async def test_a_kill_where_a_task_could_get_lost_is_not_noticed(point: str) -> None:
    with user_home(TRUSTING) as home, home.serving(INTERCOM_FAULT=f"kill:{point}") as server:
        async with wire(home) as (client, person):
            begun = await client.call("check_clearance", CHANGE, task={})
            (listed,) = (await client.ask("tasks/list"))["tasks"]
            assert listed["taskId"] == begun["task"]["taskId"]
            assert (await client.ask("tasks/cancel", taskId=listed["taskId"]))["status"] == "cancelled"
            assert server.wait(20) != 0, "it was to be killed"
            assert len({card["request_id"] for card in person.cards}) <= 1
