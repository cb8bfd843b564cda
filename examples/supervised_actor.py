"""Your own actor under a supervisor: it crashes, its caller gets an error, and the next incarnation continues.

    python examples/supervised_actor.py

`actors` knows nothing of Intercom, and can be used without it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
from attrs import field, frozen

from actors import Actor, ActorRestarted, Backoff, ChildSpec, Down, Event, Refused, Request, Supervisor, System, ask


@frozen
class Count(Request[int]):
    """Count words; the answer is how many were counted so far."""

    text: Any


@frozen
class Total(Request[int]):
    """The answer is how many words were counted so far."""


class TooLong(Refused):
    """More words than the counter accepts. A refusal is an answer: the counter does not crash."""


@frozen
class Ledger:
    """The data that outlives the counter. A real ledger would be on disk."""

    counted: list[int] = field(factory=list)


class Counter(Actor):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def on_start(self) -> None:
        # After a restart the state is read again, never carried over: it may have caused the crash.
        self._total = sum(self._ledger.counted)

    def on_receive(self, message: Any) -> Any:
        match message:
            case Count(text):
                words = len(text.split())
                if words > 1000:
                    raise TooLong(f"{words} words are too many: send 1000 at most")
                self._ledger.counted.append(words)
                self._total += words
                return self._total
            case Total():
                return self._total


async def main() -> None:
    ledger = Ledger()
    counters = partial(
        Supervisor,
        [ChildSpec("counter", partial(Counter, ledger))],
        max_restarts=5,
        within=60.0,
        backoff=Backoff(initial=0.01),
    )
    async with System([ChildSpec("counters", counters, shutdown=None)], on_event=report) as system:
        # A name, not a reference: it means the current incarnation.
        counter = system.named("counter")
        print("counted", await ask(counter, Count("never send to know")))
        try:
            await ask(counter, Count("for whom the bell tolls " * 500))
        except TooLong as refused:
            print("refused:", refused)
        try:
            await ask(counter, Count(None))
        except Down as down:
            print("crashed:", down)
        print("still", await ask(counter, Total(), timeout=5.0, retry=True))


def report(event: Event) -> None:
    if isinstance(event, ActorRestarted):
        print("restarted:", event.name)


if __name__ == "__main__":
    trio.run(main)
