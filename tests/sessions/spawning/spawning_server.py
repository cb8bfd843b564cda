"""The whole server in this process, in real time, with agents that are small Python programs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import trio
from attrs import define, evolve, field

from actors import Request, ask
from intercom.app import App
from intercom.local.places import places
from intercom.model.config import Config, SpawnSettings
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.session import Session
from intercom.operators.router_messages import Channel, Subscribe
from intercom.sessions.processes import monitor_client
from tests.support.database import new_database
from tests.support.virtual_server import Operator

R = TypeVar("R")
SECONDS = 40


@define
class SpawningHome:
    """`root` is a user's home with a workspace in it; servers come and go in it, and `now` is their clock."""

    root: Path
    config: Config
    environ: dict[str, str] = field(factory=dict)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    def agent(self, source: str) -> Config:
        """Let the agents be this program; its last argument is the prompt."""
        script = self.root / "agent.py"
        script.write_text(source)
        self.config = evolve(self.config, host_cli=sys.executable, host_cli_args=("-u", str(script)))
        return self.config

    def settings(self, **spawn: Any) -> None:
        self.config = evolve(self.config, spawn=evolve(self.config.spawn, **spawn))

    @asynccontextmanager
    async def serving(self, prepare: Callable[[App], object] = lambda app: None) -> AsyncIterator[SpawningServer]:
        """A server; `prepare` is called with its app before anything of it runs."""
        where = places(environ={"HOME": str(self.root), "XDG_RUNTIME_DIR": str(self.root)})
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.root), **self.environ}
        new_database(self.root / "intercom.db")
        app = App(self.config, where, self.root / "intercom.db", frozenset(), environ=environ, now=self.now)
        prepare(app)
        operator = Operator()
        async with app.system:
            app.system.adopt(operator, "operator")
            await ask(app.system.named("card_router"), Subscribe("operator", Channel.CTL))
            yield SpawningServer(self, app, operator)

    def end(self, code: str) -> None:
        """Write, all at once, the file that tells an agent to end with this code."""
        (self.workspace / "go.new").write_text(code)
        (self.workspace / "go.new").rename(self.workspace / "go")

    def written(self, name: str) -> str:
        """What an agent wrote into this file of the workspace; empty while there is none."""
        file = self.workspace / name
        return file.read_text() if file.exists() else ""

    def living(self, session_id: str) -> list[int]:
        """The processes that carry this session's id."""
        return [
            pid for pid in psutil.pids() if monitor_client.marked(pid) == session_id and monitor_client.identify(pid)
        ]


@define
class SpawningServer:
    home: SpawningHome
    app: App
    operator: Operator

    async def start(self, prompt: str = "go", **more: Any) -> Session:
        return await self.app.service.agent_processes.start(
            prompt, **{"by": "kim", "channel": "ctl", "workspace": str(self.home.workspace), **more}
        )

    async def ask(self, name: str, message: Request[R]) -> R:
        return await ask(self.app.system.named(name), message, timeout=30, retry=True)

    async def session(self, id: str) -> Session:
        (found,) = [each for each in await self.app.service.sessions(everything=True) if each.id == id]
        return found

    async def child(self, id: str) -> AgentProcess:
        return (await self.app.service.agent_processes.everyone())[id]

    async def until(self, true: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wait until this is true: the store, and other processes, tell nobody."""
        while not (found if isinstance(found := true(), bool) else await found):  # noqa: ASYNC110
            await trio.sleep(0.01)

    async def crash(self, label: str) -> None:
        """Let this actor crash, and wait for its next incarnation."""
        name = self.app.system.named(label)
        before = name.ref
        before._crash(RuntimeError("boom"))
        await self.app.system.next_incarnation(name, before)

    async def until_over(self, id: str) -> AgentProcess:
        """Wait until all is settled of this session's process."""
        while (child := await self.child(id)).state is not AgentProcessState.OVER:  # noqa: ASYNC110
            await trio.sleep(0.01)
        return child

    async def until_written(self, name: str) -> str:
        await self.until(lambda: bool(self.home.written(name)))
        return self.home.written(name)


@pytest.fixture(name="at")
def home() -> Iterator[SpawningHome]:
    """A home of its own with a short name; what still runs in it ends with this."""
    root = Path(tempfile.mkdtemp(prefix="home-", dir="/tmp"))
    (root / "ws").mkdir()
    made = SpawningHome(root, Config(spawn=SpawnSettings()))
    try:
        yield made
    finally:
        for pid in psutil.pids():
            try:
                process = psutil.Process(pid)
                belongs = str(root) in " ".join(process.cmdline()) or process.environ().get(
                    "INTERCOM_WORKSPACE_ROOT"
                ) == str(made.workspace)
                if belongs and pid != os.getpid():
                    process.kill()
            except psutil.Error:
                continue
        shutil.rmtree(root, ignore_errors=True)
