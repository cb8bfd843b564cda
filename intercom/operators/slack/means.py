"""What it takes to carry out an act: the parts of the server that acts go to, and how they are spoken to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from attrs import frozen

from actors import Name, ask
from intercom.model.card import Card
from intercom.operators.desk import Desk
from intercom.operators.slack.messages import Redraw, Wake, Whisper
from intercom.operators.slack.people import People
from intercom.store import outbox
from intercom.store.messages import Database, Transact

T = TypeVar("T")

#: How long the store may take to record something, in seconds; a writer that restarts is back well within it.
STORE_SECONDS = 30.0

#: How long a message may say that an act is being handled, in seconds, before its buttons come back by themselves.
INTERIM = timedelta(seconds=20)


class NotRecorded(Exception):
    """An act could not be put on record for now: it must not be acknowledged, so that Slack delivers it again."""


class Api(Protocol):
    """The Web API, as `intercom.operators.slack.web.WebApi` offers it."""

    async def call(self, method: str, *, app: bool = ..., timeout: float = ..., **params: Any) -> Mapping[str, Any]: ...


class Forms(Protocol):
    """How forms are drawn, as views. What is secret in a card is masked in them."""

    def form(self, name: str, card: Card, metadata: str) -> dict[str, Any]:
        """The form `name` ("reject", "refine", "nudge", "resume") about this card, carrying `metadata` along."""

    def notice(self, title: str, text: str) -> dict[str, Any]:
        """A view that only says something; `text` is in Slack's markup."""


@frozen
class Means:
    """`outbox`, `channel` and `whispers` name the Slack channel's other actors, `store` the writer."""

    desk: Desk
    store: Name
    outbox: Name
    channel: Name
    whispers: Name
    web: Api
    people: People
    forms: Forms
    now: Callable[[], datetime]

    async def transact(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the store. Raises NotRecorded when the store can not do it."""
        try:
            return await ask(self.store, Transact(work), timeout=STORE_SECONDS, retry=True)
        except Exception as fault:
            raise NotRecorded(f"the store did not record it: {type(fault).__name__}") from fault

    def wake(self) -> None:
        """There is something new to send."""
        self.outbox.tell(Wake())

    def processing(self, card_id: str, line: str) -> None:
        """Show `line` in place of a card's buttons, for as long as nothing newer is known; never waits."""
        until = self.now() + INTERIM
        self.store.tell(Transact(partial(outbox.interim, key=f"card/{card_id}", line=line, until=until)))
        self.wake()

    def redraw(self, card_id: str) -> None:
        """Take back what `processing` showed, and see to it that the card's message is what the card is; never
        waits."""
        self.store.tell(Transact(partial(outbox.restore, key=f"card/{card_id}")))
        self.wake()
        self.channel.tell(Redraw(card_id))

    def whisper(self, channel: str, person: str, text: str, thread: str | None = None) -> None:
        """Tell one person something, if it can be done; never waits."""
        if channel:
            self.whispers.tell(Whisper(channel, person, text, thread or None))
