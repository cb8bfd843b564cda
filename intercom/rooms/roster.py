"""The roster of a room: which teams are present, which are gone, and what each is called. Pure.

A team's presence follows from its polls alone: there is no other sign of life. A team's name cannot pass for that of
another team that is present, of a person, or of the server.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from attrs import frozen

from intercom.model.room import Presence, Room, Team, TeamId, TeamRole
from intercom.model.visible_text import one_line

#: The longest name of a team, in characters.
NAME: Final = 100
_NUMBERED: Final = re.compile(r"(.+) \(([1-9][0-9]{0,5})\)")
#: How a reader tells the server's own lines from those of people and teams.
SERVER_LABEL: Final = "[server]"
#: Names of people, of the server and of its parts. No team has one of them, in any spelling.
_RESERVED: Final = (
    "operator",
    "the operator",
    "server",
    "the server",
    "system",
    "loop guard",
    "conclusion agent",
    "concluder",
    "you",
    "peer",
    "intercom",
    "agent intercom",
    "agent rooms",
)
_OPENING: Final = r"(\[{<（［｛＜‹«〈《「『【〔〖〘〚⟦⟨⟪⟮❨❪❬❮❰❲❴"
_CLOSING: Final = r")\]}>）］｝＞›»〉》」』】〕〗〙〛⟧⟩⟫⟯❩❫❭❯❱❳❵"
_BRACKETS: Final = re.compile(f"[{_OPENING}]([^{_OPENING}{_CLOSING}]*)([{_CLOSING}]|$)")

#: What Cyrillic, Greek, Armenian and unusual Latin characters look like: the common ones of `confusables.txt` (Unicode
#: Technical Standard 39).
_LOOKALIKES: Final = {
    ord(each): like
    for like, characters in {
        "a": "аαɑᴀ", "A": "АΑ", "b": "вьᴃʙ", "B": "ВΒЬ", "c": "сᴄ", "C": "СϹ", "d": "ԁđᴅ", "D": "ĐÐ", "e": "еεᴇ",
        "E": "ЕΕ", "f": "ƒ", "g": "ɡցɢ", "h": "нһհʜ", "H": "НΗҺ", "i": "іιıɪ", "j": "јᴊ", "J": "Ј", "k": "кκᴋ",
        "K": "КΚ", "l": "ӏłʟI1|ІΙӀ", "L": "Ł", "m": "мᴍ", "M": "МΜ", "n": "ηոɴп", "N": "Ν", "o": "оοօøᴏ0",
        "O": "ОΟØ", "p": "рρᴘ", "P": "РΡ", "q": "ԛ", "Q": "Ԛ", "r": "гʀ", "s": "ѕꜱ", "S": "Ѕ", "t": "тτᴛ",
        "T": "ТΤ", "u": "υսᴜμ", "v": "νᴠ", "w": "ԝωᴡ", "W": "Ԝ", "x": "хχ", "X": "ХΧ", "y": "уγʏ", "Y": "УΥҮ",
        "z": "ᴢ", "Z": "Ζ", "3": "зЗ", "6": "бБ", "'": "‘’ʼʹ′`´", "-": "‐‑‒–—―−",
    }.items()
    for each in characters
}  # fmt: skip
_ACCENT: Final = re.compile("[\u0300-\u036f]")


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


def labelled(name: str, role: str | None) -> str:
    """Return an author's name after the role, as people see it: `[operator] robin`, `[team] Alex's Team`.

    The first brackets are always the server's: what a name has in brackets comes after them.
    """
    is_team = role is None or role in (TeamRole.MEMBER, TeamRole.READER)
    return f"[{'team' if is_team else role}] {name}"


def team_name(wanted: str) -> str:
    """Return the name of a team that asks for this one: a name that cannot pass for a person's or the server's.

    A reserved name in brackets is left out: `robin (operator)` becomes `robin`. A team that asks for nothing but a
    reserved name gets a number: `operator (2)`. White space alone becomes the empty name, which no team may have.
    """
    name = one_line(wanted)
    without = _without_reserved(name)
    if name and not without:
        return "team"
    return distinct_name(without, (without,)) if _is_reserved(without) else without


def distinct_name(wanted: str, taken: Collection[str]) -> str:
    """Return a team's name that nobody can mistake for a taken one: `Alex's Team (2)`.

    Case, spaces, accents, and characters that look like others make no difference. Invisible characters are written as
    their codes.
    """
    name = one_line(wanted)
    keys = frozenset[str]().union(*map(_keys, taken))
    if keys.isdisjoint(_keys(name)):
        return name
    numbered = _NUMBERED.fullmatch(name)
    base, number = (numbered[1], int(numbered[2])) if numbered else (name, 1)
    while not keys.isdisjoint(_keys(name)):
        number += 1
        suffix = f" ({number})"
        name = (base[: NAME - len(suffix)].rstrip() + suffix).strip()
    return name


def _keys(name: str) -> frozenset[str]:
    """Return the keys of a name: two names look alike if they have one in common.

    The first is what Unicode calls a caseless match. The second is a skeleton: each character is replaced by the one
    that it looks like. That depends on its case, so one key does not serve for both.
    """
    text = unicodedata.normalize("NFKC", one_line(name))
    bare = _ACCENT.sub("", unicodedata.normalize("NFKD", text)).translate(_LOOKALIKES)
    skeleton = bare.casefold().replace("rn", "m").replace("vv", "w")
    return frozenset({_folded(text), _folded(skeleton)})


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text.casefold()).split())


def _without_reserved(name: str) -> str:
    """Return a name without reserved names in brackets, and without the empty brackets that they leave."""

    def replaced(found: re.Match[str]) -> str:
        is_empty = not found[1].strip() and bool(found[2])
        return " " if is_empty or _is_reserved(found[1]) else found[0]

    before = None
    while name != before:
        before = name
        name = " ".join(_BRACKETS.sub(replaced, name).split())
    return name


def _is_reserved(name: str) -> bool:
    return not _RESERVED_KEYS.isdisjoint(_letters(name))


def _letters(name: str) -> frozenset[str]:
    """Return the keys of a name without spaces and punctuation."""
    return frozenset(["".join(filter(str.isalnum, key)) for key in _keys(name)])


_RESERVED_KEYS: Final = frozenset[str]().union(
    *[_letters(spelling) for name in _RESERVED for spelling in (name, name.upper(), name.title())]
)
