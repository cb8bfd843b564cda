"""The dependencies of the action handlers."""

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

#: How long the store may take to record something, in seconds: a restart of its writer takes much less.
STORE_SECONDS = 30.0

#: How long a message may say that an action is being handled, before its buttons return.
INTERIM = timedelta(seconds=20)


class NotRecorded(Exception):
    """An action could not be recorded now: it must not be acknowledged, so that Slack delivers it again."""


class Api(Protocol):
    """The Web API; implemented by `intercom.operators.slack.web.WebApi`."""

    async def call(self, method: str, *, app: bool = ..., timeout: float = ..., **params: Any) -> Mapping[str, Any]: ...


class Forms(Protocol):
    """Draws forms as views, with secrets masked."""

    def form(self, name: str, card: Card, metadata: str) -> dict[str, Any]:
        """Draw the form `name` ("reject", "refine", "nudge", "resume") about this card, with `metadata`."""

    def notice(self, title: str, text: str) -> dict[str, Any]:
        """Draw a view with a message only; `text` is in Slack's markup."""


@frozen
class Means:
    """The dependencies. `outbox`, `channel` and `whispers` name the Slack channel's actors, `store` the writer."""

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
        """Run `work` in the store. Raises NotRecorded if the store cannot do it."""
        try:
            return await ask(self.store, Transact(work), timeout=STORE_SECONDS, retry=True)
        except Exception as fault:
            raise NotRecorded(f"the store did not record it: {type(fault).__name__}") from fault

    def wake(self) -> None:
        """Tell the outbox that there is something new to send."""
        self.outbox.tell(Wake())

    def processing(self, card_id: str, line: str) -> None:
        """Show `line` in place of a card's buttons until something newer is known; never waits."""
        until = self.now() + INTERIM
        self.store.tell(Transact(partial(outbox.interim, key=f"card/{card_id}", line=line, until=until)))
        self.wake()

    def redraw(self, card_id: str) -> None:
        """Undo `processing` and redraw the card's message; never waits."""
        self.store.tell(Transact(partial(outbox.restore, key=f"card/{card_id}")))
        self.wake()
        self.channel.tell(Redraw(card_id))

    def whisper(self, channel: str, person: str, text: str, thread: str | None = None) -> None:
        """Send an ephemeral message to one person, if possible; never waits."""
        if channel:
            self.whispers.tell(Whisper(channel, person, text, thread or None))
