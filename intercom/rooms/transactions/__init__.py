"""Each write to a room: to its feed, its roster, its document, or to the room itself.

Each function is the work of one transaction (`RoomStore.transact`). It locks the room first and decides on what it
reads after that, so calls at the same time have the effect of calls one after the other, on any number of nodes. It is
safe to repeat: the caller makes `act` and a post's `id`, both UUIDs, and a new token; what is recorded under them is
returned again.

All functions raise RoomRefused: `not_found` for an unknown room, `unauthorized` for a team that is not in it or has
left, `session_closed` and `read_only` where a closed room or a reader cannot do this, `invalid_arguments` for a text
that is empty or too long, and what else their docstrings say. A refused call changes nothing.
"""

from intercom.rooms.transactions.author import LOOP_GUARD, Author, Rules, Written, person, team_author
from intercom.rooms.transactions.document import append, update
from intercom.rooms.transactions.feed import Post, ack, message_at, pin, pins, post
from intercom.rooms.transactions.lifecycle import (
    Concluded,
    ConclusionClaim,
    claim_conclusion,
    conclude,
    conclusion_started,
    conclusions_starting,
    is_conclusion_started,
    metadata,
    open_by_person,
    open_room,
    pause,
    release_conclusion,
    reopen,
    resume,
)
from intercom.rooms.transactions.membership import Joined, drop, join, leave, rejoined

__all__ = [
    "LOOP_GUARD",
    "Author",
    "Concluded",
    "ConclusionClaim",
    "Joined",
    "Post",
    "Rules",
    "Written",
    "ack",
    "append",
    "claim_conclusion",
    "conclude",
    "conclusion_started",
    "conclusions_starting",
    "drop",
    "is_conclusion_started",
    "join",
    "leave",
    "message_at",
    "metadata",
    "open_by_person",
    "open_room",
    "pause",
    "person",
    "pin",
    "pins",
    "post",
    "rejoined",
    "release_conclusion",
    "reopen",
    "resume",
    "team_author",
    "update",
]
