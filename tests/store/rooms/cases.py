"""Rooms, teams and messages to store: a valid one of each, with what a test wants different."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import evolve

from intercom.model.room import LinkedEvidence, Message, MessageType, Room, RoomId, Team, TeamId, TeamRole
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def id_of(name: str) -> str:
    """The UUID that stands for a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def team_id(name: str) -> TeamId:
    return TeamId(id_of(f"team {name}"))


def room(name: str = "room", **changes: Any) -> Room:
    plain = Room(
        id=RoomId(id_of(f"room {name}")),
        title=f"Title of {name}",
        description="what for",
        created_by_team_id=team_id("ada"),
        created_at=NOW,
        updated_at=NOW,
    )
    return evolve(plain, **changes)


def team(name: str = "ada", room: str = "room", **changes: Any) -> Team:
    plain = Team(
        session_id=RoomId(id_of(f"room {room}")),
        team_id=team_id(name),
        team_name=name,
        token_hash="ab" * 32,
        joined_at=NOW,
        last_seen_at=NOW,
    )
    return evolve(plain, **changes)


def evidence(id: str, room: str = "room", **changes: Any) -> LinkedEvidence:
    return evolve(LinkedEvidence(RoomId(id_of(f"room {room}")), id, {"id": id}, "ada", NOW, team_id("ada")), **changes)


def message(text: str, room: str = "room", **changes: Any) -> Message:
    plain = Message(
        session_id=RoomId(id_of(f"room {room}")),
        sequence=0,
        id=id_of(f"message {text}"),
        type=MessageType.CHAT,
        content={"text": text},
        posted_at=NOW,
        posted_by_team_id=team_id("ada"),
        author="ada",
        role=TeamRole.MEMBER,
    )
    return evolve(plain, **changes)


def new_room(db: RoomsDatabase, name: str = "room", **changes: Any) -> Room:
    """Create a room with its convener."""
    made = room(name, **changes)
    rooms.create(db, made, team(room=name))
    return made


def say(db: RoomsDatabase, *texts: str, room: str = "room") -> tuple[Message, ...]:
    """Add chat messages to a room's feed."""
    locked = rooms.lock(db, id_of(f"room {room}"))
    return rooms.add_messages(db, locked, [message(text, room) for text in texts])[1]
