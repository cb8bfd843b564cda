"""A tool call on its way: who makes it, and how it is answered in the SDK's types.

It uses only the API of OpenTelemetry. If no program has set up the OpenTelemetry SDK, there are no spans, and this
costs one check.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
import outcome
import trio
from attrs import define, evolve, field, frozen
from opentelemetry.trace import get_current_span

from actors import Busy, Down, Name, NotRunning, Request, ask
from intercom.masking import Masker
from intercom.model.errors import IntercomError, Paused
from intercom.model.json_types import JsonObject
from intercom.sessions.messages import (
    Answered,
    AskPermission,
    AwaitDecision,
    AwaitTask,
    AwaitUnpaused,
    Delivery,
    Detach,
    RecordedRequest,
    Undeliver,
    Withdraw,
)
from intercom.sessions.request_kinds import PAUSED, LateVerdict, PermissionAnswer, to_json
from intercom.sessions.tools.tool import AfterDecision, Tool
from intercom.store.store_and_reader import StoreUnavailable

SESSION_ID = "intercom.session_id"
REQUEST_ID = "intercom.request_id"
#: Our ids are shorter, but an agent may send any text as an id.
_LONGEST = 100


def _masked(text: str) -> str:
    """Mask secrets in an id: an agent may send any text, and spans are sent to other machines."""
    return Masker().mask(text[: 100 * _LONGEST]).text


def note(session_id: str | None = None, request_id: str | None = None) -> None:
    """Set these attributes on the current span, if it is recorded; None leaves an attribute unchanged."""
    span = get_current_span()
    if not span.is_recording():
        return
    if session_id is not None:
        span.set_attribute(SESSION_ID, _masked(session_id))
    if request_id is not None:
        span.set_attribute(REQUEST_ID, _masked(request_id)[:_LONGEST])


A = TypeVar("A")
R = TypeVar("R")

#: The interval of progress reports of a waiting call, in seconds.
PROGRESS_SECONDS = 15.0
#: The time limit of an answer that needs no person, in seconds. Past it, the server counts as stuck.
PROMPT_SECONDS = 60.0
#: How close to the end of a poll interval a request's deadline may be for the call to wait for it, in seconds: else
#: the agent would be told to ask again about a request that ends at this moment. The answer may take as long again.
DEADLINE_SECONDS = 1.0
#: The longest error message, in characters. It has room for several hunks that do not apply.
LONGEST_ERROR = 3000

Progress = Callable[[float, str], Awaitable[None]]
#: Shows the request of this id to the client's own user, while a call waits for it. Raises nothing.
Dialog = Callable[[str], Awaitable[None]]


@define
class ToolCall:
    """One tool call.

    `name` identifies the call for good; `session` is the actor that answers it. `call_wait_seconds` is the
    poll interval of this client; None means no limit. `given` are its arguments. `progress` reports to a client that
    asked for reports. `told` gets the id of the request that a person is asked, and None if the agent is paused.
    `dialog` also shows that request in the client, and is cancelled when the wait ends.

    `on_its_way` returns the ids of requests and instructions in other results to this client that are not recorded as
    delivered yet. `ticket` tells this wait from another of the same name. `delivery` is what the result carries; it is
    confirmed once the client has it. `request_id` is the request that the call made or waited for.
    """

    name: str
    tool: Tool
    session_id: str
    session: Name
    call_wait_seconds: float | None
    progress: Progress | None = None
    given: Any = None
    told: Callable[[str | None], Awaitable[None]] | None = None
    on_its_way: Callable[[], Collection[str]] = tuple
    dialog: Dialog | None = None
    ticket: str = field(factory=lambda: secrets.token_hex(16), init=False)
    delivery: Delivery | None = field(default=None, init=False)
    request_id: str | None = field(default=None, init=False)
    _waiting: trio.CancelScope | None = field(default=None, init=False)
    _is_stopped: bool = field(default=False, init=False)
    _began: float = field(factory=trio.current_time, init=False)
    _told: float = field(default=0.0, init=False)
    _deadline: float | None = field(default=None, init=False)

    async def run(self) -> Answered[Any]:
        """Carry out the call: return its answer with what is attached to it. For a request that is undecided at the end
        of the poll interval, the answer says how to continue waiting."""
        answered, request_id = await self.ask_and_wait(self.given, self.tool.after_decision)
        if answered is None:
            return await self._give_up(str(request_id))
        return self.finish(answered, request_id)

    async def ask_and_wait(
        self, message: Any, after_decision: AfterDecision
    ) -> tuple[Answered[Any] | None, str | None]:
        """Ask the session, and wait for a person if needed. Returns the answer, None at the end of the poll interval,
        and the request that it is about, if any. `after_decision` as in `Tool`."""
        while True:
            reply: Answered[Any] | RecordedRequest[Any] = await self.ask(evolve(message, call=self.name))
            if isinstance(reply, Answered):
                return reply, None
            self.request_id = reply.request_id
            if reply.answered is not None:
                return reply.answered, reply.request_id
            if reply.seconds_left is not None:
                self._deadline = trio.current_time() + reply.seconds_left
            decided = await self.wait(reply.request_id)
            if decided is None:
                return None, reply.request_id
            following = after_decision(message, decided)
            if isinstance(following, Answered):
                return following, reply.request_id
            message = following

    async def permission(self, asked: AskPermission) -> PermissionAnswer:
        """Ask for a permission, and wait for a person until the poll interval ends; then the answer is "pending"."""

        def after_decision(_asked: AskPermission, decided: Answered[PermissionAnswer]) -> AskPermission | Answered[Any]:
            # A person has approved. Asking again uses the approval, unless another use of the same was faster.
            return asked if decided.answer.status == "approved" else decided

        answered, request_id = await self.ask_and_wait(asked, after_decision)
        if answered is not None:
            answer: PermissionAnswer = answered.answer
            return answer
        assert request_id is not None, "what is pending has an id"
        self.session.tell(Withdraw(self.name, request_id, self.ticket))
        return PermissionAnswer("pending", request_id)

    async def ask(self, message: Request[R]) -> R:
        """Ask the session, again after a restart: every message here is safe to repeat. While the session is paused,
        this waits until the end of the poll interval and then raises Paused."""
        while True:
            try:
                return await ask(self.session, message, timeout=PROMPT_SECONDS, retry=True)
            except Paused as paused:
                if self.told is not None:
                    await self.told(None)
                await self.wait_until_unpaused(paused)

    async def wait_until_unpaused(self, paused: Paused) -> None:
        """Wait until the session is no longer paused. Raises `paused` if the poll interval ends first."""
        is_over = self._is_stopped or trio.current_time() >= self._until
        if is_over or await self._within(AwaitUnpaused(), "paused by an operator") is None:
            raise paused

    async def wait(self, request_id: str, task_id: str | None = None) -> Answered[Any] | None:
        """Wait for the decision about a request until the end of the poll interval, as the call's own or for a task.
        Returns None if there is none by then. If the call is cancelled, the request stays open and its card says that
        the agent is away."""
        # Noted before the wait, so that a span that ends during it has the id too.
        note(request_id=request_id)
        message: Request[Answered[Any]] = (
            AwaitDecision(self.name, request_id, self.ticket)
            if task_id is None
            else AwaitTask(self.name, task_id, self.ticket)
        )
        try:
            if self.told is not None:
                await self.told(request_id)
            # A task outlives its calls, and has no dialog.
            shown = self.dialog if task_id is None else None
            background = () if shown is None else (partial(shown, request_id),)
            result = await self._within(message, "waiting for an operator", *background)
        except BaseException:
            # A cancellation, or a group of them if something runs in the background.
            self.session.tell(Withdraw(self.name, request_id, self.ticket))
            raise
        return None if result is None else result.unwrap()

    def stop_waiting(self) -> None:
        """End the poll interval now: the client is gone, or the server stops."""
        self._is_stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    @property
    def is_stopped(self) -> bool:
        """Whether the poll interval was ended by the server."""
        return self._is_stopped

    @property
    def seconds(self) -> float:
        """How long the call has been under way."""
        return trio.current_time() - self._began

    @property
    def _until(self) -> float:
        """The end of the poll interval, on Trio's clock; a little later if the request ends at about that time."""
        if self.call_wait_seconds is None:
            return math.inf
        end = self._began + self.call_wait_seconds
        if self._deadline is None or abs(self._deadline - end) > DEADLINE_SECONDS:
            return end
        return self._deadline + DEADLINE_SECONDS

    async def _within(
        self, message: Request[R], what: str, *background: Callable[[], Awaitable[None]]
    ) -> outcome.Outcome[R] | None:
        """Ask, and wait for the answer until the end of the poll interval. Returns None if there is none by then. What
        runs in the `background` is cancelled then."""
        with trio.move_on_at(self._until) as scope:
            self._waiting = scope
            if self._is_stopped:
                scope.cancel()
            if self.progress is not None:
                background = (*background, partial(self._report, self.progress, what))
            if not background:
                return await self._outcome(message)
            async with trio.open_nursery() as nursery:
                for each in background:
                    nursery.start_soon(each)
                # Captured, so that the nursery does not wrap a refusal in an exception group.
                result = await self._outcome(message)
                nursery.cancel_scope.cancel()
            return result
        return None

    async def _outcome(self, message: Request[R]) -> outcome.Outcome[R]:
        """Like `outcome.acapture`, but without capturing Trio's cancellation."""
        try:
            return outcome.Value(await ask(self.session, message, retry=True))
        except Exception as refused:
            return outcome.Error(refused)

    async def _report(self, progress: Progress, what: str) -> None:
        while True:
            waited = trio.current_time() - self._began
            # MCP requires progress to increase with each report, also if the call waits a second time. Gemini CLI shows
            # a person the number, so it is a whole one.
            self._told = max(int(waited), self._told) + 1
            await progress(self._told, f"{what}, {int(waited)} s so far")
            await trio.sleep(PROGRESS_SECONDS)

    def finish(self, answered: Answered[A], request_id: str | None = None) -> Answered[A]:
        """Return the answer with what is attached to it, and note it in `delivery`. `request_id` is the request that
        the answer is about."""
        note(request_id=request_id)
        # After a crash, the session has lost track of what other results carry to the agent now.
        coming = self.on_its_way()
        late = tuple(verdict for verdict in answered.late_verdicts if verdict.request_id not in coming)
        instructions = tuple(each for each in answered.instructions if each.id not in coming)
        if (late, instructions) != (answered.late_verdicts, answered.instructions):
            self.session.tell(Undeliver((self.name,)))
            answered = evolve(answered, late_verdicts=late, instructions=instructions)
        self.delivery = answered.delivery(self.name, request_id) or self.delivery
        return self.tool.complete(answered)

    async def _give_up(self, request_id: str) -> Answered[Any]:
        """Stop waiting at the end of the poll interval: return the answer that explains how to continue."""
        assert self.tool.pending is not None, "a tool that waits has such an answer"
        try:
            attached = await self.ask(Detach(self.name, request_id, self.ticket))
        except Paused as paused:
            raise Paused(paused.message, request_id=request_id) from None
        answer = self.tool.pending(request_id)
        return self.finish(Answered(answer, attached.late_verdicts, attached.instructions))


