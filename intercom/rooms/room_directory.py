"""The directory of rooms: starts the actor of a room on need, and tells rooms what other nodes have written."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from actors import Actor, AlreadyStarted, ChildSpec, Name, Refused, Restart, StartChild, ask
from intercom.model.errors import IntercomError
from intercom.model.room import RoomId, RoomRefused, no_such_room
from intercom.rooms.messages import PUBLIC_URL, Advance, Looked, LookRound, Open, Watched, Woken, room_name
from intercom.rooms.room import RoomActor, RoomDeps
from intercom.store import rooms
from intercom.store.room_database import Dialect, RoomsDatabase
from intercom.store.store_and_reader import STORE_FAULTS

log = logging.getLogger("intercom.rooms")

#: The interval at which a node looks for messages of other nodes, in seconds. A lost notification costs so much.
LOOK_SECONDS = 1.0
#: The time limit of a room's start, in seconds.
START_SECONDS = 30.0


class RoomDirectory(Actor):
    """The actor `room-directory`.

    `group` is the supervisor of the rooms. `url_read` gets the public URL that people have set, or None: at the start,
    and after any node changed it. `opened` is called once the database answers.
    """

    mailbox_size = 100_000
    refusals = (Refused, IntercomError)

    def __init__(
        self,
        deps: RoomDeps,
        group: Name,
        url_read: Callable[[str | None], object],
        opened: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__()
        self._opened: Callable[[], Awaitable[object]] | None = opened
        self._deps = deps
        self._url_read = url_read
        self._group = group
        #: The rooms in which calls of this node wait, with the last message that each knows.
        self._watched: dict[RoomId, int] = {}
        self._is_looking = False
        self._has_nodes = deps.store.dialect is Dialect.POSTGRESQL

    def on_start(self) -> None:
        self._deps.store.on_wake(self._woken)
        self._look()

    def _woken(self, id: str) -> None:
        self.actor_ref.tell(Woken((id,) if id else ()))

    async def on_receive(self, message: object) -> Any:
        match message:
            case Open():
                return await self._open(message.id)
            case Watched(id, None):
                self._watched.pop(id, None)
            case Watched(id, sequence) if sequence is not None:
                self._watched[id] = sequence
            case Woken(ids):
                self._advance(ids or tuple(self._watched))
            case LookRound():
                self._look()
            case Looked():
                self._is_looking = False
                if message.fault is None:
                    self._url_read(message.public_url)
                    if self._opened is not None:
                        self.spawn(_quietly, self._opened)
                        self._opened = None
                self._advance(tuple(message.newer))
                if self._has_nodes or message.fault is not None:
                    self.set_timer("look", LOOK_SECONDS, LookRound())
            case _:
                raise TypeError(f"the directory of rooms does not understand {type(message).__name__}")
        return None

    async def _open(self, id: RoomId) -> None:
        if self.system.ref(room_name(id)) is not None:
            return
        if await self._deps.store.read(partial(rooms.get, id=id)) is None:
            raise no_such_room(id)
        # A room that crashed is started by the next call. If its supervisor did it, rooms that crash again and again
        # would use up the restarts of all.
        spec = ChildSpec(room_name(id), partial(RoomActor, id, self._deps), restart=Restart.TEMPORARY)
        try:
            await ask(self._group, StartChild(spec), timeout=START_SECONDS, retry=True)
        except AlreadyStarted:
            # Another call was faster.
            return

    def _advance(self, ids: tuple[str, ...]) -> None:
        for id in ids:
            room = self.system.ref(room_name(RoomId(id)))
            if room is not None:
                room.tell(Advance())

    def _look(self) -> None:
        """Ask once for all rooms in which calls wait, and for the public URL."""
        if not self._is_looking:
            self._is_looking = True
            self.spawn(self._ask_database, dict(self._watched))

    async def _ask_database(self, known: dict[RoomId, int]) -> None:
        def read(db: RoomsDatabase) -> Looked:
            return Looked(rooms.advanced(db, known), rooms.setting(db, PUBLIC_URL))

        try:
            with trio.fail_after(START_SECONDS):
                found = await self._deps.store.read(read)
        except (*STORE_FAULTS, trio.TooSlowError) as fault:
            found = Looked({}, None, fault)
        self.actor_ref.tell(found)


async def _quietly(call: Callable[[], Awaitable[object]]) -> None:
    try:
        await call()
    except RoomRefused as refused:
        log.warning("the cards of paused rooms could not be read: %s", refused)
