"""The exceptions of the library, for askers, supervisors and code that opens a system."""

from __future__ import annotations

from typing import Any

import pykka


class Refused(Exception):
    """A handler refuses a request. The asker gets this exception, and the actor keeps running. Subclass it freely."""


class Busy(Exception):
    """The mailbox was full. The message was not accepted and will not be handled."""


class NotRunning(pykka.ActorDeadError):
    """No actor was running to accept the message. It was not and will not be handled."""


class Down(pykka.ActorDeadError):
    """The actor went down before it answered.

    `name` is the actor's name. `reason` is the exception it crashed with, or None if it was stopped. `begun` says
    whether the actor had begun to handle the message; if not, the message had no effect. `handling` says whether a
    handler was still at work on it; this is false for a deferred reply.
    """

    def __init__(self, name: str, reason: BaseException | None, *, begun: bool, handling: bool | None = None) -> None:
        how = "was stopped" if reason is None else f"crashed ({describe(reason)})"
        super().__init__(f"actor {name!r} {how} before it answered; ask again if the request may be repeated")
        self.name = name
        self.reason = reason
        self.begun = begun
        self.handling = begun if handling is None else handling


class StartFailed(Refused):
    """The child `id` could not be started because of `reason`. Children that were started before it are stopped."""

    def __init__(self, child_id: str, reason: BaseException | None) -> None:
        why = "it was stopped while it started" if reason is None else describe(reason)
        super().__init__(f"cannot start {child_id!r}: {why}")
        self.id = child_id
        self.reason = reason


class AlreadyStarted(Refused):
    """A child with this id exists already; `ref` is its reference."""

    def __init__(self, child_id: str, ref: pykka.ActorRef[Any] | None) -> None:
        super().__init__(f"a child {child_id!r} is there already; use it, or stop it first")
        self.id = child_id
        self.ref = ref


class TooManyChildren(Refused):
    """The supervisor has reached its limit of children."""


class UnknownChild(Refused):
    """The supervisor has no child with this id."""


class NameTaken(Exception):
    """Another living actor is registered under the name."""


class GaveUp(Exception):
    """A supervisor exceeded its restart limit; `reason` is the last crash."""

    def __init__(
        self, supervisor: str, child_id: str, restarts: int, within: float, reason: BaseException | None
    ) -> None:
        why = "it ended" if reason is None else describe(reason)
        super().__init__(
            f"supervisor {supervisor!r} gave up: more than {restarts} restarts in {within:g} s; "
            f"the last to crash was {child_id!r}: {why}"
        )
        self.supervisor = supervisor
        self.child_id = child_id
        self.reason = reason


class SystemFailed(Exception):
    """The root of an actor system went down for good; `reason` (also the cause) is its exception."""

    def __init__(self, root: str, reason: BaseException) -> None:
        super().__init__(f"the actor system ended because its root {root!r} went down: {describe(reason)}")
        self.reason = reason


def describe(exc: BaseException) -> str:
    """Describe an exception in one line: its class, and its text if it has one."""
    text = str(exc)
    kind = type(exc).__name__
    return f"{kind}: {text}" if text else kind
