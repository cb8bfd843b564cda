"""Real agents over stdio that are held up, steered and left tasks, by a real person at the socket, also while servers
are killed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from intercom.operators.ctl.client import request
from tests.support.server_process import ERAS, TRUSTING, Home, Later, begin, call, user_home

pytestmark = [pytest.mark.real_time, pytest.mark.home(TRUSTING + "[clients.hasty]\ncall_wait_seconds = 0.2\n")]

both_eras = pytest.mark.parametrize("mode", ERAS)
#: A client that lets a call wait for a moment only.
HASTY = "hasty"
CHANGE: dict[str, Any] = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}
CALLS: dict[str, dict[str, Any]] = {
    "check_clearance": CHANGE,
    "check_diff": {"request_id": "r"},
    "auto_check": {"tool_name": "make"},
    "transmit": {"prompt_text": "Well?"},
    "broadcast": {"message": "done"},
    "reboot": {},
    "switch_freq": {"mode": "local"},
    "standby": {},
}


@both_eras
async def test_every_tool_of_a_paused_session_answers_paused_and_does_nothing(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode, name=HASTY) as agent, served.person(root) as person:
        session = (await call(agent, "ping"))["session_id"]
        id = (await call(agent, "check_clearance", **CHANGE))["request_id"]
        await person.do("pause", id=session)
        before = len((await person.do("log", session=session, limit=100))["entries"])
        for tool, given in CALLS.items():
            # The SDK's client holds each answer against the tool's output schema.
            answer = await call(agent, tool, **given)
            assert (answer.keys(), answer["status"]) == ({"status", "message"}, "paused")
            assert f"call {tool} again with the same arguments" in answer["message"]
        again = await call(agent, "check_clearance", request_id=id)
        assert (again["status"], again["request_id"]) == ("paused", id)
        assert "with only this request_id" in again["message"]
        assert (await call(agent, "ping"))["status"] == "paused"
        assert len((await person.do("log", session=session, limit=100))["entries"]) == before
        await person.do("unpause", id=session)
        assert (await call(agent, "broadcast", message="done")).items() >= {"posted": False}.items()


@both_eras
async def test_calls_wait_out_a_pause_with_progress_and_then_do_what_they_were_to(served: Home, mode: str) -> None:
    root = served.workspace()
    told: list[tuple[float, str | None]] = []
    heard = trio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        heard.set()

    async with served.agent(root, mode=mode) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        session = (await call(agent, "ping"))["session_id"]
        await person.do("pause", id=session)
        asked = begin(nursery, agent, "check_clearance", {"progress_callback": on_progress}, **CHANGE)
        line = begin(nursery, agent, "broadcast", message="here")
        await heard.wait()
        assert told[0] == (pytest.approx(1, abs=0.5), "paused by an operator, 0 s so far")
        assert await person.do("pending", session=session) == []
        heard = trio.Event()
        await person.do("unpause", id=session)
        await line()
        card = await person.card(title="Add a", away=False)
        await person.do("approve", id=card["request_id"])
        assert (await asked())["status"] == "approved"
        assert told[-1][1] == "waiting for an operator, 0 s so far"
        assert [progress for progress, _ in told] == sorted({int(progress) for progress, _ in told})


@both_eras
async def test_words_and_tasks_reach_a_real_agent_once(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.person() as person:
        await person.do("task", text="write the tests", workspace=str(root))
        async with served.agent(root, mode=mode) as agent, trio.open_nursery() as nursery:
            started = await call(agent, "reboot")
            (task,) = started["tasks"]
            assert (started["status"], task["text"], "instructions" in started) == ("clean", "write the tests", False)
            assert "tasks" not in await call(agent, "reboot")
            session = (await call(agent, "ping"))["session_id"]
            queued = await person.do("steer", id=session, text="mind the gap")
            assert (await call(agent, "auto_check", tool_name="make"))["instructions"] == [
                {"kind": "steer", "text": "mind the gap"}
            ]
            await person.card(request_id=queued["request_id"], status="delivered")
            await person.card(request_id=task["task_id"], status="delivered")
            idle = begin(nursery, agent, "standby")
            await person.card(kind="standby", session_id=session)
            await person.do("steer", id=session, text="now the docs")
            resumed = await idle()
            assert (resumed["status"], resumed["instructions"][0]["text"]) == ("resumed", "now the docs")
            assert "instructions" not in await call(agent, "ping")


async def test_a_pause_and_what_was_said_meanwhile_outlive_a_server_that_is_killed() -> None:
    with user_home() as home:
        root = home.workspace()
        async with home.agent(root) as agent, trio.open_nursery() as nursery:
            session = (await call(agent, "ping"))["session_id"]
            async with home.person(root) as person:
                await person.do("pause", id=session)
                await person.do("steer", id=session, text="mind the gap")
            asked = begin(nursery, agent, "check_clearance", **CHANGE)
            home.kill()
            # The shim starts another server and asks again.
            assert (await call(agent, "ping"))["status"] == "paused"
            async with home.person(root) as person:
                [entry] = (await person.do("list"))["sessions"]
                assert (entry["status"], await person.do("pending")) == ("paused", [])
                assert not asked.done
                await person.do("unpause", id=session)
                card = await person.card(title="Add a")
                await person.do("reject", id=card["request_id"], reason="no")
                answer = await _answer(asked)
                told = answer.get("instructions", []) + (await call(agent, "ping")).get("instructions", [])
                assert told == [{"kind": "steer", "text": "mind the gap"}]


async def _answer(later: Later) -> dict[str, Any]:
    answer = await later()
    assert answer["status"] == "rejected"
    return answer


#: Each strikes once, in this order, and the next server goes on from there.
FAULTS = (
    ("session.paused", "instruction.recorded"),
    ("delivery.recorded", "answer.left", "store.after_commit"),
)


@pytest.mark.parametrize("points", FAULTS, ids=lambda points: points[0])
async def test_killed_wherever_it_matters_nothing_is_lost_or_told_twice(points: tuple[str, ...]) -> None:
    with user_home() as home:
        root = home.workspace()
        faults = home.root / "faults"
        faults.write_text("".join(f"kill:{point}:1\n" for point in points))

        async def do(verb: str, **fields: Any) -> Any:
            """What a person types: asked again under the same name while servers fall."""
            return await trio.to_thread.run_sync(partial(request, home.places, verb, fields, patience=30))

        async with home.agent(root, INTERCOM_FAULT=f"queue:{faults}") as agent:
            heard: list[str] = []

            async def ping() -> dict[str, Any]:
                told = await call(agent, "ping")
                heard.extend(word["text"] for word in told.get("instructions", ()))
                return told

            session = (await ping())["session_id"]
            assert (await do("pause", id=session))["status"] == "paused"
            assert (await ping())["status"] == "paused"
            assert (await do("unpause", id=session))["status"] == "active"
            for words in ("one", "two", "three"):
                await do("steer", id=session, text=words)
                while words not in heard:
                    await ping()
                await ping()
            await do("task", text="four", workspace=str(root))
            started = await call(agent, "reboot")
            assert [task["text"] for task in started["tasks"]] == ["four"]
            assert not {"tasks", "instructions"} & (await call(agent, "reboot")).keys()
            assert heard == ["one", "two", "three"]
            assert faults.read_text() == "", "not every fault came true"
            kinds = [entry["kind"] for entry in (await do("log", limit=1000))["entries"]]
            for kind, times in {"session_paused": 1, "session_resumed": 1, "steer": 3, "task": 1}.items():
                assert kinds.count(kind) == times
            while (await do("steering"))["words"][-1]["status"] == "queued":
                await ping()
            assert {word["status"] for word in (await do("steering"))["words"]} == {"delivered"}