#: The names that the Python SDK and FastMCP give a client without one. Many programs use them, each with its own limit.
UNNAMED = frozenset({"mcp", "fastmcp"})
#: The poll interval that is learnt from a call that was cut, as a share of the time it was given, and the shortest one.
_SHARE, _SHORTEST_SECONDS = 0.8, 1.0
#: The most cut calls of a connection whose requests are told.
_MOST_CUT = 20


@frozen
class CutOff:
    """A request whose call was cut off before it was answered: its agent does not know the id."""

    request_id: str
    tool: str


@define
class CutCalls:
    """The calls of one connection that its client has cut off: what they leave untold, and how long the client waits.

    `call_wait_seconds` is the poll interval learnt from them, infinite if there was none.
    """

    call_wait_seconds: float = math.inf
    _untold: dict[str, list[CutOff]] = field(factory=dict, init=False)

    def note(self, call: ToolCall, client_name: str | None, ended: BaseException) -> None:
        """Note a call that ended without a result, if it was cut off while a person was asked. Only a client without a
        name of its own teaches how long it waits: of others this is known, and a person may end a call."""
        if call.request_id is None or not _is_cancellation(ended):
            return
        if client_name in UNNAMED and not call.is_stopped:
            learnt = max(_SHORTEST_SECONDS, call.seconds * _SHARE)
            self.call_wait_seconds = min(self.call_wait_seconds, learnt)
        if getattr(call.given, "request_id", None) is None:
            untold = self._untold.setdefault(call.session_id, [])
            untold.append(CutOff(call.request_id, call.tool.name))
            del untold[:-_MOST_CUT]

    def take(self, call: ToolCall, late_verdicts: Collection[LateVerdict] = ()) -> tuple[CutOff, ...]:
        """Return what the result of a call tells of earlier ones in its session, once, without what it says itself:
        its own request, and the late decisions that are attached to it."""
        said = {call.request_id, *(each.request_id for each in late_verdicts)}
        return tuple(each for each in self._untold.pop(call.session_id, ()) if each.request_id not in said)


