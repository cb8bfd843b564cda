"""Calls that stay open while an agent of 2026-07-28 is asked something by a downstream of an older protocol version.

Such a downstream asks in the middle of a call and waits. The agent's client gets an `input_required` result, and calls
again with its answers. So the first call goes on in a task of its own, and the next one continues to wait for it.

A state names its call until it is used, once. A state that is not known any more is refused: otherwise the call, which
may have had its effect already, would begin again.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Final

import outcome
import trio
from attrs import define, field

from intercom.agents.gateway.client_peer import ClientPeer
from intercom.gateway.messages import RpcError
from intercom.gateway.rpc_multiplexer import PROGRESS
from intercom.model.errors import IntercomError
from intercom.model.json_types import Json, JsonObject

#: The capabilities without which a client of 2026-07-28 cannot be asked.
_NEEDED: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
CAPABILITIES_TO_ASK: Final = frozenset(_NEEDED.values())
#: How long a question waits for the agent's next call (seconds).
ANSWER_SECONDS: Final = 600.0
#: The most held calls of one agent, and of all. The oldest is cancelled for a new one.
MOST_OF_ONE: Final = 50
MOST_OPEN: Final = 1000
#: What the states of held calls begin with. A downstream's own states have no such beginning.
_PREFIX: Final = "intercom-held/"
#: The owner of the held calls of all agents without a name: each of their requests is a connection of its own.
NOBODY: Final = ""

_OVER: Final = (
    "the call that this requestState belongs to is over, and nothing was sent now: look whether it had its effect, and"
    " call again without requestState and inputResponses"
)


@define(eq=False)
class _Question:
    method: str
    params: JsonObject
    answer: Json = None
    answered: trio.Event = field(factory=trio.Event, init=False)


@define(eq=False)
class _OpenCall:
    """One call. `changed` is set when it has a new question or its result. `shown` are the questions that the agent
    knows."""

    owner: str
    label: str
    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    result: outcome.Outcome[JsonObject] | None = field(default=None, init=False)
    questions: dict[str, _Question] = field(factory=dict, init=False)
    shown: tuple[str, ...] = field(default=(), init=False)
    asked: int = field(default=0, init=False)
    changed: trio.Event = field(factory=trio.Event, init=False)

    def change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


@define(eq=False)
class AskedPeer:
    """The client of an agent of 2026-07-28: what a downstream asks is put into the result of its call.

    `peer` is that of the request that waits for the call now, `token` the progress token of that request. `id` is that
    of the first request, also if an agent without a name continues over another connection.
    """

    id: str
    peer: ClientPeer
    token: str | int | None
    _held: _OpenCall

    @property
    def capabilities(self) -> JsonObject:
        return self.peer.capabilities

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification to the request that waits now. Each request has a progress token of its own."""
        if method == PROGRESS:
            if self.token is None:
                return
            params = {**params, "progressToken": self.token}
        self.peer.notify(method, params)

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the agent, and wait for its next call. Raises RpcError if its client cannot be asked or does not come
        back."""
        needed = _NEEDED.get(method)
        if needed is None or needed not in self.capabilities:
            raise RpcError(-32601, f"the agent's client cannot be asked ({method})")
        held = self._held
        held.asked += 1
        key = f"{needed}-{held.asked}"
        question = held.questions[key] = _Question(method, params)
        held.change()
        try:
            with trio.move_on_after(ANSWER_SECONDS):
                await question.answered.wait()
        finally:
            held.questions.pop(key, None)
        if not isinstance(question.answer, dict):
            raise RpcError(-32603, "the agent did not answer")
        return question.answer


@define(eq=False)
class OpenCalls:
    """The held calls of all agents. The owner of one is its agent, or `NOBODY`: then the state alone gives access."""

    _held: dict[str, tuple[_OpenCall, AskedPeer]] = field(factory=dict, init=False)

    @staticmethod
    def is_open_call(state: Json) -> bool:
        """Whether this is the state of a held call, or was."""
        return isinstance(state, str) and state.startswith(_PREFIX)

    async def run(
        self,
        owner: str,
        label: str,
        peer: ClientPeer,
        token: str | int | None,
        act: Callable[[AskedPeer], Awaitable[JsonObject]],
    ) -> JsonObject:
        """Carry out a call whose downstream may ask the agent through the peer that `act` gets. Returns its result, or
        an `input_required` one, after which the call goes on. `label` is what is called. Raises what `act` raises.
        Cancelling this cancels the call."""
        held = _OpenCall(owner, label)
        asked = AskedPeer(peer.id, peer, token, held)

        async def carry_out() -> None:
            # No exception may leave a system task.
            with held.scope:
                try:
                    held.result = outcome.Value(await act(asked))
                except Exception as failed:
                    held.result = outcome.Error(failed)
                finally:
                    if held.result is None:
                        held.result = outcome.Error(RpcError(-32603, "the call was cancelled"))
                    held.change()

        # The task outlives the request, and ends when the actors of the downstreams do.
        trio.lowlevel.spawn_system_task(carry_out, context=copy_context())
        return await self._wait(held, asked)

    async def resume(
        self, owner: str, label: str, peer: ClientPeer, token: str | int | None, state: str, answers: Json
    ) -> JsonObject:
        """Give a held call the agent's answers, and wait on. As `run`. Raises IntercomError if the state does not
        belong to a held call of this owner for the same tool."""
        held, asked = self._held.get(state) or (None, None)
        if held is None or asked is None or (held.owner, held.label) != (owner, label):
            raise IntercomError(_OVER, code="invalid_state")
        del self._held[state]
        asked.peer, asked.token = peer, token
        given = answers if isinstance(answers, dict) else {}
        # A question that came later is not answered yet: the agent does not know it.
        for key in held.shown:
            question = held.questions.pop(key, None)
            if question is not None:
                question.answer = given.get(key)
                question.answered.set()
        return await self._wait(held, asked)

    async def _wait(self, held: _OpenCall, asked: AskedPeer) -> JsonObject:
        try:
            while held.result is None and not held.questions:
                await held.changed.wait()
        except trio.Cancelled:
            held.scope.cancel()
            raise
        if held.result is not None:
            return held.result.unwrap()
        self._make_room(held.owner)
        state = _PREFIX + secrets.token_urlsafe(24)
        self._held[state] = (held, asked)
        held.shown = tuple(held.questions)
        requests: JsonObject = {
            key: {"method": question.method, "params": question.params} for key, question in held.questions.items()
        }
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    def _make_room(self, owner: str) -> None:
        """Cancel the oldest held call where there are too many, and forget those that have ended meanwhile."""
        for state in [state for state, (held, _) in self._held.items() if held.result is not None]:
            del self._held[state]
        own = [state for state, (held, _) in self._held.items() if held.owner == owner]
        if len(own) >= MOST_OF_ONE and owner != NOBODY:
            self._end(own[0])
        elif len(self._held) >= MOST_OPEN:
            # One's own first: nobody can have the calls of others ended while it has any.
            self._end(own[0] if own else next(iter(self._held)))

    def _end(self, state: str) -> None:
        self._held.pop(state)[0].scope.cancel()

    def leave(self, owner: str) -> None:
        """End the held calls of an agent: its connection is closed."""
        for state in [state for state, (held, _) in self._held.items() if held.owner == owner]:
            self._end(state)
