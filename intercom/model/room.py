"""Rooms: sessions that teams of agents join, with a feed, a roster and one document. Values only.

A room is what the tools call a session. Its feed is numbered from 1 without gaps: the number of a message is its
*sequence*, and a *cursor* is the sequence of the last message that somebody has read (0: none).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from datetime import datetime
from enum import StrEnum
from typing import NewType

from attrs import frozen

from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject

RoomId = NewType("RoomId", str)
#: The public part of a team's token. It tells teams apart, and gives no access.
TeamId = NewType("TeamId", str)


class RoomStatus(StrEnum):
    ACTIVE = "active"
    CLOSED = "closed"


class TeamRole(StrEnum):
    """What a token allows. A reader joined a closed room. An operator is a person. A concluder is the agent that the
    server starts to conclude a room."""

    MEMBER = "member"
    READER = "reader"
    OPERATOR = "operator"
    CONCLUDER = "concluder"


class Presence(StrEnum):
    """How recently a team has polled. A team that has left is disconnected."""

    ACTIVE = "active"
    IDLE = "idle"
    DISCONNECTED = "disconnected"


class MessageType(StrEnum):
    CHAT = "chat"
    SYSTEM = "system"


class RoomEvent(StrEnum):
    """The events of system messages. Only the server writes these messages."""

    CREATED = "session_created"
    TEAM_JOINED = "team_joined"
    TEAM_LEFT = "team_left"
    TEAM_DROPPED = "team_dropped"
    TEAM_REJOINED = "team_rejoined"
    METADATA_UPDATED = "session_metadata_updated"
    PINNED = "message_pinned"
    UNPINNED = "message_unpinned"
    LOOP_WARNING = "loop_warning"
    PAUSED = "session_paused"
    RESUMED = "session_resumed"
    CONCLUDED = "session_concluded"
    REOPENED = "session_reopened"


@frozen
class Room:
    """A room, without the text of its document.

    `last_sequence` numbers the newest message, `session_doc_version` the document (0: never written). `paused_by` is
    None if the room is not paused; a paused room takes no posts of teams. `messages_since_progress` counts the teams'
    messages since a person wrote or the document changed, `acts_since_person` their messages and changes of the
    document since a person wrote. `conclusion` is the text that the last conclusion put into the document.
    `passcode_hash` is None if anybody may join. With `has_concluder`, the server starts an agent that concludes the
    room.
    """

    id: RoomId
    title: str
    description: str
    created_by_team_id: TeamId
    created_at: datetime
    updated_at: datetime
    status: RoomStatus = RoomStatus.ACTIVE
    closed_at: datetime | None = None
    last_sequence: int = 0
    session_doc_version: int = 0
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    messages_since_progress: int = 0
    acts_since_person: int = 0
    conclusion: str | None = None
    passcode_hash: str | None = None
    has_concluder: bool = False

    @property
    def is_closed(self) -> bool:
        return self.status is RoomStatus.CLOSED

    @property
    def is_paused(self) -> bool:
        return self.paused_by is not None


@frozen
class Team:
    """A member of a room. `cursor` is how far it has read. `dropped_at` is set while the feed says that it is gone."""

    session_id: RoomId
    team_id: TeamId
    team_name: str
    token_hash: str
    joined_at: datetime
    last_seen_at: datetime
    role: TeamRole = TeamRole.MEMBER
    cursor: int = 0
    left_at: datetime | None = None
    dropped_at: datetime | None = None


@frozen
class Ack:
    """A team says that it has read a message, and all before it."""

    team_id: TeamId
    team_name: str
    at: datetime


@frozen
class Message:
    """One entry of a feed. `content` of a chat message is `{"text": ...}`, that of a system message its event and more.

    `posted_by_team_id` is None for the server's own messages, and `author` is what the feed calls the author.
    `role` is the author's role; None for the server. `key` is the author's idempotency key.
    """

    session_id: RoomId
    sequence: int
    id: str
    type: MessageType
    content: JsonObject
    posted_at: datetime
    posted_by_team_id: TeamId | None = None
    author: str | None = None
    role: TeamRole | None = None
    key: str | None = None
    acks: tuple[Ack, ...] = ()


@frozen
class DocumentVersion:
    """One version of a document. `content` is None in listings. `act` is the id of the call that wrote it."""

    session_id: RoomId
    version: int
    content: str | None
    written_by_team_id: TeamId | None
    author: str
    written_at: datetime
    act: str = ""


@frozen
class LinkedEvidence:
    """A kept result of a call through the gateway, as a room has it: a copy of its record, which a team or a person has
    linked. `record` is what the gateway exports, `author` what the feed calls the author of the link."""

    session_id: RoomId
    evidence_id: str
    record: JsonObject
    author: str
    linked_at: datetime
    linked_by_team_id: TeamId | None = None


# --- tokens ----------------------------------------------------------------------------------------------------------


def new_token(team_id: str | None = None) -> str:
    """Return a new token, `<team id>.<secret>`; without an id, of a new team. The database keeps only a hash."""
    return f"{team_id or uuid.uuid4()}.{secrets.token_urlsafe(24)}"


def team_of(token: str) -> TeamId:
    """Return the team id in a token, which may be no valid one."""
    return TeamId(token.partition(".")[0])


def token_hash(token: str) -> str:
    """Return what the database keeps of a token. The secret is random, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def opens(team: Team, token: str) -> bool:
    """Whether the token is this team's. The comparison takes constant time."""
    return hmac.compare_digest(team.token_hash, token_hash(token))


