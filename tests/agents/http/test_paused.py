"""Agents over HTTP are held up, steered and left tasks as any others; here by a program that embeds the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model.config import ClientSettings
from tests.agents.http.rig import ERAS, Place, call, content, place, until

pytestmark = pytest.mark.real_time

HASTY = {"claude-code": ClientSettings(call_wait_seconds=0.3)}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_of_a_paused_session_is_told_so_and_does_nothing(root: Path, mode: str) -> None:
    async with place(root, clients=HASTY) as at, at.client("agent=one", mode) as client:
        ann = at.board.operator("ann")
        session = (await call(client, "ping"))["session_id"]
        await ann.pause(session)
        answer = await call(client, "check_clearance", title="new", diff="a\n", file_path="a.txt")
        assert (answer["status"], await ann.pending()) == ("paused", ())
        assert (await call(client, "ping"))["status"] == "paused"
        await ann.steer(session, "mind the gap", act="1")
        assert "instructions" not in await call(client, "ping")
        assert not (await ann.unpause(session)).is_paused
        assert (await call(client, "ping"))["instructions"] == [{"kind": "steer", "text": "mind the gap"}]
        # That it has read them is known by its next call.
        assert "instructions" not in await call(client, "ping")

        async def is_told() -> bool:
            return [word.is_open for word in await ann.steering(session)] == [False]

        await until(is_told)


async def test_who_waits_by_the_older_transport_waits_on_and_goes_on(at: Place) -> None:
    async with at.classic("agent=one") as client, trio.open_nursery() as nursery:
        ann = at.board.operator("ann")
        session = (await call(client, "ping"))["session_id"]
        await ann.pause(session)
        answers: list[Any] = []
        told: list[str | None] = []

        async def progress(_done: float, _total: float | None, message: str | None) -> None:
            told.append(message)

        async def ask() -> None:
            answers.append(await client.call_tool("auto_check", {"tool_name": "make"}, progress_callback=progress))

        nursery.start_soon(ask)
        # It has come, and waits: what it says meanwhile comes before its answer.
        await until(lambda: bool(told or answers))
        assert answers == []
        assert "paused by" in str(told[0])
        await ann.unpause()
        await until(lambda: bool(answers))
        assert content(answers[0])["auto_approved"] is False


async def test_tasks_are_left_by_a_program_and_taken_by_an_agent_of_its_own(at: Place, root: Path) -> None:
    ann = at.board.operator("ann")
    left = await ann.add_task("write the tests", workspace=str(root), act="1")
    assert (await ann.add_task("write the tests", workspace=str(root), act="1")).id == left.id
    other = await ann.add_task("and the docs", workspace=str(root))
    await ann.take_back(other.id)
    assert [task.text for task in await ann.tasks()] == ["write the tests"]
    bot = at.board.agent("bot", str(root))
    started = await bot.reboot()
    assert [task.text for task in started.answer.tasks] == ["write the tests"]
    assert started.instructions == ()
    assert (await ann.tasks(), len(await ann.tasks(everything=True))) == ((), 2)
    assert (await bot.reboot()).answer.tasks == ()
