"""What one agent asked for and was answered is no other's, whatever ids of it the other knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model.config import ClientSettings
from intercom.sessions.request_kinds import APPROVED
from tests.agents.http.rig import ERAS, Place, call, place, rpc
from tests.agents.http.test_life import PROPOSAL, Events, Session, ask

pytestmark = pytest.mark.real_time

HASTY = {"claude-code": ClientSettings(call_wait_seconds=0.05)}


async def approve(at: Place, title: str) -> str:
    card = await at.card(title)
    await at.board.operator("ann").approve(card.id)
    return card.id


async def answer(events: Events) -> dict[str, Any]:
    """The answer on a stream, whatever comes before it."""
    while True:
        _, message = await events.next()
        if message and "result" in message:
            found: dict[str, Any] = message["result"]["structuredContent"]
            return found


async def answered(at: Place, name: str) -> tuple[Session, str, str]:
    """A session whose first request was approved: what event marks the stream of it, and the request's id."""
    session = Session(at, f"agent={name}")
    await session.open()
    asked = ask()
    asked["params"]["arguments"] = {**PROPOSAL, "title": name}
    stream, events = await session.begin(asked)
    marked, _ = await events.next()
    id = await approve(at, name)
    assert (await answer(events))["request_id"] == id
    await trio.aclose_forcefully(stream)
    return session, marked, id


async def test_who_knows_the_id_of_another_session_neither_reads_nor_ends_it(at: Place) -> None:
    session, marked, id = await answered(at, "one")
    for query in ("agent=two", ""):
        thief = Session(at, query)
        thief.id = session.id
        told = thief.told
        for method, headers in (("GET", {"Last-Event-ID": marked}), ("GET", {}), ("DELETE", {})):
            reply = await at.post(b"", method=method, path=thief.path, headers=told | headers)
            assert reply.status == 400, (query, method)
            assert reply.error["data"]["error_code"] == "invalid_arguments"
            assert b"approved" not in reply.body
    assert (await session.post(rpc("tools/list", {}, 3))).status == 200
    stream, events = await session.resume(marked)
    assert await answer(events) == {"status": "approved", "request_id": id, "message": APPROVED}
    await trio.aclose_forcefully(stream)


async def test_sessions_count_their_events_alike_and_have_none_of_one_anothers(at: Place) -> None:
    last = Session(at, "agent=three")
    await last.open()
    sessions = [await answered(at, name) for name in ("one", "two")]
    assert len({marked for _, marked, _ in sessions}) == 1
    for session, marked, id in sessions:
        stream, events = await session.resume(marked)
        assert await answer(events) == {"status": "approved", "request_id": id, "message": APPROVED}
        await trio.aclose_forcefully(stream)
    # For one that has not come to that event there is nothing after it.
    marked = sessions[0][1]
    reply = await at.post(b"", method="GET", path=last.path, headers=last.told | {"Last-Event-ID": marked})
    assert reply.status == 200
    assert b"data:" not in reply.body


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_named_agent_was_allowed_no_other_does_nor_takes_its_session(root: Path, mode: str) -> None:
    file = root / "ws" / "a.txt"
    async with place(root, clients=HASTY) as at:

        async def steal() -> None:
            async with at.client("agent=two", mode) as two, at.client("", mode) as nobody:
                for thief in (two, nobody):
                    tried = await call(thief, "check_diff", request_id=id)
                    assert tried["error_code"] == "request_not_found"
                tried = await call(two, "reboot", session_id=session)
                assert tried["error_code"] == "unauthorized"
                assert (await call(two, "ping"))["session_id"] != session
            assert not file.exists()

        async with at.client("agent=one", mode) as one:
            session = (await call(one, "ping"))["session_id"]
            assert (await call(one, "check_clearance", **PROPOSAL))["status"] == "pending"
            id = await approve(at, "new")
            await steal()
        # Nor while its agent is away.
        await steal()
        async with at.client("agent=one", mode) as one:
            assert (await call(one, "ping"))["session_id"] == session
            assert (await call(one, "check_diff", request_id=id))["status"] == "applied"
        assert file.read_text() == "a\n"
