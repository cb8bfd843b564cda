"""What the actors of the Slack channel tell and ask each other."""

from __future__ import annotations

from attrs import frozen


@frozen
class Wake:
    """There may be something new to send. Told to `slack/outbox`; often is once too often at worst."""


@frozen
class SocketUp:
    """Slack has said hello on a socket. Told to `slack/channel`."""


@frozen
class SocketDown:
    """No socket is up any more; `why` is a sentence for people. Told to `slack/channel`."""

    why: str


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
