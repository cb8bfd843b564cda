"""What all writes to a room share: who writes, by which settings, what is returned, and the checks before."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from attrs import frozen

from intercom.model.json_types import Json, JsonObject
from intercom.model.room import (
    LinkedEvidence,
    Message,
    MessageType,
    Room,
    RoomErrorCode,
    RoomEvent,
    RoomId,
    RoomRefused,
    Team,
    TeamId,
    TeamRole,
    not_a_member,
    room_is_closed,
)
from intercom.rooms.message_budget import Budget
from intercom.rooms.roster import Thresholds
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase

R = TypeVar("R")

#: The name under which the loop guard pauses a room.
LOOP_GUARD = "loop guard"
#: The longest texts, in characters.
TITLE = 200
DESCRIPTION = 20_000
TEAM_NAME = 100
REASON = 2_000
#: The longest text of a message, and the largest document, in bytes of UTF-8.
MESSAGE_TEXT = 64 * 2**10
DOCUMENT = 2**20


@frozen
class Written(Generic[R]):
    """What a transaction did: its answer, the room after it, and the messages that this call added."""

    answer: R
    room: Room
    messages: tuple[Message, ...] = ()


@frozen
class Rules:
    """The settings that writes depend on. An interval of 0 means no limit."""

    budget: Budget
    thresholds: Thresholds
    convener_only_conclude: bool = False
    convener_only_metadata: bool = False
    one_room_at_a_time: bool = False
    metadata_interval_seconds: float = 0


@frozen
class Author:
    """Who writes: a team, or without one a person at ctl or in a browser. `name` is what the feed calls the author.

    A team's name and role are read again under the room's lock; those given here do not count.
    """

    team: Team | None
    name: str
    role: TeamRole

    @property
    def is_person(self) -> bool:
        return self.role is TeamRole.OPERATOR


def team_author(team: Team) -> Author:
    return Author(team, team.team_name, team.role)


def person(name: str) -> Author:
    """Return a person without a token, whom another part of the server has identified."""
    return Author(None, name, TeamRole.OPERATOR)


# --- who may do what -------------------------------------------------------------------------------------------------


def current(db: RoomsDatabase, room: Room, author: Author) -> Author:
    """Return the author as the database has it. Raises RoomRefused (unauthorized) if the team is not in the room."""
    return as_member(author, {} if author.team is None else rooms.teams_by_id(db, room.id, (author.team.team_id,)))


def as_member(author: Author, teams: Mapping[TeamId, Team]) -> Author:
    """Return the author as these teams of the room have it. Raises RoomRefused (unauthorized) if it is not among them,
    or has left."""
    if author.team is None:
        return author
    team = teams.get(author.team.team_id)
    if team is None or team.left_at is not None:
        raise not_a_member()
    return team_author(team)


def writer(db: RoomsDatabase, room: Room, author: Author, *, closed: bool = False) -> Author:
    """Return the author as the database has it, if it may write now. `closed`: also in a closed room."""
    author = current(db, room, author)
    check_writer(room, author, closed=closed)
    return author


def check_writer(room: Room, author: Author, *, closed: bool = False) -> None:
    if room.is_closed and not closed:
        raise room_is_closed()
    if author.role is TeamRole.READER:
        when = "when the session is open again, join_session" if room.is_closed else "join_session again"
        raise RoomRefused(
            RoomErrorCode.READ_ONLY,
            f"this team joined while the session was closed, so its token only reads: {when} with the same team_id",
        )


def check_not_paused(room: Room, author: Author) -> None:
    """Raise RoomRefused (session_paused) if the room is paused and the author is no person."""
    if not room.is_paused or author.is_person:
        return
    why = "" if room.pause_reason is None else f" ({room.pause_reason})"
    convener = ", or the convener with reopen_session" if room.paused_by == LOOP_GUARD else ""
    raise RoomRefused(
        RoomErrorCode.SESSION_PAUSED,
        f"{room.paused_by} has paused the session{why}: wait_for_messages until a person resumes it{convener}",
        paused_by=room.paused_by,
        reason=room.pause_reason,
    )


def check_no_pause_of_a_person(room: Room, author: Author) -> None:
    """Raise RoomRefused (session_paused) for a team if a person has paused the room: only a person ends that."""
    if room.paused_by != LOOP_GUARD:
        check_not_paused(room, author)


def check_authority(db: RoomsDatabase, room: Room, author: Author, what: str) -> None:
    """Raise RoomRefused (forbidden) unless the author is a person or the convener."""
    if author.is_person or (author.team is not None and author.team.team_id == room.created_by_team_id):
        return
    convener = rooms.team(db, room.id, room.created_by_team_id)
    who = "the convener" if convener is None else f"the convener, {convener.team_name},"
    raise RoomRefused(RoomErrorCode.FORBIDDEN, f"only {who} or a person may {what}: ask for it with post_message")


def check_other_rooms(db: RoomsDatabase, id: RoomId, team_name: str, rules: Rules, now: datetime) -> None:
    """Raise RoomRefused (conflict) if a team may be in one room at a time and this one is active in another."""
    if not rules.one_room_at_a_time:
        return
    since = now - timedelta(seconds=rules.thresholds.disconnected_seconds)
    other = rooms.active_elsewhere(db, team_name, id, since)
    if other is not None:
        raise RoomRefused(
            RoomErrorCode.CONFLICT,
            f"{team_name} is active in the session {other.title!r} ({other.id}), and a team may be in one at a time:"
            " leave_session there first",
            session_id=other.id,
        )


# --- texts -----------------------------------------------------------------------------------------------------------


def check_text(name: str, text: str, most: int, *, empty: bool = False) -> None:
    """Raise RoomRefused (invalid_arguments) if a text has more than `most` characters, or none but white space."""
    if len(text) > most:
        raise invalid(f"{name} may have at most {most} characters and has {len(text)}: shorten it")
    if not empty and not text.strip():
        raise invalid(f"{name} is empty: give a text")


def check_size(name: str, text: str, most: int, *, empty: bool = False) -> None:
    """The same for a text that may have `most` bytes of UTF-8."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise invalid(f"{name} may have at most {most} bytes and has {size}: shorten it, or put it into a file")
    if not empty and not text.strip():
        raise invalid(f"{name} is empty: give a text")


