"""The messages between the actors of the Slack channel."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from actors import Request
from intercom.operators.slack.envelopes import Command
from intercom.operators.slack.web_api import Json


@frozen
class Wake:
    """Tells `slack/outbox` that there may be something new to send. A superfluous one does no harm."""


@frozen
class SocketUp:
    """Tells `slack/channel` that Slack said hello on a socket, and none was up before."""


@frozen
class SocketDown:
    """Tells `slack/channel` that no socket is up; `why` is a sentence for people. It is sent again if `why` changes."""

    why: str


class ConnectionState(StrEnum):
    """The state of the connection to Slack."""

    CONNECTING = "connecting"  # no socket is up; one is being opened
    UP = "up"  # Slack has said hello
    WAITING = "waiting"  # the last try failed; the next one is due soon
    REFUSED = "refused"  # Slack refuses, and a person has to change something; tried again at long intervals


@frozen
class SlackStatus:
    """The answer to `Health`.

    `since` is when the connection came up or went down. `reconnects` counts the sockets after the first. `last_error`
    is a sentence about the last error, None if there was none. `last_heard` is when Slack last sent anything. `in_hand`
    counts the envelopes being handled.
    """

    state: ConnectionState
    since: datetime
    reconnects: int
    last_error: str | None
    last_heard: datetime | None
    in_hand: int


@frozen
class Health(Request[SlackStatus]):
    """Asks `slack/connection` for the status of the connection."""


@frozen
class Redraw:
    """Tells `slack/channel` to draw a card again, because its message may be out of date."""

    card_id: str


@frozen
class SendEphemeral:
    """Tells `slack/ephemeral` to send an ephemeral message to one person, in a channel or thread. Sent soon or not at
    all."""

    channel: str
    person: str
    text: str
    thread: str | None = None


@frozen
class OutboxStatus:
    """The answer to `OutboxHealth`.

    `waiting` counts unposted messages by urgency ("card", "alert", "line", "log"), `updates` the outdated ones.
    `oldest` is when the longest waiting one was requested. `troubles` has a sentence for each channel with a problem
    now. `last_error` is the latest problem, None if there was none.
    """

    waiting: Mapping[str, int]
    updates: int
    oldest: datetime | None
    troubles: Mapping[str, str]
    last_error: str | None


@frozen
class OutboxHealth(Request[OutboxStatus]):
    """Asks `slack/outbox` for its status."""


@frozen
class CarryOut(Request[Json | None]):
    """Asks `slack/commands` to carry out a command of an authorized person; a repeated request acts once. The answer is
    the payload of the acknowledgement. It comes in time for Slack, even if the command takes longer."""

    command: Command
