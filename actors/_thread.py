"""Actors that may block: each has its own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, ClassVar

import attrs
import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from actors._actor import Actor, take_timer
from actors._ref import Fired, Ref
from actors._reply import Reply
from actors.errors import Down


class BatchItem:
    """One message of a batch, with methods to answer it."""

    __slots__ = ("_answered", "_begun", "_error", "_reply", "_value", "message")

    def __init__(self, message: Any, reply: Reply[Any] | None) -> None:
        self.message = message
        self._reply = reply
        self._answered = False
        self._begun = True
        self._value: Any = None
        self._error: BaseException | None = None

    def reply(self, value: Any = None) -> None:
        """Answer. The answer is sent when the batch returns. Raises RuntimeError if the item was already answered."""
        self._note(value, None)

    def fail(self, exc: BaseException) -> None:
        """Answer with an exception; the actor itself does not crash. Otherwise as `reply`."""
        self._note(None, exc)

    def _note(self, value: Any, error: BaseException | None) -> None:
        if self._answered:
            raise RuntimeError("this item has been answered already; answer it once")
        self._answered = True
        self._value = value
        self._error = error


class ThreadActor(Actor):
    """An actor whose hooks and handlers, all synchronous, run in its own thread and may block.

    Messages, supervisors, timers and monitors work as for any actor. With a `batch_size` above 1, `receive_batch` gets
    up to that many waiting messages at once. With `run_as_task` (on the class or the instance) it runs on the loop like
    a plain actor, for tests in virtual time. A thread cannot be cancelled: if it exceeds its stop time, it is abandoned
    and reported as stuck.
    """

    batch_size: ClassVar[int] = 1
    run_as_task: bool = False

    def receive_batch(self, items: Sequence[BatchItem]) -> None:
        """Handle several messages. Each item that was asked must be answered; otherwise its asker gets `Down`.

        All answers are sent when this returns. If it raises, the answers given so far are sent, the other askers get
        `Down`, and the actor crashes. The default passes each message to `on_receive`.
        """
        ref = self.actor_ref
        for item in items:
            item._begun = False
        for item in items:
            item._begun = True
            ref._current = item._reply
            try:
                result = self._handle_receive(item.message)
            except self.refusals as refusal:
                item.fail(refusal)
            else:
                item._answered = True
                if ref._current is not None:
                    item._value = result
                else:
                    item._reply = None  # no asker, or the handler deferred the reply
            ref._current = None

    _worker: Worker | InlineWorker | None = None

    async def _invoke(self, hook: Callable[..., Any], *args: Any) -> Any:
        if self._worker is None:
            self._worker = InlineWorker() if self.run_as_task else Worker(self.actor_ref.label)
        return await self._worker.run(hook, *args)

    async def _release(self, *, killed: bool) -> None:
        if self._worker is not None and not self._worker.close():
            self.actor_ref._more().abandoned = True

    async def _handle_messages(self) -> None:
        ref = self.actor_ref
        mailbox = ref._mailbox
        while not ref._stop_asked:
            if not mailbox:
                await ref._park()
                continue
            items: list[BatchItem] = []
            while mailbox and len(items) < self.batch_size:
                item = mailbox.popleft()
                if type(item) is Reply:
                    items.append(BatchItem(item.message, item))
                elif type(item) is not Fired:
                    items.append(BatchItem(item, None))
                elif take_timer(ref, item.timer):
                    items.append(BatchItem(item.timer.message, None))
            if not items:
                continue
            ref._handled += len(items)
            try:
                await self._invoke(self.receive_batch, items)
            except BaseException as exc:
                _answer(ref, items, None if isinstance(exc, trio.Cancelled) else exc)
                raise
            _answer(ref, items, RuntimeError("the batch returned without an answer to this message"))


def _answer(ref: Ref[Any], items: Sequence[BatchItem], otherwise: BaseException | None) -> None:
    for item in items:
        reply = item._reply
        if reply is None or reply.done:
            continue
        if item._answered:
            reply._complete(item._value, item._error)
        else:
            reply._complete(None, Down(ref.label, otherwise, begun=item._begun))


class Worker:
    """A thread that makes one call at a time for a task."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], _Call] | None] = queue.SimpleQueue()
        # A daemon thread, because one that was abandoned in a blocking call must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._abandoned = False
        self._thread.start()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a call in the thread and wait for it. If the wait is cancelled, the thread is abandoned."""
        call = _Call(current_task(), trio.lowlevel.current_trio_token())
        self._calls.put((function, args, call))

        def abort(_: object) -> Abort:
            call.task = None
            self._abandoned = True
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        if call.error is not None:
            raise call.error
        return call.result

    def close(self) -> bool:
        """End the thread. Return False if it was abandoned in a call; it then ends when that call returns."""
        self._calls.put(None)
        if not self._abandoned:
            self._thread.join()
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            function, args, call = item
            try:
                call.result = function(*args)
            except BaseException as exc:
                call.error = exc
            del function, args, item
            try:
                call.token.run_sync_soon(call.over)
            except trio.RunFinishedError:
                return
            del call


@attrs.define
class _Call:
    task: trio.lowlevel.Task | None
    token: trio.lowlevel.TrioToken
    result: Any = None
    error: BaseException | None = None

    def over(self) -> None:
        """Wake the waiting task, unless it was cancelled."""
        if self.task is not None:
            reschedule(self.task)


class InlineWorker:
    """Runs the calls on the loop."""

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a call after a checkpoint."""
        await trio.lowlevel.checkpoint()
        result = function(*args)
        if isinstance(result, CoroutineType):
            result.close()
            raise TypeError("a thread actor's hooks and handlers are synchronous; make this one a plain def")
        return result

    def close(self) -> bool:
        """Do nothing: there is no thread to end."""
        return True
