"""A server of its own for each module: `home` trusts nothing, `served` trusts agents' processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server_process import TRUSTING, Home, user_home


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    # The configuration of everybody who writes none.
    with user_home("") as made, made.serving():
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[Home]:
    with user_home(TRUSTING) as made, made.serving():
        yield made
