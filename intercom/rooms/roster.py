"""The roster of a room: which teams are present, which are gone, and what each is called. Pure.

A team's presence follows from its polls alone: there is no other sign of life.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from attrs import frozen

from intercom.model.room import Presence, Room, Team, TeamId
from intercom.model.visible_text import one_line

#: The longest name of a team, in characters.
NAME: Final = 100
_NUMBERED: Final = re.compile(r"(.+) \(([1-9][0-9]{0,5})\)")


@frozen
class Thresholds:
    """Seconds since the last poll: up to `active_seconds` a team is active, up to `disconnected_seconds` it is idle."""

    active_seconds: float = 10
    disconnected_seconds: float = 60


NORMAL: Final = Thresholds()
#: For agents that think or build for minutes between two polls.
SLOW: Final = Thresholds(180, 900)
PACES: Final = {"normal": NORMAL, "slow": SLOW}


def for_pace(name: str, active: float | None = None, disconnected: float | None = None) -> Thresholds:
    """Return the thresholds of a pace, `normal` or `slow`, in which some may be given instead.

    A team is never disconnected before it is idle: the second is at least the first. Raises ValueError for an unknown
    pace.
    """
    if name not in PACES:
        raise ValueError(f"pace: must be {' or '.join(PACES)}, not {name!r}")
    pace = PACES[name]
    active_seconds = pace.active_seconds if active is None else active
    disconnected_seconds = pace.disconnected_seconds if disconnected is None else disconnected
    return Thresholds(active_seconds, max(active_seconds, disconnected_seconds))


def presence(team: Team, now: datetime, thresholds: Thresholds, *, polling: bool) -> Presence:
    """Return a team's presence. `polling` says that a poll of the team is waiting at this moment.

    A team of which the feed says that it is gone is disconnected until it polls again.
    """
    if team.left_at is not None:
        return Presence.DISCONNECTED
    if polling:
        return Presence.ACTIVE
    if team.dropped_at is not None and team.last_seen_at <= team.dropped_at:
        return Presence.DISCONNECTED
    # Another node may have seen the team, and its clock may be ahead: that is less than no time.
    silent = (now - team.last_seen_at).total_seconds()
    if silent <= thresholds.active_seconds:
        return Presence.ACTIVE
    return Presence.IDLE if silent <= thresholds.disconnected_seconds else Presence.DISCONNECTED


def dropped(
    teams: Iterable[Team], now: datetime, thresholds: Thresholds, polling: Collection[TeamId]
) -> tuple[Team, ...]:
    """Return the teams that are gone, of which nobody was told: they have not left, and were not dropped before."""
    return tuple(
        team
        for team in teams
        if team.left_at is None
        and team.dropped_at is None
        and presence(team, now, thresholds, polling=team.team_id in polling) is Presence.DISCONNECTED
    )


def unread(team: Team, room: Room) -> int:
    """Return how many messages of the feed the team has not read."""
    return max(0, room.last_sequence - team.cursor)


def distinct_name(wanted: str, taken: Collection[str]) -> str:
    """Return a team's name that nobody can mistake for a taken one: `Alex's Team (2)`.

    Case, spaces and forms of the same character make no difference. Invisible characters are written as their codes.
    """
    name = one_line(wanted)
    keys = {_key(each) for each in taken}
    if _key(name) not in keys:
        return name
    numbered = _NUMBERED.fullmatch(name)
    base, number = (numbered[1], int(numbered[2])) if numbered else (name, 1)
    while _key(name) in keys:
        number += 1
        suffix = f" ({number})"
        name = (base[: NAME - len(suffix)].rstrip() + suffix).strip()
    return name


def _key(name: str) -> str:
    """Return what names that look alike have in common, as Unicode defines a caseless match."""
    folded = unicodedata.normalize("NFKC", one_line(name)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())
