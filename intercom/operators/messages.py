"""What the router of the people's side is asked. Besides these it is told `Card` and `Notice` (intercom.model.card)."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from actors import Request
from intercom.model.card import Card


class Channel(StrEnum):
    """A road to people. Embed is a program that runs the server itself."""

    SLACK = "slack"
    CTL = "ctl"
    WEB = "web"
    EMBED = "embed"


@frozen
class Subscribe(Request[tuple[Card, ...]]):
    """Be told cards and notices from now on; answered with the open cards, oldest first.

    `subscriber` is the registered name of the channel's actor, which from now on is told every `Card` and `Notice` that
    concerns it. A subscription ends when that actor does: one that comes back subscribes again, and so does one whose
    router went down. Subscribing twice is subscribing once.
    """

    subscriber: str
    channel: Channel
