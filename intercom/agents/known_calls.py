"""The names of a connection's calls, by the id of their request."""

from __future__ import annotations

from attrs import define, field


@define
class KnownCalls:
    """Calls whose cancellation still matters. That ends with the answer or, if a delivery is attached to it, when it
    has reached the client. A cancellation may cross with such an answer, which the shim then drops."""

    _by_id: dict[str | int, str] = field(factory=dict, init=False)
    _leaving: dict[str, str | int] = field(factory=dict, init=False)

    def came(self, id: str | int, name: str) -> None:
        """Add a call."""
        self._by_id[id] = name

    def cancelled(self, id: str | int | None) -> str | None:
        """Remove a cancelled call. Returns its name; None if the cancellation does not matter."""
        name = None if id is None else self._by_id.pop(id, None)
        if name is not None:
            self._leaving.pop(name, None)
        return name

    def answers(self, id: str | int | None) -> str | None:
        """Return the name of the call whose answer is about to be sent."""
        return None if id is None else self._by_id.get(id)

    def left(self, id: str | int | None, *, laden: bool) -> None:
        """Note that the answer was sent; `laden` if a decision or instructions are attached."""
        name = self.answers(id)
        if id is None or name is None:
            return
        if laden:
            self._leaving[name] = id
        else:
            del self._by_id[id]

    def arrived(self, name: str) -> None:
        """Note that the answer to this call has reached the client."""
        id = self._leaving.pop(name, None)
        if id is not None and self._by_id.get(id) == name:
            del self._by_id[id]
