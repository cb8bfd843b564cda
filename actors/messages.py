"""Messages that every actor may get, and the marker type that gives a request its answer type."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import attrs
import pykka

from actors._ref import Name
from actors.spec import ChildSpec

R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """A message that is answered with an `R`. Subclass `Request[R]`; `await ask(ref, message)` then returns an `R`."""

    __slots__ = ()


@attrs.frozen
class DownEvent:
    """A monitored actor went down.

    `target` is the argument of `monitor`, and `name` the actor's name. `reason` is the exception it crashed with, None
    if it was stopped, or `NotRunning` if it was already down. `ref` is the incarnation that went down, or None if there
    was none.
    """

    target: pykka.ActorRef[Any] | Name
    name: str
    ref: pykka.ActorRef[Any] | None
    reason: BaseException | None


@attrs.frozen
class StartChild(Request[pykka.ActorRef[Any]]):
    """Start a child under a dynamic supervisor. The answer is its ref, once its `on_start` has returned.

    Refused with `AlreadyStarted`, `TooManyChildren` or `StartFailed`.
    """

    spec: ChildSpec


@attrs.frozen
class StopChild(Request[None]):
    """Stop a child of a dynamic supervisor and forget it. Answered when it has ended. Refused with `UnknownChild`."""

    id: str
