"""Who waits for which request's verdict, as a session's actor keeps it."""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen

from actors import Reply


@frozen
class Waiter:
    """A call that waits; `ticket` tells it from one of the same name that is gone and has not been heard leaving, and
    `task` is the task whose end it waits for, if it is one's. `alone` says that its answer carries nothing else."""

    call: str
    ticket: str
    reply: Reply[Any]
    task: str | None = None
    alone: bool = False


@define
class Waiters:
    """By the ids of requests; true, and `in`, where somebody waits."""

    _by_request: dict[str, list[Waiter]] = field(factory=dict, init=False)

    def came(self, request_id: str, waiter: Waiter) -> bool:
        """Note a waiter; whether it is the only one for this request."""
        entries = self._by_request.setdefault(request_id, [])
        entries.append(waiter)
        return len(entries) == 1

    def forget(self, request_id: str, call: str, ticket: str) -> bool:
        """Forget a waiter, if it is one; whether it was the last for this request."""
        entries = [each for each in self.of(request_id) if (each.call, each.ticket) != (call, ticket)]
        if entries:
            self._by_request[request_id] = entries
            return False
        return self._by_request.pop(request_id, None) is not None

    def of(self, request_id: str) -> tuple[Waiter, ...]:
        """Who waits for this request."""
        return tuple(self._by_request.get(request_id, ()))

    def take(self, request_id: str) -> tuple[Waiter, ...]:
        """The same, who wait no more."""
        return tuple(self._by_request.pop(request_id, ()))

    def requests(self) -> tuple[str, ...]:
        """The requests that somebody waits for."""
        return tuple(self._by_request)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_request

    def __bool__(self) -> bool:
        return bool(self._by_request)
