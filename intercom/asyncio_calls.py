"""Calls from an asyncio program to its embedded server, which runs on Trio in a thread of its own.

A coroutine of a class under `callable_from_asyncio` may be awaited in either event loop. In asyncio the work is done in
the server's thread. A cancelled call is cancelled there too, and has ended when the cancellation is raised.

What an answer carries counts as delivered once the awaiting task has it, and not before: a call that is cancelled after
its answer was made, but before the task got it, leaves everything pending, as a call without an answer does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Protocol, TypeVar

import sniffio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import frozen

T = TypeVar("T")
C = TypeVar("C", bound=type[object])

#: The name of the server's thread.
THREAD = "intercom"
#: How many items a slow reader may be behind.
_AHEAD = 1000


class Embedded(Protocol):
    """An object whose coroutines run in the server's event loop. `portal` leads there; None means that the program runs
    in that loop itself."""

    @property
    def portal(self) -> BlockingPortal | None: ...


@frozen
class Handover:
    """What becomes of an answer on its way to the awaiting task: `taken` when the task has it, `lost` if it never
    will. Both run in the server's event loop."""

    taken: Callable[[], Awaitable[None]]
    lost: Callable[[], None]


_handovers: ContextVar[list[Handover] | None] = ContextVar("handovers", default=None)


def hand_over(handover: Handover) -> bool:
    """Leave it to the awaiting task to say whether it has the answer. Returns False if the caller runs in the server's
    own event loop, and so has it when the call returns."""
    waiting = _handovers.get()
    if waiting is None:
        return False
    waiting.append(handover)
    return True


def is_asyncio() -> bool:
    """Whether the caller runs in asyncio."""
    try:
        return sniffio.current_async_library() == "asyncio"
    except sniffio.AsyncLibraryNotFoundError:
        return False


async def run_in_server(portal: BlockingPortal, call: Callable[[], Awaitable[T]]) -> T:
    """Await `call()` in the server's event loop, from asyncio. Raises what it raises."""
    handovers: list[Handover] = []

    async def carry_out() -> T:
        token = _handovers.set(handovers)
        try:
            return await call()
        finally:
            _handovers.reset(token)

    try:
        answer = await portal.call_async(carry_out)
    except BaseException:
        for each in handovers:
            _tell(portal, each.lost)
        raise
    for each in handovers:
        # Calls are started in order, so it comes before the next call of this task.
        _tell(portal, each.taken)
    return answer


def _tell(portal: BlockingPortal, act: Callable[[], Awaitable[None] | None]) -> None:
    try:
        portal.start_task_soon(act)
    except RuntimeError:
        # The server has stopped. What it did not record as delivered it delivers after its next start.
        return


def callable_from_asyncio(kind: C) -> C:
    """Let the public coroutines of an `Embedded` class be awaited from asyncio too, and their streams be read there."""
    for name, function in list(vars(kind).items()):
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(function):
            setattr(kind, name, _coroutine(function))
        elif inspect.isasyncgenfunction(getattr(function, "__wrapped__", None)):
            setattr(kind, name, _stream(function))
    return kind


def _coroutine(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    @wraps(function)
    async def call(self: Embedded, *args: object, **kwargs: object) -> T:
        if self.portal is None or not is_asyncio():
            return await function(self, *args, **kwargs)
        return await run_in_server(self.portal, partial(function, self, *args, **kwargs))

    return call


def _stream(
    function: Callable[..., AbstractAsyncContextManager[AsyncIterator[T]]],
) -> Callable[..., AbstractAsyncContextManager[AsyncIterator[T]]]:
    @wraps(function)
    def opened(self: Embedded, *args: object, **kwargs: object) -> AbstractAsyncContextManager[AsyncIterator[T]]:
        stream = partial(function, self, *args, **kwargs)
        return stream() if self.portal is None or not is_asyncio() else _forwarded(self.portal, stream)

    return opened


@asynccontextmanager
async def _forwarded(
    portal: BlockingPortal, stream: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
) -> AsyncIterator[AsyncIterator[T]]:
    """Open a stream of the server, and pass its items on to asyncio. A reader that is far behind loses the newest."""
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[T | None] = asyncio.Queue()

    def put(item: T | None) -> None:
        if item is None or items.qsize() < _AHEAD:
            items.put_nowait(item)

    async def forward() -> None:
        try:
            async with stream() as source:
                loop.call_soon_threadsafe(opened.set)
                async for item in source:
                    loop.call_soon_threadsafe(put, item)
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(put, None)

    opened = asyncio.Event()
    ended = asyncio.ensure_future(asyncio.wrap_future(portal.start_task_soon(forward)))
    waiting = asyncio.ensure_future(opened.wait())
    try:
        await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await ended
        yield _until_none(items)
    finally:
        waiting.cancel()
        ended.cancel()
        await asyncio.wait((ended, waiting))


async def _until_none(items: asyncio.Queue[T | None]) -> AsyncIterator[T]:
    while (item := await items.get()) is not None:
        yield item


@asynccontextmanager
async def in_own_thread(
    opened: Callable[[BlockingPortal], AbstractAsyncContextManager[T]],
) -> AsyncIterator[T]:
    """Run a Trio event loop in a thread of its own, and in it what `opened` returns, while the `async with` block of an
    asyncio program runs. Raises what either raises; the thread has ended then."""
    entered = ExitStack()

    def enter() -> T:
        portal = entered.enter_context(start_blocking_portal("trio", name=THREAD))
        server = portal.wrap_async_context_manager(opened(portal))
        value = server.__enter__()
        # The server does not see an error of the block: it ends in order, and the error stays what it is.
        entered.callback(server.__exit__, None, None, None)
        return value

    try:
        yield await _in_worker(enter)
    finally:
        await _in_worker(entered.close)


async def _in_worker(work: Callable[[], T]) -> T:
    """Run work that blocks in a thread, and wait for its end also if the caller is cancelled meanwhile."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise
