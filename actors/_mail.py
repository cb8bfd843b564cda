"""What lies in a mailbox beside messages, and what few incarnations need."""

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
    """How far an incarnation has come. Messages are accepted below `ENDING`."""

    NEW = 0
    STARTING = 1
    RUNNING = 2
    ENDING = 3
    ENDED = 4


class Rare:
    """What few actors need, kept apart so that the others do not pay for it."""

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
    """In a mailbox: a timer has run out."""

    __slots__ = ("timer",)

    def __init__(self, timer: Timer) -> None:
        self.timer = timer


class Begun:
    """In a mailbox: a handler that was called at once (see `_ask`) and turned out to be a coroutine."""

    __slots__ = ("coroutine", "reply")

    def __init__(self, coroutine: CoroutineType[Any, Any, Any], reply: Reply[Any] | None) -> None:
        self.coroutine = coroutine
        self.reply = reply


# Stands for the reply to a request that is handled at once, which needs none unless it is deferred.
AT_ONCE: Reply[Any] = Reply()
