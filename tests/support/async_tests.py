"""How async tests run: on Trio by anyio's pytest plugin, in virtual time unless they say otherwise.

The clock jumps to the next deadline whenever every task waits, so a test that waits an hour takes no time. A test whose
waits end outside Trio (threads, sockets, processes) is marked `real_time`; one that takes the fixture `clock`, or a
fixture that does, moves the time itself. Whichever time it is, a test has a deadline in real seconds, and what fails in
it is raised as itself, not as the groups that it came in.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
import trio
import trio.testing

#: Real seconds that an async test may take unless its mark `real_time` says otherwise. Nothing is measured by it: a
#: busy machine takes several times what an idle one does.
SECONDS = 180


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Time that stands still until the test moves it."""
    return trio.testing.MockClock()


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    if "clock" in request.fixturenames:
        return "trio", {"clock": request.getfixturevalue("clock")}
    if request.node.get_closest_marker("real_time"):
        return "trio", {}
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Give every async test its deadline."""
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        mark = pyfuncitem.get_closest_marker("real_time")
        pyfuncitem.obj = bounded(pyfuncitem.obj, SECONDS if mark is None else mark.kwargs.get("seconds", SECONDS))
    return (yield)


def bounded(test: Callable[..., Awaitable[None]], seconds: float = SECONDS) -> Callable[..., Awaitable[None]]:
    """The same test, cancelled and failed if it takes longer than so many real seconds."""

    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        with trio.CancelScope() as scope:
            watch = threading.Timer(seconds, trio.lowlevel.current_trio_token().run_sync_soon, [scope.cancel])
            watch.start()
            try:
                await test(*args, **kwargs)
            except BaseExceptionGroup as group:
                only: BaseException = group
                while isinstance(only, BaseExceptionGroup) and len(only.exceptions) == 1:
                    only = only.exceptions[0]
                raise only from None
            finally:
                watch.cancel()
        assert not scope.cancelled_caught, f"what was waited for did not come within {seconds:g} s"

    return run
