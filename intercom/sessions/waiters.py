"""The calls that wait for decisions, as a session's actor keeps them."""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen

from actors import Reply


@frozen
class Waiter:
    """A waiting call. `ticket` tells it from an earlier one of the same name whose end was not seen. `task` is the task
    whose end it waits for, if any. `alone` says that its answer carries nothing else."""

    call: str
    ticket: str
    reply: Reply[Any]
    task: str | None = None
    alone: bool = False


@define
class Waiters:
    """The waiting calls by request id. True if any call waits; `in` tests one request."""

    _by_request: dict[str, list[Waiter]] = field(factory=dict, init=False)

    def came(self, request_id: str, waiter: Waiter) -> bool:
        """Add a waiting call. Returns whether it is the only one for this request."""
        entries = self._by_request.setdefault(request_id, [])
        entries.append(waiter)
        return len(entries) == 1

    def forget(self, request_id: str, call: str, ticket: str) -> bool:
        """Remove a waiting call, if it is there. Returns whether it was the last for this request."""
        entries = [each for each in self.of(request_id) if (each.call, each.ticket) != (call, ticket)]
        if entries:
            self._by_request[request_id] = entries
            return False
        return self._by_request.pop(request_id, None) is not None

    def of(self, request_id: str) -> tuple[Waiter, ...]:
        """Return the calls that wait for this request."""
        return tuple(self._by_request.get(request_id, ()))

    def take(self, request_id: str) -> tuple[Waiter, ...]:
        """Remove the calls that wait for this request, and return them."""
        return tuple(self._by_request.pop(request_id, ()))

    def requests(self) -> tuple[str, ...]:
        """Return the requests that a call waits for."""
        return tuple(self._by_request)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_request

    def __bool__(self) -> bool:
        return bool(self._by_request)
