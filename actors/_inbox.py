"""Pykka's view of a mailbox and of the stopped flag, created on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors._reply import Reply

if TYPE_CHECKING:
    from pykka._envelope import Envelope

    from actors._ref import Ref

__all__ = ["Inbox", "StoppedFlag"]


class Inbox:
    """An actor's mailbox with the methods of Pykka's mailbox."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Ref[Any]) -> None:
        self._ref = ref

    def put(self, envelope: Envelope[Any], /) -> None:
        """Send the message of an envelope. Its `reply_to`, if any, gets the answer."""
        if envelope.reply_to is None:
            self._ref.tell(envelope.message)
            return
        reply: Reply[Any] = self._ref.ask(envelope.message, block=False)
        target = envelope.reply_to

        def hand_on() -> None:
            if reply._error is None:
                target.set(reply._value)
            else:
                target.set_exception((type(reply._error), reply._error, reply._error.__traceback__))

        reply._watch(hand_on)

    def get(self) -> Envelope[Any]:
        """Raise RuntimeError: only the actor takes messages from its mailbox."""
        raise RuntimeError("only the actor itself takes messages from its mailbox")

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self._ref._mailbox


class StoppedFlag:
    """Whether an actor has ended, with the interface of the `threading.Event` that Pykka expects."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Ref[Any]) -> None:
        self._ref = ref

    def is_set(self) -> bool:
        """Whether the actor accepts no more messages."""
        return not self._ref.is_alive()
