"""A snapshot of the actor tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from actors._children import Slot
    from actors._ref import Ref

__all__ = ["Info"]


_STATES = ("new", "starting", "running", "ending", "down")


@attrs.frozen
class Info:
    """The status of one actor.

    `state` is new, starting, running, ending or down. `mailbox` is the number of waiting messages, `handled` the number
    that this incarnation has begun. `restarts` and `last_crash` (None: never crashed) cover all incarnations.
    `started_at` is when this incarnation came up, in the system's clock (None while it is not up).
    """

    id: str
    name: str
    class_name: str
    state: str
    mailbox: int = 0
    handled: int = 0
    restarts: int = 0
    last_crash: str | None = None
    started_at: float | None = None
    children: tuple[Info, ...] = ()


def of_slot(slot: Slot) -> Info:
    """Return the status of a child, whether it is up or down."""
    if slot.ref is None:
        name = slot.spec.registered_name
        return Info(slot.spec.id, name, slot.class_name, "down", restarts=slot.restarts, last_crash=slot.last_crash)
    return _info(slot.ref, slot.spec.id, slot.restarts, slot.last_crash)


def of_ref(ref: Ref[Any]) -> Info:
    """Return the status of an actor and, if it is a supervisor, of the actors below it."""
    return _info(ref, ref.label, 0, None)


def _info(ref: Ref[Any], id: str, restarts: int, last_crash: str | None) -> Info:
    # Positional arguments and one construction each: a tree may have thousands, and this blocks the loop.
    return Info(
        id,
        ref.label,
        ref.actor_class.__qualname__,
        _STATES[ref._life],
        len(ref._mailbox),
        ref._handled,
        restarts,
        last_crash,
        ref._started_at,
        tuple(of_slot(slot) for slot in _slots(ref)),
    )


def refs_below(slot: Slot) -> Iterator[Ref[Any]]:
    """Iterate over the incarnation in a child's place and all incarnations below it, top down."""
    if slot.ref is not None and not slot.ref._over:
        yield slot.ref
        for below in _slots(slot.ref):
            yield from refs_below(below)


def _slots(ref: Ref[Any]) -> Collection[Slot]:
    slots: dict[str, Slot] = ref._actor._slots if is_supervisor(ref) and ref._actor is not None else {}
    return slots.values()


def is_supervisor(ref: Ref[Any]) -> bool:
    """Whether the actor supervises others."""
    return getattr(ref.actor_class, "is_supervisor", False)
