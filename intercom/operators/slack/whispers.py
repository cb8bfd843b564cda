"""Words for one person: sent when they still mean something, and by nobody that an act has to wait for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from attrs import frozen

from actors import Actor
from intercom.operators.slack.errors import RateLimited, SlackError
from intercom.operators.slack.means import Api
from intercom.operators.slack.messages import Whisper

log = logging.getLogger(__name__)

#: How old a whisper may become before nobody knows any more what it answers.
STALE = timedelta(seconds=60)

_CALL_SECONDS = 10.0


@frozen
class _Again:
    """A timer: a whisper that Slack would not take yet."""

    whisper: Whisper
    since: datetime


class Whispers(Actor):
    """Registered as `slack/whispers`. Told `Whisper`; one at a time goes out, and what can not be sent within a minute
    is left."""

    mailbox_size = 200
    overflow = "drop_oldest"

    def __init__(self, web: Api, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._web = web
        self._now = now

    async def on_receive(self, message: Any) -> None:
        match message:
            case Whisper():
                await self._send(message, self._now())
            case _Again():
                await self._send(message.whisper, message.since)

    async def _send(self, whisper: Whisper, since: datetime) -> None:
        if self._now() - since > STALE:
            return
        try:
            await self._web.call(
                "chat.postEphemeral",
                timeout=_CALL_SECONDS,
                channel=whisper.channel,
                user=whisper.person,
                text=whisper.text,
                thread_ts=whisper.thread,
            )
        except RateLimited as limited:
            self.set_timer(whisper, limited.retry_after, _Again(whisper, since))
        except SlackError as fault:
            log.info("a person could not be told why nothing came of their act: %s", fault)
