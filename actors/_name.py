"""A stable name for whoever does a job now."""

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
    """Reaches the present incarnation of the actor registered as `label`; it never dies itself.

    Two names of one system are equal when their labels are.
    """

    system: System
    label: str

    def __repr__(self) -> str:
        return f"<Name {self.label}>"

    @property
    def ref(self) -> Ref[Any] | None:
        """The present incarnation, None while there is none."""
        return self.system.ref(self.label)

    def present(self) -> Ref[Any]:
        """The present incarnation. Raises NotRunning while there is none."""
        ref = self.ref
        if ref is None:
            raise NotRunning(f"no actor is running under the name {self.label!r}; ask with retry=True to wait for one")
        return ref

    def is_alive(self) -> bool:
        """Whether somebody is registered under the name now."""
        return self.ref is not None

    def tell(self, message: Any) -> None:
        """Send a message and go on; a dead letter if nobody is there. From any thread."""
        try:
            self.present().tell(message)
        except NotRunning:
            self.system.report(DeadLettered(self.label, message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """As `Ref.ask`; raises NotRunning (or answers with it, if `block` is False) when nobody is there."""
        try:
            ref = self.present()
        except NotRunning as gone:
            if block:
                raise
            reply: Reply[Any] = Reply(message)
            reply.fail(gone)
            return reply
        return ref.ask(message, block=block, timeout=timeout)
