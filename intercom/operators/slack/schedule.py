"""The choice of the next message to post in a channel, and of the lines merged into it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from attrs import field, frozen

from intercom.model.outbox import RowKind, RowState, Waiting

#: The maximum size of a message of merged lines.
CHARS = 2_800
LINES = 20

#: How many rows are examined for lines to merge.
REACH = 500

#: After this many attempts a message that may be posted, but is not found, no longer blocks the ones behind it.
PATIENCE = 8


#: How many cards and alerts are examined to find a thread whose turn it is.
FAIR_REACH = 5_000


@frozen
class Choice:
    """Post the row `id`, followed by the lines of the rows `merge`. `thread` is the thread whose turn is used."""

    id: int
    merge: tuple[int, ...] = ()
    thread: str | None = field(default=None, eq=False)


def choose(waiting: Iterable[Waiting], now: datetime, turns: Mapping[str, int] | None = None) -> Choice | None:
    """Choose the next row to post; None if nothing may be posted now.

    `waiting` is ordered by urgency, then age; it is read no further than needed. The most urgent row is first, and
    among equals the oldest, so cards overtake lines and each thread keeps its order. Cards and alerts of several
    threads take turns, so that one agent's hundred cards do not delay another's one. `turns` has the last turn of each
    thread, as an increasing number. A row that is not due is skipped; if it may be posted already, it also blocks the
    ones behind it in its thread. A reply waits for its thread's root message, which gets the urgency of the most urgent
    reply.
    """
    turns = turns or {}
    rows = iter(waiting)
    held: set[tuple[str | None, int]] = set()
    best: tuple[int, Choice] | None = None
    urgency = None
    for number, row in enumerate(rows):
        if best is not None and (row.urgency != urgency or number >= FAIR_REACH):
            break
        if _lane(row) in held:
            continue
        choice = None
        if not _due(row.not_before, now):
            if row.state is RowState.POSTING and row.attempts <= PATIENCE:
                held.add(_lane(row))
        elif row.root_id is None:
            if row.urgency.is_line:
                return Choice(row.id, _sharing(row, rows, now), row.thread)
            choice = Choice(row.id, (), row.thread)
        elif _due(row.root_not_before, now):
            choice = Choice(row.root_id, (), row.thread)
        if choice is None:
            continue
        last = 0 if row.thread is None else turns.get(row.thread, 0)
        if last == 0 or (row.urgency.is_line and best is None):
            return choice
        if best is None or last < best[0]:
            best, urgency = (last, choice), row.urgency
        # Each thread keeps its own order.
        held.add(_lane(row))
    return None if best is None else best[1]


def _sharing(first: Waiting, behind: Iterator[Waiting], now: datetime) -> tuple[int, ...]:
    """Return the rows whose lines can share the message of the first. A row that was tried before must stay unchanged.
    A line outside a thread may become the root of one, and two sessions must not share a root."""
    if not first.urgency.is_line or first.kind is not RowKind.MESSAGE or first.attempts or first.thread is None:
        return ()
    chars, lines = first.chars, first.lines
    sharing: list[int] = []
    for _, row in zip(range(REACH), behind, strict=False):
        if row.urgency != first.urgency:
            break
        if row.thread != first.thread:
            continue
        chars, lines = chars + 1 + row.chars, lines + row.lines
        fits = chars <= CHARS and lines <= LINES
        fresh = row.kind is RowKind.MESSAGE and row.attempts == 0 and _due(row.not_before, now)
        if not (fits and fresh):
            # the rows behind it keep their place
            break
        sharing.append(row.id)
    return tuple(sharing)


def _lane(row: Waiting) -> tuple[str | None, int]:
    return (row.thread, row.urgency)


def _due(not_before: datetime | None, now: datetime) -> bool:
    return not_before is None or not_before <= now
