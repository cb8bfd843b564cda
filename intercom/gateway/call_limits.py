"""The time limits of calls, which stand still while a client answers a question of the downstream.

A person may need minutes for an answer, and the downstream can do nothing meanwhile. Which of an agent's calls a
question belongs to is not always known, so the limits of all that run stand still. `ANSWER_SECONDS` bounds it: a client
that never answers does not hold a call for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from attrs import define, field

#: The most time that all answers together may add to one call (seconds).
ANSWER_SECONDS: Final = 600.0


@define(eq=False)
class _Limit:
    """The limit of one call. `to_answer` is what its answers may still take, `left` what the downstream has left, and
    `since` when it began to stand still (Trio's clock, seconds)."""

    agent: str
    scope: trio.CancelScope
    to_answer: float = ANSWER_SECONDS
    left: float = 0.0
    since: float = 0.0
    questions: int = 0

    def stop(self, now: float) -> None:
        if not self.questions:
            self.since, self.left = now, self.scope.deadline - now
            self.scope.deadline += self.to_answer
        self.questions += 1

    def go_on(self, now: float) -> None:
        self.questions -= 1
        if not self.questions:
            to_answer = self.to_answer - (now - self.since)
            self.scope.deadline = now + self.left + min(0.0, to_answer)
            self.to_answer = max(0.0, to_answer)


@define(eq=False)
class CallLimits:
    """The limits of the calls that run over one connection, by agent."""

    _running: dict[trio.CancelScope, _Limit] = field(factory=dict, init=False)

    def begin(self, agent: str, scope: trio.CancelScope) -> None:
        """Know a call of this agent until `end`. The deadline of `scope` is its limit."""
        self._running[scope] = _Limit(agent, scope)

    def end(self, scope: trio.CancelScope) -> None:
        """Forget a call, if it is known."""
        self._running.pop(scope, None)

    @contextmanager
    def answering(self, agent: str) -> Iterator[None]:
        """Let the limits of all calls of this agent stand still during the block."""
        stopped = [limit for limit in self._running.values() if limit.agent == agent]
        for limit in stopped:
            limit.stop(trio.current_time())
        try:
            yield
        finally:
            for limit in stopped:
                limit.go_on(trio.current_time())
