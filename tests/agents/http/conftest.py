"""A directory with a short name: sockets live below it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="http-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)
