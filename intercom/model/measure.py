"""Measures: what is worth counting, as values told to one hook when it has happened. Past tense, all of it.

Whoever does the thing tells of it, and does not know who counts. No measure holds what an agent or a person wrote:
names and ids are there to count a thing once, not to be shown.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from intercom.model.card import CardKind


@frozen
class ToolCalled:
    """A tool call ended after `seconds`. `outcome` is "ok", "pending" or "paused" (it is to be made again), "task" (a
    task stands for its answer), "cancelled", or the code of the error; `tool` is None for a name that no tool has."""

    tool: str | None
    outcome: str
    seconds: float


@frozen
class Settled:
    """What an agent asked for was decided, or came to an end undecided: `outcome` is the decision, "expired" or
    "interrupted". `channel` says where it came from, `seconds` how long it had waited."""

    request_id: str
    kind: CardKind
    outcome: str
    channel: str
    seconds: float


@frozen
class Delivered:
    """The answer reached the agent, `seconds` after it was given."""

    request_id: str
    kind: CardKind
    seconds: float


@frozen
class Committed:
    """The store committed `works` changes in one transaction, which took `seconds`."""

    works: int
    seconds: float


@frozen
class HttpFailed:
    """A request over HTTP was answered with an error: with this status, 400 or above."""

    status: int


Measure = ToolCalled | Settled | Delivered | Committed | HttpFailed
#: Told of each measure; must return at once and not raise. Any thread may call it.
Measured = Callable[[Measure], object]


def unmeasured(_measure: Measure) -> None:
    """The hook of a server that counts nothing."""
