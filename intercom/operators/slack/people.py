"""The names of people: taken from Slack's payloads, or looked up."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import trio
from attrs import define, field

from intercom.operators.slack.envelopes import Person, person_name

log = logging.getLogger(__name__)

#: How long a name look-up may delay an action, in seconds; the user id is known anyway.
ASK_SECONDS = 1.0

_REMEMBERED = 1000


class _Api(Protocol):
    async def call(self, method: str, *, timeout: float = ..., **params: Any) -> Any: ...


@define
class People:
    """A cache of names by user id."""

    web: _Api
    _names: dict[str, str] = field(factory=dict, init=False)

    async def named(self, person: Person) -> Person:
        """Return the person with their name; without one if Slack does not answer in time."""
        if person.name:
            self._learn(person.id, person.name)
            return person
        known = self._names.get(person.id)
        if known is None:
            known = await self._ask(person.id)
            self._learn(person.id, known)
        return Person(person.id, known)

    async def _ask(self, id: str) -> str:
        try:
            with trio.move_on_after(ASK_SECONDS):
                found = await self.web.call("users.info", timeout=ASK_SECONDS, user=id)
                return person_name(found)
        except Exception as fault:
            log.info("the name of %s is not known: %s", id, fault)
        return ""

    def _learn(self, id: str, name: str) -> None:
        if len(self._names) >= _REMEMBERED:
            del self._names[next(iter(self._names))]
        self._names[id] = name
