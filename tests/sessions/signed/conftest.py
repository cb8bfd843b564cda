"""Here the server's operator has a key, and has signed the settings."""

from __future__ import annotations

import pytest

from tests.sessions.signed.keyed_server import arm
from tests.support.keys import Key
from tests.support.virtual_server import VirtualServer


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
async def server(server: VirtualServer, key: Key) -> VirtualServer:
    await arm(server, key)
    return server
