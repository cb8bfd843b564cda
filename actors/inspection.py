"""A still picture of the living tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from actors._children import Slot
    from actors._ref import Ref

__all__ = ["Info"]


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
        return Info(slot.spec.id, slot.spec.registered_name, "", "down", 0, 0, slot.restarts, slot.last_crash)
    return attrs.evolve(of_ref(slot.ref), id=slot.spec.id, restarts=slot.restarts, last_crash=slot.last_crash)


def of_ref(ref: Ref[Any]) -> Info:
    """An actor and, if it supervises, whoever is below it."""
    slots: dict[str, Slot] = getattr(ref._actor, "_slots", {}) if is_supervisor(ref) else {}
    return Info(
        ref.label,
        ref.label,
        ref.actor_class.__qualname__,
        ref._life.name.lower() if ref._life < 4 else "down",
        len(ref._mailbox),
        ref._handled,
        started_at=ref._started_at,
        children=tuple(of_slot(slot) for slot in slots.values()),
    )


def is_supervisor(ref: Ref[Any]) -> bool:
    """Whether the actor supervises others."""
    return getattr(ref.actor_class, "is_supervisor", False)


def walk(info: Info) -> list[Info]:
    """The actor and everybody below it, from the top down."""
    return [info, *(below for child in info.children for below in walk(child))]
