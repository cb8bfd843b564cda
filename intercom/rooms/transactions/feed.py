"""Writes to a room's feed: chat messages with the loop guard's, and acknowledgements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve, field, frozen

from intercom.model.json_types import JsonObject
from intercom.model.room import (
    Message,
    MessageType,
    Room,
    RoomErrorCode,
    RoomEvent,
    RoomId,
    RoomRefused,
    TeamId,
)
from intercom.rooms.transactions import loop_guard
from intercom.rooms.transactions.author import (
    MESSAGE_TEXT,
    Author,
    Rules,
    Written,
    announce,
    as_member,
    check_not_paused,
    check_size,
    check_writer,
    is_announced,
    link,
    writer,
)
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase

#: The most messages of a room that are pinned at once.
MOST_PINS = 50


@frozen
class Post:
    """A chat message to add. `id` is a UUID. `key` is the team's idempotency key; a person without a token has none.
    `evidence` are the records that the text links, by id."""

    id: str
    author: Author
    text: str
    key: str | None = None
    evidence: Mapping[str, JsonObject] = field(factory=dict)


def post(
    db: RoomsDatabase, room_id: RoomId, posts: Sequence[Post], rules: Rules, now: datetime
) -> Written[tuple[Message | RoomRefused, ...]]:
    """Add a group of posts in their order. Each has its own answer: the message, or why it was refused.

    A post is answered with the message that has its id or its key already, also in a closed room. After a team's
    message the loop guard may add a warning, or pause the room, which refuses the teams' posts after it. A person's
    post starts the guard's count again, and is accepted in a paused room.

    Answers may also be the refusals session_paused, and conflict for a key with which the team posted another text.
    """
    room = rooms.lock(db, room_id)
    group = _PostGroup(db, room, posts, rules, now)
    decided = [group.decide(each) for each in posts]
    messages: tuple[Message, ...] = ()
    if group.new:
        room, messages = rooms.add_messages(db, room, group.new)
    if group.columns:
        room = rooms.set_room(db, room.id, **group.columns)
    for author, evidence in group.evidence:
        link(db, room, author, evidence, now)
    return Written(tuple([messages[each] if isinstance(each, int) else each for each in decided]), room, messages)


class _PostGroup:
    """Decides on the posts of one transaction. `new` are the messages to add, `columns` what changes in the room, and
    `evidence` what is linked, with who links it."""

    def __init__(self, db: RoomsDatabase, room: Room, posts: Sequence[Post], rules: Rules, now: datetime) -> None:
        self.new: list[Message] = []
        self.columns: dict[str, Any] = {}
        self.evidence: list[tuple[Author, Mapping[str, JsonObject]]] = []
        #: The room as it is after the messages in `new`.
        self._room = room
        self._rules = rules
        self._now = now
        # One query for the whole group each: on PostgreSQL, a query is a trip to another machine.
        keys = [(each.author.team.team_id, each.key) for each in posts if each.author.team and each.key is not None]
        self._teams = rooms.teams_by_id(db, room.id, {each.author.team.team_id for each in posts if each.author.team})
        #: The messages with a post's id, and with a team's key: those in the feed, and where the ones in `new` are.
        self._ids: dict[str, Message | int] = {**rooms.messages_by_id(db, room.id, [each.id for each in posts])}
        self._keys: dict[tuple[TeamId, str], Message | int] = {**rooms.messages_by_key(db, room.id, keys)}

    def decide(self, post: Post) -> Message | RoomRefused | int:
        """Return the earlier message, why the post is refused, or the index of its message in `new`."""
        try:
            return self._decide(post)
        except RoomRefused as refused:
            return refused

    def _decide(self, post: Post) -> Message | int:
        if post.id in self._ids:
            return self._ids[post.id]
        author = as_member(post.author, self._teams)
        content: JsonObject = {"text": post.text}
        if (found := self._with_key(author, post.key)) is not None:
            message = self.new[found] if isinstance(found, int) else found
            if message.content != content:
                raise _key_is_used(post.key, message)
            return found
        check_writer(self._room, author)
        check_not_paused(self._room, author)
        check_size("text", post.text, MESSAGE_TEXT)
        index = self._add(post, author, content)
        if post.evidence:
            self.evidence.append((author, post.evidence))
        counted = loop_guard.count(self._room, author, self._rules, self._now, post.id)
        self.new += counted.messages
        self.columns.update(counted.columns)
        self._room = evolve(self._room, **counted.columns)
        return index

    def _with_key(self, author: Author, key: str | None) -> Message | int | None:
        """Return the earlier message with this key of the team, or its index in `new`."""
        return None if key is None or author.team is None else self._keys.get((author.team.team_id, key))

    def _add(self, post: Post, author: Author, content: JsonObject) -> int:
        team = None if author.team is None else author.team.team_id
        key = None if team is None else post.key
        message = Message(
            session_id=self._room.id,
            sequence=0,
            id=post.id,
            type=MessageType.CHAT,
            content=content,
            posted_at=self._now,
            posted_by_team_id=team,
            author=author.name,
            role=author.role,
            key=key,
        )
        index = self._ids[post.id] = len(self.new)
        if team is not None and key is not None:
            self._keys[team, key] = index
        self.new.append(message)
        return index


def _key_is_used(key: str | None, earlier: Message) -> RoomRefused:
    which = f"message {earlier.sequence}" if earlier.sequence else "another post of this moment"
    return RoomRefused(
        RoomErrorCode.CONFLICT,
        f"this team has posted another text with the key {(key or '')[:80]!r} ({which}): use a new key for a new text",
    )


def pin(
    db: RoomsDatabase, room_id: RoomId, author: Author, number: int, remove: bool, now: datetime, act: str
) -> Written[Room]:
    """Pin a message of the feed, or with `remove` take the pin away, and say so in the feed. If that is so already,
    nothing changes. It is possible in a closed room too.

    Raises RoomRefused: not_found for a number that no message has, and conflict if MOST_PINS messages are pinned.
    """
    room = rooms.lock(db, room_id)
    if is_announced(db, room, act):
        return Written(room, room)
    author = writer(db, room, author, closed=True)
    if not author.is_person:
        raise RoomRefused(RoomErrorCode.FORBIDDEN, "only a person pins messages: ask for it with post_message")
    pinned = pins(db, room.id)
    if (number in pinned) is not remove:
        return Written(room, room)
    if not remove:
        if message_at(db, room.id, number) is None:
            raise RoomRefused(RoomErrorCode.NOT_FOUND, f"the session has no message {number}: give the number of one")
        if len(pinned) >= MOST_PINS:
            why = f"{MOST_PINS} messages are pinned already: take one of these pins away first"
            raise RoomRefused(RoomErrorCode.CONFLICT, why)
    left = [each for each in pinned if each != number] if remove else [*pinned, number]
    rooms.set_setting(db, _pins_name(room.id), json.dumps(left) if left else None)
    event = RoomEvent.UNPINNED if remove else RoomEvent.PINNED
    room, messages = announce(db, room, act, event, now, by=author.name, cursor=number)
    return Written(room, room, messages)


def pins(db: RoomsDatabase, room_id: RoomId) -> tuple[int, ...]:
    """Return the numbers of a room's pinned messages, in the order in which they were pinned."""
    found = rooms.setting(db, _pins_name(room_id))
    return () if found is None else tuple(json.loads(found))


def _pins_name(room_id: RoomId) -> str:
    return f"rooms/pins/{room_id}"


def message_at(db: RoomsDatabase, room_id: RoomId, number: int) -> Message | None:
    """Return the message with this number, or None."""
    found = rooms.after(db, room_id, number - 1, 1)
    return found[0] if found and found[0].sequence == number else None


def ack(db: RoomsDatabase, room_id: RoomId, author: Author, cursor: int, now: datetime) -> Written[Message]:
    """Record in a message that a team has read it and all before it. A closed room takes that too.

    Raises RoomRefused: not_found for a number that no message has, and forbidden for a person without a token.
    """
    room = rooms.lock(db, room_id)
    author = writer(db, room, author, closed=True)
    if author.team is None:
        raise RoomRefused(RoomErrorCode.FORBIDDEN, "only a team acknowledges messages: join the session with a token")
    return Written(rooms.add_ack(db, room.id, cursor, author.team, now), room)
