"""What the actors of the Slack channel tell and ask each other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import frozen

from actors import Request
from intercom.operators.slack.envelopes import Command


@frozen
class Wake:
    """There may be something new to send. Told to `slack/outbox`; often is once too often at worst."""


@frozen
class SocketUp:
    """Slack has said hello on a socket, and none was up before. Told to `slack/channel`."""


@frozen
class SocketDown:
    """No socket is up any more; `why` is a sentence for people. Told to `slack/channel`, again when `why` changes."""

    why: str


class ConnectionState(StrEnum):
    """How the connection to Slack stands."""

    CONNECTING = "connecting"  # no socket is up; one is being opened
    UP = "up"  # Slack has said hello
    WAITING = "waiting"  # the last try failed; the next one is due soon
    REFUSED = "refused"  # Slack says no, and a person has to change something; tried again now and then


@frozen
class Standing:
    """The answer to `Health`.

    `since` is when the connection came up, or went down; `reconnects` how many sockets were opened after the first;
    `last_error` a sentence on what went wrong last, None if nothing did; `last_heard` when anything came from Slack;
    `in_hand` how many envelopes are being handled.
    """

    state: ConnectionState
    since: datetime
    reconnects: int
    last_error: str | None
    last_heard: datetime | None
    in_hand: int


@frozen
class Health(Request[Standing]):
    """How the connection stands. Asked of `slack/connection`."""


@frozen
class Redraw:
    """The message of this card may not show how things stand: draw the card again. Told to `slack/channel`."""

    card_id: str


@frozen
class Whisper:
    """Show `text` to one person only, at the end of the channel or thread. Told to `slack/whispers`, which does it if
    it can be done soon, and otherwise not at all."""

    channel: str
    person: str
    text: str
    thread: str | None = None


@frozen
class OutboxStanding:
    """The answer to `OutboxHealth`.

    `waiting` counts messages not posted yet by urgency ("card", "alert", "line", "log"), `updates` those that do not
    show what they should; `oldest` is when the one that waits longest was asked for. `troubles` has a sentence for each
    channel that fares badly now, `last_error` the latest there was, None if all went well.
    """

    waiting: Mapping[str, int]
    updates: int
    oldest: datetime | None
    troubles: Mapping[str, str]
    last_error: str | None


@frozen
class OutboxHealth(Request[OutboxStanding]):
    """How the sending of messages stands. Asked of `slack/outbox`."""


@frozen
class CarryOut(Request[dict[str, Any] | None]):
    """An authorized person typed a command: carry it out, once however often it is asked. Asked of `slack/commands`;
    answered with what the acknowledgement is to hold, in good time, while a command that takes longer goes on."""

    command: Command
