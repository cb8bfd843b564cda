"""The handler of envelopes: it authorizes each action of a person and carries it out."""

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
    """Carries out slash commands. `run` returns the payload of the acknowledgement once the command is recorded. It is
    called for authorized people only, and at least once for each command."""

    async def run(self, command: Command) -> dict[str, Any] | None: ...


@frozen
class Acts:
    """Handles the envelopes that the connection receives. `gate` decides who may act, `commands` carries out slash
    commands, and `means` serves all other actions."""

    means: Means
    gate: Gate
    commands: Commands
    _once: Once = field(factory=Once, init=False, repr=False)

    async def handle(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """Carry out an envelope of type `kind`; return the payload of its acknowledgement, if any.

        Returns once the action is recorded, or is irrelevant. The same action in another envelope gets the same answer.
        Raises NotRecorded (or the error of a command) if it could not be recorded. Then it must not be acknowledged, so
        that Slack delivers it again.
        """
        act = envelopes.read(kind, payload)
        if isinstance(act, Ignored):
            log.debug("ignored: %s", act.why)
            return None
        return await self._once.run(act.act_id, lambda: self._carry_out(act))

    async def _carry_out(self, act: Act) -> dict[str, Any] | None:
        match act:
            case Said():
                # Whether the reply concerns us is known only after a look-up of its thread.
                await replies.said(self.means, self.gate, act)
            case Tap() if await self.gate.passes(act):
                await taps.tapped(self.means, act)
            case Submitted() if await self.gate.passes(act):
                return await modals.submitted(self.means, act)
            case Command() if await self.gate.passes(act):
                return await self.commands.run(act)
        return None
