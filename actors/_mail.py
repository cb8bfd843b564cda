"""Internal mailbox items, and the extra state of an incarnation."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import trio

from actors._reply import Reply

if TYPE_CHECKING:
    from actors._ref import Ref
    from actors._timers import Timer

__all__ = ["AT_ONCE", "Begun", "Due", "Life", "Rare"]


class Life(enum.IntEnum):
    """The phase of an incarnation. Messages are accepted before `ENDING`."""

    NEW = 0
    STARTING = 1
    RUNNING = 2
    ENDING = 3
    ENDED = 4


class Rare:
    """State that few actors need, kept separate to save memory for the others."""

    __slots__ = ("abandoned", "background", "crash", "deferred", "monitoring", "monitors", "taken", "timers")

    def __init__(self) -> None:
        self.abandoned = False
        self.background: dict[trio.CancelScope, None] = {}
        self.crash: BaseException | None = None
        self.deferred: dict[Reply[Any], None] = {}
        self.monitors: dict[tuple[Ref[Any], Any], None] = {}
        self.monitoring: dict[tuple[Ref[Any], Any], None] = {}
        self.timers: dict[Hashable, Timer] = {}
        self.taken: Reply[Any] | None = None


class Due:
    """A mailbox item: a timer has run out."""

    __slots__ = ("timer",)

    def __init__(self, timer: Timer) -> None:
        self.timer = timer


class Begun:
    """A mailbox item: the coroutine of a handler that was called at once (see `_ask`)."""

    __slots__ = ("coroutine", "reply")

    def __init__(self, coroutine: CoroutineType[Any, Any, Any], reply: Reply[Any] | None) -> None:
        self.coroutine = coroutine
        self.reply = reply


# A placeholder for the reply to a request that is handled at once. Such a request needs a reply only if it is deferred.
AT_ONCE: Reply[Any] = Reply()
