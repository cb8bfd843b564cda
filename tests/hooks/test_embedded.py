"""A program that embeds Intercom asks leave as a hook does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import trio

import intercom
from intercom.embedding import EmbeddedOperator
from intercom.model.config import Config, DatabaseSettings
from intercom.model.request import Operation, OperationKind

RUN = Operation(OperationKind.COMMAND, "deploy", "Run: deploy", "deploy", "deploy --now")


@pytest.mark.real_time
async def test_a_program_asks_leave_and_is_told_before_it_stops() -> None:
    with tempfile.TemporaryDirectory(prefix="ix-", dir="/tmp") as directory:
        root = Path(directory)
        (root / "project").mkdir()
        config = Config(database=DatabaseSettings(path=root / "db"))
        async with intercom.open(config, workspace=str(root / "project"), ctl=False) as switchboard:
            agent, kim = switchboard.agent("bot"), switchboard.operator("kim")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_answer, kim, False)
                denied = (await agent.ask_permission(RUN)).answer
            assert (denied.status, denied.reason) == ("denied", "not now")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_answer, kim, True)
                assert (await agent.ask_permission(RUN)).answer.status == "allowed"
            left = await agent.before_stopping()
            assert not left.late_verdicts


async def _answer(kim: EmbeddedOperator, yes: bool) -> None:
    while not (waiting := await kim.pending()):  # noqa: ASYNC110 - it is the server that gets there
        await trio.sleep(0.01)
    if yes:
        await kim.approve(waiting[0].id)
    else:
        await kim.reject(waiting[0].id, "not now")
