"""The loop guard of a room: it counts what teams do, warns them in the feed, and pauses the room.

Everything that a team adds to the feed or changes in the document is counted here. Only what the server says by itself
is not: that a team has dropped, that it polls again, and the guard's own messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import frozen

from intercom.model.json_types import Json
from intercom.model.room import Message, Room, RoomEvent
from intercom.rooms import message_budget
from intercom.rooms.transactions.author import LOOP_GUARD, Author, Rules, system_message
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase


@frozen
class Counted:
    """What follows from an act: the columns of the room that change, and what the guard says in the feed."""

    columns: Mapping[str, Any]
    messages: tuple[Message, ...] = ()


def count(room: Room, author: Author, rules: Rules, now: datetime, act: str, *, is_progress: bool = False) -> Counted:
    """Count an act: a message in the feed, or with `is_progress` a change of the document.

    A person's act starts both counts again. The guard's messages have ids made from `act`.
    """
    budget = rules.budget
    if author.is_person:
        return Counted(_changed(room, messages_since_progress=0, acts_since_person=0))
    if budget.messages <= 0:
        return Counted(_changed(room, messages_since_progress=0) if is_progress else {})
    judgement = message_budget.judge(room, budget, *((0, 1) if is_progress else (1, 0)))
    columns = _changed(room, messages_since_progress=judgement.messages.count, acts_since_person=judgement.acts.count)
    said: list[Message] = []

    def say(event: RoomEvent, what: str, **content: Json) -> None:
        # The same id if the transaction runs again.
        id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{act} {event.value} {what}"))
        said.append(system_message(room, id, event, now, **content))

    uses = (
        (judgement.messages, budget.messages, "messages", "a message of a person or a change of the document"),
        (judgement.acts, budget.acts, "messages and changes of the document", "a message of a person"),
    )
    for use, most, what, missing in uses:
        if use.warn:
            advice = (
                f"the teams have used {use.count} of {most} {what} without {missing}: write down what is settled, ask a"
                " person, or conclude the session; it is paused at the end of the budget"
            )
            say(RoomEvent.LOOP_WARNING, what, messages=use.count, budget=most, advice=advice)
    for use, _, what, missing in uses:
        if use.pause:
            reason = f"{use.count} {what} of teams without {missing}"
            columns |= {"paused_at": now, "paused_by": LOOP_GUARD, "pause_reason": reason}
            say(RoomEvent.PAUSED, what, by=LOOP_GUARD, reason=reason)
            break
    return Counted(columns, tuple(said))


def _changed(room: Room, **columns: int) -> dict[str, Any]:
    """Return those of these columns that differ: nothing is written if nothing changes."""
    return {name: value for name, value in columns.items() if getattr(room, name) != value}


def announce_act(
    db: RoomsDatabase,
    room: Room,
    author: Author,
    rules: Rules,
    now: datetime,
    act: str,
    event: RoomEvent,
    *,
    is_progress: bool = False,
    **content: Json,
) -> tuple[Room, tuple[Message, ...]]:
    """Say in the feed what a team or a person has done, count it, and let the guard speak. `act` is the message's id.

    Returns the room after it, and the messages.
    """
    counted = count(room, author, rules, now, act, is_progress=is_progress)
    said = system_message(room, act, event, now, **content)
    room, messages = rooms.add_messages(db, room, (said, *counted.messages))
    return with_columns(db, room, counted), messages


def with_columns(db: RoomsDatabase, room: Room, counted: Counted) -> Room:
    """Write what a count has changed in a locked room."""
    return rooms.set_room(db, room.id, **counted.columns) if counted.columns else room
