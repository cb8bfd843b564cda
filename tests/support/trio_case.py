"""Run an async test under Trio, in virtual time unless it says otherwise."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing


def trio_test(
    test: Callable[..., Awaitable[None]] | None = None, *, real_time: bool = False, seconds: float = 60
) -> Callable[..., Any]:
    """Turn an async test function into one pytest can call.

    The clock jumps to the next deadline whenever every task waits, so a test that waits an hour takes no time. Tests
    whose waits end outside Trio (threads, sockets, processes) ask for `real_time`. Either way `seconds` of that clock
    is the longest a test may take, for real time only: a virtual clock would jump straight to it.
    """
    if test is None:
        return functools.partial(trio_test, real_time=real_time, seconds=seconds)

    async def bounded(*args: Any, **kwargs: Any) -> None:
        if not real_time:
            await test(*args, **kwargs)
            return
        with trio.fail_after(seconds):
            await test(*args, **kwargs)

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        clock = None if real_time else trio.testing.MockClock(autojump_threshold=0)
        trio.run(functools.partial(bounded, *args, **kwargs), clock=clock)

    return run
