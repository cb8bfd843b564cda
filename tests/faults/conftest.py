"""A server of its own for each module: `house` trusts nothing, `served` trusts agents' processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.live import TRUSTING, Home, home


@pytest.fixture(scope="module")
def house() -> Iterator[Home]:
    # The configuration of everybody who writes none.
    with home("") as made, made.serving():
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[Home]:
    with home(TRUSTING) as made, made.serving():
        yield made