def _is_cancellation(ended: BaseException) -> bool:
    """Whether this is a cancellation, or a group of them: that of a call that reports progress."""
    if isinstance(ended, BaseExceptionGroup):
        return all(map(_is_cancellation, ended.exceptions))
    return isinstance(ended, trio.Cancelled)


def content(answered: Answered[Any], cut_off: Collection[CutOff] = ()) -> JsonObject:
    """Return the JSON object of an answer and what is attached to it, as agents get it."""
    found = to_json(answered.answer) if answered.answer is not None else {}
    if answered.late_verdicts:
        found["late_verdicts"] = [to_json(verdict) for verdict in answered.late_verdicts]
    if answered.instructions:
        found["instructions"] = [{"kind": each.kind, "text": each.text} for each in answered.instructions]
    if cut_off:
        found["cut_off"] = [{"request_id": each.request_id, "tool": each.tool} for each in cut_off]
    return found


def paused_content(tool: str, paused: Paused) -> JsonObject:
    """Return the answer of a call in a paused session, for the end of its poll interval."""
    request_id = paused.details.get("request_id")
    how = "with the same arguments" if request_id is None else "with only this request_id"
    content: JsonObject = {"status": "paused", "message": PAUSED.format(tool=tool, how=how)}
    return content if request_id is None else content | {"request_id": str(request_id)}


