"""The answer to one ask: a Pykka future that can be awaited under Trio."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from threading import get_ident
from typing import Any, Protocol, TypeVar

import pykka
import trio
from trio.lowlevel import Abort, current_task, in_trio_run, reschedule, wait_task_rescheduled

T = TypeVar("T")


class Owner(Protocol):
    """The part of an actor's reference that a reply uses."""

    _home: int

    def _call_soon(self, call: Callable[..., object], *args: Any) -> None: ...

    def _settled(self, reply: Reply[Any]) -> None: ...


class Reply(pykka.Future[T]):
    """The asker's future and, after `defer()`, the actor's means to answer: `set(value)` or `fail(exc)`, once.

    Under Trio the asker awaits it. In any other thread it calls `get(timeout=seconds)`. On a loop, `get` raises unless
    the answer is there. `abandoned` becomes true if the asker was cancelled or timed out. Both sides may be in any
    thread.
    """

    __slots__ = ("_error", "_ref", "_value", "_waiter", "_watchers", "abandoned", "done", "message")

    message: Any
    done: bool
    abandoned: bool

    # Pykka's constructor, which is skipped here, creates an object per future for this.
    _get_hook: Callable[[float | None], Any] | None = None

    def __init__(self, message: Any = None, ref: Owner | None = None) -> None:
        self.message = message
        self.done = False
        self.abandoned = False
        self._ref = ref
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiter: trio.lowlevel.Task | None = None
        self._watchers: list[Callable[[], object]] | None = None

    def __repr__(self) -> str:
        state = "answered" if self.done else "abandoned" if self.abandoned else "pending"
        return f"<Reply {state}>"

    # For the actor

    def set(self, value: T | None = None) -> None:
        """Answer with `value`. Raises RuntimeError if there is an answer already, also from the actor's end."""
        self._answer(value, None)

    def fail(self, exc: BaseException) -> None:
        """Answer with an exception, which is raised in the asker. Otherwise as `set`."""
        self._answer(None, exc)

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Compute the value when it is requested. Pykka's `map`, `filter`, `join` and `reduce` use this."""
        self._get_hook = func

    def _answer(self, value: Any, error: BaseException | None) -> None:
        if self.done or self._get_hook is not None:
            raise RuntimeError("this request has been answered already; answer it once")
        ref = self._ref
        if ref is None or get_ident() == ref._home:
            self._complete(value, error)
        else:
            # One thread completes all replies of a system, so answering needs no lock.
            ref._call_soon(self._complete_late, value, error)

    def _complete_late(self, value: Any, error: BaseException | None) -> None:
        if not self.done:
            self._complete(value, error)

    def _complete(self, value: Any, error: BaseException | None) -> None:
        self._value = value
        self._error = error
        self.done = True
        if self._ref is not None:
            self._ref._settled(self)
        task = self._waiter
        if task is not None:
            self._waiter = None
            reschedule(task)
        if self._watchers is not None:
            for watcher in self._watchers:
                watcher()

    # For the asker

    async def wait(self) -> T:
        """Wait for the answer in a Trio task. Cancelling the wait is safe and marks the reply abandoned."""
        if self.done:
            await trio.lowlevel.checkpoint()
        elif self._get_hook is not None:
            return await trio.to_thread.run_sync(self.get, abandon_on_cancel=True)
        elif self._waiter is None and self._ref is not None and get_ident() == self._ref._home:
            self._waiter = current_task()
            await wait_task_rescheduled(self._abort)
        else:
            await self._wait_apart()
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def _abort(self, _: object) -> Abort:
        self._waiter = None
        self.abandoned = True
        assert self._ref is not None
        self._ref._settled(self)
        return Abort.SUCCEEDED

    async def _wait_apart(self) -> None:
        """Wait as a second waiter, or on the loop of another thread."""
        answered = trio.Event()
        token = trio.lowlevel.current_trio_token()
        self._watch(lambda: _tell_loop(token, answered.set))
        try:
            await answered.wait()
        except trio.Cancelled:
            self.abandoned = True
            raise

    def __await__(self) -> Generator[Any, None, T]:
        coroutine: Coroutine[Any, None, T] = self.wait()
        return coroutine.__await__()

    __iter__ = __await__

    def get(self, *, timeout: float | None = None) -> T:
        """Return the answer. A thread without a loop waits for it, at most `timeout` seconds.

        Raises `pykka.Timeout`, the exception that the actor answered with, or RuntimeError if waiting would block a
        Trio loop.
        """
        if self._get_hook is not None and not self.done:
            self._value = self._get_hook(timeout)
            self.done = True
        if not self.done:
            if in_trio_run():
                raise RuntimeError("waiting here would block the loop; await the reply instead")
            answered = threading.Event()
            self._watch(answered.set)
            if not answered.wait(timeout):
                raise pykka.Timeout(f"{timeout} seconds")
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def _watch(self, watcher: Callable[[], object]) -> None:
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(watcher)
        # The other thread may have answered just before the watcher was added.
        if self.done:
            watcher()


def _tell_loop(token: trio.lowlevel.TrioToken, call: Callable[[], object]) -> None:
    try:
        token.run_sync_soon(call)
    except trio.RunFinishedError:
        # The asker ended with its loop.
        return
