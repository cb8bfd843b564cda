"""The agents' socket under a crowd: who has not shown the token holds little and gives way."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from intercom.agents import shim_connection
from intercom.app import App
from intercom.local.places import places
from intercom.local.server_socket import Admission, PlaceLimits
from intercom.model.config import Config, DatabaseSettings
from tests.agents.http.rig import until
from tests.operators.ctl_server import Peer

pytestmark = pytest.mark.real_time


@frozen
class Socket:
    """A server in this process, reached over its agents' socket."""

    app: App

    @property
    def admission(self) -> Admission:
        return self.app.shim_deps.admission

    async def dial(self) -> Peer:
        return Peer(await trio.open_unix_socket(self.app.places.mcp_socket))

    async def greet(self, **more: Any) -> tuple[Peer, dict[str, Any]]:
        peer = await self.dial()
        hello = {"wire": shim_connection.WIRE, "version": "0", "shim": "s" * 32, "token": self.app.token, **more}
        return peer, (await peer.send(json.dumps({"intercom": {"hello": hello}}).encode()))["intercom"]


@asynccontextmanager
async def served(root: Path, **limits: int) -> AsyncIterator[Socket]:
    (root / "ws").mkdir()
    config = Config(database=DatabaseSettings(path=root / "i.db"), default_workspace_root=root / "ws")
    where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root), "XDG_STATE_HOME": str(root / "state")})
    app = App(config, where, root / "i.db", frozenset({"shims"}))
    app.shim_deps.admission.limits = PlaceLimits(
        **{"unauthenticated": 3, "shared": 2, "reserved": 0, "watching": 1, "reserved_watching": 0, **limits}
    )
    async with app.system:
        yield Socket(app)


async def test_a_crowd_without_a_greeting_makes_room_for_a_shim(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        crowd = [await at.dial() for _ in range(20)]
        _, answer = await at.greet()
        assert "welcome" in answer
        for early in crowd[:17]:
            refused = await early.line()
            # It may come again.
            assert (refused["intercom"]["refused"]["code"], refused["intercom"]["refused"]["retry"]) == ("busy", True)
            assert await early.line() is None
        assert len(at.admission) <= at.admission.limits.total


async def test_shims_and_hooks_do_not_take_each_others_places(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        shims = [await at.greet(shim=str(number) * 32) for number in range(3)]
        assert ["welcome" in answer for _, answer in shims] == [True, True, False]
        assert shims[2][1]["refused"]["retry"] is True
        hooks = [await at.greet(role="hook") for _ in range(2)]
        assert ["welcome" in answer for _, answer in hooks] == [True, False]
        # A place that frees is taken.
        await shims[0][0].stream.aclose()

        async def is_let_in() -> bool:
            return "welcome" in (await at.greet(shim="f" * 32))[1]

        await until(is_let_in)


async def test_a_greeting_has_an_end_and_what_follows_it_may_be_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_connection, "LONGEST_HELLO", 100_000)
    async with served(tmp_path) as at:
        endless = await at.dial()
        try:
            await endless.stream.send_all(b"x" * 1_000_000)
        except trio.BrokenResourceError:
            pass  # it hung up in between
        assert await endless.line() is None
        peer, answer = await at.greet()
        assert "welcome" in answer
        long = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"x": "y" * 300_000}}}
        assert (await peer.send(json.dumps(long).encode()))["id"] == 1


async def test_a_socket_that_was_taken_away_is_there_again_for_shims(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        early, answer = await at.greet()
        assert "welcome" in answer
        shutil.rmtree(at.app.places.runtime_dir)

        async def is_there() -> bool:
            try:
                return "welcome" in (await at.greet(shim="f" * 32))[1]
            except OSError:
                return False

        await until(is_there)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await early.send(json.dumps(ping).encode()))["id"] == 1
