"""Who may act: only authorized people of the team, and everybody else leaves a trace and sees nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from intercom.operators.slack.means import NotRecorded
from tests.operators.desk import card
from tests.operators.slack.acts import payloads
from tests.operators.slack.acts.house import CARD, open_house
from tests.operators.slack.acts.payloads import ANNA, CHANNEL, MALLORY, ROOT, TEAM
from tests.support.trio_case import trio_test

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
@trio_test
async def test_others_do_nothing_see_nothing_and_go_on_record(
    tmp_path: Path, kind: str, payload: dict[str, Any]
) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        for _ in range(2):
            assert await house.acts.handle(kind, payload) is None
        assert house.decided == []
        assert house.commands.ran == []
        assert house.web.calls == []
        assert await house.whispered() == []
        assert await house.answers() == []
        row = await house.row(f"card/{CARD}")
        assert row is not None
        assert row.interim is None
        [(summary, data)] = house.desk.events
        assert MALLORY in summary
        assert data["user"] == MALLORY
        assert data["channel"] == CHANNEL
        assert SECRET not in summary + repr(data)


@pytest.mark.parametrize(("kind", "payload"), acts(ANNA))
@trio_test
async def test_people_of_another_team_are_others(tmp_path: Path, kind: str, payload: dict[str, Any]) -> None:
    async with open_house(tmp_path, card(CARD), team="T0OTHER") as house:
        await house.acts.handle(kind, payload)
        assert house.decided == []
        assert house.commands.ran == []
        assert house.web.calls == []
        [(summary, data)] = house.desk.events
        assert "of another team" in summary
        assert data["team"] == TEAM


@trio_test
async def test_without_a_team_set_the_person_alone_counts(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD), team="") as house:
        await house.tap(payloads.tap("approve_accept", CARD))
        assert len(house.decided) == 1


@trio_test
async def test_what_was_tried_and_not_recorded_comes_again(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.deaf = RuntimeError("x")
        with pytest.raises(NotRecorded):
            await house.tap(payloads.tap("approve_accept", CARD, MALLORY))
        house.desk.deaf = None
        await house.tap(payloads.tap("approve_accept", CARD, MALLORY))
        assert len(house.desk.events) == 1


@trio_test
async def test_the_record_of_a_reply_names_its_thread(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.say(payloads.said("approve", MALLORY))
        assert house.desk.events[0][1] == {
            "user": MALLORY,
            "team": TEAM,
            "channel": CHANNEL,
            "action": "reply",
            "thread": ROOT,
        }


@trio_test
async def test_a_command_runs_once_and_its_answer_goes_with_every_acknowledgement(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        for _ in range(2):
            answer = await house.acts.handle("slash_commands", payloads.command("help files"))
            assert answer == {"text": "ran help files"}
        assert [command.text for command in house.commands.ran] == ["help files"]


@pytest.mark.parametrize("payload", [None, [], {}, {"type": "block_actions"}, {"type": "shortcut"}, {"event": 3}])
@trio_test
async def test_what_is_no_act_is_acknowledged(tmp_path: Path, payload: Any) -> None:
    async with open_house(tmp_path) as house:
        for kind in ("interactive", "events_api", "slash_commands", "hello"):
            assert await house.acts.handle(kind, payload) is None
