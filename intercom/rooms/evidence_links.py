"""Links to evidence: what a text refers to, and which of that the room may show its teams.

A text links a kept result of a call as `evidence:<id>`. The record is in the database of the server whose agent made
the call, and the room may be served by other nodes. So a link copies the record into the rooms' database, in the
transaction that writes the text. A copy belongs to one room, and stays as long as the room.

Only the session that made the call can link its evidence, or a person at that server. An id in any other text stays
plain text: it is treated like one that does not exist, so an id that was guessed or copied shows nothing. A team that
calls over plain HTTP or `/api/mcp` has no session, and links nothing; it reads what others have linked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

from attrs import frozen

from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject
from intercom.model.room import LinkedEvidence, RoomErrorCode, RoomId, RoomRefused
from intercom.rooms.room_actors import RoomActors
from intercom.rooms.tools.tool import RoomCaller
from intercom.store import rooms

#: How many ids of a text count, and how many of these may be new to the room.
MOST_IDS: Final = 1_000
MOST_NEW: Final = 10

_PREFIX: Final = "evidence:"
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LINK: Final = re.compile(rf"(?<![\w-]){_PREFIX}({_ID.pattern})(?![\w-])")

Ids: TypeAlias = tuple[str, ...]
#: Records by their ids.
Records: TypeAlias = Mapping[str, JsonObject]


class EvidenceSource(Protocol):
    """Where evidence of this server's agents is. Raises DatabaseError."""

    async def of_session(self, ids: Collection[str], session_id: str) -> Records:
        """Return those of these records whose calls this session made, by id."""

    async def of_all(self, ids: Collection[str]) -> Records:
        """Return those of these records that exist, by id. For people only."""


def ids_in(text: str) -> Ids:
    """Return the ids of the evidence that a text refers to, each once, in order."""
    if _PREFIX not in text:
        return ()
    return tuple(dict.fromkeys(found[1] for found in _LINK.finditer(text)))[:MOST_IDS]


@frozen
class EvidenceLinks:
    """Finds what texts may link, and reads what is linked. `source` is None on a server without a gateway: then nothing
    is linked there."""

    room_actors: RoomActors
    source: EvidenceSource | None = None

    async def of_caller(self, room_id: RoomId, text: str, caller: RoomCaller) -> Records:
        """Return the records that this text links into the room: those of the caller's own session that are not linked
        there yet, at most MOST_NEW."""
        if self.source is None or caller.session is None or not (ids := await self._new(room_id, text)):
            return {}
        try:
            session_id = await caller.session()
        except IntercomError:
            # It has no session, so it made no call.
            return {}
        return await self.source.of_session(ids, session_id)

    async def of_person(self, room_id: RoomId, text: str) -> Records:
        """The same for a person at this server, who may link the evidence of all its sessions."""
        if self.source is None or not (ids := await self._new(room_id, text)):
            return {}
        return await self.source.of_all(ids)

    async def told(self, room_id: RoomId, text: str) -> tuple[Ids | None, Ids | None]:
        """Return what the author of a written text is told: the ids in it that are linked in the room, and those that
        are not; None if there are none. If the database does not answer now, nothing is said: the text is written."""
        try:
            linked, unlinked = await self._status(room_id, text)
        except RoomRefused:
            return None, None
        return linked or None, unlinked or None

    async def _new(self, room_id: RoomId, text: str) -> Ids:
        _, unlinked = await self._status(room_id, text)
        return unlinked[:MOST_NEW]

    async def _status(self, room_id: RoomId, text: str) -> tuple[Ids, Ids]:
        """Return the ids in a text that are linked in the room, and those that are not."""
        ids = ids_in(text)
        if not ids:
            return (), ()
        known = await self.room_actors.read(partial(rooms.linked_among, room_id=room_id, ids=ids))
        return tuple(id for id in ids if id in known), tuple(id for id in ids if id not in known)

    async def read(self, room_id: RoomId, id: str) -> LinkedEvidence:
        """Return evidence that is linked in the room. Raises RoomRefused (not_found) for all other, whether or not it
        exists. `evidence:` may precede the id."""
        id = id.removeprefix(_PREFIX)
        read = partial(rooms.linked_evidence, room_id=room_id, id=id)
        found = await self.room_actors.read(read) if _ID.fullmatch(id) else None
        if found is None:
            raise RoomRefused(
                RoomErrorCode.NOT_FOUND,
                "no evidence with this id is linked in this session: only the agent whose call made it can link it,"
                " with evidence:ID in a message or the document",
            )
        return found
