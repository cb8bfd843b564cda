"""The messages between the actors of the Slack channel."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.chat_status import ConnectionStatus, OutboxStatus
from intercom.operators.slack.envelope_parser import Command
from intercom.operators.slack.web_api import Json


@frozen
class Wake:
    """Tells `slack/outbox` that there may be something new to send. A superfluous one does no harm."""


@frozen
class SocketUp:
    """Tells `slack/outbox_writer` that Slack said hello on a socket, and none was up before."""


@frozen
class SocketDown:
    """Tells `slack/outbox_writer` that no socket is up; `why` is a sentence for people. It is sent again if `why`
    changes."""

    why: str


@frozen
class Health(Request[ConnectionStatus]):
    """Asks `slack/connection` for the status of the connection."""


@frozen
class Redraw:
    """Tells `slack/outbox_writer` to draw a card again, because its message may be out of date."""

    card_id: str


@frozen
class SendEphemeral:
    """Tells `slack/ephemeral` to send an ephemeral message to one person, in a channel or thread. Sent soon or not at
    all. With `blocks` the text is for notifications only."""

    channel: str
    person: str
    text: str
    thread: str | None = None
    blocks: tuple[Json, ...] = ()


@frozen
class OutboxHealth(Request[OutboxStatus]):
    """Asks `slack/outbox` for its status."""


@frozen
class CarryOut(Request[Json | None]):
    """Asks `slack/commands` to carry out a command of an authorized person; a repeated request acts once. The answer is
    the payload of the acknowledgement. It comes in time for Slack, even if the command takes longer."""

    command: Command
