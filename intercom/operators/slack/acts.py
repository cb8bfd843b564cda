"""What people do in Slack, from the envelope to the record: who may act, and which act it is."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from attrs import field, frozen

from intercom.operators.slack import envelopes, modals, replies, taps
from intercom.operators.slack.act import Act, Command, Ignored, Said, Submitted, Tap
from intercom.operators.slack.means import Means
from intercom.operators.slack.once import Once
from intercom.operators.slack.security import Gate

log = logging.getLogger(__name__)


class Commands(Protocol):
    """What carries out slash commands. `run` returns what the acknowledgement is to hold, once the command is on
    record; it is called for authorized people only, and for one command at least once."""

    async def run(self, command: Command) -> dict[str, Any] | None: ...


@frozen
class Acts:
    """Takes in what the connection hears.

    `gate` says who may act; `commands` carries out slash commands, `means` is what all other acts go to.
    """

    means: Means
    gate: Gate
    commands: Commands
    _once: Once = field(factory=Once, init=False, repr=False)

    async def handle(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """Carry out what an envelope of type `kind` holds, and return what its acknowledgement is to hold, if anything.

        Returns when the act is on record, or is none of ours. The same act again, in whatever envelope, is answered as
        the first time. Raises NotRecorded (or what a command raised) when it could not be recorded for now: then it is
        not to be acknowledged, and Slack delivers it again.
        """
        act = envelopes.read(kind, payload)
        if isinstance(act, Ignored):
            log.debug("ignored: %s", act.why)
            return None
        return await self._once.run(act.act_id, lambda: self._carry_out(act))

    async def _carry_out(self, act: Act) -> dict[str, Any] | None:
        match act:
            case Said():
                # Whether it is for us is known only once the thread is looked up.
                await replies.said(self.means, self.gate, act)
            case Tap() if await self.gate.passes(act):
                await taps.tapped(self.means, act)
            case Submitted() if await self.gate.passes(act):
                return await modals.submitted(self.means, act)
            case Command() if await self.gate.passes(act):
                return await self.commands.run(act)
        return None
