"""The status of the chat channel: its connection, and its queue of messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import frozen


class ConnectionState(StrEnum):
    """The state of the connection to Slack."""

    CONNECTING = "connecting"  # no socket is up; one is being opened
    UP = "up"  # Slack has said hello
    WAITING = "waiting"  # the last try failed; the next one is due soon
    REFUSED = "refused"  # Slack refuses, and a person has to change something; tried again at long intervals


@frozen
class ConnectionStatus:
    """The status of the connection.

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
class OutboxStatus:
    """The status of the queue.

    `waiting` counts unposted messages by urgency ("card", "alert", "line", "log"), `updates` the outdated ones.
    `oldest` is when the longest waiting one was requested. `faults` has a sentence for each channel with a problem
    now. `last_error` is the latest problem, None if there was none.
    """

    waiting: Mapping[str, int]
    updates: int
    oldest: datetime | None
    faults: Mapping[str, str]
    last_error: str | None


@frozen
class ChatStatus:
    """The status of the channel with this id; None for a part that does not answer."""

    channel: str
    connection: ConnectionStatus | None
    outbox: OutboxStatus | None
