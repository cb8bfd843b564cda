"""An envelope: one thing that happened, on its way to the app, and how often it was tried."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, field

from tests.slack.team import Json


class Unanswered(Exception):
    """Slack delivered something as often as it does, and had no ack in time. A person saw an error."""


@define(eq=False)
class Envelope:
    """Something that happened, on its way to the app. `missed` counts the times nobody acked within three seconds."""

    id: str
    kind: str
    payload: Json
    accepts_response: bool
    honour: Callable[[Json | None], None] | None = None
    shown_error: Callable[[], None] | None = None
    attempts: int = 0
    missed: int = 0
    acks: list[Json] = field(factory=list)  # every one that came, in time or not
    response: Json | None = None
    sent_by: list[str] = field(factory=list)
    waiting: bool = False
    acked: trio.Event = field(factory=trio.Event)
    over: trio.Event = field(factory=trio.Event)  # acked, or given up

    async def answer(self) -> Json | None:
        """The payload of the ack, once it has come in time.

        Raises:
            Unanswered: the last delivery was not acked either.
        """
        await self.over.wait()
        if not self.acked.is_set():
            raise Unanswered(f"{self.kind}: no ack after {self.attempts} deliveries")
        return self.response
