"""Superseded by `tests.support.async_tests`: an async test needs no decorator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.async_tests import bounded


def trio_test(
    test: Callable[..., Awaitable[None]] | None = None, *, real_time: bool = False, seconds: float = 60
) -> Callable[..., Any]:
    def decorate(each: Callable[..., Awaitable[None]]) -> Callable[..., Any]:
        if "<locals>" in each.__qualname__:
            clock = None if real_time else trio.testing.MockClock(autojump_threshold=0)
            return lambda: trio.run(bounded(each, seconds), clock=clock)
        return pytest.mark.real_time(seconds=seconds)(each) if real_time else each

    return decorate if test is None else decorate(test)
