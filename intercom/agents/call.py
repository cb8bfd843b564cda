"""A call: one tool call on its way, with who makes it and how it is answered."""

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

#: How often a waiting call says that it still waits, in seconds.
PROGRESS_SECONDS = 15.0
#: How long an answer that nobody has to give may take before the caller is told that the server is stuck.
PROMPT_SECONDS = 60.0
#: The longest sentence of an error, in characters: several hunks that do not fit are told within it.
LONGEST_ERROR = 3000

Progress = Callable[[float, str], Awaitable[None]]


@define
class Call:
    """`name` is the call's own for good; `session` the actor that answers it; `slice_seconds` how long this client
    lets a call wait (None: as long as it takes); `progress` reports to a client that asked for reports; `adopted`
    says that the session was taken over for this call.

    `on_its_way` names the requests and words that other results carry to this client now, or that have reached it and
    are not on record yet; `ticket` tells this wait from another under the same name; `delivery` is what the result
    carries, for the door to confirm once the client has it.
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
        """When the client's patience is over, on Trio's clock."""
        return math.inf if self.slice_seconds is None else self._began + self.slice_seconds

    async def ask(self, message: Request[R]) -> R:
        """Ask the session; it may be restarting, and then is asked again: every message here is safe to repeat.

        While it is paused this waits as long as the client lets the call wait, and then raises Paused."""
        while True:
            try:
                return await ask(self.session, message, timeout=PROMPT_SECONDS, retry=True)
            except Paused as paused:
                await self.sit_out(paused)

    async def sit_out(self, paused: Paused) -> None:
        """Wait until the session is not paused any more; raises `paused` when the client's patience is over first."""
        is_over = self._hurried or trio.current_time() >= self._until
        if is_over or await self._within(AwaitUnpaused(), "paused by an operator") is None:
            raise paused

    async def wait(self, message: Request[Answered[Any]], request_id: str) -> Answered[Any] | None:
        """Ask for a verdict and wait as long as the client lets us; None when its patience is over.

        When the call is cancelled the request stays open, and its card says that the agent is away.
        """
        # Before the wait, so that a span that ends in it says so too.
        tracing.note(request_id=request_id)
        try:
            result = await self._within(message, "waiting for an operator")
        except BaseException:
            # A cancellation, alone or (from a call that reports progress) in a group.
            self.session.tell(Withdraw(self.name, request_id, self.ticket))
            raise
        if result is None:
            return None
        return result.unwrap()

    def hurry(self) -> None:
        """Wait no longer, as if the client's patience were over: there is nobody to wait for, or nobody to answer."""
        self._hurried = True
        if self._patience is not None:
            self._patience.cancel()

    async def _within(self, message: Request[R], what: str) -> outcome.Outcome[R] | None:
        """Ask, and wait for the answer within the client's patience; None when that is over."""
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
            # Captured, so that a refusal leaves the nursery as it is and not wrapped in a group.
            result = await self._outcome(message)
            nursery.cancel_scope.cancel()
        assert result is not None
        return result

    async def _outcome(self, message: Request[R]) -> outcome.Outcome[R]:
        """As `outcome.acapture`, which would capture a cancellation too and so take it from the scope it belongs to."""
        try:
            return outcome.Value(await ask(self.session, message, retry=True))
        except Exception as refused:
            return outcome.Error(refused)

    async def _report(self, progress: Progress, what: str) -> None:
        while True:
            waited = trio.current_time() - self._began
            # Progress has to rise from the first report on, and on from there if the call waits a second time.
            self._told = max(waited + 1, self._told + 0.001)
            await progress(self._told, f"{what}, {int(waited)} s so far")
            await trio.sleep(PROGRESS_SECONDS)

    def finish(self, answered: Answered[Any], own: str | None = None) -> dict[str, Any]:
        """The result's content: the answer, and what rides on it. `own` is the request the answer is about."""
        content = to_json(answered.answer) if answered.answer is not None else {}
        tracing.note(request_id=own)
        told = (own,) if own is not None else ()
        # A session that fell has forgotten what other results carry to the agent at this moment.
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
        """The client's patience is over: say that the request is still open, and how to go on waiting."""
        try:
            riders = await self.ask(Detach(self.name, request_id, self.ticket))
        except Paused as paused:
            raise Paused(paused.message, request_id=request_id) from None
        content = to_json(pending)
        content.update(self.finish(riders))
        return content


def handed_over(words: Iterable[Instruction]) -> dict[str, Any]:
    """The tasks among these words, as `reboot` answers them; nothing where there are none."""
    found = [to_json(Task(word.id, word.text, word.by, word.at)) for word in words if word.kind == Kind.TASK]
    return {"tasks": found} if found else {}


def paused_content(tool: str, paused: Paused) -> dict[str, Any]:
    """What a call of a paused session answers when its client's patience is over."""
    request_id = paused.details.get("request_id")
    how = "with the same arguments" if request_id is None else "with only this request_id"
    content = {"status": "paused", "message": PAUSED.format(tool=tool, how=how)}
    return content if request_id is None else content | {"request_id": request_id}


def error_content(error: IntercomError) -> dict[str, Any]:
    """The one shape of every tool's error. A sentence that repeats something endless is cut."""
    message = error.message
    if len(message) > LONGEST_ERROR:
        # What was wrong stands at the beginning, what to do at the end.
        message = f"{message[: LONGEST_ERROR // 2]} [...] {message[-LONGEST_ERROR // 2 :]}"
    return {"status": "error", "error_code": error.error_code, "error_message": message}
