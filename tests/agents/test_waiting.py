"""How a call waits for a person, over real stdio: the ladder, progress, cancelling, and what rides on later results."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
import trio

from intercom.sessions.request_kinds import APPROVED, PERSON_ANSWERED
from tests.agents.gateway.raw_agent import OLD, Way, raw_agent
from tests.support.server_process import ERAS, TRUSTING, Home, begin, call

pytestmark = [pytest.mark.real_time, pytest.mark.home(TRUSTING + "[clients.hasty]\ncall_wait_seconds = 0.2\n")]

both_eras = pytest.mark.parametrize("mode", ERAS)
#: A client that lets a call wait for a moment only.
HASTY = "hasty"
CHANGE: dict[str, Any] = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}

WAITING: list[tuple[str, dict[str, Any], str, dict[str, Any], dict[str, Any]]] = [
    ("check_clearance", CHANGE, "approve", {}, {"status": "approved", "message": APPROVED}),
    ("transmit", {"prompt_text": "Well?"}, "answer", {"decision": "continue"}, {"decision": "continue"}),
    ("standby", {"message": "idle"}, "answer", {"decision": "continue", "text": "go"}, {"instruction": "go"}),
]


@pytest.mark.parametrize(("tool", "given", "verb", "fields", "answer"), WAITING, ids=[row[0] for row in WAITING])
@both_eras
async def test_a_call_out_of_its_clients_patience_says_pending_and_waits_again_when_called_again(
    served: Home, mode: str, tool: str, given: dict[str, Any], verb: str, fields: dict[str, Any], answer: dict[str, Any]
) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode, name=HASTY) as agent, served.person(root) as person:
        pending = await call(agent, tool, **given)
        assert pending["status"] == "pending"
        assert "again" in pending["message"]
        id = pending["request_id"]
        await person.card(request_id=id, away=True)
        again = await call(agent, tool, request_id=id)
        assert (again["status"], again["request_id"]) == ("pending", id)

        async with trio.open_nursery() as nursery:
            await person.do(verb, id=id, **fields)
            # Decided while nobody waited: the next call for it is told at once.
            told = await begin(nursery, agent, tool, request_id=id)()
        assert answer.items() <= told.items()
        assert "late_verdicts" not in told
        shown = await person.card(request_id=id, status="delivered")
        assert shown["decided"]["decision"]
        assert len({card["request_id"] for card in person.cards}) == 1


@both_eras
@pytest.mark.parametrize("is_decided", [False, True], ids=["undecided", "decided"])
async def test_the_id_of_a_call_that_was_cut_off_comes_once_with_the_next_answer(
    served: Home, mode: str, is_decided: bool
) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        cut = begin(nursery, agent, "check_clearance", **CHANGE)
        id = (await person.card(kind="approval", away=False))["request_id"]
        cut.scope.cancel()
        await person.card(request_id=id, away=True)
        if is_decided:
            await person.do("reject", id=id)
        told = await call(agent, "ping")
        if is_decided:
            assert [late["request_id"] for late in told["late_verdicts"]] == [id]
            assert "cut_off" not in told
        else:
            assert told["cut_off"] == [{"request_id": id, "tool": "check_clearance"}]
        assert "cut_off" not in await call(agent, "ping")
        # One that knows its id is told nothing.
        again = begin(nursery, agent, "check_clearance", request_id=id)
        if not is_decided:
            await person.card(lambda card: card["away"] is False and len(person.cards) > 2, request_id=id)
            again.scope.cancel()
            assert "cut_off" not in await call(agent, "ping")


async def test_a_client_without_a_name_teaches_how_long_it_waits(served: Home) -> None:
    root = served.workspace()
    async with served.agent(root, name="mcp") as agent, served.person(root) as person, trio.open_nursery() as nursery:
        cut = begin(nursery, agent, "check_clearance", **CHANGE)
        id = (await person.card(kind="approval", away=False))["request_id"]
        cut.scope.cancel()
        await person.card(request_id=id, away=True)
        # Before its own time limit, which was short.
        with trio.fail_after(20):
            assert (await call(agent, "check_clearance", **CHANGE))["status"] == "pending"


@both_eras
async def test_a_verdict_that_came_while_nobody_waited_rides_once_on_the_next_result(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode, name=HASTY) as agent, served.person(root) as person:
        id = (await call(agent, "check_clearance", **CHANGE))["request_id"]
        await person.card(request_id=id, away=True)
        await person.do("reject", id=id, reason="not now")
        told = await call(agent, "ping")
        assert told["late_verdicts"] == [
            {
                "request_id": id,
                "kind": "approval",
                "title": "Add a",
                "answer": {"status": "rejected", "request_id": id, "reason": "not now"},
            }
        ]
        await person.card(lambda card: card["decided"] is not None, request_id=id)
        assert "late_verdicts" not in await call(agent, "ping")
        # It was told, so the same change is a new request, once that has been put on record.
        with trio.fail_after(30):
            while (await call(agent, "check_clearance", **CHANGE))["request_id"] == id:
                pass


@both_eras
async def test_a_waiting_call_reports_progress_at_once(served: Home, mode: str) -> None:
    root = served.workspace()
    reports: list[tuple[float, str | None]] = []
    heard = trio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        reports.append((progress, message))
        heard.set()

    async with served.agent(root, mode=mode) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(nursery, agent, "check_clearance", {"progress_callback": on_progress}, **CHANGE)
        # Before anybody has answered, and long before the second report.
        with trio.fail_after(30):
            await heard.wait()
        assert not asked.done
        assert "waiting for an operator" in str(reports[0][1])
        card = await person.card(away=False)
        await person.do("approve", id=card["request_id"])
        assert (await asked())["status"] == "approved"


@both_eras
async def test_a_cancelled_call_leaves_its_request_open_and_its_card_says_so(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        card = await person.card(away=False)
        asked.scope.cancel()
        await person.card(lambda card: card["status"] == "pending" and card["away"], request_id=card["request_id"])
        await person.do("approve", id=card["request_id"])
        # Asked once more for the same change, nothing new is posted and the verdict is there.
        again = await call(agent, "check_clearance", **CHANGE)
        assert again == {"status": "approved", "request_id": card["request_id"], "message": APPROVED}


@both_eras
async def test_asking_twice_at_once_is_one_card_and_both_are_answered(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        first = begin(nursery, agent, "check_clearance", **CHANGE)
        card = await person.card(away=False)
        second = begin(nursery, agent, "check_clearance", **CHANGE)
        third = begin(nursery, agent, "check_clearance", request_id=card["request_id"])
        await call(agent, "ping")
        await person.do("approve", id=card["request_id"])
        for asked in (first, second, third):
            assert (await asked())["status"] == "approved"
        assert {shown["request_id"] for shown in person.cards} == {card["request_id"]}


@both_eras
async def test_several_requests_of_one_agent_wait_side_by_side(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        asked = {
            n: begin(nursery, agent, "check_clearance", title=f"change {n}", diff=f"{n}\n", file_path=f"{n}.txt")
            for n in range(5)
        }
        question = begin(nursery, agent, "transmit", prompt_text="and?")
        for n in (3, 0, 4, 2, 1):
            card = await person.card(title=f"change {n}")
            await person.do("approve" if n % 2 else "reject", id=card["request_id"])
            assert (await asked[n]())["status"] == ("approved" if n % 2 else "rejected")
        card = await person.card(kind="prompt")
        await person.do("answer", id=card["request_id"], decision="stop")
        assert await question() == {"decision": "stop", "message": PERSON_ANSWERED["stop"]}


async def test_a_client_that_could_show_a_question_is_not_asked_unless_that_is_switched_on(served: Home) -> None:
    root = served.workspace()
    async with (
        raw_agent(served, Way("stdio", OLD), root) as agent,
        served.person(root) as person,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            card = await person.card(kind="prompt")
            await person.do("answer", id=card["request_id"], decision="stop")

        nursery.start_soon(answer)
        got = await agent.call("transmit", prompt_text="Shall I?")
        assert got["structuredContent"]["message"] == PERSON_ANSWERED["stop"]
        assert agent.of("elicitation/create") == []


async def test_times_beyond_reason_are_held_to_a_week(served: Home) -> None:
    root = served.workspace()
    async with served.agent(root, name=HASTY) as agent:
        await call(agent, "standby", timeout_seconds=10**12)
        await call(agent, "standby", timeout_seconds=5)
        with sqlite3.connect(f"file:{served.places.database}?mode=ro", uri=True) as db:
            rows = db.execute(
                "select (julianday(expires_at) - julianday(created_at)) * 86400 from wait where session_id in"
                " (select id from session where workspace_root = ?) order by created_at",
                (str(root),),
            ).fetchall()
        assert [round(float(seconds), 3) for (seconds,) in rows] == [7 * 86400, 5]


@both_eras
async def test_the_words_of_a_nudge_ride_on_the_next_result_once(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode) as agent, served.person(root) as person:
        session = (await call(agent, "ping"))["session_id"]
        await person.do("nudge", id=session, text="mind the tests")
        assert (await call(agent, "ping"))["instructions"] == [{"kind": "nudge", "text": "mind the tests"}]
        assert "instructions" not in await call(agent, "broadcast", message="yes")
