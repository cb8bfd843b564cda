"""Which message is posted next in a channel, and which lines share it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from attrs import field, frozen

from intercom.model.outbox import RowKind, RowState, Waiting

#: The most that lines sharing one message may come to.
CHARS = 2_800
LINES = 20

#: How many rows are looked at for lines that can share a message.
REACH = 500

#: After so many attempts a message that may be out there, and is not found, no longer holds back those behind it.
PATIENCE = 8


#: How many cards and alerts are looked at for one of a thread whose turn it is.
FAIR_REACH = 5_000


@frozen
class Choice:
    """Post the row `id`, with the lines of the rows `merge` under its own. `thread` is the one whose turn that was."""

    id: int
    merge: tuple[int, ...] = ()
    thread: str | None = field(default=None, eq=False)


def choose(waiting: Iterable[Waiting], now: datetime, turns: Mapping[str, int] | None = None) -> Choice | None:
    """What is to be posted first of `waiting`, which comes the most urgent and oldest first and is read no further than
    needed; None when nothing may be posted now.

    The most urgent goes first, and of equally urgent ones the oldest, so that cards overtake lines and each keeps its
    order within a thread. Cards and alerts of several threads take turns: `turns` says when a thread had its last, as a
    rising number, so that one agent's hundred cards do not hold up another's one. A row whose time has not come is
    passed over; but one that may be out there holds back those behind it in its thread. A reply waits for the message
    at the top of its thread, which goes with the urgency of the most urgent reply.
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
    """The rows behind a line whose lines can stand in its message. What was tried before must stay as it was, and what
    stands in no thread may be the top of one: two sessions must not come to share theirs."""
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
            # those behind it stay behind it
            break
        sharing.append(row.id)
    return tuple(sharing)


def _lane(row: Waiting) -> tuple[str | None, int]:
    return (row.thread, row.urgency)


def _due(not_before: datetime | None, now: datetime) -> bool:
    return not_before is None or not_before <= now
