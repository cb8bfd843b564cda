"""The messages that a room's actor, and the directory of rooms, accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import frozen

from actors import Request
from intercom.model.room import Message, Room, RoomId, Team, TeamId
from intercom.rooms.transactions import Post, Written
from intercom.store.room_database import RoomsDatabase

R = TypeVar("R")

#: The actor that starts rooms, and tells them of other nodes' messages.
DIRECTORY = "room-directory"
#: The name of the stored setting that holds the public URL.
PUBLIC_URL = "public_url"


def room_name(id: str) -> str:
    """Return the name of a room's actor."""
    return f"room/{id}"


# --- to a room -------------------------------------------------------------------------------------------------------


@frozen
class Identify(Request[Team]):
    """Return the team of this token. Raises RoomRefused (unauthorized) if the room has no such team, or it left."""

    token: str


@frozen
class Page:
    """What a wait returns: messages in order, and the cursor after them. `is_closed` is only set on the last page of a
    closed room. `unread` counts the messages after the cursor. `empty_polls` counts the team's waits in a row that
    brought nothing."""

    messages: tuple[Message, ...]
    next_cursor: int
    is_closed: bool
    unread: int = 0
    empty_polls: int = 0


@frozen
class Wait(Request[Page]):
    """Wait until there are messages after `since` (None: after what the team has read), at most `seconds`.

    The asker's own words for this wait are `ticket`, with which it can be withdrawn.
    """

    token: str
    since: int | None
    seconds: float
    ticket: str


@frozen
class Withdraw:
    """A notification that nobody waits for this wait's answer any more."""

    ticket: str


@frozen
class AddPost(Request[Message]):
    """Add a chat message to the feed. The answer is the message once it is on disk. `token` is None for a person."""

    token: str | None
    post: Post


@frozen
class Change(Request[R], Generic[R]):
    """Run `work(db)` in a transaction of the room, and return its answer. It must be safe to repeat."""

    work: Callable[[RoomsDatabase], Written[R]]


@frozen
class Roster:
    """A room and its teams. `polling` are the teams with a wait in progress on this node."""

    room: Room
    teams: tuple[Team, ...]
    polling: frozenset[TeamId]


@frozen
class ReadRoster(Request[Roster]):
    """Return the roster as it is now.

    With `or_known`, it is returned as this node last read it if the database does not answer. This is for an asker that
    has just changed the room: a refusal would say that it has not.
    """

    or_known: bool = False


@frozen
class View(Roster):
    """A room, its teams, and the first messages after a cursor."""

    messages: tuple[Message, ...]


@frozen
class Watch(Request[View]):
    """Return what came after the message `after`. If nothing did, and the room is still as `known`, wait for it, at
    most `seconds`. A person looks, so no team is seen for it.

    `ticket` is as in `Wait`.
    """

    after: int
    known: Room | None
    seconds: float
    ticket: str


@frozen
class Advance:
    """A notification that there may be messages after the last one that the actor knows."""


@frozen
class Flushed:
    """The room's own message: the next `count` posts were written, or failed with `fault`."""

    count: int
    written: Written[tuple[Any, ...]] | None
    fault: Exception | None


@frozen
class Tick:
    """The room's timer message: end waits whose time is over, and look after teams."""


# --- to the concluder ------------------------------------------------------------------------------------------------

#: The actor that starts the agents which conclude rooms.
CONCLUDER = "room-concluder"


@frozen
class Conclude:
    """A notification that this room should be concluded by an agent that the server starts."""

    room: Room


@frozen
class FindUnfinished:
    """The concluder's own message: go on with starts of agents that an earlier run of a server may have left."""


# --- to the directory ------------------------------------------------------------------------------------------------


@frozen
class Open(Request[None]):
    """Start the room's actor, if it does not run. Raises RoomRefused (not_found)."""

    id: RoomId


@frozen
class Watched:
    """A notification that calls of this node wait in a room that has `sequence` messages; None: they wait no more."""

    id: RoomId
    sequence: int | None


@frozen
class Woken:
    """A notification that another node has added messages to these rooms; empty: perhaps to any room."""

    ids: tuple[str, ...]


@frozen
class LookRound:
    """The directory's timer message: ask the database which watched rooms have newer messages."""


@frozen
class Looked:
    """The directory's own message: the rooms with newer messages, and the public URL that people have set. After a
    `fault` neither is known."""

    newer: Mapping[RoomId, int]
    public_url: str | None
    fault: Exception | None = None
