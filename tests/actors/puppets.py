"""Actors that do what a test tells them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import trio

from actors import Actor, ChildSpec, Request, System, ThreadActor


@attrs.frozen
class Do(Request[Any]):
    """Call a function with the actor, in its handler; what it returns (or its coroutine does) is the answer."""

    act: Callable[[Any], Any]


@attrs.frozen
class Get(Request[int]):
    """Answered with how many messages this incarnation has had."""


class Puppet(Actor):
    """Obeys `Do`, keeps every other message, and writes its life into a shared log."""

    def __init__(self, log: list[Any] | None = None, **hooks: Callable[[Any], Any]) -> None:
        self.log = [] if log is None else log
        self.hooks = hooks
        self.kept: list[Any] = []

    def _hook(self, what: str) -> Any:
        self.log.append((what, self.name))
        hook = self.hooks.get(what)
        return None if hook is None else hook(self)

    def on_start(self) -> Any:
        return self._hook("start")

    def on_stop(self) -> Any:
        return self._hook("stop")

    def on_failure(self, exc_type: Any, exc: Any, tb: Any) -> Any:
        return self._hook("failure")

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, Do):
            return message.act(self)
        self.kept.append(message)
        return len(self.kept)


class ThreadPuppet(Puppet, ThreadActor):
    """The same in a thread."""


class Plain(Actor):
    """Counts; nothing else, so that its hooks are the library's own."""

    count = 0

    def on_receive(self, message: Any) -> int:
        self.count += 1
        return self.count


def crash(text: str = "boom", kind: type[BaseException] = ValueError) -> Do:
    """A message that fells its actor."""

    def act(_: Any) -> None:
        raise kind(text)

    return Do(act)


def child(child_id: str, log: list[Any] | None = None, **options: Any) -> ChildSpec:
    """The spec of a puppet; hooks (`start`, `stop`, `failure`) and fields of the spec may be given."""
    hooks = {what: options.pop(what) for what in ("on_start", "on_stop", "on_failure") if what in options}
    named = {what.removeprefix("on_"): hook for what, hook in hooks.items()}
    return ChildSpec(child_id, lambda: Puppet(log, **named), **options)


def sleeping(seconds: float) -> Callable[[Any], Any]:
    """A hook, or an act for `Do`, that takes its time."""

    async def act(_: Any) -> None:
        await trio.sleep(seconds)

    return act


@contextmanager
def in_thread(children: Sequence[ChildSpec]) -> Iterator[System]:
    """A system on the loop of another thread, for callers without a loop."""
    opened: queue.SimpleQueue[System] = queue.SimpleQueue()

    async def main() -> None:
        async with System(children) as system:
            opened.put(system)
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    system = opened.get(timeout=30)
    try:
        yield system
    finally:
        system.request_stop()
        thread.join()