def error_content(error: IntercomError) -> JsonObject:
    """Return the error shape that all tools share. A very long message is cut in the middle."""
    message = error.message
    if len(message) > LONGEST_ERROR:
        # The beginning says what was wrong, the end what to do.
        message = f"{message[: LONGEST_ERROR // 2]} [...] {message[-LONGEST_ERROR // 2 :]}"
    return {"status": "error", "error_code": error.error_code, "error_message": message}


log = logging.getLogger("intercom.agents")


def answer(content: JsonObject, *, is_error: bool = False) -> types.CallToolResult:
    """Return a tool's result: as structured content, and as text for clients without support for it."""
    text = types.TextContent(type="text", text=json.dumps(content, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=content, is_error=is_error)


def result(answered: Answered[Any], cut_off: Collection[CutOff] = ()) -> types.CallToolResult:
    """Return the result of a tool call that was answered. `cut_off` are earlier ones that were not."""
    return answer(content(answered, cut_off))


def outcome_of(result: types.CallToolResult) -> str:
    """Return how a call ended: "ok", the code of its error, or "task" if a task replaces its answer. Returns "pending"
    or "paused" if the call must be repeated."""
    content = result.structured_content
    if not isinstance(content, dict):
        return "task"
    if result.is_error:
        return str(content.get("error_code"))
    return str(content["status"]) if content.get("status") in ("pending", "paused") else "ok"


def failure(refused: IntercomError) -> types.CallToolResult:
    """Return a tool's error result."""
    return answer(error_content(refused), is_error=True)


def refusal(failed: Exception, what: str) -> IntercomError:
    """Return the error for the caller of a failed call. `what` names the call in the log of internal errors."""
    match failed:
        case IntercomError():
            return failed
        case Busy():
            return IntercomError("too many requests wait in this session; try again in a moment", code="busy")
        case Down() | NotRunning() | StoreUnavailable() | trio.TooSlowError():
            restarting = "a part of the server is restarting; nothing was lost, call again"
            return IntercomError(restarting, code="unavailable")
    log.error("%s failed", what, exc_info=failed)
    broken = "the server failed on this call; the fault is in its log, and nothing was changed"
    return IntercomError(broken, code="mcp")
