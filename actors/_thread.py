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

from actors._actor import Actor
from actors._life import take_due
from actors._mail import Due
from actors._ref import Ref
from actors._reply import Reply
from actors.errors import Down

__all__ = ["Letter", "ThreadActor"]


class Letter:
    """One message of a batch, with methods to answer it."""

    __slots__ = ("_answered", "_begun", "_error", "_reply", "_value", "message")

    def __init__(self, message: Any, reply: Reply[Any] | None) -> None:
        self.message = message
        self._reply = reply
        self._answered = False
        self._begun = True
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def asked(self) -> bool:
        """Whether an asker waits for an answer."""
        return self._reply is not None and not self._reply.abandoned

    def reply(self, value: Any = None) -> None:
        """Answer. The answer is sent when the batch returns. Raises RuntimeError if the letter was already answered."""
        self._note(value, None)

    def refuse(self, refusal: Exception) -> None:
        """Answer with a refusal. Otherwise as `reply`."""
        self._note(None, refusal)

    def fail(self, exc: BaseException) -> None:
        """Answer with any exception; the actor itself does not crash. Otherwise as `reply`."""
        self._note(None, exc)

    def _note(self, value: Any, error: BaseException | None) -> None:
        if self._answered:
            raise RuntimeError("this letter has been answered already; answer it once")
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

    def receive_batch(self, letters: Sequence[Letter]) -> None:
        """Handle several messages. Each letter that was asked must be answered; otherwise its asker gets `Down`.

        All answers are sent when this returns. If it raises, the answers given so far are sent, the other askers get
        `Down`, and the actor crashes. The default passes each message to `on_receive`.
        """
        ref = self.actor_ref
        for letter in letters:
            letter._begun = False
        for letter in letters:
            letter._begun = True
            ref._current = letter._reply
            try:
                result = self._handle_receive(letter.message)
            except self.refusals as refusal:
                letter.refuse(refusal)
            else:
                letter._answered = True
                if ref._current is not None:
                    letter._value = result
                else:
                    letter._reply = None  # no asker, or the handler deferred the reply
            ref._current = None

    _worker: Worker | InlineWorker | None = None

    async def _invoke(self, hook: Callable[..., Any], *args: Any) -> Any:
        if self._worker is None:
            self._worker = InlineWorker() if self.run_as_task else Worker(self.actor_ref.label)
        return await self._worker.run(hook, *args)

    async def _release(self, *, killed: bool) -> None:
        if self._worker is not None and not self._worker.close():
            self.actor_ref._more().abandoned = True


async def serve_batches(ref: Ref[Any]) -> None:
    """Handle messages as `serve` does, but several at once and in a thread."""
    actor = ref._actor
    assert actor is not None
    mailbox = ref._mailbox
    while True:
        if ref._stop_asked:
            return
        if not mailbox:
            await ref._park()
            continue
        letters: list[Letter] = []
        while mailbox and len(letters) < actor.batch_size:
            item = mailbox.popleft()
            if type(item) is Reply:
                letters.append(Letter(item.message, item))
            elif type(item) is not Due:
                letters.append(Letter(item, None))
            elif take_due(ref, item):
                letters.append(Letter(item.timer.message, None))
        if not letters:
            continue
        ref._handled += len(letters)
        try:
            await actor._invoke(actor.receive_batch, letters)
        except BaseException as exc:
            _answer(ref, letters, None if isinstance(exc, trio.Cancelled) else exc)
            raise
        _answer(ref, letters, RuntimeError("the batch returned without an answer to this message"))


ThreadActor._serve = staticmethod(serve_batches)


def _answer(ref: Ref[Any], letters: Sequence[Letter], otherwise: BaseException | None) -> None:
    for letter in letters:
        reply = letter._reply
        if reply is None or reply.done:
            continue
        if letter._answered:
            reply._complete(letter._value, letter._error)
        else:
            reply._complete(None, Down(ref.label, otherwise, begun=letter._begun))


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
