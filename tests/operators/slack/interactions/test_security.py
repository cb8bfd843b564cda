"""Who may act: only authorized people of the team, and everybody else leaves a trace and sees nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from intercom.operators.slack.button_actions import NotRecorded
from tests.operators.slack import payloads
from tests.operators.slack.payloads import ANNA, CHANNEL, MALLORY, ROOT, TEAM
from tests.operators.slack.server import CARD, slack_server
from tests.operators.stand_in_service import card

SECRET = "the launch is on friday"


def acts(user: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("interactive", payloads.tap("approve_accept", CARD, user)),
        ("interactive", payloads.tap("approve_reject", CARD, user, at="1700000100.000002")),
        ("interactive", payloads.submitted("reject", CARD, SECRET, user)),
        ("slash_commands", payloads.command(f"session-start {SECRET}", user)),
        ("events_api", payloads.said(f"reject {SECRET}", user)),
    ]


@pytest.mark.parametrize(("kind", "payload"), acts(MALLORY))
async def test_others_do_nothing_see_nothing_and_go_on_record(
    tmp_path: Path, kind: str, payload: dict[str, Any]
) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        for _ in range(2):
            assert await server.interactions.handle(kind, payload) is None
        assert server.decided == []
        assert server.commands.ran == []
        assert server.slack.calls == []
        assert await server.ephemerals() == []
        assert await server.answers() == []
        row = await server.row(f"card/{CARD}")
        assert row.interim is None
        [(summary, data)] = server.service.events
        assert MALLORY in summary
        assert data["user"] == MALLORY
        assert data["channel"] == CHANNEL
        assert SECRET not in summary + repr(data)


@pytest.mark.parametrize(("kind", "payload"), acts(ANNA))
async def test_people_of_another_team_are_others(tmp_path: Path, kind: str, payload: dict[str, Any]) -> None:
    async with slack_server(tmp_path, card(CARD), team="T0OTHER") as server:
        await server.interactions.handle(kind, payload)
        assert server.decided == []
        assert server.commands.ran == []
        assert server.slack.calls == []
        [(summary, data)] = server.service.events
        assert "of another team" in summary
        assert data["team"] == TEAM


async def test_without_a_team_set_the_person_alone_counts(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD), team="") as server:
        await server.tap(payloads.tap("approve_accept", CARD))
        assert len(server.decided) == 1


async def test_what_was_tried_and_not_recorded_comes_again(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.deaf = RuntimeError("x")
        with pytest.raises(NotRecorded):
            await server.tap(payloads.tap("approve_accept", CARD, MALLORY))
        server.service.deaf = None
        await server.tap(payloads.tap("approve_accept", CARD, MALLORY))
        assert len(server.service.events) == 1


async def test_the_record_of_a_reply_names_its_thread(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.say(payloads.said("approve", MALLORY))
        assert server.service.events[0][1] == {
            "user": MALLORY,
            "team": TEAM,
            "channel": CHANNEL,
            "action": "reply",
            "thread": ROOT,
        }


async def test_a_command_runs_once_and_its_answer_goes_with_every_acknowledgement(tmp_path: Path) -> None:
    async with slack_server(tmp_path) as server:
        for _ in range(2):
            answer = await server.interactions.handle("slash_commands", payloads.command("help files"))
            assert answer == {"text": "ran help files"}
        assert [command.text for command in server.commands.ran] == ["help files"]


@pytest.mark.parametrize("payload", [None, [], {}, {"type": "block_actions"}, {"type": "shortcut"}, {"event": 3}])
async def test_what_is_no_act_is_acknowledged(tmp_path: Path, payload: Any) -> None:
    async with slack_server(tmp_path) as server:
        for kind in ("interactive", "events_api", "slash_commands", "hello"):
            assert await server.interactions.handle(kind, payload) is None
