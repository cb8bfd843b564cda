"""A still picture of the living tree."""

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
    """One actor as it is now.

    `state` is starting, running, ending or down; `mailbox` how many messages wait, `handled` how many this incarnation
    has begun; `restarts` and `last_crash` (None if it never crashed) are over all incarnations; `started_at` is
    when this incarnation came up, in the system's clock (None while it is not up).
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
    """What is in a child's place, which may be nobody just now."""
    if slot.ref is None:
        name = slot.spec.registered_name
        return Info(slot.spec.id, name, slot.class_name, "down", restarts=slot.restarts, last_crash=slot.last_crash)
    return _info(slot.ref, slot.spec.id, slot.restarts, slot.last_crash)


def of_ref(ref: Ref[Any]) -> Info:
    """An actor and, if it supervises, whoever is below it."""
    return _info(ref, ref.label, 0, None)


def _info(ref: Ref[Any], id: str, restarts: int, last_crash: str | None) -> Info:
    # By position, and each made once: a tree may have thousands, and the loop stands still meanwhile.
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
    """Whoever is in a child's place, and everybody below, from the top down."""
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
