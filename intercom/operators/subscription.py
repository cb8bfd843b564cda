"""How a channel comes to be told of cards: it subscribes to the router, and again whenever that restarts."""

from __future__ import annotations

from typing import Any

import trio
from attrs import frozen

from actors import Busy, Down, NotRunning, System, ask
from intercom.model.card import Card
from intercom.operators.messages import Channel, Subscribe

#: Seconds until a router that had too much to do is asked again.
_BUSY_WAIT = 0.5


@frozen
class Subscribed:
    """The open cards that concern the channel, and the incarnation of the router that told of them: when that goes
    down, so does the subscription."""

    router: Any
    cards: tuple[Card, ...]


async def subscribe(system: System, router: str, subscriber: str, channel: Channel) -> Subscribed:
    """Ask the router of this name, which may be restarting, to tell `subscriber` from now on; waits until it does."""
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
