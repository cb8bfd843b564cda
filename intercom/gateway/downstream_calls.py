"""A call on its way over a downstream's connection: the actor admits it, and the task that asks carries it.

`require_admission` asks before a person is asked, who should approve no call that is then refused. `carry` is the whole
way. It asks the actor, which refuses the call or hands over the connection; it sends the request
and waits for the answer itself; and it tells the actor how the call has ended. So a call waits for the actor only once,
and its answer for nobody. The actor counts what runs, and alone decides about its state: `Admit`, `AdmitAgain`,
`CallEnded` and `Cancel` are all that it hears of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from actors import Busy, Down, Name, NotRunning, Request, ask
from intercom.gateway import breaker, budgets
from intercom.gateway.breaker import HANDSHAKE_WAIT_SECONDS, CallSucceeded, Failure
from intercom.gateway.messages import (
    Admit,
    AdmitAgain,
    CallEnded,
    CallFailed,
    Cancel,
    GatewayRefused,
    InvocationStatus,
    Invoked,
    RequireAdmission,
    RpcError,
    Run,
)
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject

#: What an agent is told to wait while the actor of a downstream restarts (seconds).
RESTART_SECONDS: Final = 2.0


async def carry(actor: Name, downstream: str, admit: Admit) -> Invoked:
    """Send a request to a downstream, and return its result. Cancelling this cancels the request.

    Raises GatewayRefused for one that was not sent, CallFailed for one without an answer, RpcError for an error of the
    downstream, and IntercomError if the actor ends meanwhile and nobody knows whether the request had its effect.
    """
    is_admitted = was_sent = False
    request: Request[Run] = admit
    try:
        ref = actor.present()
        try:
            while True:
                run = await ask(ref, request)
                is_admitted = True
                # The first write comes before any other checkpoint: a call that is cancelled already must not be sent.
                await trio.lowlevel.checkpoint_if_cancelled()
                was_sent = True
                outcome, ended = await _exchange(run)
                was_sent = ended.was_sent
                if not isinstance(outcome, CallFailed):
                    break
                if outcome.failure is Failure.TRANSPORT and not ref.is_alive():
                    raise NotRunning(downstream)
                if not _may_repeat(run, outcome):
                    break
                request, is_admitted = AdmitAgain(ended), False
        except BaseException as failed:
            # What the actor has refused, it knows.
            if is_admitted or isinstance(failed, trio.Cancelled):
                _tell(ref.tell, Cancel(admit, was_sent))
            raise
    except Busy:
        if was_sent:
            raise CallFailed(Failure.TRANSPORT, "it was lost, and too many calls wait for another connection") from None
        raise _busy(downstream) from None
    except (Down, NotRunning) as gone:
        raise _restarting(downstream, begun=was_sent or (isinstance(gone, Down) and gone.begun)) from None
    _tell(ref.tell, ended)
    if isinstance(outcome, CallFailed) and not was_sent:
        raise not_reached(downstream, outcome.reason)
    if isinstance(outcome, Exception):
        raise outcome
    allowed = run.allowed
    return Invoked(outcome) if allowed is None else Invoked(outcome, allowed.remaining, allowed.cost)


async def require_admission(actor: Name, downstream: str, tool: str) -> None:
    """Raise GatewayRefused if a call of this tool would be refused now. Nothing is counted or sent."""
    try:
        await ask(actor.present(), RequireAdmission(tool))
    except Busy:
        raise _busy(downstream) from None
    except (Down, NotRunning):
        raise _restarting(downstream, begun=False) from None


async def _exchange(run: Run) -> tuple[JsonObject | RpcError | CallFailed, CallEnded]:
    """Send a call over its connection. Returns its answer, or why it has none, and what the actor is told of it."""
    admit, connection, number = run.admit, run.connection, run.number
    assert connection is not None, "an admitted call has its connection"
    began = trio.current_time()
    error: str | None = None
    event: breaker.Event | None = CallSucceeded(number)
    outcome: JsonObject | RpcError | CallFailed | None = None
    was_sent = True
    with trio.CancelScope(deadline=run.ends_at) as limit:
        try:
            outcome = await connection.request(
                admit.method,
                admit.params,
                call=admit.call,
                agent=admit.agent,
                progress_token=admit.progress_token,
                modern_agent=admit.modern_agent,
                limit=limit,
            )
            if outcome.get("isError") is True:
                event = breaker.CallFailed(number, Failure.TOOL_ERROR)
        except RpcError as refused:
            error, outcome = f"got the error {refused.code}", refused
        except CallFailed as failed:
            error, outcome = f"failed: {failed.reason}", failed
            event = None if connection.is_lost else breaker.CallFailed(number, failed.failure)
            was_sent = run.was_sent or failed.was_sent
    if outcome is None:
        error, event = "timed out", breaker.CallFailed(number, Failure.TIMEOUT)
        seconds = budgets.duration(run.config.budget.timeout_seconds)
        outcome = CallFailed(Failure.TIMEOUT, f"did not answer within {seconds}")
    return outcome, CallEnded(run, event, trio.current_time() - began, error, was_sent)


def _tell(tell: Callable[[object], None], message: object) -> None:
    """Tell the incarnation that has admitted a call, unless it has ended: the next one does not count the call."""
    try:
        tell(message)
    except NotRunning:
        return


def _may_repeat(run: Run, failed: CallFailed) -> bool:
    """Whether a call may be sent again: it was never sent, or the configuration says that it changes nothing."""
    config = run.config
    if failed.failure is not Failure.TRANSPORT:
        return False
    if not failed.was_sent:
        return run.attempts <= max(1, config.retry)
    if run.attempts > config.retry:
        return False
    admit = run.admit
    if admit.method == "tools/call":
        return config.is_read_only(admit.tool)
    return admit.method in ("resources/read", "prompts/get", "completion/complete")


def not_reached(name: str, reason: str) -> GatewayRefused:
    """Return the refusal of a call that no connection could take. `reason` is a clause, as in `CallFailed`."""
    wait = HANDSHAKE_WAIT_SECONDS
    return GatewayRefused(
        InvocationStatus.CIRCUIT_OPEN,
        f"{name} could not be reached ({reason}), and nothing was sent: repeat this call in {budgets.duration(wait)};"
        f" if that fails three times, tell the person that {name} does not work",
        wait,
    )


def _busy(downstream: str) -> GatewayRefused:
    return GatewayRefused(
        InvocationStatus.RATE_LIMITED, f"too many calls wait for {downstream}: call again in a moment", 1.0
    )


def _restarting(downstream: str, *, begun: bool) -> IntercomError:
    """Return the error of a call whose actor has ended."""
    what = f"the part of the server that speaks with {downstream} is restarting"
    if not begun:
        return GatewayRefused(
            InvocationStatus.CIRCUIT_OPEN, f"{what}, and nothing was sent: call again in a moment", RESTART_SECONDS
        )
    return IntercomError(
        f"{what}; whether the call had its effect is not known: look before you call again", code="unavailable"
    )
