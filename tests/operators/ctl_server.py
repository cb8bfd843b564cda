"""Router and local socket running over a stand-in service, for tests that speak to them as ctl does."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from actors import ChildSpec, System
from actors.events import Event
from intercom.local.places import DEFAULT_IPC_NAME, Places, places
from intercom.model.card import Card
from intercom.model.session import SessionMode
from intercom.operators.card_router import CardRouter
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.ctl.listener import CtlListener
from tests.operators.answers import check_command
from tests.operators.stand_in_service import StandInService


@frozen
class CtlServer:
    system: System
    service: StandInService
    places: Places

    @property
    def environ(self) -> dict[str, str]:
        """An environment in which ctl finds this server."""
        return environ(Path(self.places.runtime_dir).parent)

    def tell(self, shown: Any) -> None:
        """Tell the router what a session would."""
        self.system.named("card_router").tell(shown)

    async def dial(self) -> Peer:
        return Peer(await trio.open_unix_socket(self.places.ctl_socket), self.token)

    @property
    def token(self) -> str:
        return Path(self.places.token_file).read_text().strip()


class Peer:
    """A connection that speaks raw lines, as a good or bad client would."""

    def __init__(self, stream: trio.SocketStream, token: str | None = None) -> None:
        self.stream = stream
        self.token = token
        self._buffer = b""

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        reply = await self.send(json.dumps({"command": command, "auth_token": self.token, **fields}).encode())
        if reply.get("ok") and command in COMMANDS:
            check_command(command, reply["data"])
        return reply

    async def send(self, line: bytes) -> dict[str, Any]:
        await self.stream.send_all(line + b"\n")
        reply = await self.line()
        assert reply is not None, "the server hung up"
        return reply

    async def line(self) -> dict[str, Any] | None:
        """The next line; None at the end."""
        while b"\n" not in self._buffer:
            try:
                chunk = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return None
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        value = json.loads(line)
        assert isinstance(value, dict)
        return value


def environ(directory: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(directory), "XDG_RUNTIME_DIR": str(directory), "LANG": "C.UTF-8"}


@contextlib.asynccontextmanager
async def ctl_server(
    directory: Path,
    service: StandInService | None = None,
    *,
    on_event: Callable[[Event], object] | None = None,
    ipc_name: str = DEFAULT_IPC_NAME,
    **options: Any,
) -> AsyncIterator[CtlServer]:
    """A server at `directory` with this service; `options` go to the listener. Everybody may act, unless they say who
    is an agent."""
    service = service or StandInService()
    options.setdefault("trust_agent_processes", "agents" not in options)
    where = places(ipc_name, environ(directory))

    async def open_cards() -> Sequence[Card]:
        return await service.pending()

    async def mode_of(session_id: str) -> SessionMode | None:
        found = service.all_sessions.get(session_id)
        return None if found is None else found.mode

    children = [
        ChildSpec("card_router", lambda: CardRouter(open_cards, mode_of)),
        ChildSpec("ctl", lambda: CtlListener(service, where.ctl_socket, where.token_file, **options)),
    ]
    async with System(children, on_event=on_event) as system:
        yield CtlServer(system, service, where)
