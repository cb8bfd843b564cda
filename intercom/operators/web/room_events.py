"""The events of one room, as a stream that a browser resumes where it ended (server-sent events).

Nothing is kept for a reader: the feed itself is. The id of an event is the number of its message, so a reader resumes
after any restart of the server, and on any of its nodes. One who has fallen behind is cut off, and begins again near
the end of the feed; the page reads what is between when somebody looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import trio
from attrs import frozen

from intercom.model.json_types import Json, JsonObject
from intercom.model.room import Message, Room
from intercom.model.room_view import RoomNews, RoomOperations
from intercom.operators.commands.json_forms import room_entry, room_message_entry, teams_entry
from intercom.operators.web.events import COMMENT_SECONDS, line

#: How many messages a stream begins with.
NEWEST = 60
#: A reader who is this many messages behind is cut off, and does not resume where it was.
MOST_BEHIND = 1000
#: How often it is looked whether teams became idle, which nothing tells, in seconds.
_LOOK_SECONDS = 1.0
#: How soon after another one changed cursors of teams are sent, in seconds: they change with each message.
_ROSTER_SECONDS = 0.5
_COMMENT = b": \n\n"
_ID = re.compile(r"[0-9]{1,15}")


@frozen
class Beginning:
    """Where a stream begins: the room, the newest messages if the reader starts over, and the number of the message
    after which it goes on."""

    room: Room
    newest: tuple[Message, ...] | None
    place: int


async def beginning(rooms: RoomOperations, id: str, last_event_id: str) -> Beginning:
    """Return where the stream of a room begins for a reader that had this event last. Raises NotFound and RoomRefused
    if there is no such room, or its database does not answer."""
    tail = await rooms.tail(id, limit=NEWEST)
    last = tail.messages[-1].sequence if tail.messages else 0
    if _ID.fullmatch(last_event_id) and 0 <= last - int(last_event_id) <= MOST_BEHIND:
        return Beginning(tail.room, None, int(last_event_id))
    return Beginning(tail.room, tail.messages, last)


async def stream(
    rooms: RoomOperations,
    begin: Beginning,
    send: Callable[[bytes], Awaitable[None]],
    is_signed_in: Callable[[], bool],
) -> None:
    """Send events, until the reader has fallen behind, or is no longer signed in.

    It begins with what came after the reader's last event, or with `reset` and the newest messages, and with the `room`
    and its teams. Then comes `ready`. A message is sent once, in its place; `room` is sent whenever something of it
    changed. Raises RoomRefused if the rooms do not answer; then the reader comes back.
    """
    place, known, roster = begin.place, None, _Roster()
    parts = [] if begin.newest is None else [line("reset", {"messages": begin.room.last_sequence})]
    parts += [_message(each) for each in begin.newest or ()]
    is_ready, sent_at = False, trio.current_time()
    while is_signed_in():
        news = await rooms.news(begin.room.id, place, known, _LOOK_SECONDS if is_ready else 0)
        known = news.room
        for each in news.messages:
            parts.append(_message(each))
            place = each.sequence
        if (changed := roster.changed(news, trio.current_time())) is not None:
            parts.append(line("room", changed))
        if not is_ready and place >= news.room.last_sequence:
            is_ready = True
            parts.append(line("ready", {}, id=str(place)))
        if not parts and trio.current_time() - sent_at >= COMMENT_SECONDS:
            parts.append(_COMMENT)
        if parts:
            await send(b"".join(parts))
            parts, sent_at = [], trio.current_time()
            if news.room.last_sequence - place > MOST_BEHIND:
                return


def _message(message: Message) -> bytes:
    return line("message", room_message_entry(message), id=str(message.sequence))


class _Roster:
    """What a reader knows of a room and its teams. How recently a team called changes all the time, and is told only
    with something else. Cursors change with each message, and are told a little later, together."""

    def __init__(self) -> None:
        self._room: Json = None
        self._teams: Json = None
        self._told_at = 0.0

    def changed(self, news: RoomNews, now: float) -> JsonObject | None:
        """Return what to tell the reader, if there is anything."""
        told: JsonObject = {**room_entry(news.room), **teams_entry(news.teams)}
        room = {**room_entry(news.room), "messages": 0, "messages_since_progress": 0, "updated_at": 0}
        states: Json = [[each.team.team_id, each.presence.value] for each in news.teams]
        cursors: Json = [each.unread for each in news.teams]
        is_new = [room, states] != self._room
        if not is_new and (cursors == self._teams or now - self._told_at < _ROSTER_SECONDS):
            return None
        self._room, self._teams, self._told_at = [room, states], cursors, now
        return told
