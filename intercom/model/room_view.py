"""What people see of rooms, and what they can do in them. Values, and the protocol of the service behind ctl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from intercom.model.json_types import JsonObject
from intercom.model.room import Message, Presence, Room, RoomId, Team, TeamId


@frozen
class TeamView:
    """A team as the roster shows it. `unread` counts the messages after its cursor."""

    team: Team
    presence: Presence
    unread: int


@frozen
class RoomView:
    """A room with its roster, by the time of joining, and its document ("" if nothing is written)."""

    room: Room
    teams: tuple[TeamView, ...]
    document: str


@frozen
class RoomTail:
    """Some messages of a feed, in order. With `is_closed`, no more will come after those that the room has now."""

    room: Room
    messages: tuple[Message, ...]
    is_closed: bool


@frozen
class RoomToken:
    """A token with which a person takes part in a room, over HTTP for example. Only this answer holds it."""

    room_id: RoomId
    title: str
    team_id: TeamId
    token: str


@frozen
class RoomAddress:
    """Where agents reach the rooms: the base of all addresses, None without HTTP. `is_set` says that a person set it,
    with ctl; otherwise it is `public_url` of the settings, or the address that the server listens on."""

    url: str | None
    is_set: bool


class Match(Protocol):
    """Where a search found its words. `where` is "feed", "document" or "title"; `sequence` numbers a message."""

    @property
    def room(self) -> Room: ...
    @property
    def where(self) -> str: ...
    @property
    def sequence(self) -> int | None: ...
    @property
    def excerpt(self) -> str: ...


class RoomOperations(Protocol):
    """What people do in rooms.

    `id` is a room's id, or a unique start of it: raises NotFound and Ambiguous. `by` is the person's name, as the feed
    shows it. `act` names the action: repeated, it is answered as the first time, and done once; None is always a new
    one. Every other refusal is a RoomRefused.
    """

    async def list(self, *, everything: bool = False, limit: int = 50) -> Sequence[Room]:
        """Return the open rooms, newest first; with `everything`, the closed ones too."""
        ...

    async def show(self, id: str) -> RoomView: ...

    async def tail(self, id: str, *, start: int | None = None, limit: int = 50) -> RoomTail:
        """Return the `limit` messages after the cursor `start`; without it, the newest ones."""
        ...

    async def search(self, words: str, limit: int = 50) -> Sequence[Match]:
        """Search titles, feeds and documents of all rooms."""
        ...

    async def export(self, id: str, format: str) -> str | JsonObject:
        """Return a whole room: `markdown` as text, or `json` as an object."""
        ...

    async def post(self, id: str, text: str, by: str, act: str | None = None) -> Message: ...

    async def pause(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room: ...

    async def resume(self, id: str, by: str, act: str | None = None) -> Room: ...

    async def conclude(self, id: str, summary: str, by: str, act: str | None = None) -> Room: ...

    async def reopen(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room: ...

    async def token(self, id: str, by: str, act: str | None = None) -> RoomToken:
        """Return a new token of the role `operator`."""
        ...

    async def address(self) -> RoomAddress: ...

    async def set_address(self, url: str | None, by: str) -> RoomAddress:
        """Change the public URL on all nodes; None takes the one of the settings again. Raises InvalidArguments
        for what is no http or https URL."""
        ...
