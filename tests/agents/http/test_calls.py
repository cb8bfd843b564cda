"""Calls over HTTP, in both eras and by the older transport: they wait, are answered, and are told of on the cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model.config import ClientSettings
from intercom.model.session import SessionStatus
from intercom.sessions.request_kinds import APPROVED
from tests.agents.http.rig import ERAS, Place, call, place, until

pytestmark = pytest.mark.real_time


async def approve(at: Place, title: str) -> str:
    card = await at.card(title)
    await at.board.operator("ann").approve(card.id)
    return card.id


async def delivered(at: Place, id: str) -> None:
    """Wait until it is on record that the agent has its answer."""

    async def is_so() -> bool:
        return (await at.board.service.card(id)).state.value == "delivered"

    await until(is_so)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_clearance_waits_reports_progress_and_is_delivered_with_the_next_call(at: Place, mode: str) -> None:
    told: list[float] = []

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        told.append(done)

    async with at.client("agent=one", mode) as client, trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def ask() -> None:
            given = {"title": "new", "diff": "a\n", "file_path": "a.txt"}
            answers.append(await client.call_tool("check_clearance", given, progress_callback=progress))

        nursery.start_soon(ask)
        id = await approve(at, "new")
        await until(lambda: bool(answers))
        assert answers[0].structured_content == {"status": "approved", "request_id": id, "message": APPROVED}
        assert (await at.board.service.card(id)).state.value == "approved"
        pong = await call(client, "ping")
        assert "late_verdicts" not in pong
        await delivered(at, id)
        assert told
        assert told[0] > 0


async def test_one_key_is_one_agent_in_either_era_and_by_either_transport(at: Place) -> None:
    found = set()
    for mode in ERAS:
        async with at.client("agent=one", mode) as client:
            found.add((await call(client, "ping"))["session_id"])
    async with at.classic("agent=one") as client:
        found.add((await call(client, "ping"))["session_id"])
    async with at.client(X_Intercom_Agent="one") as client:
        found.add((await call(client, "ping"))["session_id"])
    assert len(found) == 1
    async with at.client("agent=two") as client:
        assert (await call(client, "ping"))["session_id"] not in found


async def test_a_caller_without_a_name_has_its_request_ids_and_nothing_else(root: Path) -> None:
    async with place(root, clients={"claude-code": _patience(0.05)}) as at, at.client() as client:
        first = await call(client, "ping")
        second = await call(client, "ping")
        assert first["session_id"] != second["session_id"]
        asked = await call(client, "check_clearance", title="new", diff="a\n", file_path="a.txt")
        assert asked["status"] == "pending"
        id = asked["request_id"]
        await approve(at, "new")
        assert "late_verdicts" not in await call(client, "ping")
        again = await call(client, "check_clearance", request_id=id)
        assert again == {"status": "approved", "request_id": id, "message": APPROVED}
        assert (await call(client, "check_diff", request_id=id))["status"] == "applied"
        assert (at.root / "ws" / "a.txt").read_text() == "a\n"

        # Nothing is left of any of them.
        async def all_over() -> bool:
            found = await at.board.service.sessions(everything=True)
            return all(session.status is SessionStatus.TERMINATED for session in found)

        await until(all_over)


async def test_a_request_of_a_named_agent_is_not_to_be_had_by_its_id(root: Path) -> None:
    async with place(root, clients={"claude-code": _patience(0.05)}) as at:
        async with at.client("agent=one") as client:
            asked = await call(client, "check_clearance", title="new", diff="a\n", file_path="a.txt")
        async with at.client() as nobody, at.client("agent=two") as other:
            for client in (nobody, other):
                answer = await call(client, "check_clearance", request_id=asked["request_id"])
                assert answer["error_code"] == "request_not_found"
            taken = await call(other, "reboot")
            assert (taken["status"], taken.get("pending_requests")) == ("clean", None)
            assert (await call(nobody, "reboot", session_id="x"))["error_code"] == "invalid_arguments"


async def test_a_session_in_the_url_that_an_agent_opened_for_itself_is_refused(at: Place) -> None:
    async with at.client("agent=one") as client:
        session = (await call(client, "ping"))["session_id"]
    for mode in ERAS:
        async with at.client(f"session_id={session}", mode) as thief:
            assert (await call(thief, "ping"))["error_code"] == "unauthorized"


def _patience(seconds: float) -> ClientSettings:
    return ClientSettings(call_wait_seconds=seconds)
