"""What asks the store learns when it does not answer."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors import Actor, Busy, ChildSpec, Down, NotRunning, System
from intercom.model.errors import DatabaseError, NotFound
from intercom.store.store_and_reader import PROBE_SECONDS, STORE_FAULTS, Store, StoreUnavailable


class Writer(Actor):
    """Stands in for the writer: it raises the fault, or never answers."""

    refusals = (Exception,)

    def __init__(self, fault: Exception | None) -> None:
        super().__init__()
        self._fault = fault

    async def on_receive(self, message: Any) -> Any:
        if self._fault is None:
            await trio.sleep_forever()
        else:
            raise self._fault


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Busy("full"), "this was not; try again shortly"),
        (None, f"within {PROBE_SECONDS:g} seconds, and may still do it: check before you try again"),
        (Down("store", ValueError(), begun=True), "is restarting, and this may not be recorded: check"),
        (NotRunning("store"), "is restarting, and this may not be recorded: check"),
    ],
)
async def test_a_store_that_does_not_answer_is_one_error_that_says_what_to_do(
    fault: Exception | None, sentence: str
) -> None:
    async with System([ChildSpec("store", lambda: Writer(fault))]) as system:
        with pytest.raises(StoreUnavailable, match=sentence):
            await Store(system.named("store")).transact(lambda db: None, timeout=PROBE_SECONDS, retry=False)


@pytest.mark.parametrize("refusal", [NotFound("no session"), DatabaseError("the disk is full")])
async def test_refusals_are_raised_as_they_are(refusal: Exception) -> None:
    async with System([ChildSpec("store", lambda: Writer(refusal))]) as system:
        with pytest.raises(type(refusal), match=str(refusal)):
            await Store(system.named("store")).transact(lambda db: None)
    assert isinstance(refusal, STORE_FAULTS) == isinstance(refusal, DatabaseError)
