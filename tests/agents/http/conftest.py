"""A server that serves HTTP, in a directory with a short name: sockets live below it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from tests.agents.http.rig import Place, place


@pytest.fixture
def root() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="http-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def at(root: Path) -> AsyncIterator[Place]:
    async with place(root) as made:
        # A server that gives up cancels the block it runs in, which is not to be the test runner's.
        with trio.CancelScope(shield=True):
            yield made
