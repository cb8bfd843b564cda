"""Messages every actor may meet, and the marker that gives a request the type of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import pykka

if TYPE_CHECKING:
    from actors._name import Name
    from actors.spec import ChildSpec

__all__ = ["DownEvent", "Request", "StartChild", "StopChild"]

R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """A message that is answered with an `R`: subclass `Request[R]`, and `await ask(ref, message)` is an `R`."""

    __slots__ = ()


@attrs.frozen
class DownEvent:
    """A monitored actor went down.

    `target` is what was given to `monitor`, `name` how the actor was called; `reason` is the exception it crashed
    with, None if it was stopped, `NotRunning` if it was gone already. `ref` is the incarnation that went down, None if
    there was none.
    """

    target: pykka.ActorRef[Any] | Name
    name: str
    ref: pykka.ActorRef[Any] | None
    reason: BaseException | None


@attrs.frozen
class StartChild(Request[pykka.ActorRef[Any]]):
    """Start a child under a dynamic supervisor; answered with its ref once its `on_start` is through.

    Refused with `AlreadyStarted`, `TooManyChildren` or `StartFailed`.
    """

    spec: ChildSpec


@attrs.frozen
class StopChild(Request[None]):
    """Stop a child of a dynamic supervisor and forget it; answered when it is gone. Refused with `UnknownChild`."""

    id: str
