"""Faults on demand: they show that what the architecture promises holds when anything crashes.

The shipped program knows nothing of them. `tests/support/program_with_faults.py` is that program with them installed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from actors import Actor, System, ThreadActor
from intercom.model import crash_points

#: Where a program of the tests is told its faults; a server that it starts is told them on its command line.
VARIABLE = "INTERCOM_FAULT"

#: A server that falls in its first second, again and again, is rightly given up: so each sixth fault of a list waits
#: for so many seconds, unless only a start meets it.
SETTLED_SECONDS = 1.2
_SETTLED = 6
_AT_START = "SessionRegistry"


class InjectedCrash(Exception):
    """The exception that crashes an actor on purpose."""


@frozen
class Wish:
    """One fault: `kill` this process when it passes the crash point `target` for the `count`-th time; `crash` an actor
    that fits `target` at the `count`-th message such actors get; or `fell` one that is running, whatever it is at, at
    the `count`-th message of anybody. An actor fits by its class, its name, or the part of its name before the first
    slash."""

    kind: str
    target: str
    count: int

    @staticmethod
    def read(text: str) -> Wish | None:
        """A wish as written, `kind:target:count`; None for what is none."""
        kind, _, rest = text.strip().partition(":")
        target, _, count = rest.rpartition(":")
        return Wish(kind, target, int(count)) if kind in ("kill", "crash", "fell") and count.isdigit() else None


@define
class Wishes:
    """The wishes still to be fulfilled. Those of a file are taken off it one by one, so that the server's next life
    goes on where this one fell; what was fulfilled is noted beside it, in `<file>.done`."""

    file: Path | None
    left: list[Wish]
    began: float = field(factory=time.monotonic)
    seen: Counter[str] = field(factory=Counter)
    _guard: threading.Lock = field(factory=threading.Lock)

    def due(self, kind: str, names: tuple[str, ...]) -> Wish | None:
        """Count one passing; the wish it fulfils, if it does, which is then taken off."""
        with self._guard:
            wish = self.left[0] if self.left else None
            if wish is None or wish.kind != kind or wish.target not in names:
                return None
            waits = self.file is not None and len(self.left) % _SETTLED == 0 and wish.target != _AT_START
            if waits and time.monotonic() - self.began < SETTLED_SECONDS:
                return None
            self.seen[wish.target] += 1
            if self.seen[wish.target] < wish.count:
                return None
            self.seen.clear()
            del self.left[0]
            self._note(wish)
            return wish

    def next(self, kind: str) -> str | None:
        """Whom the next wish is for, if it is of this kind."""
        return self.left[0].target if self.left and self.left[0].kind == kind else None

    def _note(self, wish: Wish) -> None:
        if self.file is None:
            return
        text = "".join(f"{each.kind}:{each.target}:{each.count}\n" for each in self.left)
        draft = self.file.with_name(f"{self.file.name}.new")
        draft.write_text(text)
        draft.replace(self.file)
        with self.file.with_name(f"{self.file.name}.done").open("a") as done:
            done.write(f"{wish.kind}:{wish.target}:{wish.count}\n")


def arm(system: System, wish: str) -> None:
    """Set up the faults that are asked for: one wish, as `Wish.read` has it, or `queue:PATH`, a file of one a line,
    which come true one after the other through as many runs of the server as that takes."""
    if not wish:
        return
    file = Path(wish.removeprefix("queue:")) if wish.startswith("queue:") else None
    lines = [wish] if file is None else file.read_text().splitlines() if file.exists() else []
    wishes = Wishes(file, [read for line in lines if (read := Wish.read(line)) is not None])

    def hook(point: str) -> None:
        if wishes.due("kill", (point,)) is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = hook
    system.before_start.append(lambda actor: _guard(actor, system, wishes))


def _guard(actor: Actor, system: System, wishes: Wishes) -> None:
    """See to it that this incarnation falls when that is due."""
    batches = isinstance(actor, ThreadActor) and type(actor).receive_batch is not ThreadActor.receive_batch
    method = "receive_batch" if batches else "on_receive"
    original: Callable[..., Any] = getattr(actor, method)

    def guarded(*args: Any) -> Any:
        if wishes.next("crash") is not None and wishes.due("crash", names_of(actor.actor_ref)) is not None:
            raise InjectedCrash("a fault was asked for")
        if wishes.next("fell") is not None and not isinstance(actor, ThreadActor):
            _fell(system, wishes)
        return original(*args)

    setattr(actor, method, guarded)


def _fell(system: System, wishes: Wishes) -> None:
    for ref in system.living():
        if wishes.next("fell") in names_of(ref):
            if wishes.due("fell", names_of(ref)) is not None:
                ref._crash(InjectedCrash("a fault was asked for"))
            return


def names_of(ref: Any) -> tuple[str, ...]:
    """What a wish may call this actor."""
    name = ref.name or ""
    return (ref.actor_class.__name__, name, name.partition("/")[0])