# --- errors ----------------------------------------------------------------------------------------------------------


class RoomErrorCode(StrEnum):
    """Why a call about a room was refused. docs/reference/rooms.md explains each."""

    INVALID_ARGUMENTS = "invalid_arguments"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    SESSION_CLOSED = "session_closed"
    SESSION_PAUSED = "session_paused"
    READ_ONLY = "read_only"
    NOT_FOUND = "not_found"
    VERSION_CONFLICT = "version_conflict"
    CONFLICT = "conflict"
    RATE_LIMITED = "rate_limited"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"


#: The HTTP status of each.
STATUS: dict[RoomErrorCode, int] = {
    RoomErrorCode.INVALID_ARGUMENTS: 400,
    RoomErrorCode.UNAUTHORIZED: 401,
    RoomErrorCode.FORBIDDEN: 403,
    RoomErrorCode.SESSION_CLOSED: 403,
    RoomErrorCode.SESSION_PAUSED: 403,
    RoomErrorCode.READ_ONLY: 403,
    RoomErrorCode.NOT_FOUND: 404,
    RoomErrorCode.VERSION_CONFLICT: 409,
    RoomErrorCode.CONFLICT: 409,
    RoomErrorCode.RATE_LIMITED: 429,
    RoomErrorCode.INTERNAL: 500,
    RoomErrorCode.UNAVAILABLE: 503,
}


class RoomRefused(IntercomError):
    """A refused call about a room. `details` are part of the answer."""

    def __init__(self, code: RoomErrorCode, message: str, **details: object) -> None:
        super().__init__(message, code=code.value, **details)
        self.room_code = code

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return STATUS[self.room_code]


def no_such_room(id: str) -> RoomRefused:
    return RoomRefused(RoomErrorCode.NOT_FOUND, f"no session has the id {id[:80]!r}; see list_sessions")


def not_a_member() -> RoomRefused:
    """The same refusal for a token that does not exist and for one of another room."""
    return RoomRefused(
        RoomErrorCode.UNAUTHORIZED,
        "that is not the token of a team in this session: join_session gives one (team_id, or X-Team-ID over HTTP)",
    )


def room_is_closed() -> RoomRefused:
    return RoomRefused(
        RoomErrorCode.SESSION_CLOSED,
        "the session is closed: it can be read, and reopen_session opens it again",
    )
