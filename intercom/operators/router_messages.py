"""Messages to the router. It is also told `Card` and `Notice` (`intercom.model.card`)."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from actors import Request
from intercom.model.card import Card


class Channel(StrEnum):
    """A way to reach people. EMBED is a program that runs the server inside itself. ELICITATION is a dialog of the
    agent's own client, which needs no subscription: it belongs to a call that waits. PUSH only notifies: nobody answers
    over it."""

    SLACK = "slack"
    CTL = "ctl"
    WEB = "web"
    EMBED = "embed"
    ELICITATION = "elicitation"
    PUSH = "push"


@frozen
class Subscribe(Request[tuple[Card, ...]]):
    """Subscribe to cards and notices; the answer is the open cards, oldest first.

    `subscriber` is the registered name of the channel's actor. From now on it is told every `Card` and `Notice` that
    concerns it. The subscription ends when that actor or the router stops; then the actor subscribes again. Subscribing
    twice has no further effect.
    """

    subscriber: str
    channel: Channel
