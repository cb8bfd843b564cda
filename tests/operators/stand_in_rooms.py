"""A stand-in for what people do in rooms: rooms in a dict, with the refusals that the real one gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from attrs import evolve, frozen

from intercom.model.card import Card
from intercom.model.decision import Signature, Verdict
from intercom.model.errors import AlreadyDecided, Ambiguous, InvalidArguments, NotFound
from intercom.model.json_types import JsonObject
from intercom.model.room import (
    DocumentVersion,
    Message,
    MessageType,
    Presence,
    Room,
    RoomErrorCode,
    RoomId,
    RoomRefused,
    RoomStatus,
    Team,
    TeamId,
    TeamRole,
    room_is_closed,
)
from intercom.model.room_view import DocumentView, RoomAddress, RoomNews, RoomTail, RoomToken, RoomView, TeamView

START = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


def room(id: str, title: str = "Move the parser", **more: Any) -> Room:
    fields: dict[str, Any] = {
        "description": "split it in two",
        "created_by_team_id": TeamId("t-1"),
        "created_at": START,
        "updated_at": START,
    }
    return Room(RoomId(id), title, **{**fields, **more})


def team(name: str, room_id: str, **more: Any) -> Team:
    return Team(RoomId(room_id), TeamId(f"t-{name}"), name, "a hash", START, START, **more)


@frozen
class Found:
    room: Room
    where: str
    sequence: int | None
    excerpt: str


class StandInRooms:
    """What it was asked to do stands in `acts`. `is_read` is set once somebody has read the end of a feed."""

    def __init__(self, *rooms: Room) -> None:
        self.rooms = {each.id: each for each in rooms or (room("abcd-1"),)}
        self.messages: dict[str, list[Message]] = {each: [] for each in self.rooms}
        self.acts: list[tuple[Any, ...]] = []
        self.url: str | None = None
        self.presence = Presence.ACTIVE
        self.is_read = trio.Event()
        self._news = trio.Event()

    def says(self, room_id: str, author: str, text: str, role: TeamRole = TeamRole.MEMBER) -> Message:
        """Put a message into a feed, as a team."""
        return self._add(room_id, MessageType.CHAT, {"text": text}, author, role)

    def tells(self, room_id: str, event: str, **more: Any) -> Message:
        """Put a system message into a feed."""
        return self._add(room_id, MessageType.SYSTEM, {"event": event, **more}, None, None)

    def _add(
        self, room_id: str, type: MessageType, content: JsonObject, author: str | None, role: TeamRole | None
    ) -> Message:
        feed = self.messages[RoomId(room_id)]
        at = START + timedelta(seconds=len(feed))
        made = Message(
            RoomId(room_id), len(feed) + 1, f"m-{len(feed) + 1}", type, content, at, author=author, role=role
        )
        feed.append(made)
        self.set(room_id, last_sequence=made.sequence)
        return made

    def set(self, room_id: str, **columns: Any) -> Room:
        """Change a room, and tell those who look at it."""
        changed = self.rooms[RoomId(room_id)] = evolve(self.rooms[RoomId(room_id)], **columns)
        news, self._news = self._news, trio.Event()
        news.set()
        return changed

    async def list(self, *, everything: bool = False, limit: int = 50) -> Sequence[Room]:
        return [each for each in self.rooms.values() if everything or not each.is_closed][:limit]

    async def show(self, id: str) -> RoomView:
        found = self._room(id)
        return RoomView(found, self._teams(found), "# Goals\n- split \x1b[2J\n")

    def _teams(self, found: Room) -> tuple[TeamView, ...]:
        return (
            TeamView(team("Alex's Team", found.id), self.presence, 0),
            TeamView(team("Team \x1b[2J", found.id, left_at=START), Presence.DISCONNECTED, 2),
        )

    async def news(self, id: str, after: int, known: Room | None, seconds: float) -> RoomNews:
        found = self._room(id)
        if after >= found.last_sequence and known == found:
            with trio.move_on_after(seconds):
                await self._news.wait()
            found = self._room(id)
        return RoomNews(found, self._teams(found), tuple(self.messages[found.id][after : after + 100]))

    async def document(self, id: str, version: int | None = None, *, diff: bool = False) -> DocumentView:
        found = self._room(id)
        if version not in (None, 1):
            raise NotFound(f"the document has no version {version}: see rooms versions")
        made = DocumentVersion(found.id, 1, "# Goals\n", TeamId("t-1"), "Alex's Team", START)
        return DocumentView(made, "--- version 0\n+++ version 1\n@@ -0,0 +1 @@\n+# Goals\n" if diff else None)

    async def versions(self, id: str, limit: int = 50) -> Sequence[DocumentVersion]:
        return [evolve((await self.document(id)).version, content=None)]

    async def instructions(self) -> str:
        return "# Work with other teams of agents\n"

    async def create(self, title: str, description: str, by: str, act: str | None = None) -> Room:
        self.acts.append(("create", title, description, by, act))
        made = room("cafe-3", title, description=description)
        self.rooms[made.id], self.messages[made.id] = made, []
        return made

    async def pin(self, id: str, message: int, by: str, act: str | None = None, *, remove: bool = False) -> Room:
        found = self._room(id)
        self.acts.append(("unpin" if remove else "pin", found.id, message, by, act))
        return found

    async def tail(self, id: str, *, start: int | None = None, before: int | None = None, limit: int = 50) -> RoomTail:
        found = self._room(id)
        feed = self.messages[found.id][: None if before is None else before - 1]
        shown = feed[-limit:] if start is None else feed[start : start + limit]
        end = shown[-1].sequence if shown else (start or 0)
        self.is_read.set()
        return RoomTail(found, tuple(shown), found.is_closed and end >= found.last_sequence)

    async def search(self, words: str, limit: int = 50) -> Sequence[Found]:
        places: list[tuple[str, int | None]] = [("feed", 3), ("document", None)]
        return [Found(each, *place, f"... {words} ...") for each in self.rooms.values() for place in places][:limit]

    async def export(self, id: str, format: str) -> str | JsonObject:
        found = self._room(id)
        return {"format": "intercom-room", "title": found.title} if format == "json" else f"# {found.title}\n\x1b[2J\n"

    async def post(self, id: str, text: str, by: str, act: str | None = None) -> Message:
        found = self._room(id)
        if found.is_closed:
            raise room_is_closed()
        self.acts.append(("post", found.id, text, by, act))
        return self.says(found.id, by, text, TeamRole.OPERATOR)

    async def pause(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room:
        return self._change("pause", id, by, act, reason, paused_by=by, paused_at=START, pause_reason=reason)

    async def resume(self, id: str, by: str, act: str | None = None) -> Room:
        if not self._room(id).is_paused:
            raise RoomRefused(RoomErrorCode.CONFLICT, "the session is not paused")
        return self._change("resume", id, by, act, paused_by=None, paused_at=None, pause_reason=None)

    async def conclude(self, id: str, summary: str, by: str, act: str | None = None) -> Room:
        return self._change("conclude", id, by, act, summary, status=RoomStatus.CLOSED, session_doc_version=7)

    async def reopen(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room:
        return self._change("reopen", id, by, act, reason, status=RoomStatus.ACTIVE)

    async def token(self, id: str, by: str, act: str | None = None) -> RoomToken:
        found = self._room(id)
        self.acts.append(("token", found.id, by, act))
        return RoomToken(found.id, found.title, TeamId("t-9"), "t-9.secret")

    async def cards(self) -> tuple[Card, ...]:
        return ()

    async def find_card(self, prefix: str) -> Card | None:
        return None

    async def decide_card(
        self, card: Card, verdict: Verdict, admit: Callable[[Verdict, Card, datetime], Signature | None]
    ) -> Card:
        raise AlreadyDecided("no room is paused")

    async def address(self) -> RoomAddress:
        return RoomAddress(self.url or "http://127.0.0.1:7423", self.url is not None)

    async def set_address(self, url: str | None, by: str) -> RoomAddress:
        if url is not None and not url.startswith("http"):
            raise InvalidArguments(f"{url!r} is no address: give one like https://rooms.example.org")
        self.acts.append(("set_address", url, by))
        self.url = url
        return await self.address()

    def _change(self, what: str, id: str, by: str, act: str | None, *said: str | None, **columns: Any) -> Room:
        found = self._room(id)
        self.acts.append((what, found.id, *said, by, act))
        return self.set(found.id, **columns)

    def _room(self, prefix: str) -> Room:
        found = [each for each in self.rooms.values() if each.id.startswith(prefix)]
        if not found:
            raise NotFound(f"no room has an id that begins with {prefix!r}; see rooms list")
        if len(found) > 1:
            raise Ambiguous(f"{prefix!r} fits {len(found)} rooms; give more of the id")
        return found[0]
