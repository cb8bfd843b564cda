"""What an asker, a supervisor or the opener of a system may have to catch."""

from __future__ import annotations

from typing import Any

import pykka

__all__ = [
    "AlreadyStarted",
    "Busy",
    "Down",
    "GaveUp",
    "NameTaken",
    "NotRunning",
    "Refused",
    "StartFailed",
    "SystemFailed",
    "TooManyChildren",
    "UnknownChild",
]


class Refused(Exception):
    """A handler's answer "no": it goes back to the asker, and the actor lives on. Subclass it freely."""


class Busy(Exception):
    """The mailbox was full: the message was not accepted and will not be handled."""


class NotRunning(pykka.ActorDeadError):
    """Nobody was there to accept the message: it was not and will not be handled."""


class Down(pykka.ActorDeadError):
    """The actor went down before it answered.

    `name` names the actor. `reason` is the exception it crashed with, or None if it was stopped. `begun` tells
    whether it had begun to handle the message; if not, the message had no effect. `handling` tells whether it was at
    it when it went down: not so for one whose reply it had put off.
    """

    def __init__(self, name: str, reason: BaseException | None, *, begun: bool, handling: bool | None = None) -> None:
        how = "was stopped" if reason is None else f"crashed ({describe(reason)})"
        super().__init__(f"actor {name!r} {how} before it answered; ask again if the request may be repeated")
        self.name = name
        self.reason = reason
        self.begun = begun
        self.handling = begun if handling is None else handling


class StartFailed(Refused):
    """A child could not be started; `id` says which, `reason` is why. What had been started before it is stopped."""

    def __init__(self, child_id: str, reason: BaseException | None) -> None:
        why = "it was stopped while it started" if reason is None else describe(reason)
        super().__init__(f"cannot start {child_id!r}: {why}")
        self.id = child_id
        self.reason = reason


class AlreadyStarted(Refused):
    """A child of this id is there already; `ref` is its reference."""

    def __init__(self, child_id: str, ref: pykka.ActorRef[Any] | None) -> None:
        super().__init__(f"a child {child_id!r} is there already; use it, or stop it first")
        self.id = child_id
        self.ref = ref


class TooManyChildren(Refused):
    """The supervisor has as many children as it may have."""


class UnknownChild(Refused):
    """The supervisor has no child of this id."""


class NameTaken(Exception):
    """Another living actor is registered under the name."""


class GaveUp(Exception):
    """A supervisor restarted its children more often than it may; `reason` is the last crash."""

    def __init__(
        self, supervisor: str, child_id: str, restarts: int, within: float, reason: BaseException | None
    ) -> None:
        why = "it ended" if reason is None else describe(reason)
        super().__init__(
            f"supervisor {supervisor!r} gave up: more than {restarts} restarts in {within:g} s; "
            f"the last to fall was {child_id!r}: {why}"
        )
        self.supervisor = supervisor
        self.child_id = child_id
        self.reason = reason


class SystemFailed(Exception):
    """The root of an actor system went down for good; `reason` (also the cause) is what it went down with."""

    def __init__(self, root: str, reason: BaseException) -> None:
        super().__init__(f"the actor system ended because its root {root!r} went down: {describe(reason)}")
        self.reason = reason


def describe(exc: BaseException) -> str:
    """One line that names an exception: its class, and its text where it has one."""
    text = str(exc)
    kind = type(exc).__name__
    return f"{kind}: {text}" if text else kind
