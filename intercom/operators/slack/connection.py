"""The actor that keeps the connection to Slack."""

from __future__ import annotations

import random as chance
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import trio

from actors import Actor
from intercom.operators.slack.handling import Handler, Handling
from intercom.operators.slack.messages import ConnectionState, Health, SocketDown, SocketUp, Standing
from intercom.operators.slack.socket_mode import SocketLimits
from intercom.operators.slack.trouble import Patience
from intercom.operators.slack.upkeep import News, Upkeep
from intercom.operators.slack.web import WebApi


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Connection(Actor):
    """Keeps one Socket Mode socket open and passes its envelopes to `handle`; registered as `slack/connection`.

    It tells the actor named `channel` `SocketUp` and `SocketDown`, and answers `Health`. An envelope is acknowledged
    when `handle` returns, so the action is recorded by then. If `handle` raises, Slack sends the envelope again.
    `at_once` handlers run at the same time. `web` must be open. At a stop, running handlers get `patience.stop` seconds
    to end. `random` returns a number from 0 to 1, `now` the time.
    """

    def __init__(
        self,
        web: WebApi,
        handle: Handler,
        *,
        channel: str = "slack/channel",
        patience: Patience | None = None,
        limits: SocketLimits | None = None,
        at_once: int = 64,
        random: Callable[[], float] = chance.random,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._now = now
        self._handling = Handling(handle, at_once=at_once)
        self._upkeep = Upkeep(web, self._handling, self._hear, limits or SocketLimits(), patience or Patience(), random)
        self._state = ConnectionState.CONNECTING
        self._last_error: str | None = None
        self._since = now()

    def on_start(self) -> None:
        self._since = self._now()
        self.spawn(self._upkeep.run)

    def on_receive(self, message: Any) -> Standing | None:
        match message:
            case News():
                self._take(message)
            case Health():
                return self._standing()
        return None

    def _hear(self, news: News) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(news)

    def _take(self, news: News) -> None:
        was, known = self._state, self._last_error
        self._state = news.state
        self._last_error = news.trouble or known
        is_up, was_up = news.state is ConnectionState.UP, was is ConnectionState.UP
        if is_up != was_up:
            self._since = self._now()
        channel = self.system.named(self._channel)
        if is_up and not was_up:
            channel.tell(SocketUp())
        elif not is_up and (was_up or news.trouble != known):
            channel.tell(SocketDown(news.trouble or "not connected yet"))

    def _standing(self) -> Standing:
        heard = self._upkeep.heard_at
        return Standing(
            state=self._state,
            since=self._since,
            reconnects=max(self._upkeep.opened - 1, 0),
            last_error=self._last_error,
            last_heard=None if heard is None else self._now() - timedelta(seconds=trio.current_time() - heard),
            in_hand=self._handling.in_hand,
        )
