r"""Intercom inside another program: the same server, with typed calls for agents and operators.

In Trio:

    async with intercom.open(workspace="/srv/project") as switchboard:
        agent = switchboard.agent("release-bot")
        answer = await agent.check_clearance("Bump the version", "1.2.3\n", "VERSION")

Synchronous code uses the same objects, and makes each call through `run`:

    with intercom.start(workspace="/srv/project") as switchboard:
        agent = switchboard.agent("release-bot")
        answer = switchboard.run(agent.ping, "starting")

People answer from `agent-intercom-ctl`. The program itself can answer through `switchboard.operator("ann")`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import trio
from attrs import evolve, field, frozen

from intercom._version import __version__
from intercom.app import App
from intercom.embedded_agent import EmbeddedAgent
from intercom.embedded_operator import EmbeddedOperator
from intercom.local import config_file, lock
from intercom.local.places import places, private_directory
from intercom.model.config import Config
from intercom.sessions.operator_service import OperatorService

if TYPE_CHECKING:
    from intercom.operators.slack.setup import SlackSetup

P = ParamSpec("P")
R = TypeVar("R")


@frozen
class Switchboard:
    """A running server. `service` is the service behind the operators' channels; `agent` and `operator` are simpler."""

    app: App = field(repr=False)
    workspace: str | None = None

    @property
    def service(self) -> OperatorService:
        return self.app.service

    def agent(self, name: str, workspace: str | None = None, *, session_id: str | None = None) -> EmbeddedAgent:
        """Return the agent of this name. Calls of one name and workspace share a session, also after a restart.
        `session_id` names a session that a person started or restored; the agent's calls then belong to it."""
        return EmbeddedAgent(self.app, name, workspace or self.workspace, session_id)

    def operator(self, name: str) -> EmbeddedOperator:
        """Return the person of this name, who answers through this program."""
        return EmbeddedOperator(self.app, name)


@frozen
class SyncSwitchboard(Switchboard):
    """A `Switchboard` for a program without an event loop."""

    token: trio.lowlevel.TrioToken = field(kw_only=True, repr=False)

    def run(self, call: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make one call of an agent, an operator or `service`, and wait for its result. Raises what the call raises. It
        may be used from any thread."""
        return trio.from_thread.run(partial(call, *args, **kwargs), trio_token=self.token)


@asynccontextmanager
async def open(
    config: Config | Path | str | None = None,
    *,
    workspace: str | None = None,
    ctl: bool = True,
    slack: SlackSetup | None = None,
) -> AsyncIterator[Switchboard]:
    """Run Intercom in this Trio program while the `async with` block runs.

    `config` is a configuration or the path of one; the default is `Config()`, not the user's own file. `workspace` is
    the default for agents. With `ctl`, people can answer from agent-intercom-ctl. When the block ends, open requests
    stay pending.

    `slack` connects the server to Slack, where people can answer too. `intercom.operators.slack.setup.settle(config,
    os.environ)` makes one from keychain and environment, as a server does.

    Raises ConfigError for an unusable configuration, and DatabaseError if another server has the database.
    """
    settled = config_file.load(Path(config)) if isinstance(config, Path | str) else config or Config()
    where = places(settled.ipc_name)
    database = config_file.database_path(settled, where)
    if not database.parent.is_dir():
        private_directory(str(database.parent))
    with lock.acquire(database, version=__version__) as held:
        app = App(evolve(settled), where, database, frozenset({"ctl"}) if ctl else frozenset(), slack=slack)
        app.renew_lock = held.renew
        async with app.system:
            yield Switchboard(app, workspace)


@contextmanager
def start(
    config: Config | Path | str | None = None,
    *,
    workspace: str | None = None,
    ctl: bool = True,
    slack: SlackSetup | None = None,
) -> Iterator[SyncSwitchboard]:
    """Run Intercom in its own thread while the `with` block runs; otherwise as `open`."""
    opened: queue.SimpleQueue[SyncSwitchboard | BaseException] = queue.SimpleQueue()
    done = trio.Event()

    async def main() -> None:
        async with open(config, workspace=workspace, ctl=ctl, slack=slack) as switchboard:
            token = trio.lowlevel.current_trio_token()
            opened.put(SyncSwitchboard(switchboard.app, workspace, token=token))
            await done.wait()

    def work() -> None:
        try:
            trio.run(main)
        except BaseException as failed:
            opened.put(failed)

    thread = threading.Thread(target=work, name="intercom")
    thread.start()
    switchboard = opened.get()
    if isinstance(switchboard, BaseException):
        thread.join()
        raise switchboard
    try:
        yield switchboard
    finally:
        try:
            switchboard.token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            # The server ended by itself; its error is raised below.
            pass
        thread.join()
        if not opened.empty():
            failed = opened.get()
            if isinstance(failed, BaseException):
                raise failed
