"""What can go wrong with Slack and the way to it, on demand.

Two kinds. A *fault of a call* is planned by method and used up: `faults.plan("chat.postMessage", "lose", times=2)`. A
*step* is a moment in the stand-in's work to which a test can hook anything: `faults.on("called", do, about=...)`.

Faults of a call (`how`):
    lose     the work is done, then the connection is cut: the answer never arrives
    swallow  the work is done, and no answer ever comes; the connection stays open
    cut      the connection is cut before anything is done
    delay    answered `seconds` late, the work done at once
    stall    the work itself is done `seconds` late
    status   HTTP `status` (500, 502, 503 ...) and nothing done; with `done=True` after the work was done
    limit    429 with `Retry-After: seconds`
    refuse   `ok: false` with the word `error`, nothing done

Steps, in order of an approval: `connecting`, `connected` (the Socket), `envelope` (the Envelope, about to be sent),
`sent` (it was), `ack` (it came back; a hook that returns False makes the stand-in deaf to it), `call` (a Call came in),
`called` (its work is done, it is not answered), `answered`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, frozen

KINDS = frozenset({"lose", "swallow", "cut", "delay", "stall", "status", "limit", "refuse"})
STEPS = frozenset({"connecting", "connected", "envelope", "sent", "ack", "call", "called", "answered"})


@frozen
class Fault:
    method: str  # "*" is any
    how: str
    seconds: float = 0.0
    status: int = 500
    error: str = "internal_error"
    done: bool = False


@define
class _Planned:
    fault: Fault
    left: float


@define
class _Hook:
    step: str
    do: Callable[[Any], object]
    about: Callable[[Any], bool]
    left: float


class Faults:
    """The faults planned. Connections may be denied, and envelopes doubled or mixed up, until that is taken back."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []
        self._hooks: list[_Hook] = []
        self.deny_connects = 0  # so many attempts to open a socket are refused
        self.double = 0  # so many envelopes are sent twice
        self.reorder = 0  # so many envelopes are held back and then sent last first, again and again
        self.deaf = 0  # so many acks are not heard

    def plan(
        self,
        method: str,
        how: str,
        *,
        times: float = 1,
        seconds: float = 1.0,
        status: int = 500,
        error: str = "internal_error",
        done: bool = False,
    ) -> None:
        """The next `times` calls of this method (`*`: any) go wrong in this way; several plans follow one another."""
        if how not in KINDS:
            raise ValueError(f"no such fault: {how}")
        self._planned.append(_Planned(Fault(method, how, seconds, status, error, done), times))

    def on(
        self, step: str, do: Callable[[Any], object], *, about: Callable[[Any], bool] = lambda _: True, times: float = 1
    ) -> None:
        """At the next `times` such steps that `about` is true of, do this (with the Call, Envelope or Socket)."""
        if step not in STEPS:
            raise ValueError(f"no such step: {step}")
        self._hooks.append(_Hook(step, do, about, times))

    def clear(self) -> None:
        """All is well again."""
        self.__init__()  # type: ignore[misc]

    def of_call(self, method: str) -> Fault | None:
        """The fault this call meets, used up by it."""
        for planned in self._planned:
            if planned.fault.method in ("*", method):
                planned.left -= 1
                if planned.left < 1:
                    self._planned.remove(planned)
                return planned.fault
        return None

    def step(self, name: str, subject: Any) -> bool:
        """A step is taken; false when a hook said no."""
        go_on = True
        for hook in [one for one in self._hooks if one.step == name and one.about(subject)]:
            hook.left -= 1
            if hook.left < 1:
                self._hooks.remove(hook)
            go_on = hook.do(subject) is not False and go_on
        return go_on

    def spend(self, name: str) -> bool:
        """Whether one of `deny_connects`, `double`, `deaf` is left; one fewer then."""
        left = getattr(self, name)
        if left > 0:
            setattr(self, name, left - 1)
        return bool(left > 0)
