"""An agent inside this program: the nine tools as typed calls."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
from attrs import evolve, frozen

from actors import Request
from intercom.agents.call import Call
from intercom.agents.door import Caller, Door
from intercom.agents.tools import BY_NAME, inputs
from intercom.agents.tools.permission import PERMISSION_PROMPT, decided
from intercom.agents.tools.reporting import apply
from intercom.app import App
from intercom.model.approval import RiskLevel
from intercom.model.errors import IntercomError
from intercom.model.measure import ToolCalled
from intercom.model.operation import Operation
from intercom.model.prompt import PromptType
from intercom.model.session import ProgressItem, SessionMode
from intercom.model.steering import Kind
from intercom.sessions import messages
from intercom.sessions.answers import (
    ApplyAnswer,
    BroadcastAnswer,
    CheckAnswer,
    ClearanceAnswer,
    ModeAnswer,
    PermissionAnswer,
    PingAnswer,
    PromptAnswer,
    RebootAnswer,
    StandbyAnswer,
    Task,
)
from intercom.sessions.messages import Answered, Opened
from intercom.sessions.permission_messages import AskPermission

A = TypeVar("A")


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

    async def check_clearance(
        self,
        title: str | None = None,
        diff: str | None = None,
        file_path: str | None = None,
        *,
        description: str | None = None,
        risk_level: RiskLevel = RiskLevel.LOW,
        request_id: str | None = None,
        content: str | None = None,
    ) -> Answered[ClearanceAnswer]:
        """Ask a person to approve a change, and wait for the decision. The change is a `diff`, or the whole new
        `content` of the file, taken literally."""
        async with self._call("check_clearance") as call:
            asked = messages.Propose(call.name, title, diff, file_path, description, risk_level, request_id, content)
            return await self._wait(call, await call.ask(asked), messages.AwaitClearance)

    async def check_diff(self, request_id: str, *, force: bool = False) -> Answered[ApplyAnswer]:
        """Write an approved change. With `force`, a person decides about a file that has changed since. `status` is
        then "applied", "rejected" or "timeout"."""
        async with self._call("check_diff") as call:
            answered = await apply(call, request_id, force=force)
            return await self._done(call, answered, answered.answer.request_id)

    async def auto_check(
        self,
        tool_name: str,
        *,
        file_path: str | None = None,
        risk_level: RiskLevel = RiskLevel.LOW,
        operation: inputs.Operation = inputs.Operation.WRITE,
        args: str | tuple[str, ...] | None = None,
    ) -> Answered[CheckAnswer]:
        """Ask the workspace's policy."""
        async with self._call("auto_check") as call:
            asked = messages.CheckPolicy(call.name, tool_name, file_path, risk_level, operation.value, args)
            return await self._done(call, await call.ask(asked))

    async def ask_permission(self, operation: Operation) -> Answered[PermissionAnswer]:
        """Ask permission for an operation of this program, as a client's permission hook does, and wait for the
        decision. `status` is "allowed" (once), "denied" or "timeout"."""
        async with self._call(PERMISSION_PROMPT.name) as call:
            answer = await decided(call, AskPermission(call.name, "embed", operation, "embed"))
            own = answer.request_id if answer.status != "allowed" else None
            return await self._done(call, Answered(answer), own)

    async def before_stopping(self) -> Answered[None]:
        """Return pending decisions and instructions before the agent stops, as a client's stop hook does. If there are
        none, the agent counts as stopped until its next call."""
        async with self._call("ping") as call:
            return await self._done(call, await call.ask(messages.TakeWords(call.name)))

    async def transmit(
        self,
        prompt_text: str | None = None,
        *,
        prompt_type: PromptType = PromptType.CONTINUATION,
        elapsed_seconds: int | None = None,
        actions_taken: int | None = None,
        request_id: str | None = None,
    ) -> Answered[PromptAnswer]:
        """Ask the operator how to continue, and wait for the answer."""
        async with self._call("transmit") as call:
            asked = messages.AskPrompt(call.name, prompt_text, prompt_type, elapsed_seconds, actions_taken, request_id)
            return await self._wait(call, await call.ask(asked), messages.AwaitPrompt)

    async def standby(
        self,
        message: str = "Agent is idle and awaiting instructions.",
        *,
        timeout_seconds: int = 0,
        request_id: str | None = None,
    ) -> Answered[StandbyAnswer]:
        """Wait for an instruction. `timeout_seconds` 0 means the configured time."""
        async with self._call("standby") as call:
            asked = messages.StandBy(call.name, message, timeout_seconds, request_id)
            return await self._wait(call, await call.ask(asked), messages.AwaitStandby)

    async def broadcast(
        self, message: str, *, level: inputs.Level = inputs.Level.INFO, thread_ts: str | None = None
    ) -> Answered[BroadcastAnswer]:
        """Send the operator one line."""
        async with self._call("broadcast") as call:
            return await self._done(
                call, await call.ask(messages.Broadcast(call.name, message, level.value, thread_ts))
            )

    async def reboot(self, session_id: str | None = None) -> Answered[RebootAnswer]:
        """Recover what an earlier agent left open in this workspace, and the tasks that people queued for it."""
        async with self._call("reboot", inputs.Reboot(session_id)) as call:
            answered = await self._done(call, await call.ask(messages.Recall(call.name, call.adopted)))
            words = answered.instructions
            tasks = tuple(Task(word.id, word.text, word.by, word.at) for word in words if word.kind == Kind.TASK)
            others = tuple(word for word in words if word.kind != Kind.TASK)
            return evolve(answered, answer=evolve(answered.answer, tasks=tasks), instructions=others)

    async def switch_freq(self, mode: SessionMode) -> Answered[ModeAnswer]:
        """Change the notification mode."""
        async with self._call("switch_freq") as call:
            asked = messages.SwitchMode(call.name, mode, self.name, "embed", from_agent=True)
            return await self._done(call, await call.ask(asked))

    async def ping(
        self, status_message: str | None = None, *, progress_snapshot: Iterable[ProgressItem] | None = None
    ) -> Answered[PingAnswer]:
        """Report that the agent is alive."""
        async with self._call("ping") as call:
            items = None if progress_snapshot is None else tuple(progress_snapshot)
            return await self._done(call, await call.ask(messages.Beat(call.name, status_message, items)))

    @asynccontextmanager
    async def _call(self, tool: str, given: Any = None) -> AsyncIterator[Call]:
        door = self._door()
        began, outcome = time.monotonic(), "cancelled"
        try:
            call = await door.open_call(BY_NAME.get(tool, PERMISSION_PROMPT), given, _caller(self.name, door.key))
            try:
                yield call
            except BaseException:
                # No result reaches the program, so the pending deliveries stay pending.
                door.deliveries.abandon(call.name, call.session_id)
                raise
            outcome = "ok"
        except IntercomError as refused:
            outcome = refused.error_code
            raise
        finally:
            self.app.measured(ToolCalled(tool, outcome, time.monotonic() - began))

    async def _wait(self, call: Call, opened: Opened[A], awaiting: type[Any]) -> Answered[A]:
        if opened.answered is not None:
            return await self._done(call, opened.answered, opened.request_id)
        question: Request[Answered[A]] = awaiting(call.name, opened.request_id, call.ticket)
        answered = await call.wait(question, opened.request_id)
        assert answered is not None, "an embedded agent's patience has no end"
        return await self._done(call, answered, opened.request_id)

    async def _done(self, call: Call, answered: Answered[A], own: str | None = None) -> Answered[A]:
        """Finish the call. Its result counts as delivered because the program gets it as the return value."""
        call.finish(answered, own)
        door = self._door()
        door.close_call(call)
        with trio.CancelScope(shield=True):
            # From here on the program gets its answer, even if it cancels the call.
            await door.deliveries.reached(call.name)
        return answered

    def _door(self) -> Door:
        key = f"embed:{self.name}:{self.workspace or ''}"
        of = key if self.session_id is None else f"{key}:{self.session_id}"
        app, session_id = self.app, self.session_id
        return app.embedded_doors.setdefault(
            of, Door(app.system, app.config, app.presence, key, self.workspace, None, session_id=session_id)
        )


def _caller(name: str, key: str) -> Caller:
    async def no_roots() -> list[str]:
        return []

    return Caller(f"agent-intercom/{name}", None, f"{key}/{uuid.uuid4()}", no_roots, None)
