"""The ephemeral sender: the actor that sends messages which only one person sees, and which Slack does not keep.

They say why an action had no effect. They are not in the outbox: nobody needs a late one.
"""

from __future__ import annotations

import logging
from collections import deque

import trio

from actors import Actor
from intercom.operators.slack.slack_messages import SendEphemeral
from intercom.operators.slack.web_api import Api, RateLimited, SlackApiError

log = logging.getLogger(__name__)

#: After so many seconds a message is dropped, because the person no longer sees what it answers.
STALE_SECONDS = 60.0

#: The time limit of one call.
_CALL_SECONDS = 10.0

#: How many are sent at once, and how many more wait; then the oldest is dropped.
_AT_ONCE = 4
_MOST_WAITING = 200


class EphemeralSender(Actor):
    """Sends ephemeral messages; registered as `slack/ephemeral`. Told `SendEphemeral`. A message that cannot be sent
    within a minute, or that too many newer ones follow, is dropped."""

    mailbox_size = _MOST_WAITING
    overflow = "drop_oldest"

    def __init__(self, web: Api) -> None:
        super().__init__()
        self._web = web
        #: The messages, oldest first, each with the time at which it is dropped.
        self._waiting: deque[tuple[float, SendEphemeral]] = deque()
        self._sending = 0

    def on_receive(self, message: object) -> None:
        if not isinstance(message, SendEphemeral):
            return
        self._waiting.append((trio.current_time() + STALE_SECONDS, message))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            log.warning("%d messages to single people wait for slack; the oldest is dropped", _MOST_WAITING)
        if self._sending < _AT_ONCE:
            self._sending += 1
            self.spawn(self._send_waiting)

    async def _send_waiting(self) -> None:
        """Send until nothing waits; up to _AT_ONCE tasks do this at the same time."""
        while self._waiting:
            stale_at, message = self._waiting.popleft()
            with trio.CancelScope(deadline=stale_at):
                await self._send(message)
        self._sending -= 1

    async def _send(self, message: SendEphemeral) -> None:
        """Send one message, as often as Slack limits the rate. Another error is logged and ends it."""
        while True:
            try:
                await self._web.call(
                    "chat.postEphemeral",
                    timeout=_CALL_SECONDS,
                    channel=message.channel,
                    user=message.person,
                    text=message.text,
                    thread_ts=message.thread,
                    blocks=list(message.blocks) or None,
                )
            except RateLimited as limited:
                await trio.sleep(limited.retry_after)
                continue
            except SlackApiError as fault:
                log.info("a person could not be told why their action had no effect: %s", fault)
            return
