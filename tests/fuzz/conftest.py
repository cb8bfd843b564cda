"""One server for most of what is done here: what one test leaves behind, the next has to live with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.rig import Rig, rig, sound


@pytest.fixture(scope="session")
def shared() -> Iterator[Rig]:
    with rig() as made:
        yield made


@pytest.fixture(scope="module")
def on(shared: Rig) -> Iterator[Rig]:
    """The shared server; it is as well after each module as it was before."""
    yield shared
    sound(shared)
