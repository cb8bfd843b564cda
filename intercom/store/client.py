"""How the other parts of the server use the store: the one place that asks its writer.

A transaction fails in one of three ways. The work refuses (IntercomError, Refused): it alone was undone. The database
cannot be written (DatabaseError): nothing was written. The writer does not answer (StoreUnavailable): whether the work
was done is not known. `STORE_FAULTS` are the last two, in which the work is not at fault and may be asked for again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio
from attrs import frozen

from actors import Busy, Down, Name, NotRunning, ask
from intercom.model.errors import DatabaseError
from intercom.store.messages import Database, Inspect, Touch, Transact

R = TypeVar("R")

#: How long a transaction may take, in seconds. A writer that crashed is running again well within it.
TRANSACTION_SECONDS = 30.0
#: The same for transactions that write or delete much: checkpoints, and what is deleted by age.
LARGE_TRANSACTION_SECONDS = 60.0
#: The same for a look whether the writer works. It is short, because somebody waits for the answer.
PROBE_SECONDS = 2.0


class StoreUnavailable(Exception):
    """The writer did not answer. The message says what to do.

    It is no IntercomError: an actor that gets it crashes, and reads from the database what was done.
    """


STORE_FAULTS = (DatabaseError, StoreUnavailable)


@frozen
class Store:
    """The store. `writer` names the actor that owns the database."""

    writer: Name

    async def transact(
        self, work: Callable[[Database], R], *, timeout: float = TRANSACTION_SECONDS, retry: bool = True
    ) -> R:
        """Run `work(db)` in one transaction and return its result, which is on disk then.

        If the writer crashes, the next one runs the work again, also if its first run was committed. If the work is not
        safe to repeat, set `retry` to False. See `Transact` for what `work` may do.

        Raises what the work refuses, DatabaseError, and StoreUnavailable.
        """
        try:
            return await ask(self.writer, Transact(work), timeout=timeout, retry=retry)
        except Busy as fault:
            raise StoreUnavailable("too much waits to be recorded, and this was not; try again shortly") from fault
        except trio.TooSlowError as fault:
            raise StoreUnavailable(
                f"the database has not recorded this within {timeout:g} seconds, and may yet do it:"
                " look before you try again"
            ) from fault
        except (Down, NotRunning) as fault:
            raise StoreUnavailable(
                "the part of the server that writes the database is restarting, and this may not be recorded:"
                " look, and try again if it is not"
            ) from fault

    def transact_soon(self, work: Callable[[Database], object]) -> None:
        """Have `work(db)` run in one of the next transactions, without waiting. If it fails, nobody is told."""
        self.writer.tell(Transact(work))

    def tell(self, message: Touch | Inspect) -> None:
        """Notify the writer, without waiting."""
        self.writer.tell(message)
