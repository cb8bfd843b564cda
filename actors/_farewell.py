"""Cleanup at the end of an incarnation: answers to askers, events to monitors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors._mail import Begun, Due, Life
from actors._reply import Reply
from actors.errors import Down
from actors.messages import DownEvent

if TYPE_CHECKING:
    from actors._ref import Ref

__all__ = ["drain", "tell_monitors"]


def tell_monitors(ref: Ref[Any], reason: BaseException | None) -> None:
    """Send a DownEvent to each monitor of the incarnation, and end its own monitors."""
    if ref._rare is None:
        return
    for watcher, target in ref._rare.monitors:
        if isinstance(watcher, Reply):
            watcher._complete(True, None)
        elif watcher._life < Life.ENDING:
            watcher._more().monitoring.pop((ref, target), None)
            watcher._put(DownEvent(target, ref.label, ref, reason))
    for watched, target in ref._rare.monitoring:
        watched._more().monitors.pop((ref, target), None)
    ref._rare.monitors.clear()
    ref._rare.monitoring.clear()


def drain(ref: Ref[Any], reason: BaseException | None) -> None:
    """Answer every pending request of this incarnation, which accepts no new messages."""
    begun = ref._current
    if begun is not None:
        ref._current = None
        if not begun.done:
            begun._complete(None, Down(ref.label, reason, begun=True))
    if ref._rare is not None:
        for reply in list(ref._rare.deferred):
            reply._complete(None, Down(ref.label, reason, begun=True, handling=False))
        ref._rare.deferred.clear()
        for timer in ref._rare.timers.values():
            timer.cancel()
        ref._rare.timers.clear()
    mailbox = ref._mailbox
    while mailbox:
        item = mailbox.popleft()
        if type(item) is Reply:
            item._complete(None, Down(ref.label, reason, begun=False))
        elif type(item) is Begun:
            item.coroutine.close()
            if item.reply is not None:
                item.reply._complete(None, Down(ref.label, reason, begun=True))
        elif type(item) is not Due:
            ref._dead_letter(item)
