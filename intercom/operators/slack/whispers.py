"""Ephemeral messages: each is sent while it still makes sense, and no action waits for it."""

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

#: A message older than this is dropped, because the person no longer sees what it answers.
STALE = timedelta(seconds=60)

_CALL_SECONDS = 10.0


@frozen
class _Again:
    """A timer for a message that Slack limited."""

    whisper: Whisper
    since: datetime


class Whispers(Actor):
    """Sends ephemeral messages, one at a time; registered as `slack/whispers`. It is told `Whisper`. A message that
    cannot be sent within a minute is dropped."""

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
