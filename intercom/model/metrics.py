"""What is measured, and the pages that the HTTP port serves besides MCP.

The code that reports a measure does not depend on the code that counts it. No measure holds text of an agent or a
person: names and ids serve to count a thing once, and are not shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import frozen

from intercom.model.card import CardKind


@frozen
class ToolCalled:
    """A tool call ended after `seconds`. `outcome` is "ok", "pending" or "paused" (the client repeats the call), "task"
    (a task replaces its answer), "cancelled", or the error code. `tool` is None if no tool has the name of the call."""

    tool: str | None
    outcome: str
    seconds: float


@frozen
class Settled:
    """An agent's request was decided, or ended without a decision. `outcome` is the decision, "expired" or
    "interrupted". `channel` is where it came from; `seconds` is the waiting time."""

    request_id: str
    kind: CardKind
    outcome: str
    channel: str
    seconds: float


@frozen
class DecisionTakenBack:
    """A person took a decision back, which was counted when it was given. The request waits again. `kind`, `outcome`
    and `channel` are those of the decision, `verdict_id` is its id."""

    request_id: str
    verdict_id: str
    kind: CardKind
    outcome: str
    channel: str


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
    """An HTTP request was answered with an error status, 400 or above."""

    status: int


@frozen
class DownstreamCalled:
    """A call of a downstream's tool ended, or was refused, after `seconds`. `downstream` is configured by this name.
    `status` is that of its record. A call that was answered from the cache `is_cached`."""

    downstream: str
    status: str
    seconds: float
    is_cached: bool = False


Measure = ToolCalled | Settled | DecisionTakenBack | Delivered | Committed | HttpFailed | DownstreamCalled
#: Called with each measure, from any thread. Must return at once and not raise.
Measured = Callable[[Measure], object]


def unmeasured(_measure: Measure) -> None:
    """Ignore a measure: the hook of a server that counts nothing."""


@frozen
class Answer:
    """The response of a page. `media_type` describes the body."""

    status: int
    media_type: str
    body: bytes


@frozen
class Page:
    """The response to GET and HEAD of `path`. `answer` takes seconds at most and raises nothing. An `open` page needs
    no token, so it must not show anything private."""

    path: str
    answer: Callable[[], Awaitable[Answer]]
    open: bool = False
