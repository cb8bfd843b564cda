"""Writes to the room itself: it is opened, described, paused, resumed, concluded and reopened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from attrs import evolve, frozen

from intercom.model import clock
from intercom.model.json_types import JsonObject
from intercom.model.room import Room, RoomErrorCode, RoomEvent, RoomId, RoomRefused, RoomStatus, Team, TeamRole
from intercom.model.visible_text import one_line
from intercom.rooms import document, message_budget
from intercom.rooms.transactions.author import (
    DESCRIPTION,
    DOCUMENT,
    REASON,
    TEAM_NAME,
    TITLE,
    Author,
    Rules,
    Written,
    announce,
    check_authority,
    check_no_pause_of_a_person,
    check_not_paused,
    check_other_rooms,
    check_size,
    check_text,
    invalid,
    is_announced,
    link,
    writer,
)
from intercom.rooms.transactions.document import current_version, write_version
from intercom.rooms.transactions.loop_guard import announce_act
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase

#: The loop guard's counts when a person or the convener lets the teams continue.
_COUNTS_AGAIN = {"messages_since_progress": 0, "acts_since_person": 0}
#: The setting of a room that says whether its conclusion agent is being started or was; the id of the room follows.
_CONCLUSION = "rooms/conclude/"
#: The beginning of its value while the agent is being started; the act and the time follow.
_STARTING = "starting "
#: How long a start may take, in seconds. What it waits for has time limits, which are shorter together.
_START_SECONDS = 300.0


@frozen
class Concluded:
    """When the room was closed first, and the version of the document with the conclusion."""

    closed_at: datetime
    doc_version: int


def open_room(db: RoomsDatabase, *, room: Room, convener: Team, rules: Rules, now: datetime) -> Written[None]:
    """Create a room with its convener. Its feed is empty. Raises RoomRefused (conflict) as `join` does."""
    if rooms.get(db, room.id) is None:
        check_text("title", room.title, TITLE)
        check_text("description", room.description, DESCRIPTION, empty=True)
        convener = evolve(convener, team_name=one_line(convener.team_name))
        check_text("creator_team_name", convener.team_name, TEAM_NAME)
        check_other_rooms(db, room.id, convener.team_name, rules, now)
        rooms.create(db, room, convener)
    else:
        # The answer to this call was lost, and the token with it.
        rooms.set_team(db, room.id, convener.team_id, token_hash=convener.token_hash)
    return Written(None, rooms.lock(db, room.id))


def open_by_person(db: RoomsDatabase, *, room: Room, author: Author, now: datetime, act: str) -> Written[Room]:
    """Create a room without a team, and say in its feed which person did."""
    if (found := rooms.get(db, room.id)) is not None:
        return Written(found, found)
    check_text("title", room.title, TITLE)
    check_text("description", room.description, DESCRIPTION, empty=True)
    rooms.create(db, room, None)
    room, messages = announce(db, rooms.lock(db, room.id), act, RoomEvent.CREATED, now, by=author.name)
    return Written(room, room, messages)


def metadata(
    db: RoomsDatabase,
    room_id: RoomId,
    author: Author,
    title: str | None,
    description: str | None,
    reason: str,
    rules: Rules,
    now: datetime,
    act: str,
) -> Written[Room]:
    """Change the title, the description or both, and say so in the feed. A value that is there already is no change.

    `updated_at` is the time of the last change. Raises RoomRefused: forbidden if only the convener may do this,
    session_paused, and rate_limited with `retry_after` in seconds if the last change was a short time ago. None of them
    limits a person.
    """
    room = rooms.lock(db, room_id)
    if is_announced(db, room, act):
        return Written(room, room)
    author = writer(db, room, author)
    if rules.convener_only_metadata:
        check_authority(db, room, author, "change the title and the description")
    check_not_paused(room, author)
    if title is None and description is None:
        raise invalid("neither title nor description is given: give what is to change")
    if title is not None:
        check_text("title", title, TITLE)
    if description is not None:
        check_text("description", description, DESCRIPTION, empty=True)
    check_text("reason", reason, REASON)
    old = {"title": room.title, "description": room.description}
    new = {"title": title, "description": description}
    changed = {name: value for name, value in new.items() if value is not None and value != old[name]}
    if not changed:
        return Written(room, room)
    if not author.is_person:
        _check_interval(room, rules.metadata_interval_seconds, now)
    said: JsonObject = {name: {"from": old[name], "to": value} for name, value in changed.items()}
    event = RoomEvent.METADATA_UPDATED
    room, messages = announce_act(db, room, author, rules, now, act, event, by=author.name, changes=said, reason=reason)
    room = rooms.set_room(db, room.id, **changed, updated_at=now)
    return Written(room, room, messages)


def conclude(
    db: RoomsDatabase,
    room_id: RoomId,
    author: Author,
    summary: str,
    rules: Rules,
    now: datetime,
    act: str,
    evidence: Mapping[str, JsonObject] | None = None,
) -> Written[Concluded]:
    """Write the conclusion into the document, close the room, and say so in the feed. A pause ends; a person's pause is
    ended by a person only. `evidence` are the records that the summary links, by id.

    A closed room can be concluded again: the new conclusion replaces the old one, and `closed_at` stays. With the same
    summary, that changes nothing and is not said. Raises RoomRefused: forbidden if only the convener and people may do
    this, or if the teams have replaced the conclusion as often as the loop guard allows; session_paused for a team if a
    person has paused the room.
    """
    room = rooms.lock(db, room_id)
    if (earlier := rooms.message_by_id(db, room.id, act)) is not None:
        version = earlier.content.get("doc_version")
        assert isinstance(version, int), "the act has concluded the room"
        return Written(Concluded(room.closed_at or earlier.posted_at, version), room)
    author = writer(db, room, author, closed=True)
    if rules.convener_only_conclude and author.role is not TeamRole.CONCLUDER:
        check_authority(db, room, author, "conclude the session")
    check_no_pause_of_a_person(room, author)
    check_size("summary_section", summary, DOCUMENT)
    text = current_version(db, room).content or ""
    content = document.conclude(text, summary, room.conclusion)
    is_changed, was_closed, closed_at = content != text, room.is_closed, room.closed_at or now
    if was_closed and not is_changed:
        return Written(Concluded(closed_at, room.session_doc_version), room)
    if was_closed and not author.is_person and message_budget.is_spent(room, rules.budget):
        raise RoomRefused(
            RoomErrorCode.FORBIDDEN,
            "the teams have replaced the conclusion many times: ask a person to conclude, or the convener to reopen the"
            " session",
        )
    link(db, room, author, evidence or {}, now)
    if is_changed:
        room = write_version(db, room, author, content, now, act)
    # Closed before the guard counts: it pauses no closed room.
    room = rooms.set_room(
        db,
        room.id,
        status=RoomStatus.CLOSED,
        closed_at=closed_at,
        conclusion=document.conclusion_text(summary),
        paused_at=None,
        paused_by=None,
        pause_reason=None,
    )
    version, event = room.session_doc_version, RoomEvent.CONCLUDED
    is_progress = is_changed and not was_closed
    room, messages = announce_act(
        db, room, author, rules, now, act, event, is_progress=is_progress, by=author.name, doc_version=version
    )
    return Written(Concluded(closed_at, version), room, messages)


@frozen
class ConclusionClaim:
    """What a server that wants to start the agent which concludes a room may do.

    With `act` it starts the agent under this name, which stays the same if another run of a server has begun to start
    it and ended. Otherwise nothing is to be done now; after `wait` seconds it asks again, if that is not None.
    """

    act: str | None = None
    wait: float | None = None


def claim_conclusion(db: RoomsDatabase, room_id: RoomId, act: str, now: datetime) -> ConclusionClaim:
    """Note that an agent is being started to conclude this room, which `conclusion_started` or `release_conclusion`
    ends. A start that takes longer than any can is taken over: its server has ended.

    Nothing is to be done if the room is closed, or if an agent was started since it was created or reopened.
    """
    room = rooms.lock(db, room_id)
    value = rooms.setting(db, _CONCLUSION + room.id)
    if room.is_closed or (value is not None and not value.startswith(_STARTING)):
        return ConclusionClaim()
    if value is not None:
        _, earlier, since = value.split(" ")
        # A clock that was set back must not make the wait longer.
        left = _START_SECONDS - abs((now - clock.from_text(since)).total_seconds())
        if earlier != act and left > 0:
            return ConclusionClaim(wait=left)
        act = earlier
    rooms.set_setting(db, _CONCLUSION + room.id, f"{_STARTING}{act} {clock.to_text(now)}")
    return ConclusionClaim(act)


def conclusion_started(db: RoomsDatabase, room_id: RoomId, act: str) -> None:
    """Note that the agent of this act was started."""
    if _is_starting(db, room_id, act):
        rooms.set_setting(db, _CONCLUSION + room_id, "started")


def release_conclusion(db: RoomsDatabase, room_id: RoomId, act: str) -> None:
    """Note that no agent was started after all by this act."""
    if _is_starting(db, room_id, act):
        rooms.set_setting(db, _CONCLUSION + room_id, None)


def _is_starting(db: RoomsDatabase, room_id: RoomId, act: str) -> bool:
    # The room may have been reopened since, and have another act.
    value = rooms.setting(db, _CONCLUSION + rooms.lock(db, room_id).id)
    return value is not None and value.startswith(f"{_STARTING}{act} ")


def is_conclusion_started(db: RoomsDatabase, room_id: RoomId) -> bool:
    """Whether an agent was started to conclude this room."""
    value = rooms.setting(db, _CONCLUSION + room_id)
    return value is not None and not value.startswith(_STARTING)


def conclusions_starting(db: RoomsDatabase) -> tuple[Room, ...]:
    """Return the rooms for which an agent is being started, perhaps by a server that has ended."""
    found = rooms.settings_with_prefix(db, _CONCLUSION)
    starting = [rooms.get(db, id) for id, value in found.items() if value.startswith(_STARTING)]
    return tuple(filter(None, starting))


def reopen(
    db: RoomsDatabase, room_id: RoomId, author: Author, reason: str | None, now: datetime, act: str
) -> Written[Room]:
    """Open a closed room again, or lift a pause; otherwise do nothing. The conclusion stays in the document.

    The loop guard begins to count again, and the server may start an agent that concludes the room once more.
    A team that joined while the room was closed stays a reader until it joins again. Raises RoomRefused: forbidden
    unless the convener or a person asks; session_paused for the convener if a person has paused the room.
    """
    room = rooms.lock(db, room_id)
    if is_announced(db, room, act):
        return Written(room, room)
    author = writer(db, room, author, closed=True)
    check_authority(db, room, author, "reopen the session")
    why = _why(reason)
    if not room.is_closed:
        return _resume(db, room, author, why, now, act)
    room, messages = announce(db, room, act, RoomEvent.REOPENED, now, by=author.name, **why)
    rooms.set_setting(db, _CONCLUSION + room.id, None)
    room = rooms.set_room(db, room.id, status=RoomStatus.ACTIVE, closed_at=None, **_COUNTS_AGAIN)
    return Written(room, room, messages)


def pause(
    db: RoomsDatabase, room_id: RoomId, author: Author, reason: str | None, now: datetime, act: str
) -> Written[Room]:
    """Refuse the teams' posts until the room is resumed. The document can be written. A paused room stays as it is.

    Raises RoomRefused (forbidden) unless a person asks.
    """
    room = rooms.lock(db, room_id)
    if is_announced(db, room, act):
        return Written(room, room)
    author = writer(db, room, author)
    if not author.is_person:
        raise RoomRefused(RoomErrorCode.FORBIDDEN, "only a person may pause the session: ask for it with post_message")
    why = _why(reason)
    if room.is_paused:
        return Written(room, room)
    room, messages = announce(db, room, act, RoomEvent.PAUSED, now, by=author.name, **why)
    room = rooms.set_room(db, room.id, paused_at=now, paused_by=author.name, pause_reason=reason)
    return Written(room, room, messages)


def resume(
    db: RoomsDatabase, room_id: RoomId, author: Author, now: datetime, act: str, reason: str | None = None
) -> Written[Room]:
    """Lift a pause, also one by the loop guard, whose count begins again. A room that is not paused stays as it is.

    Raises RoomRefused: forbidden unless the convener or a person asks; session_paused for the convener if a person has
    paused the room.
    """
    room = rooms.lock(db, room_id)
    if is_announced(db, room, act):
        return Written(room, room)
    author = writer(db, room, author)
    check_authority(db, room, author, "resume the session")
    return _resume(db, room, author, _why(reason), now, act)


def _resume(db: RoomsDatabase, room: Room, author: Author, why: JsonObject, now: datetime, act: str) -> Written[Room]:
    if not room.is_paused:
        return Written(room, room)
    check_no_pause_of_a_person(room, author)
    room, messages = announce(db, room, act, RoomEvent.RESUMED, now, by=author.name, **why)
    room = rooms.set_room(db, room.id, paused_at=None, paused_by=None, pause_reason=None, **_COUNTS_AGAIN)
    return Written(room, room, messages)


def _why(reason: str | None) -> JsonObject:
    """Return the reason as a part of a system message. A person need not give one."""
    if reason is None:
        return {}
    check_text("reason", reason, REASON)
    return {"reason": reason}


def _check_interval(room: Room, seconds: float, now: datetime) -> None:
    """Raise RoomRefused (rate_limited) if the title or the description changed less than so many seconds ago."""
    wait = seconds - (now - room.updated_at).total_seconds()
    if wait > 0 and room.updated_at != room.created_at:
        raise RoomRefused(
            RoomErrorCode.RATE_LIMITED,
            f"the title and the description may change once in {seconds:g} seconds: try again in {math.ceil(wait)} s",
            retry_after=math.ceil(wait),
        )
