"""A whole server whose database is taken away or spoilt: what waits goes on, or the server ends and says so."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from actors import Actor, ChildSpec, DownEvent
from intercom.app import App
from intercom.cli.doctor import _database
from intercom.embedding import Switchboard
from intercom.local.places import places
from intercom.model.card import Notice
from intercom.model.config import Config, DatabaseSettings
from intercom.operators.card_router import Subscribed, subscribe
from intercom.operators.router_messages import Channel
from tests.agents.http.rig import until

pytestmark = pytest.mark.real_time


def app(root: Path) -> App:
    (root / "ws").mkdir(exist_ok=True)
    config = Config(database=DatabaseSettings(path=root / "intercom.db"), default_workspace_root=root / "ws")
    where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root), "XDG_STATE_HOME": str(root / "state")})
    return App(config, where, root / "intercom.db", frozenset())


class Listener(Actor):
    """A channel that keeps the notices it is told. Like every channel it subscribes again when the router crashed:
    the router reads the database, which is away for a moment here."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def on_start(self) -> None:
        self.spawn(self._subscribe)

    async def _subscribe(self) -> None:
        self.actor_ref.tell(await subscribe(self.system, "card_router", "listener", Channel.CTL))

    def on_receive(self, message: Any) -> None:
        match message:
            case Notice():
                self._told.append(message.text)
            case Subscribed():
                self.monitor(message.router)
            case DownEvent():
                self.spawn(self._subscribe)


class Heard(App):
    """A server with one more channel."""

    def tree(self) -> Any:
        self.told: list[str] = []
        return [*super().tree(), ChildSpec("listener", lambda: Listener(self.told))]


def heard(root: Path) -> Heard:
    made = app(root)
    return Heard(made.config, made.places, made.database, made.sockets)


async def test_a_request_outlives_the_removal_of_the_database(tmp_path: Path) -> None:
    server = heard(tmp_path)
    complaints: list[str] = []
    server.complain = complaints.append
    async with server.system, trio.open_nursery() as nursery:
        board = Switchboard(server, str(tmp_path / "ws"))
        agent = board.agent("one")
        answers: list[Any] = []

        async def propose() -> None:
            answers.append(await agent.check_clearance("t", "x\n", "f.txt"))

        nursery.start_soon(propose)

        async def waits() -> bool:
            return bool(await board.service.pending())

        await until(waits)
        for suffix in ("", "-wal", "-shm"):
            # It may be noticed in between: then the rest is moved aside by now.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{server.database}{suffix}")
        # Noticed without anybody asking for anything.
        await until(lambda: any("was restored completely" in text for text in server.told))
        await until(lambda: bool(complaints))
        [card] = await board.service.pending()
        await board.operator("ann").approve(card.id)
        await until(lambda: bool(answers))
        assert answers[0].answer.status == "approved"
        nursery.cancel_scope.cancel()
    assert server.failure is None


async def test_a_server_whose_database_is_spoilt_ends_and_the_next_one_tells(tmp_path: Path) -> None:
    server = heard(tmp_path)
    async with server.system:
        await Switchboard(server, str(tmp_path / "ws")).agent("one").ping("at work")
        os.truncate(server.database, 0)
        await trio.sleep_forever()
    assert server.failure is not None
    assert "the server ends" in server.failure
    finding = _database(server.database)
    assert "will be created" in finding.text or "moved aside" in finding.text
    after = heard(tmp_path)
    async with after.system:
        await until(lambda: any("was cut from" in text for text in after.told))
    assert "moved aside" in _database(server.database).text
