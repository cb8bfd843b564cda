"""Authorization in Slack: only authorized people of our team may act. Attempts by others are ignored and recorded."""

from __future__ import annotations

import logging
from typing import Any

from attrs import frozen

from intercom.operators.desk import Desk
from intercom.operators.slack.act import Command, Said, Submitted, Tap
from intercom.operators.slack.means import NotRecorded

log = logging.getLogger(__name__)


@frozen
class Gate:
    """Decides who may act. `authorized` are user ids. With `team_id`, actions from another team are refused as well."""

    desk: Desk
    authorized: frozenset[str]
    team_id: str = ""

    async def passes(self, act: Tap | Submitted | Command | Said) -> bool:
        """Return whether this person may act. If not, the attempt is recorded without its text; raises NotRecorded if
        that fails."""
        why = self._against(act)
        if why is None:
            return True
        summary = f"ignored {_described(act)} in Slack by {act.person}: {why}"
        log.warning(summary)
        data: dict[str, Any] = {"user": act.person.id, "team": act.team, "channel": act.channel, **_about(act)}
        try:
            await self.desk.security_event(summary, data)
        except Exception as fault:
            raise NotRecorded(f"a security event was not recorded: {type(fault).__name__}") from fault
        return False

    def _against(self, act: Tap | Submitted | Command | Said) -> str | None:
        if self.team_id and act.team and act.team != self.team_id:
            return "of another team"
        return None if act.person.id in self.authorized else "not authorized"


def _described(act: Tap | Submitted | Command | Said) -> str:
    match act:
        case Tap():
            return "a tap"
        case Submitted():
            return "a form"
        case Command():
            return "a command"
        case Said():
            return "a reply"


def _about(act: Tap | Submitted | Command | Said) -> dict[str, str]:
    match act:
        case Tap():
            return {"action": act.action, "card": act.card_id}
        case Submitted():
            return {"action": act.form, "card": act.card_id}
        case Command():
            return {"action": act.command}
        case Said():
            return {"action": "reply", "thread": act.thread}
