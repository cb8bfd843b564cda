"""The roster: presence follows from polls, everybody who is gone is told of once, and no two teams look the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.room import Presence, Room, RoomId, Team, TeamId, TeamRole
from intercom.rooms import concluding_agent
from intercom.rooms.instructions import SERVER_NAME
from intercom.rooms.roster import (
    NORMAL,
    SLOW,
    Thresholds,
    distinct_name,
    dropped,
    for_pace,
    labelled,
    presence,
    team_name,
    unread,
)
from intercom.rooms.transactions import LOOP_GUARD

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
ACTIVE, IDLE, DISCONNECTED = Presence.ACTIVE, Presence.IDLE, Presence.DISCONNECTED


def team(silent: float = 0.0, *, id: str = "t", name: str = "Alex's Team", left: bool = False) -> Team:
    """A team that polled so many seconds ago."""
    seen = NOW - timedelta(seconds=silent)
    joined = NOW - timedelta(hours=1)
    return Team(RoomId("r"), TeamId(id), name, "hash", joined, seen, left_at=NOW if left else None)


@pytest.mark.parametrize(
    ("thresholds", "silent", "expected"),
    [
        (NORMAL, 0, ACTIVE),
        (NORMAL, 10, ACTIVE),
        (NORMAL, 10.001, IDLE),
        (NORMAL, 60, IDLE),
        (NORMAL, 60.001, DISCONNECTED),
        (SLOW, 180, ACTIVE),
        (SLOW, 181, IDLE),
        (SLOW, 900, IDLE),
        (SLOW, 901, DISCONNECTED),
        # Another node's clock is ahead.
        (NORMAL, -5, ACTIVE),
        (Thresholds(30, 30), 31, DISCONNECTED),
    ],
)
def test_presence_follows_from_the_time_since_the_last_poll(
    thresholds: Thresholds, silent: float, expected: Presence
) -> None:
    assert presence(team(silent), NOW, thresholds, polling=False) is expected
    assert presence(team(silent), NOW, thresholds, polling=True) is ACTIVE


def test_a_team_that_has_left_is_disconnected_whatever_it_does() -> None:
    assert presence(team(0, left=True), NOW, NORMAL, polling=True) is DISCONNECTED


def test_a_dropped_team_is_disconnected_until_it_polls_again() -> None:
    gone = evolve(team(30), dropped_at=NOW - timedelta(seconds=10))
    assert presence(gone, NOW, NORMAL, polling=False) is DISCONNECTED
    assert presence(gone, NOW, NORMAL, polling=True) is ACTIVE
    assert presence(evolve(gone, last_seen_at=NOW), NOW, NORMAL, polling=False) is ACTIVE


def test_the_feed_is_told_of_teams_that_are_gone_and_were_not_told_of() -> None:
    gone, reader = team(61, id="gone"), evolve(team(61, id="reader"), role=TeamRole.READER)
    others = (
        team(59, id="idle"),
        team(61, id="polling"),
        team(61, id="left", left=True),
        evolve(team(61, id="dropped"), dropped_at=NOW),
    )
    assert dropped((gone, *others, reader), NOW, NORMAL, {TeamId("polling")}) == (gone, reader)


@pytest.mark.parametrize(
    ("name", "active", "disconnected", "expected"),
    [
        ("normal", None, None, Thresholds(10, 60)),
        ("slow", None, None, Thresholds(180, 900)),
        ("normal", 5, None, Thresholds(5, 60)),
        ("slow", None, 1_200, Thresholds(180, 1_200)),
        ("normal", 300, None, Thresholds(300, 300)),
        ("normal", 0, 0, Thresholds(0, 0)),
    ],
)
def test_a_pace_gives_thresholds_and_people_may_set_each(
    name: str, active: float | None, disconnected: float | None, expected: Thresholds
) -> None:
    assert for_pace(name, active, disconnected) == expected


def test_a_pace_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="pace: must be normal or slow, not 'fast'"):
        for_pace("fast")


@pytest.mark.parametrize(("cursor", "expected"), [(0, 7), (5, 2), (7, 0), (9, 0)])
def test_unread_messages_are_those_behind_the_cursor(cursor: int, expected: int) -> None:
    room = Room(RoomId("r"), "", "", TeamId("t"), NOW, NOW, last_sequence=7)
    assert unread(evolve(team(), cursor=cursor), room) == expected


@pytest.mark.parametrize(
    ("wanted", "taken", "expected"),
    [
        ("Alex's Team", [], "Alex's Team"),
        ("Alex's Team", ["Bea's Team"], "Alex's Team"),
        ("Alex's Team", ["Alex's Team"], "Alex's Team (2)"),
        ("Alex's Team", ["Alex's Team", "Alex's Team (2)"], "Alex's Team (3)"),
        ("Alex's Team (2)", ["Alex's Team (2)"], "Alex's Team (3)"),
        ("alex's team", ["ALEX'S TEAM"], "alex's team (2)"),
        ("  Alex's   Team\n", ["Alex's Team"], "Alex's Team (2)"),
        ("STRASSE", ["straße"], "STRASSE (2)"),
        ("ﬁre", ["fire"], "ﬁre (2)"),
        ("Ａ", ["a"], "Ａ (2)"),
        ("a\u200bb", ["ab"], "a<U+200B>b"),
        ("(2)", ["(2)"], "(2) (2)"),
        ("x" * 100, ["x" * 100], "x" * 96 + " (2)"),
        # Cyrillic, Greek and ASCII characters that look like those of the other name.
        ("\u0410lex", ["Alex"], "\u0410lex (2)"),
        ("\u0391lex", ["Alex"], "\u0391lex (2)"),
        ("Alex", ["\u0410l\u0435\u0445"], "Alex (2)"),
        ("AIex", ["Alex"], "AIex (2)"),
        ("Alex\u0301", ["Alex"], "Alex\u0301 (2)"),
        ("Alex\u2019s Team", ["Alex's Team"], "Alex\u2019s Team (2)"),
        ("modem", ["modern"], "modem (2)"),
        ("ALICE", ["alice"], "ALICE (2)"),
        ("\u0412\u0435\u0440\u0430", ["\u0432\u0435\u0440\u0430"], "\u0412\u0435\u0440\u0430 (2)"),
        ("Team 1", ["Team 11"], "Team 1"),
    ],
)
def test_a_name_is_one_that_no_other_present_team_has(wanted: str, taken: list[str], expected: str) -> None:
    assert distinct_name(wanted, taken) == expected


@given(st.lists(st.text(alphabet="aAß \u200b(2)ﬁ", min_size=1, max_size=6), max_size=20))
def test_however_teams_are_called_they_are_told_apart(wanted: list[str]) -> None:
    names: list[str] = []
    for each in wanted:
        names.append(distinct_name(each, names))
    assert len({name.casefold() for name in names}) == len(names)
    assert all(distinct_name(name, []) == name for name in names)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("Alex's Team", "Alex's Team"),
        ("Alex's Team (server part)", "Alex's Team (server part)"),
        ("Peer's Team :(", "Peer's Team :("),
        ("robin (operator)", "robin"),
        ("robin (operator", "robin"),
        ("[Operator] robin", "robin"),
        ("robin ((operator))", "robin"),
        ("robin \uff08\u043eperator\uff09", "robin"),
        ("robin (operator) (2)", "robin (2)"),
        ("(operator)", "team"),
        ("operator", "operator (2)"),
        ("The Operator", "The Operator (2)"),
        ("OPER\u0410TOR", "OPER\u0410TOR (2)"),
        ("Server:", "Server: (2)"),
        ("you", "you (2)"),
        ("peer", "peer (2)"),
        ("INT\u0415RCOM", "INT\u0415RCOM (2)"),
        ("  ", ""),
    ],
)
def test_a_name_of_a_team_cannot_pass_for_a_persons_or_the_servers(wanted: str, expected: str) -> None:
    assert team_name(wanted) == expected


@pytest.mark.parametrize("name", [LOOP_GUARD, concluding_agent.NAME, SERVER_NAME, "agent-intercom"])
def test_no_team_has_the_name_of_a_part_of_the_server(name: str) -> None:
    assert team_name(name) == f"{name} (2)"


@given(st.text(alphabet="peroat ()[<\uff08\uff09") | st.text())
def test_a_name_that_a_team_got_is_one_that_it_may_have(wanted: str) -> None:
    assert team_name(team_name(wanted)) == team_name(wanted)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (TeamRole.MEMBER, "[team] robin"),
        (TeamRole.READER, "[team] robin"),
        (None, "[team] robin"),
        (TeamRole.OPERATOR, "[operator] robin"),
        (TeamRole.CONCLUDER, "[concluder] robin"),
        ("auditor", "[auditor] robin"),
    ],
)
def test_the_role_of_an_author_is_before_the_name(role: str | None, expected: str) -> None:
    assert labelled("robin", role) == expected
