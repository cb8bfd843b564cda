"""What people see of rooms, and what they can do in them. Values, and the protocol of the service behind ctl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from attrs import frozen

from intercom.model.card import Card
from intercom.model.decision import Signature, Verdict
from intercom.model.json_types import JsonObject
from intercom.model.room import DocumentVersion, Message, Presence, Room, RoomId, Team, TeamId


@frozen
class TeamView:
    """A team as the roster shows it. `unread` counts the messages after its cursor."""

    team: Team
    presence: Presence
    unread: int


@frozen
class RoomView:
    """A room with its roster, by the time of joining, its document ("" if nothing is written), and the messages that
    people have pinned."""

    room: Room
    teams: tuple[TeamView, ...]
    document: str
    pinned: tuple[Message, ...] = ()


@frozen
class RoomTail:
    """Some messages of a feed, in order. With `is_closed`, no more will come after those that the room has now."""

    room: Room
    messages: tuple[Message, ...]
    is_closed: bool


@frozen
class RoomNews:
    """A room and its roster as they are now, and messages that came after a cursor, in order."""

    room: Room
    teams: tuple[TeamView, ...]
    messages: tuple[Message, ...]


@frozen
class DocumentView:
    """One version of a document with its text. `diff` is what it changed, as a unified diff; None if nobody asked."""

    version: DocumentVersion
    diff: str | None = None


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

    async def tail(self, id: str, *, start: int | None = None, before: int | None = None, limit: int = 50) -> RoomTail:
        """Return the `limit` messages after the cursor `start`; without it, the newest ones, before the message number
        `before` if that is given."""
        ...

    async def news(self, id: str, after: int, known: Room | None, seconds: float) -> RoomNews:
        """Return what came after the message number `after`. If nothing did, and the room is still as `known`, this
        waits for it, at most so many seconds."""
        ...

    async def document(self, id: str, version: int | None = None, *, diff: bool = False) -> DocumentView:
        """Return a version of the document, by default the current one. Version 0 is the empty one of a new room."""
        ...

    async def versions(self, id: str, limit: int = 50) -> Sequence[DocumentVersion]:
        """Return the versions of the document without their texts, newest first."""
        ...

    async def instructions(self) -> str:
        """Return what agents are told, in markdown: how they reach the rooms, and what they do in one."""
        ...

    async def create(self, title: str, description: str, by: str, act: str | None = None) -> Room:
        """Open a room without a team in it."""
        ...

    async def search(self, words: str, limit: int = 50) -> Sequence[Match]:
        """Search titles, feeds and documents of all rooms."""
        ...

    async def export(self, id: str, format: str) -> str | JsonObject:
        """Return a whole room: `markdown` as text, or `json` as an object."""
        ...

    async def post(self, id: str, text: str, by: str, act: str | None = None) -> Message: ...

    async def pin(self, id: str, message: int, by: str, act: str | None = None, *, remove: bool = False) -> Room:
        """Pin the message with this number, or with `remove` take its pin away."""
        ...

    async def pause(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room: ...

    async def resume(self, id: str, by: str, act: str | None = None) -> Room: ...

    async def conclude(self, id: str, summary: str, by: str, act: str | None = None) -> Room: ...

    async def reopen(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room: ...

    async def token(self, id: str, by: str, act: str | None = None) -> RoomToken:
        """Return a new token of the role `operator`."""
        ...

    async def cards(self) -> tuple[Card, ...]:
        """Return the cards of paused rooms that wait for a person, oldest first."""
        ...

    async def find_card(self, prefix: str) -> Card | None:
        """Return a room's card, open or closed, by its id or a unique start of it."""
        ...

    async def decide_card(
        self, card: Card, verdict: Verdict, admit: Callable[[Verdict, Card, datetime], Signature | None]
    ) -> Card:
        """Answer a room's card. `admit` checks the signature. The first verdict wins: raises AlreadyDecided for others,
        and what `admit` raises."""
        ...

    async def address(self) -> RoomAddress: ...

    async def set_address(self, url: str | None, by: str) -> RoomAddress:
        """Change the public URL on all nodes; None takes the one of the settings again. Raises InvalidArguments
        for what is no http or https URL."""
        ...
