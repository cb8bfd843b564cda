"""The names of a connection's calls, by the id of their request."""

from __future__ import annotations

from attrs import define, field


@define
class KnownCalls:
    """Knows a call for as long as its cancellation matters: until it is answered or, where a verdict rides on the
    answer, until that has reached the client. A cancellation may cross with such an answer, which the shim then drops.
    """

    _by_id: dict[str | int, str] = field(factory=dict, init=False)
    _leaving: dict[str, str | int] = field(factory=dict, init=False)

    def came(self, id: str | int, name: str) -> None:
        """A call came in."""
        self._by_id[id] = name

    def cancelled(self, id: str | int | None) -> str | None:
        """The client cancelled the request: the call's name, None where that does not matter (any more)."""
        name = None if id is None else self._by_id.pop(id, None)
        if name is not None:
            self._leaving.pop(name, None)
        return name

    def answers(self, id: str | int | None) -> str | None:
        """The name of the call whose answer is about to leave."""
        return None if id is None else self._by_id.get(id)

    def left(self, id: str | int | None, *, laden: bool) -> None:
        """The answer left; `laden` if a verdict or words ride on it."""
        name = self.answers(id)
        if id is None or name is None:
            return
        if laden:
            self._leaving[name] = id
        else:
            del self._by_id[id]

    def arrived(self, name: str) -> None:
        """The answer to the call of this name has reached the client."""
        id = self._leaving.pop(name, None)
        if id is not None and self._by_id.get(id) == name:
            del self._by_id[id]
