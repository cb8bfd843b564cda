"""A call: one tool call on its way, with who makes it and how it is answered."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

import outcome
import trio
from attrs import define, field

from actors import Name, Request, ask
from intercom.agents import tracing
from intercom.model.errors import IntercomError
from intercom.sessions.answers import to_json
from intercom.sessions.messages import Answered, Delivery, Detach, Undeliver, Withdraw

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

    async def ask(self, message: Request[R]) -> R:
        """Ask the session; it may be restarting, and then is asked again: every message here is safe to repeat."""
        return await ask(self.session, message, timeout=PROMPT_SECONDS, retry=True)

    async def wait(self, message: Request[Answered[Any]], request_id: str) -> Answered[Any] | None:
        """Ask for a verdict and wait as long as the client lets us; None when its patience is over.

        When the call is cancelled the request stays open, and its card says that the agent is away.
        """
        # Before the wait, so that a span that ends in it says so too.
        tracing.note(request_id=request_id)
        result: outcome.Outcome[Answered[Any]] | None = None
        try:
            with trio.move_on_after(self.slice_seconds if self.slice_seconds is not None else float("inf")) as patience:
                self._patience = patience
                if self._hurried:
                    patience.cancel()
                result = await self._answered(message)
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

    async def _answered(self, message: Request[Answered[Any]]) -> outcome.Outcome[Answered[Any]]:
        if self.progress is None:
            return await self._outcome(message)
        result: outcome.Outcome[Answered[Any]] | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report, self.progress)
            # Captured, so that a refusal leaves the nursery as it is and not wrapped in a group.
            result = await self._outcome(message)
            nursery.cancel_scope.cancel()
        assert result is not None
        return result

    async def _outcome(self, message: Request[Answered[Any]]) -> outcome.Outcome[Answered[Any]]:
        """As `outcome.acapture`, which would capture a cancellation too and so take it from the scope it belongs to."""
        try:
            return outcome.Value(await ask(self.session, message, retry=True))
        except Exception as refused:
            return outcome.Error(refused)

    async def _report(self, progress: Progress) -> None:
        began = trio.current_time()
        while True:
            waited = trio.current_time() - began
            # Progress has to rise from the first report on.
            await progress(waited + 1, f"waiting for an operator, {int(waited)} s so far")
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
        if words:
            content["instructions"] = [{"kind": word.kind, "text": word.text} for word in words]
        return content

    async def give_up(self, request_id: str, pending: object) -> dict[str, Any]:
        """The client's patience is over: say that the request is still open, and how to go on waiting."""
        riders = await self.ask(Detach(self.name, request_id, self.ticket))
        content = to_json(pending)
        content.update(self.finish(riders))
        return content


def error_content(error: IntercomError) -> dict[str, Any]:
    """The one shape of every tool's error. A sentence that repeats something endless is cut."""
    message = error.message
    if len(message) > LONGEST_ERROR:
        # What was wrong stands at the beginning, what to do at the end.
        message = f"{message[: LONGEST_ERROR // 2]} [...] {message[-LONGEST_ERROR // 2 :]}"
    return {"status": "error", "error_code": error.error_code, "error_message": message}
