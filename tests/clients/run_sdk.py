"""The TypeScript SDK's client, old and new, at a real server: every tool, and what happens to a call that waits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from intercom.sessions.request_kinds import APPROVED, PERSON_ANSWERED
from tests.clients.ctl import ctl
from tests.clients.driver import Driver, Refused, content, driver
from tests.clients.over_http import configure_http
from tests.support.server_process import Home, Person

pytestmark = pytest.mark.real_time

CHANGE: dict[str, Any] = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}
DRIVERS = ("driver_v1.mjs", "driver_v2.mjs")
both = pytest.mark.parametrize("script", DRIVERS, ids=("v1", "v2"))
everyway = pytest.mark.parametrize("over", ["stdio", "http"])


@asynccontextmanager
async def connected(
    home: Home, script: str, root: Path, over: str = "stdio", python: str | None = None
) -> AsyncIterator[tuple[Driver, Person]]:
    """A client: over stdio it launches its shim, which starts the server; over HTTP that runs already. And a person."""
    start = home.parameters("--workspace", str(root))
    launch: dict[str, Any] = {"command": start.command, "args": start.args, "env": start.env, "cwd": str(start.cwd)}
    async with driver(script, python) as client:
        with nullcontext() if over == "stdio" else serving_http(home, root) as found:
            await client.do("connect", over=over, **(found or launch))
            await client.call("reboot")
            async with home.person(root) as person:
                yield client, person


@contextmanager
def serving_http(home: Home, root: Path) -> Iterator[dict[str, Any]]:
    """A server that serves HTTP, and its address."""
    port = configure_http(home)
    with home.serving():
        yield port.address(root)


@both
@everyway
async def test_every_tool_answers(home: Home, script: str, over: str) -> None:
    root = home.workspace()
    async with connected(home, script, root, over) as (client, person):
        tools = {tool["name"]: tool for tool in await client.do("tools")}
        assert len(tools) == 9
        assert (await client.call("auto_check", tool_name="ls"))["auto_approved"] is False
        assert (await client.call("broadcast", message="hello"))["posted"] is False
        assert (await client.call("switch_freq", mode="local"))["current_mode"] == "local"
        assert (await client.call("ping", status_message="at work"))["acknowledged"] is True

        asked = await client.begin("call", tool="check_clearance", arguments=CHANGE)
        card = await person.card(kind="approval")
        await ctl(home, "approve", card["request_id"])
        approved = content(await asked())
        assert approved == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
        applied = await client.call("check_diff", request_id=card["request_id"])
        assert applied["status"] == "applied"
        assert (root / "a.txt").read_text() == "a\n"

        asked = await client.begin("call", tool="transmit", arguments={"prompt_text": "Well?"})
        card = await person.card(kind="prompt")
        await person.do("answer", id=card["request_id"], decision="refine", text="smaller steps")
        answered = {"decision": "refine", "instruction": "smaller steps", "message": PERSON_ANSWERED["refine"]}
        assert content(await asked()) == answered

        asked = await client.begin("call", tool="standby", arguments={})
        card = await person.card(kind="standby")
        await person.do("answer", id=card["request_id"], decision="continue", text="write the tests")
        assert content(await asked()) == {"status": "resumed", "instruction": "write the tests"}

        assert (await client.call("check_everything"))["error_code"] == "unknown_tool"


@both
@everyway
async def test_a_waiting_call_reports_progress(home: Home, script: str, over: str) -> None:
    root = home.workspace()
    async with connected(home, script, root, over) as (client, person):
        asked = await client.begin("call", tool="check_clearance", arguments=CHANGE, progress=True)
        reported = await asked.event("progress")
        assert reported["progress"]["message"].startswith("waiting for an operator")
        card = await person.card(kind="approval")
        await person.do("approve", id=card["request_id"])
        assert content(await asked())["status"] == "approved"


@both
@everyway
async def test_a_call_that_the_client_gave_up_is_taken_up_again_by_its_request_id(
    home: Home, script: str, over: str
) -> None:
    root = home.workspace()
    async with connected(home, script, root, over) as (client, person):
        with pytest.raises(Refused, match=r"[Tt]imed out"):
            await client.do("call", tool="check_clearance", arguments=CHANGE, timeout=700)
        card = await person.card(kind="approval", away=True)
        again = await client.begin("call", tool="check_clearance", arguments={"request_id": card["request_id"]})
        await person.card(lambda one: one["away"] is False and len(person.cards) > 2, request_id=card["request_id"])
        await person.do("approve", id=card["request_id"])
        assert content(await again()) == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
        assert {one["request_id"] for one in person.cards} == {card["request_id"]}


@both
@everyway
async def test_a_cancelled_call_stays_decidable_and_its_verdict_rides_on_the_next_result(
    home: Home, script: str, over: str
) -> None:
    root = home.workspace()
    async with connected(home, script, root, over) as (client, person):
        asked = await client.begin("call", tool="check_clearance", arguments=CHANGE)
        card = await person.card(kind="approval")
        await client.abort(asked)
        with pytest.raises(Refused):
            await asked()
        await person.card(request_id=card["request_id"], away=True)
        await person.do("reject", id=card["request_id"], reason="not now")
        (late,) = (await client.call("ping"))["late_verdicts"]
        assert late["answer"] == {"status": "rejected", "request_id": card["request_id"], "reason": "not now"}
        assert "late_verdicts" not in await client.call("ping")


@both
async def test_a_server_killed_in_the_middle_of_an_approval_is_invisible(home: Home, script: str) -> None:
    root = home.workspace()
    async with connected(home, script, root) as (client, person):
        asked = await client.begin("call", tool="check_clearance", arguments=CHANGE, progress=True)
        card = await person.card(kind="approval")
        home.kill()
        await ctl(home, "approve", card["request_id"])
        assert content(await asked()) == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
        assert (await client.call("check_diff", request_id=card["request_id"]))["status"] == "applied"


@both
@everyway
async def test_a_task_is_asked_after_until_it_is_decided(home: Home, script: str, over: str) -> None:
    root = home.workspace()
    async with connected(home, script, root, over) as (client, person):
        asked = await client.begin("task", tool="check_clearance", arguments=CHANGE)
        card = await person.card(kind="approval")
        await asked.event("taskCreated" if script == DRIVERS[0] else "heard")
        assert card["away"] is False
        if over == "stdio":
            home.kill()
        await client.call("ping")
        await ctl(home, "approve", card["request_id"])
        told = content(await asked())
        assert told == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
        assert "late_verdicts" not in await client.call("ping")


async def test_the_older_form_of_tasks_whole(home: Home) -> None:
    root = home.workspace()
    async with connected(home, DRIVERS[0], root) as (client, person):
        ids = []
        for title in ("one", "two"):
            stream = await client.begin("task", tool="transmit", arguments={"prompt_text": title})
            ids.append((await stream.event("taskCreated"))["task"]["taskId"])
        assert [task["taskId"] for task in await client.do("task_list")] == ids
        assert (await client.do("task_get", task=ids[0]))["status"] == "working"
        gone = await client.do("task_cancel", task=ids[0])
        assert gone["status"] == "cancelled"
        with pytest.raises(Refused) as refused:
            await client.do("task_cancel", task=ids[0])
        assert refused.value.code == -32602
        waiting = await client.begin("task_result", task=ids[1])
        card = await person.card(lambda one: "two" in json.dumps(one))
        await person.do("answer", id=card["request_id"], decision="continue")
        answered = {"decision": "continue", "message": PERSON_ANSWERED["continue"]}
        assert content(await waiting()) == answered
        assert (await client.do("task_get", task=ids[1]))["status"] == "completed"
        assert content(await client.do("task_result", task=ids[1])) == answered
        with pytest.raises(Refused) as refused:
            await client.do("task_get", task="no-such-task")
        assert refused.value.code == -32602


@both
async def test_over_http_an_agent_finds_its_request_again_by_its_key_after_a_kill(home: Home, script: str) -> None:
    root = home.workspace()
    port = configure_http(home)
    async with driver(script) as client:
        with home.serving():
            await client.do("connect", over="http", **port.address(root))
            async with home.person(root) as person:
                # The older client asks in vain for the rest of the stream, until its own time is up.
                asked = await client.begin("call", tool="check_clearance", arguments=CHANGE, timeout=4000)
                card = await person.card(kind="approval")
                home.kill()
                with pytest.raises(Refused):
                    await asked()
        with home.serving():
            await ctl(home, "approve", card["request_id"])
            # A new life: the older era initializes anew, and the URL says who it is.
            await client.do("connect", over="http", **port.address(root))
            told = await client.call("check_clearance", request_id=card["request_id"])
            assert told == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}
            assert (await client.call("check_diff", request_id=card["request_id"]))["status"] == "applied"


async def test_the_older_transport_over_http(home: Home) -> None:
    root = home.workspace()
    port = configure_http(home)
    async with driver(DRIVERS[0]) as client:
        with home.serving():
            await client.do("connect", over="sse", **port.address(root, "/sse"))
            async with home.person(root) as person:
                asked = await client.begin("call", tool="check_clearance", arguments=CHANGE)
                card = await person.card(kind="approval")
                await ctl(home, "approve", card["request_id"])
                assert content(await asked())["status"] == "approved"
