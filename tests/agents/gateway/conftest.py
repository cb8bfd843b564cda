"""A server with a gateway before two scripted downstreams, for all tests of a module."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from tests.agents.gateway.raw_agent import OLD, WAYS, RawAgent, Way, raw_agent
from tests.support.server_process import TRUSTING, Home, user_home

PROGRAM = Path(__file__).with_name("scripted_downstream.py")
CONFIG = f"http_port = 0\n{TRUSTING}\n[gateway]\nenabled = true\n"
TOKEN = "the-token-of-the-ci-agent-9f31c7"
#: Tools of the downstreams that change nothing.
READ_ONLY = ["echo", "big", "seen", "wait_for", "hang_*"]
ROLES: dict[str, Any] = {
    "roles": [
        {"role": "all", "capabilities": ["*.*"]},
        {"role": "reader", "capabilities": ["old.*"], "deny": ["old.write"]},
        {"role": "nothing", "capabilities": []},
        {"role": "asker", "capabilities": ["*.*"], "ask": ["*.write", "*.ask"]},
        {"role": "ci", "capabilities": ["new.echo"]},
    ],
    "assignments": [
        {"role": "reader", "client": "reader*"},
        {"role": "nothing", "client": "nobody"},
        {"role": "asker", "client": "asker*"},
        {"role": "ci", "token": hashlib.sha256(TOKEN.encode()).hexdigest()},
    ],
    "defaultRole": "all",
}


@frozen
class GatewayHome:
    """A user's directories with a gateway, in which a server runs."""

    home: Home

    @property
    def directory(self) -> Path:
        return Path(self.home.places.gateway_directory)

    def written(self, downstream: str) -> list[str]:
        """What the downstream's `write` and `hang` have noted, over all of its processes."""
        file = self.home.root / f"{downstream}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def configure(self, name: str, generation: str, **more: Any) -> None:
        """Write the file of a downstream."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.home.root / f"{name}.calls"
        settings = {
            "name": name,
            "transport": "stdio",
            "command": sys.executable,
            "args": ["-I", "-S", str(PROGRAM), name, generation, str(file)],
            "capabilities": [f"{name}.*"],
            "readOnly": READ_ONLY,
            "roots": True,
            "schemaVersion": "1.0.0",
            **more,
        }
        (self.directory / f"{name}.json").write_text(json.dumps(settings))

    def give_roles(self, roles: dict[str, Any] = ROLES) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "roles.json").write_text(json.dumps(roles))

    def agent(self, way: Way, **options: Any) -> AbstractAsyncContextManager[RawAgent]:
        """An agent in a workspace of its own."""
        return raw_agent(self.home, way, options.pop("workspace", None) or self.home.workspace(), **options)


@contextmanager
def gateway_home(*, config: str = CONFIG, roles: dict[str, Any] = ROLES) -> Iterator[GatewayHome]:
    """A user's directories with two downstreams, `old` and `new`. No server runs yet."""
    with user_home(config) as home:
        made = GatewayHome(home)
        made.configure("old", "old")
        made.configure("new", "new")
        made.give_roles(roles)
        yield made


async def ready(served: GatewayHome, *tools: str) -> None:
    """Wait until these tools are listed: by default, until both downstreams are connected."""
    wanted = {*(tools or ("old__echo", "new__echo"))}
    with trio.fail_after(120):
        async with served.agent(Way("stdio", OLD)) as agent:
            while not wanted <= {*await agent.names()}:
                await agent.heard_again("notifications/tools/list_changed")


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayHome]:
    """The same for all tests of a module, with a server whose downstreams are connected."""
    with gateway_home() as made, made.home.serving():
        trio.run(ready, made)
        yield made


@pytest.fixture(params=WAYS, ids=str)
async def agent(gateway: GatewayHome, request: pytest.FixtureRequest) -> AsyncIterator[RawAgent]:
    """An agent over each transport, in each protocol version."""
    async with gateway.agent(request.param) as connected:
        # What fails in its tasks must not cancel the runner that waits in it.
        with trio.CancelScope(shield=True):
            yield connected


@pytest.fixture(params=("old", "new"))
def downstream(request: pytest.FixtureRequest) -> str:
    """The downstream of each generation."""
    name: str = request.param
    return name


@pytest.fixture
async def nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks end with the test."""
    async with trio.open_nursery() as made:
        with trio.CancelScope(shield=True):
            yield made
        made.cancel_scope.cancel()
