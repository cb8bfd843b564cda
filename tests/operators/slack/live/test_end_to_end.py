"""An agent asks over stdio, a person answers in Slack, and the approved bytes are on disk: all of it real but Slack."""

from __future__ import annotations

import pytest
import trio

from tests.operators.slack.live.server import server_in_slack
from tests.slack import ALICE, buttons
from tests.support.server_process import begin, call


@pytest.mark.real_time
async def test_a_tap_approves_and_the_card_follows_the_change_to_the_disk() -> None:
    async with server_in_slack() as server, trio.open_nursery() as nursery:
        with server.serving():
            workspace = server.home.workspace()
            async with server.home.agent(workspace) as agent:
                await server.slack.connected()
                asked = begin(
                    nursery, agent, "check_clearance", title="Add a greeting", diff="hello\n", file_path="hello.txt"
                )
                card = await server.slack.card("Add a greeting")
                assert "approve_accept" in buttons(card)
                tap = server.slack.tap(ALICE, card["ts"], "approve_accept")
                await tap.answer()
                answer = await asked()
                assert answer["status"] == "approved"
                done = await call(agent, "check_diff", request_id=answer["request_id"])
                assert done["status"] == "applied"
                assert (workspace / "hello.txt").read_bytes() == b"hello\n"
                shown = await server.slack.shows(card["ts"], "Applied")
                assert buttons(shown) == []
