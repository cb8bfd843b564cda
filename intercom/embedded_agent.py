"""An agent inside this program: the nine tools as typed calls."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import trio
from attrs import frozen

from intercom.agents.call import Call
from intercom.agents.connection import AgentConnection, Caller
from intercom.agents.hook_server import PERMISSION_PROMPT
from intercom.app import App
from intercom.model.errors import IntercomError
from intercom.model.metrics import ToolCalled
from intercom.model.request import Operation, RiskLevel
from intercom.model.session import SessionMode
from intercom.sessions.kinds import PermissionAnswer
from intercom.sessions.messages import Answered, AskPermission, Opened, TakeWords, ToolRequest
from intercom.sessions.tools import ping
from intercom.sessions.tools.auto_check import AutoCheck, CheckAnswer, CheckContext, FileAccess
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.switch_freq import ModeAnswer, SwitchFreq
from intercom.sessions.tools.table import TOOLS
from intercom.sessions.tools.tool import Tool
from intercom.sessions.tools.transmit import Transmit

A = TypeVar("A")
P = ParamSpec("P")
Typed = Callable[Concatenate["EmbeddedAgent", P], Coroutine[Any, Any, Answered[A]]]

_BY_CLASS: dict[type[Any], Tool] = {tool.takes: tool for tool in TOOLS}


@overload
def _typed(takes: Callable[P, ToolRequest[Opened[A]]]) -> Typed[P, A]: ...
@overload
def _typed(takes: Callable[P, ToolRequest[Answered[A]]]) -> Typed[P, A]: ...
def _typed(takes: Any) -> Any:
    """Return the method that calls a tool: its arguments are the fields of the tool's own class."""

    async def call(self: EmbeddedAgent, *args: Any, **kwargs: Any) -> Answered[Any]:
        return await self.call(takes(*args, **kwargs))

    call.__name__, call.__doc__ = _BY_CLASS[takes].name, _BY_CLASS[takes].description
    return call


@frozen
class EmbeddedAgent:
    """The agent `name` in one `workspace`; all its calls share a session.

    Each call returns `Answered`: the `answer`, and what is attached to it (`late_verdicts`, `instructions`). Waiting
    calls have no time limit; nor has any call while the session is paused. Cancel a call to stop waiting: the request
    stays open. All raise `IntercomError` kinds, as documented for the tools. `session_id` names the session that a
    person started or restored for this agent.
    """

    app: App
    name: str
    workspace: str | None
    session_id: str | None = None

    check_clearance = _typed(CheckClearance)
    check_diff = _typed(CheckDiff)
    transmit = _typed(Transmit)
    standby = _typed(Standby)
    broadcast = _typed(Broadcast)
    reboot = _typed(Reboot)
    ping = _typed(Ping)

    @overload
    async def call(self, given: ToolRequest[Opened[A]]) -> Answered[A]: ...
    @overload
    async def call(self, given: ToolRequest[Answered[A]]) -> Answered[A]: ...
    async def call(self, given: Any) -> Answered[Any]:
        """Call the tool with these arguments, a value of the tool's own class."""
        async with self._call(_BY_CLASS[type(given)], given) as call:
            return await self._done(call, await call.run())

    async def auto_check(
        self,
        tool_name: str,
        *,
        file_path: str | None = None,
        risk_level: RiskLevel = RiskLevel.LOW,
        operation: FileAccess = FileAccess.WRITE,
        args: str | tuple[str, ...] | None = None,
    ) -> Answered[CheckAnswer]:
        """Ask the workspace's policy."""
        return await self.call(AutoCheck(tool_name, CheckContext(file_path, risk_level, operation, args)))

    async def switch_freq(self, mode: SessionMode) -> Answered[ModeAnswer]:
        """Change the notification mode."""
        return await self.call(SwitchFreq(mode, by=self.name, channel="embed"))

    async def ask_permission(self, operation: Operation) -> Answered[PermissionAnswer]:
        """Ask permission for an operation of this program, as a client's permission hook does, and wait for the
        decision. `status` is "allowed" (once), "denied" or "timeout"."""
        async with self._call(PERMISSION_PROMPT) as call:
            answer = await call.permission(AskPermission(call.name, "embed", operation, "embed"))
            own = answer.request_id if answer.status != "allowed" else None
            return await self._done(call, call.finish(Answered(answer), own))

    async def before_stopping(self) -> Answered[None]:
        """Return pending decisions and instructions before the agent stops, as a client's stop hook does. If there are
        none, the agent counts as stopped until its next call."""
        async with self._call(ping.TOOL) as call:
            return await self._done(call, call.finish(await call.ask(TakeWords(call.name))))

    @asynccontextmanager
    async def _call(self, tool: Tool, given: Any = None) -> AsyncIterator[Call]:
        connection = self._connection()
        began, outcome = time.monotonic(), "cancelled"
        try:
            call = await connection.open_call(tool, given, _caller(self.name, connection.key))
            try:
                yield call
            except BaseException:
                # No result reaches the program, so the pending deliveries stay pending.
                connection.deliveries.abandon(call.name, call.session_id)
                raise
            outcome = "ok"
        except IntercomError as refused:
            outcome = refused.error_code
            raise
        finally:
            self.app.measured(ToolCalled(tool.name, outcome, time.monotonic() - began))

    async def _done(self, call: Call, answered: Answered[A]) -> Answered[A]:
        """Finish the call. Its result counts as delivered because the program gets it as the return value."""
        connection = self._connection()
        connection.close_call(call)
        with trio.CancelScope(shield=True):
            # From here on the program gets its answer, even if it cancels the call.
            await connection.deliveries.reached(call.name)
        return answered

    def _connection(self) -> AgentConnection:
        key = f"embed:{self.name}:{self.workspace or ''}"
        of = key if self.session_id is None else f"{key}:{self.session_id}"
        app, session_id = self.app, self.session_id
        return app.embedded_connections.setdefault(
            of, AgentConnection(app.system, app.config, app.presence, key, self.workspace, None, session_id=session_id)
        )


def _caller(name: str, key: str) -> Caller:
    async def no_roots() -> list[str]:
        return []

    return Caller(f"agent-intercom/{name}", None, f"{key}/{uuid.uuid4()}", no_roots, None)
