"""Writes to a room's roster: teams join, leave, are gone without a word, and come back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from attrs import frozen

from intercom.model.room import (
    Message,
    Room,
    RoomEvent,
    RoomId,
    Team,
    TeamId,
    TeamRole,
    not_a_member,
    opens,
    team_of,
    token_hash,
)
from intercom.model.visible_text import one_line
from intercom.rooms import message_budget, roster
from intercom.rooms.transactions.author import (
    TEAM_NAME,
    Author,
    Rules,
    Written,
    announce,
    check_other_rooms,
    check_text,
    is_announced,
    new_id,
    system_message,
)
from intercom.rooms.transactions.loop_guard import announce_act
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase


@frozen
class Joined:
    """A team after it joined, and its whole token. `resumed` means that it was in the room before. `cursor` is where
    it starts to read."""

    team: Team
    token: str
    resumed: bool
    cursor: int


def join(
    db: RoomsDatabase,
    room_id: RoomId,
    *,
    name: str,
    token: str | None,
    new_token: str,
    rules: Rules,
    now: datetime,
    role: TeamRole = TeamRole.MEMBER,
    replay_from: int | None = None,
) -> Written[Joined]:
    """Let in a new team, which gets `new_token`; or, with a token, let its team continue.

    The caller has checked the passcode. A new team gets a name that no present team has, and reads from the end of the
    feed. A team that continues keeps its role, its cursor, and its name unless another team took it meanwhile.
    `replay_from` is a cursor to read from instead; outside the feed, the nearest one in it.

    In a closed room nothing is said in the feed. A team that is new there or had left becomes a reader, except the
    convener. In an open room, a reader that continues becomes a member. What is said counts for the loop guard.

    Raises RoomRefused: unauthorized for a wrong token, and conflict if a team may be in one room at a time and one with
    this name is active in another. That check reads other rooms without their locks, so two joins in the same instant
    may both pass.
    """
    room = rooms.lock(db, room_id)
    if token is not None:
        return _continue(db, room, token, rules, now, replay_from)
    id = team_of(new_token)
    earlier = rooms.team(db, room.id, id)
    if earlier is not None:
        # The answer to this call was lost, and the token with it.
        team = rooms.set_team(db, room.id, id, token_hash=token_hash(new_token))
        return Written(Joined(team, new_token, resumed=False, cursor=team.cursor), room)
    name = one_line(name)
    check_text("team_name", name, TEAM_NAME)
    if room.is_closed and role is TeamRole.MEMBER:
        role = TeamRole.READER
    takes_part = role is not TeamRole.READER and not room.is_closed
    if takes_part:
        check_other_rooms(db, room.id, name, rules, now)
    name = roster.distinct_name(name, _names_taken(db, room, id))
    messages: tuple[Message, ...] = ()
    if takes_part:
        room, messages = _announce(db, room, role, rules, now, new_id(), RoomEvent.TEAM_JOINED, name)
    cursor = room.last_sequence if replay_from is None else _within(room, replay_from)
    team = Team(room.id, id, name, token_hash(new_token), now, now, role, cursor)
    rooms.add_team(db, team)
    return Written(Joined(team, new_token, resumed=False, cursor=cursor), room, messages)


def _continue(
    db: RoomsDatabase, room: Room, token: str, rules: Rules, now: datetime, replay_from: int | None
) -> Written[Joined]:
    team = rooms.team(db, room.id, team_of(token))
    if team is None or not opens(team, token):
        raise not_a_member()
    role, event = _role_and_event(room, team)
    if event is not None:
        check_other_rooms(db, room.id, team.team_name, rules, now)
    name = team.team_name
    if team.left_at is not None:
        name = roster.distinct_name(name, _names_taken(db, room, team.team_id))
    messages: tuple[Message, ...] = ()
    if event is not None:
        room, messages = _announce(db, room, role, rules, now, new_id(), event, name)
    team = rooms.set_team(
        db,
        room.id,
        team.team_id,
        team_name=name,
        role=role,
        left_at=None,
        dropped_at=None,
        last_seen_at=max(now, team.last_seen_at),
        cursor=team.cursor if replay_from is None else _within(room, replay_from),
    )
    return Written(Joined(team, token, resumed=True, cursor=team.cursor), room, messages)


def _role_and_event(room: Room, team: Team) -> tuple[TeamRole, RoomEvent | None]:
    """Return the role of a team that continues, and what the feed says of it."""
    has_left = team.left_at is not None
    if room.is_closed:
        is_demoted = has_left and team.role is TeamRole.MEMBER and team.team_id != room.created_by_team_id
        return TeamRole.READER if is_demoted else team.role, None
    if team.role is TeamRole.READER:
        return TeamRole.MEMBER, RoomEvent.TEAM_JOINED
    if has_left or team.dropped_at is not None:
        return team.role, RoomEvent.TEAM_REJOINED
    return team.role, None


def leave(db: RoomsDatabase, room_id: RoomId, author: Author, rules: Rules, now: datetime, act: str) -> Written[Team]:
    """Record that a team has left, and say so in the feed. It stays in the roster, and its token only opens `join`.

    A closed room can be left too. Nothing is said of a reader. A team that has left may leave again.
    """
    room = rooms.lock(db, room_id)
    team = None if author.team is None else rooms.team(db, room.id, author.team.team_id)
    if team is None:
        raise not_a_member()
    if team.left_at is not None or is_announced(db, room, act):
        return Written(team, room)
    messages: tuple[Message, ...] = ()
    if team.role is not TeamRole.READER:
        room, messages = _announce(db, room, team.role, rules, now, act, RoomEvent.TEAM_LEFT, team.team_name)
    return Written(rooms.set_team(db, room.id, team.team_id, left_at=now), room, messages)


def _announce(
    db: RoomsDatabase, room: Room, role: TeamRole, rules: Rules, now: datetime, id: str, event: RoomEvent, name: str
) -> tuple[Room, tuple[Message, ...]]:
    """Say that a team came or went. The loop guard counts that, but for people and the server's agent.

    A paused room can be joined and left. So after twice the budget nothing more is said; the roster shows it.
    """
    if role in (TeamRole.OPERATOR, TeamRole.CONCLUDER):
        return announce(db, room, id, event, now, team=name)
    if message_budget.is_spent(room, rules.budget, times=2):
        return room, ()
    return announce_act(db, room, Author(None, name, role), rules, now, id, event, team=name)


def drop(
    db: RoomsDatabase, room_id: RoomId, gone: Collection[TeamId], before: datetime, now: datetime
) -> Written[tuple[Team, ...]]:
    """Say in the feed which of these teams are gone: those last seen earlier than `before`, if it was not said yet.

    Returns the teams that this call dropped. In a closed room there are none. Nothing is said of a reader.
    """
    room = rooms.lock(db, room_id)
    if room.is_closed:
        return Written((), room)
    dropped = []
    for id in gone:
        team = rooms.team(db, room.id, id)
        if team is not None and team.left_at is None and team.dropped_at is None and team.last_seen_at < before:
            dropped.append(rooms.set_team(db, room.id, id, dropped_at=now))
    said = [
        system_message(room, new_id(), RoomEvent.TEAM_DROPPED, now, team=team.team_name)
        for team in dropped
        if team.role is not TeamRole.READER
    ]
    messages: tuple[Message, ...] = ()
    if said:
        room, messages = rooms.add_messages(db, room, said)
    return Written(tuple(dropped), room, messages)


def rejoined(db: RoomsDatabase, room_id: RoomId, team_id: TeamId, now: datetime) -> Written[Team]:
    """Say in the feed that a dropped team polls again. Nothing is said of a reader, or in a closed room."""
    room = rooms.lock(db, room_id)
    team = rooms.team(db, room.id, team_id)
    if team is None or team.left_at is not None:
        raise not_a_member()
    if team.dropped_at is None:
        return Written(team, room)
    messages: tuple[Message, ...] = ()
    if team.role is not TeamRole.READER and not room.is_closed:
        room, messages = announce(db, room, new_id(), RoomEvent.TEAM_REJOINED, now, team=team.team_name)
    seen_at = max(now, team.last_seen_at)
    return Written(rooms.set_team(db, room.id, team_id, dropped_at=None, last_seen_at=seen_at), room, messages)


def _names_taken(db: RoomsDatabase, room: Room, id: TeamId) -> tuple[str, ...]:
    """Return the names of the other teams that have not left."""
    members = rooms.members(db, room.id)
    return tuple([team.team_name for team in members if team.left_at is None and team.team_id != id])


def _within(room: Room, cursor: int) -> int:
    return min(max(cursor, 0), room.last_sequence)
