"""Progress values that only increase, although each server run counts from its own start."""

from __future__ import annotations

import json

Number = int | float


class Progress:
    """The progress of requests in flight, by token."""

    __slots__ = ("_last", "_shift")

    def __init__(self) -> None:
        self._last: dict[str, Number | None] = {}
        self._shift: dict[str, Number] = {}

    def follow(self, token: object) -> None:
        """Start a request that has `token`, and forget an earlier use of that token."""
        self._last[json.dumps(token)] = None

    def forget(self, token: object) -> None:
        """Drop an answered or cancelled request: its progress is stale."""
        self._last.pop(json.dumps(token), None)
        self._shift.pop(json.dumps(token), None)

    def new_life(self) -> None:
        """Switch to another server run."""
        self._shift.clear()

    def rise(self, token: object, value: object) -> Number | None:
        """Return the value to show for a value that the server reported; None to show nothing. The first value of a new
        server run is shown unchanged if it is higher than the last one shown. Otherwise it is raised to one more than
        that, and later values by the same amount."""
        key = json.dumps(token)
        if key not in self._last or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        last = self._last[key]
        if last is None:
            self._shift[key] = 0
        elif key not in self._shift:
            self._shift[key] = 0 if value > last else last - value + 1
        shown = value + self._shift[key]
        if last is not None and shown <= last:
            return None
        self._last[key] = shown
        return shown
