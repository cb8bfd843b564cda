"""How calls reach a room: its actor is started on need, asked, and asked again if it ends meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio
from attrs import frozen

from actors import Busy, Down, Name, NotRunning, Refused, Request, System, ask
from intercom.model.errors import DatabaseError
from intercom.model.room import RoomErrorCode, RoomId, RoomRefused
from intercom.rooms.messages import DIRECTORY, Change, Open, room_name
from intercom.rooms.transactions import Written
from intercom.store.room_database import RoomsDatabase, RoomStore
from intercom.store.store_and_reader import StoreUnavailable

R = TypeVar("R")

#: The time limit of an answer that waits for nobody, in seconds.
ANSWER_SECONDS = 45.0
#: How often a room may crash on one call, before the call is given up: it is the cause then.
_MOST_CRASHES = 3
#: How long a room that is not up yet is waited for before it is looked for again, in seconds.
RETRY_SECONDS = 0.2


def unavailable() -> RoomRefused:
    return RoomRefused(
        RoomErrorCode.UNAVAILABLE, "the server or its database is restarting; call again in a moment", retry_after=1
    )


@frozen
class RoomActors:
    """The calls of one server into its rooms. All raise RoomRefused, also if the database does not answer."""

    system: System
    store: RoomStore

    async def ask(self, id: RoomId, message: Request[R], *, timeout: float = ANSWER_SECONDS) -> R:
        """Ask a room, and start it on need. The message must be safe to repeat. Raises RoomRefused."""
        room = self.system.named(room_name(id))
        crashes = 0
        try:
            with trio.fail_after(timeout):
                while True:
                    try:
                        return await ask(room, message)
                    except Down as gone:
                        crashes += gone.handling and gone.reason is not None
                        if crashes == _MOST_CRASHES:
                            raise unavailable() from None
                    except NotRunning:
                        pass
                    await self._open(id, room)
        except (Busy, trio.TooSlowError, DatabaseError, StoreUnavailable):
            raise unavailable() from None

    async def _open(self, id: RoomId, room: Name) -> None:
        try:
            await ask(self.system.named(DIRECTORY), Open(id), retry=True)
        except RoomRefused:
            raise
        except Refused:
            # The room does not start just now: its database does not answer.
            await trio.sleep(RETRY_SECONDS)
        else:
            # It may be about to end after a crash.
            with trio.move_on_after(RETRY_SECONDS):
                await self.system.next_incarnation(room, None)

    async def change(self, id: RoomId, work: Callable[[RoomsDatabase], Written[R]]) -> R:
        """Change a room in one transaction, safe to repeat."""
        return await self.ask(id, Change(work))

    async def read(self, work: Callable[[RoomsDatabase], R]) -> R:
        """Read from the rooms' database."""
        try:
            return await self.store.read(work)
        except (DatabaseError, StoreUnavailable):
            raise unavailable() from None

    async def transact(self, id: RoomId, work: Callable[[RoomsDatabase], R]) -> R:
        """Write what is no change of a running room."""
        try:
            return await self.store.transact(id, work)
        except (DatabaseError, StoreUnavailable):
            raise unavailable() from None
