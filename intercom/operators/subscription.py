"""The subscription of a channel to the router; it is renewed whenever the router restarts."""

from __future__ import annotations

from typing import Any

import trio
from attrs import frozen

from actors import Busy, Down, NotRunning, System, ask
from intercom.model.card import Card
from intercom.operators.messages import Channel, Subscribe

#: Seconds until a busy router is asked again.
_BUSY_WAIT = 0.5


@frozen
class Subscribed:
    """The open cards for the channel, and the router's incarnation: the subscription ends with it."""

    router: Any
    cards: tuple[Card, ...]


async def subscribe(system: System, router: str, subscriber: str, channel: Channel) -> Subscribed:
    """Subscribe `subscriber` to the router of this name, which may be restarting; waits until that succeeds."""
    name = system.named(router)
    ref = name.ref
    while True:
        if ref is None:
            ref = await system.next_incarnation(name, None)
        try:
            return Subscribed(ref, await ask(ref, Subscribe(subscriber, channel)))
        except Busy:
            await trio.sleep(_BUSY_WAIT)
        except (Down, NotRunning):
            ref = await system.next_incarnation(name, ref)
