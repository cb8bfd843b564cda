"""The names of the people who act: learned where Slack tells them, asked for where it does not."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import trio
from attrs import define, field

from intercom.operators.slack.envelopes import Person, person_name

log = logging.getLogger(__name__)

#: How long a name may keep an act waiting, in seconds: whoever acted is known by id in any case.
ASK_SECONDS = 1.0

_REMEMBERED = 1000


class _Api(Protocol):
    async def call(self, method: str, *, timeout: float = ..., **params: Any) -> Any: ...


@define
class People:
    """Knows names by user id, for as long as the server runs."""

    web: _Api
    _names: dict[str, str] = field(factory=dict, init=False)

    async def named(self, person: Person) -> Person:
        """The person with the name they were last seen under; without one where Slack does not tell it soon."""
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
