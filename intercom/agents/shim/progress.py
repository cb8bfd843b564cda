"""Progress that only rises, although each server's life counts from its own beginning."""

from __future__ import annotations

import json

Number = int | float


class Progress:
    """Follows the progress of requests in flight, by token."""

    __slots__ = ("_last", "_shift")

    def __init__(self) -> None:
        self._last: dict[str, Number | None] = {}
        self._shift: dict[str, Number] = {}

    def follow(self, token: object) -> None:
        """Begin with a request that carries `token`; whatever was known of that token is forgotten."""
        self._last[json.dumps(token)] = None

    def forget(self, token: object) -> None:
        """The request is answered or cancelled: progress for it is stale from now on."""
        self._last.pop(json.dumps(token), None)
        self._shift.pop(json.dumps(token), None)

    def new_life(self) -> None:
        """Another server counts from here on."""
        self._shift.clear()

    def rise(self, token: object, value: object) -> Number | None:
        """Say which value the client should see for what the server reported; None to tell it nothing.

        A new life's first value is shown as it is when it is higher than the last one shown, else as one more than
        that, and the values behind it move along.
        """
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
