"""A stable name for the current incarnation of an actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from actors._reply import Reply
from actors.errors import NotRunning
from actors.events import DeadLettered

if TYPE_CHECKING:
    from actors._ref import Ref
    from actors._system import System

__all__ = ["Name"]


@attrs.frozen(repr=False)
class Name:
    """Refers to the current incarnation of the actor registered as `label`. It stays valid over restarts.

    Two names of one system are equal if their labels are equal.
    """

    system: System
    label: str

    def __repr__(self) -> str:
        return f"<Name {self.label}>"

    @property
    def ref(self) -> Ref[Any] | None:
        """The current incarnation, or None."""
        return self.system.ref(self.label)

    def present(self) -> Ref[Any]:
        """Return the current incarnation. Raises NotRunning if there is none."""
        ref = self.ref
        if ref is None:
            raise NotRunning(f"no actor is running under the name {self.label!r}; ask with retry=True to wait for one")
        return ref

    def is_alive(self) -> bool:
        """Whether an actor is registered under the name now."""
        return self.ref is not None

    def tell(self, message: Any) -> None:
        """Send a message without waiting. Callable from any thread. Reports a dead letter if no actor is running."""
        try:
            self.present().tell(message)
        except NotRunning:
            self.system.report(DeadLettered(self.label, message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """As `Ref.ask`. Without an incarnation, raises NotRunning, or with `block=False` answers with it."""
        try:
            ref = self.present()
        except NotRunning as gone:
            if block:
                raise
            reply: Reply[Any] = Reply(message)
            reply.fail(gone)
            return reply
        return ref.ask(message, block=block, timeout=timeout)