def invalid(message: str) -> RoomRefused:
    return RoomRefused(RoomErrorCode.INVALID_ARGUMENTS, message)


# --- evidence --------------------------------------------------------------------------------------------------------


def link(db: RoomsDatabase, room: Room, author: Author, records: Mapping[str, JsonObject], now: datetime) -> None:
    """Link evidence in a locked room. The caller has checked that the author may; what is linked already stays."""
    team = None if author.team is None else author.team.team_id
    for id, record in records.items():
        rooms.link_evidence(db, LinkedEvidence(room.id, id, record, author.name, now, team))


# --- messages of the server ------------------------------------------------------------------------------------------


def system_message(room: Room, id: str, event: RoomEvent, now: datetime, **content: Json) -> Message:
    """Return a system message, which gets its sequence when it is added. Its time is when it was posted."""
    return Message(room.id, 0, id, MessageType.SYSTEM, {"event": event.value, **content}, now)


def announce(
    db: RoomsDatabase, room: Room, id: str, event: RoomEvent, now: datetime, **content: Json
) -> tuple[Room, tuple[Message, ...]]:
    """Add a system message to the feed. Returns the room after it, and the message."""
    return rooms.add_messages(db, room, (system_message(room, id, event, now, **content),))


def is_announced(db: RoomsDatabase, room: Room, act: str) -> bool:
    """Whether the feed has the message of this act, which was done then."""
    return rooms.message_by_id(db, room.id, act) is not None


def new_id() -> str:
    """Return the id of a message of a call without an act: its repetition finds its work done, and adds none."""
    return str(uuid.uuid4())
