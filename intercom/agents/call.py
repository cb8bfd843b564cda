"""A tool call in progress: its caller, its session and its result."""

from __future__ import annotations

import math
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar

import outcome
import trio
from attrs import define, field

from actors import Name, Request, ask
from intercom.agents import tracing
from intercom.model.errors import IntercomError, Paused
from intercom.model.steering import Kind
from intercom.sessions.answers import PAUSED, Instruction, Task, to_json
from intercom.sessions.messages import Answered, AwaitUnpaused, Delivery, Detach, Undeliver, Withdraw

R = TypeVar("R")

#: The interval of progress reports of a waiting call, in seconds.
PROGRESS_SECONDS = 15.0
#: The time limit of an answer that needs no person, in seconds. Past it, the server counts as stuck.
PROMPT_SECONDS = 60.0
#: The longest error message, in characters. It has room for several hunks that do not apply.
LONGEST_ERROR = 3000

Progress = Callable[[float, str], Awaitable[None]]


@define
class Call:
    """One tool call.

    `name` identifies the call for good; `session` is the actor that answers it. `slice_seconds` is the poll interval of
    this client, in seconds; None means no limit. `progress` reports to a client that asked for reports. `adopted` says
    that the session was taken over for this call.

    `on_its_way` returns the ids of requests and instructions in other results to this client that are not recorded as
    delivered yet. `ticket` tells this wait from another of the same name. `delivery` is what the result carries; it is
    confirmed once the client has it.
    """

    name: str
    tool: str
    session_id: str
    session: Name
    slice_seconds: float | None
    progress: Progress | None = None
    adopted: bool = False
    on_its_way: Callable[[], Collection[str]] = tuple
    ticket: str = field(factory=lambda: uuid.uuid4().hex, init=False)
    delivery: Delivery | None = field(default=None, init=False)
    _patience: trio.CancelScope | None = field(default=None, init=False)
    _hurried: bool = field(default=False, init=False)
    _began: float = field(factory=trio.current_time, init=False)
    _told: float = field(default=0.0, init=False)

    @property
    def _until(self) -> float:
        """The end of the poll interval, on Trio's clock."""
        return math.inf if self.slice_seconds is None else self._began + self.slice_seconds

    async def ask(self, message: Request[R]) -> R:
        """Ask the session, again after a restart: every message here is safe to repeat. While the session is paused,
        this waits until the end of the poll interval and then raises Paused."""
        while True:
            try:
                return await ask(self.session, message, timeout=PROMPT_SECONDS, retry=True)
            except Paused as paused:
                await self.sit_out(paused)

    async def sit_out(self, paused: Paused) -> None:
        """Wait until the session is no longer paused. Raises `paused` if the poll interval ends first."""
        is_over = self._hurried or trio.current_time() >= self._until
        if is_over or await self._within(AwaitUnpaused(), "paused by an operator") is None:
            raise paused

    async def wait(self, message: Request[Answered[Any]], request_id: str) -> Answered[Any] | None:
        """Ask for a decision, and wait until the end of the poll interval. Returns None if there is none by then. If
        the call is cancelled, the request stays open and its card says that the agent is away."""
        # Noted before the wait, so that a span that ends during it has the id too.
        tracing.note(request_id=request_id)
        try:
            result = await self._within(message, "waiting for an operator")
        except BaseException:
            # A cancellation, or a group of them if the call reports progress.
            self.session.tell(Withdraw(self.name, request_id, self.ticket))
            raise
        if result is None:
            return None
        return result.unwrap()

    def hurry(self) -> None:
        """End the poll interval now: the client is gone, or the server stops."""
        self._hurried = True
        if self._patience is not None:
            self._patience.cancel()

    async def _within(self, message: Request[R], what: str) -> outcome.Outcome[R] | None:
        """Ask, and wait for the answer until the end of the poll interval. Returns None if there is none by then."""
        with trio.move_on_at(self._until) as patience:
            self._patience = patience
            if self._hurried:
                patience.cancel()
            return await self._answered(message, what)
        return None

    async def _answered(self, message: Request[R], what: str) -> outcome.Outcome[R]:
        if self.progress is None:
            return await self._outcome(message)
        result: outcome.Outcome[R] | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report, self.progress, what)
            # Captured, so that the nursery does not wrap a refusal in an exception group.
            result = await self._outcome(message)
            nursery.cancel_scope.cancel()
        assert result is not None
        return result

    async def _outcome(self, message: Request[R]) -> outcome.Outcome[R]:
        """Like `outcome.acapture`, but without capturing Trio's cancellation."""
        try:
            return outcome.Value(await ask(self.session, message, retry=True))
        except Exception as refused:
            return outcome.Error(refused)

    async def _report(self, progress: Progress, what: str) -> None:
        while True:
            waited = trio.current_time() - self._began
            # MCP requires progress to increase with each report, also if the call waits a second time.
            self._told = max(waited + 1, self._told + 0.001)
            await progress(self._told, f"{what}, {int(waited)} s so far")
            await trio.sleep(PROGRESS_SECONDS)

    def finish(self, answered: Answered[Any], own: str | None = None) -> dict[str, Any]:
        """Return the result's content: the answer, and the pending deliveries attached to it. `own` is the request that
        the answer is about."""
        content = to_json(answered.answer) if answered.answer is not None else {}
        tracing.note(request_id=own)
        told = (own,) if own is not None else ()
        # After a crash, the session has lost track of what other results carry to the agent now.
        coming = self.on_its_way()
        late = tuple(verdict for verdict in answered.late_verdicts if verdict.request_id not in coming)
        words = tuple(word for word in answered.instructions if word.id not in coming)
        if (late, words) != (answered.late_verdicts, answered.instructions):
            self.session.tell(Undeliver((self.name,)))
        if told or late or words:
            requests = (*told, *(verdict.request_id for verdict in late))
            self.delivery = Delivery(self.name, requests, tuple(word.id for word in words))
        if late:
            content["late_verdicts"] = [to_json(verdict) for verdict in late]
        if self.tool == "reboot":
            content |= handed_over(words)
            words = tuple(word for word in words if word.kind != Kind.TASK)
        if words:
            content["instructions"] = [{"kind": word.kind, "text": word.text} for word in words]
        return content

    async def give_up(self, request_id: str, pending: object) -> dict[str, Any]:
        """Return the content for the end of the poll interval, which explains how to continue waiting."""
        try:
            riders = await self.ask(Detach(self.name, request_id, self.ticket))
        except Paused as paused:
            raise Paused(paused.message, request_id=request_id) from None
        content = to_json(pending)
        content.update(self.finish(riders))
        return content


def handed_over(words: Iterable[Instruction]) -> dict[str, Any]:
    """Return the tasks among these instructions, as `reboot` answers them; empty if there are none."""
    found = [to_json(Task(word.id, word.text, word.by, word.at)) for word in words if word.kind == Kind.TASK]
    return {"tasks": found} if found else {}


def paused_content(tool: str, paused: Paused) -> dict[str, Any]:
    """Return the answer of a call in a paused session, for the end of its poll interval."""
    request_id = paused.details.get("request_id")
    how = "with the same arguments" if request_id is None else "with only this request_id"
    content = {"status": "paused", "message": PAUSED.format(tool=tool, how=how)}
    return content if request_id is None else content | {"request_id": request_id}


def error_content(error: IntercomError) -> dict[str, Any]:
    """Return the error shape that all tools share. A very long message is cut in the middle."""
    message = error.message
    if len(message) > LONGEST_ERROR:
        # The beginning says what was wrong, the end what to do.
        message = f"{message[: LONGEST_ERROR // 2]} [...] {message[-LONGEST_ERROR // 2 :]}"
    return {"status": "error", "error_code": error.error_code, "error_message": message}
