"""One call on its way through the gateway: role, a person's say, cache, budget and breaker, redaction, record.

Every call of a tool ends in exactly one record, whatever refuses it or crashes, and the record of a call that is sent
begins before it is sent. So a call that a crash interrupts is known, and is not sent a second time.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from shlex import quote
from typing import Final

import trio
from attrs import define, evolve, field, frozen

from actors import Name
from intercom.gateway import redaction
from intercom.gateway.assignments import AgentIdentity
from intercom.gateway.breaker import Failure
from intercom.gateway.budgets import Remaining
from intercom.gateway.call_cards import Target, operation_of
from intercom.gateway.call_journal import Invocation
from intercom.gateway.call_log import InvocationLog
from intercom.gateway.downstream_calls import carry, require_admission
from intercom.gateway.downstream_config import DownstreamConfig, Sharing
from intercom.gateway.evidence_records import Cache, EvidenceRecords, NotStored, cache_key, normalize
from intercom.gateway.messages import (
    Admit,
    AgentPeer,
    CallFailed,
    GatewayRefused,
    InvocationStatus,
    Invoked,
    RpcError,
    downstream_name,
)
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.roles import Effect
from intercom.masking import Masker
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.json_types import Json, JsonObject, part
from intercom.model.request import Operation
from intercom.model.visible_text import one_line

log = logging.getLogger("intercom.gateway")

#: A longer result, in characters, is masked in a thread.
_MASKED_HERE: Final = 4_000
#: The most calls that wait for an agent's answers.
_MOST_ROUNDS: Final = 10_000
#: What is sent of a request's parameters, by method; and what more, if it continues one.
_SENT: Final[Mapping[str, tuple[str, ...]]] = {
    "tools/call": ("name", "arguments", "task"),
    "prompts/get": ("name", "arguments"),
    "resources/read": ("uri",),
    "completion/complete": ("ref", "argument", "context"),
}
_CONTINUING: Final = ("requestState", "inputResponses")
#: What clients send in `_meta` with every request: nothing that a downstream's answer depends on.
_USUAL_META: Final = ("progressToken", "io.modelcontextprotocol/", "intercom/", "threadId", "claudecode/", "codex/")
#: The longest notification that is searched for secrets where it arrives, in characters. A longer one is left out.
_LONGEST_NOTICE: Final = 4_000
_ROOTS: Final = "roots"
#: Keys of `_meta` in results.
REDACTED: Final = "intercom/redacted"
REMAINING: Final = "intercom/remaining"
INVOCATION: Final = "intercom/invocation"
EVIDENCE: Final = "intercom/evidence"
_MARKS: Final = frozenset({REDACTED, REMAINING, INVOCATION, EVIDENCE})


class Answer(StrEnum):
    """What a person, or the policy, says of a call."""

    ALLOWED = "allowed"
    DENIED = "denied"
    #: Nobody has answered yet: the agent calls again.
    PENDING = "pending"
    #: Nobody has answered in time.
    TIMED_OUT = "timed out"


@frozen
class Approval:
    """The answer about one call. `request_id` is that of the card, None if the policy answered."""

    answer: Answer
    request_id: str | None = None
    reason: str | None = None


@frozen(eq=False)
class GatewayCaller:
    """Who calls. `run_id` is the agent's session. `call` is the client's name of the call, if it repeats calls under
    their names. `ask` asks the policy, then a person."""

    identity: AgentIdentity
    peer: AgentPeer
    run_id: str
    ask: Callable[[Operation], Awaitable[Approval]] = field(repr=False)
    call: str | None = None
    progress_token: str | int | None = None
    modern: bool = False
    #: Whether it has no name, so that its next request comes from an agent that nobody knows.
    is_anonymous: bool = False

    @property
    def continued_by(self) -> str:
        """Who may continue its calls with a downstream's state: the agent, or any one without a name that has the
        state."""
        return "" if self.is_anonymous else self.identity.id


class ApprovalPending(Exception):
    """A person has not answered yet. The agent calls again with the same arguments."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self.request_id = request_id


@define(eq=False)
class Rounds:
    """The calls that a downstream of 2026-07-28 continues after the agent has answered its questions. The agent repeats
    the call with the state that the downstream gave it: it is the same call, and a person is not asked again."""

    _open: OrderedDict[tuple[str, bytes], tuple[Target, str, str]] = field(factory=OrderedDict, init=False)

    def note(self, agent: str, state: Json, target: Target, invocation: Invocation) -> None:
        """Note that a call goes on with this state."""
        if isinstance(state, str):
            self._open[agent, _digest(state)] = (target, invocation.args_hmac, invocation.request_id or "")
            while len(self._open) > _MOST_ROUNDS:
                self._open.popitem(last=False)

    def take(self, agent: str, state: Json, target: Target, args_hmac: str) -> str | None:
        """Return the request about the call that goes on with this state, once; "" if it had none. None if there is no
        such call of this agent: it was for something else, has other arguments, or the state was used."""
        key = (agent, _digest(state)) if isinstance(state, str) else None
        found = self._open.get(key) if key is not None else None
        if key is None or found is None or found[:2] != (target, args_hmac):
            return None
        del self._open[key]
        return found[2]


@define(eq=False)
class GuardedPeer:
    """The client behind an agent, for one call. `masker` is None if the downstream's file says that nothing is
    redacted. `may_see_roots` says whether the downstream may ask for the agent's directories: an agent that answers it
    could widen what a person configured. `has_asked` is set once the agent was asked anything."""

    peer: AgentPeer
    masker: Masker | None
    may_see_roots: bool = False
    has_asked: bool = field(default=False, init=False)

    @property
    def id(self) -> str:
        return self.peer.id

    @property
    def capabilities(self) -> JsonObject:
        declared = self.peer.capabilities
        if self.may_see_roots or _ROOTS not in declared:
            return declared
        return {key: value for key, value in declared.items() if key != _ROOTS}

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification without its secrets."""
        if self.masker is not None:
            text = "\n".join(redaction.lines_of(params))
            if len(text) > _LONGEST_NOTICE:
                return
            params, _ = redaction.redact(self.masker, params, text)
        self.peer.notify(method, params)

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request without its secrets, and return its result. Raises RpcError."""
        if method == "roots/list" and not self.may_see_roots:
            raise RpcError(-32601, "the gateway's configuration does not let this downstream ask for directories")
        self.has_asked = True
        if self.masker is not None:
            text = "\n".join(redaction.lines_of(params))
            params, _ = await trio.to_thread.run_sync(redaction.redact, self.masker, params, text)
        return await self.peer.request(method, params)


@frozen(eq=False)
class _Basis:
    """What decides about a call: a snapshot, and the generation of the cache for its downstream at that moment."""

    now: OfferSnapshot
    generation: int


@frozen(eq=False)
class Calls:
    """Carries out the calls of all agents."""

    #: Returns what the files say now. Raises IntercomError.
    current: Callable[[], Awaitable[OfferSnapshot]]
    named: Callable[[str], Name]
    log: InvocationLog
    cache: Cache
    evidence: EvidenceRecords
    masker: Masker = field(factory=Masker)
    rounds: Rounds = field(factory=lambda: Rounds())

    async def tool(self, caller: GatewayCaller, name: str, params: JsonObject) -> JsonObject:
        """Call the tool that agents know as `name`, with the params of its `tools/call`. As `carry_out`."""
        now = await self.current()
        entry = now.catalog.find(name)
        if entry is None:
            raise GatewayRefused(
                InvocationStatus.PERMISSION_DENIED,
                f"no tool is called {name[:80]!r} now: list the tools again, and call one of those",
            )
        target = Target(entry.downstream, entry.tool, entry.name)
        named = {**params, "name": entry.tool}
        return await self._carried_out(now, caller, target, "tools/call", named, params.get("arguments"))

    async def carry_out(
        self, caller: GatewayCaller, target: Target, method: str, params: JsonObject, arguments: Json
    ) -> JsonObject:
        """Send a request to a downstream, if the agent may and a person lets it; return the result, redacted.

        `arguments` are what is recorded (hashed) and shown to the person. Of `params` only what the method has is sent:
        a downstream may read other keys as these, with case folded for example. Raises GatewayRefused for a call that
        was not sent, ApprovalPending, CallFailed for one without an answer, and RpcError for an error of the
        downstream. Cancelling this cancels the call.
        """
        return await self._carried_out(await self.current(), caller, target, method, params, arguments)

    async def _carried_out(
        self,
        now: OfferSnapshot,
        caller: GatewayCaller,
        target: Target,
        method: str,
        params: JsonObject,
        arguments: Json,
    ) -> JsonObject:
        """Carry out a call by the snapshot `now`. It was taken for this call: to look at the files twice costs time."""
        basis = self._basis(now, target)
        role, _ = now.role_of(caller.identity)
        await self.log.ready()
        invocation = self.log.new(
            run_id=caller.run_id,
            agent_id=caller.identity.id,
            agent_role=role or "",
            tool=target.downstream,
            method=target.verb,
            arguments=arguments,
            call=caller.call,
        )
        try:
            # First: a killed server may have sent a call that continues another one, and nobody knows its state now.
            self._refuse_repetition(now, caller, target, invocation)
            earlier = self._continued(caller, target, params, invocation)
            basis, invocation = await self._permitted(basis, caller, target, params, arguments, earlier, invocation)
        except GatewayRefused as refused:
            request_id = refused.request_id or invocation.request_id
            self.log.refuse(
                evolve(invocation, status=refused.status, error_message=refused.message, request_id=request_id)
            )
            raise
        sent = {key: params[key] for key in (*_SENT[method], "_meta") if key in params}
        if earlier is not None:
            sent |= {key: params[key] for key in _CONTINUING if key in params}
        return await self._sent(basis, caller, target, method, sent, invocation)

    def _basis(self, now: OfferSnapshot, target: Target) -> _Basis:
        """Return what decides about a call by a snapshot that was just taken: nothing has been awaited since."""
        return _Basis(now, self.cache.generation(target.downstream))

    def _continued(
        self, caller: GatewayCaller, target: Target, params: JsonObject, invocation: Invocation
    ) -> str | None:
        """Return the request of the call that this one continues, "" if it had none, None if it continues none. Raises
        GatewayRefused for an unknown state: no first call may carry answers, which nobody would see."""
        if not any(key in params for key in _CONTINUING):
            return None
        state = params.get("requestState")
        earlier = self.rounds.take(caller.continued_by, state, target, invocation.args_hmac)
        if earlier is None:
            raise GatewayRefused(
                InvocationStatus.PERMISSION_DENIED,
                f"no call of {target.label} with these arguments waits for your answers, and nothing was sent: call it"
                " without requestState and inputResponses",
            )
        return earlier

    async def _permitted(
        self,
        basis: _Basis,
        caller: GatewayCaller,
        target: Target,
        params: JsonObject,
        arguments: Json,
        earlier: str | None,
        invocation: Invocation,
    ) -> tuple[_Basis, Invocation]:
        """Return the record of a call that may be sent, and by what. Raises GatewayRefused and ApprovalPending."""
        if _decided(basis.now, caller, target) is not Effect.ASK:
            return basis, invocation
        if earlier is not None:
            # The same call goes on after the agent has answered a question: it was approved when it began.
            return basis, evolve(invocation, request_id=earlier or None)
        # An approval is for one call: none is used up by a call that is then refused.
        actor = self.named(downstream_name(target.downstream))
        await require_admission(actor, target.downstream, str(params.get("name", "")))
        is_read_only = _is_read_only(basis.now, target)
        approval = await caller.ask(operation_of(target, arguments, is_read_only=is_read_only))
        if approval.answer is Answer.PENDING:
            raise ApprovalPending(approval.request_id or "")
        if approval.answer is not Answer.ALLOWED:
            why = f": {approval.reason}" if approval.reason else ""
            said = f"a person has rejected this call of {target.label}, and nothing was sent{why}"
            if approval.answer is Answer.TIMED_OUT:
                said = f"nobody has decided about this call of {target.label} in time, and nothing was sent"
            elif approval.request_id is None:
                said = f"this call of {target.label} is not permitted, and nothing was sent{why}"
            raise GatewayRefused(InvocationStatus.OPERATOR_DENIED, said, request_id=approval.request_id)
        invocation = evolve(invocation, request_id=approval.request_id)
        # Hours may have passed.
        basis = self._basis(await self.current(), target)
        _require_offered(basis.now, target, invocation.request_id)
        _decided(basis.now, caller, target, invocation.request_id)
        return basis, invocation

    def _refuse_repetition(
        self, now: OfferSnapshot, caller: GatewayCaller, target: Target, invocation: Invocation
    ) -> None:
        """Refuse a call that an earlier server run has sent already, unless it changes nothing."""
        earlier = None if caller.call is None else self.log.earlier(caller.call)
        if earlier is None or _is_read_only(now, target):
            return
        if earlier.args_hmac != invocation.args_hmac or (earlier.tool, earlier.method) != (
            target.downstream,
            target.verb,
        ):
            return
        was = "it had ended" if earlier.status is not InvocationStatus.INTERRUPTED else "it may have had its effect"
        raise GatewayRefused(
            InvocationStatus.INTERRUPTED,
            f"the server ended while this call of {target.label} was under way: it was sent, {was}, and its result is"
            " lost. It was not sent again: look whether it had its effect before you call again",
        )

    async def _sent(
        self,
        basis: _Basis,
        caller: GatewayCaller,
        target: Target,
        method: str,
        params: JsonObject,
        invocation: Invocation,
    ) -> JsonObject:
        """Give the result from the cache, or send the call."""
        now, generation = basis.now, basis.generation
        config = now.configs[target.downstream]
        is_read_only = _is_read_only(now, target)
        # What else a call carries may change its result, and is not in the key.
        is_plain = not (params.keys() & {"task", *_CONTINUING}) and not _has_more(params.get("_meta"))
        key = None
        if config.cache_seconds > 0 and is_read_only and is_plain:
            key = cache_key(target.downstream, target.verb, invocation.args_hmac)
            if config.sharing is Sharing.AGENT:
                # Its state differs by agent, and so may its answers.
                key = f"{key}:{caller.identity.id}"
            is_current = generation == self.cache.generation(target.downstream)
            known = self.cache.get(key, trio.current_time()) if is_current else None
            if known is not None:
                # It was not sent, and is recorded so.
                self.log.refuse(evolve(invocation, status=InvocationStatus.SUCCESS, cached=True))
                return await self._with_evidence(config, target, invocation, known, is_cached=True)
        # With the record that begins, so that a call without a result, or without an end, costs what it may cost.
        invocation = evolve(invocation, cost=config.budget.cost_of(str(params.get("name", ""))))
        self.log.begin(invocation)
        began = trio.current_time()
        status, error = InvocationStatus.CANCELLED, None
        peer = GuardedPeer(caller.peer, self.masker if config.redact else None, config.roots)
        redacted: tuple[str, ...] = ()
        cost = invocation.cost
        try:
            invoked = await self.request(
                peer,
                target.downstream,
                method,
                params,
                invocation.id,
                progress_token=caller.progress_token,
                modern=caller.modern,
                counts=True,
                is_read_only=is_read_only,
            )
            result, redacted = await self._redacted(invoked.result) if config.redact else (invoked.result, ())
            failed = result.get("isError") is True
            status = InvocationStatus.ERROR if failed else InvocationStatus.SUCCESS
            error = error_text(result) if failed else None
            cost = invoked.cost
        except GatewayRefused as refused:
            status, error = refused.status, refused.message
            raise
        except CallFailed as lost:
            is_late = lost.failure is Failure.TIMEOUT
            status, error = InvocationStatus.TIMEOUT if is_late else InvocationStatus.ERROR, lost.reason
            cost = cost if lost.was_sent else 0
            raise
        except RpcError as refused:
            status, error = InvocationStatus.ERROR, f"error {refused.code}"
            raise (await self._redacted_error(refused) if config.redact else refused) from None
        except IntercomError as refused:
            status, error = InvocationStatus.ERROR, refused.message
            raise
        finally:
            # Rounded, and `sent`, as the log has it: it need not copy the record again.
            self.log.finish(
                evolve(
                    invocation,
                    seconds=round(trio.current_time() - began, 6),
                    sent=status is InvocationStatus.SUCCESS,
                    status=status,
                    error_message=error,
                    redaction_applied=bool(redacted),
                    cost=cost,
                )
            )
        if result.get("resultType") == "input_required":
            self.rounds.note(caller.continued_by, result.get("requestState"), target, invocation)
        marked = _marked(result, redacted, invoked.remaining, invocation.id)
        is_final = result.get("resultType") != "input_required" and not peer.has_asked
        is_current = generation == self.cache.generation(target.downstream)
        if key is not None and status is InvocationStatus.SUCCESS and is_final and is_current:
            self.cache.put(key, marked, trio.current_time(), config.cache_seconds)
        # A task's result comes with a later request.
        is_whole = status is InvocationStatus.SUCCESS and "task" not in params
        if is_whole and result.get("resultType") != "input_required":
            return await self._with_evidence(config, target, invocation, marked)
        return marked

    async def _with_evidence(
        self,
        config: DownstreamConfig,
        target: Target,
        invocation: Invocation,
        result: JsonObject,
        *,
        is_cached: bool = False,
    ) -> JsonObject:
        """Return the result of a successful call for its agent: with the id of its evidence, which is on disk then, if
        the configuration keeps evidence of this tool; or with why it is not kept.

        A cached result is kept again: it is another call, perhaps of another agent, and evidence belongs to one call.
        """
        meta: JsonObject = {**part(result, "_meta"), INVOCATION: invocation.id}
        if not (target.is_tool and config.keeps_evidence(target.verb)):
            return {**result, "_meta": meta} if is_cached else result
        data: JsonObject = {key: value for key, value in result.items() if key != "_meta"}
        redacted = REDACTED in meta
        try:
            if not config.redact:
                # Evidence reaches others than this agent, so it is redacted in any case.
                data, kinds = await self._redacted(data)
                redacted = bool(kinds)
            earlier = part(result, "_meta").get(INVOCATION) if is_cached else None
            found = normalize(
                invocation,
                data,
                redacted=redacted,
                description=f"the result of {target.verb} of {target.downstream}",
                cached_from=None if earlier is None else str(earlier),
            )
            await self.evidence.keep(found)
        except (NotStored, InvalidArguments) as refused:
            reason = refused.reason if isinstance(refused, NotStored) else refused.message
            said = f"this result is not kept as evidence: {reason}"
        else:
            meta[EVIDENCE] = found.id
            said = f"this result is kept as evidence:{found.id}"
        # Many clients show models the content alone.
        content = result.get("content")
        text: JsonObject = {"type": "text", "text": f"From Intercom: {said}"}
        return {**result, "content": [*(content if isinstance(content, list) else []), text], "_meta": meta}

    async def request(
        self,
        peer: AgentPeer,
        downstream: str,
        method: str,
        params: JsonObject,
        call: str,
        *,
        progress_token: str | int | None = None,
        modern: bool = False,
        counts: bool = False,
        is_read_only: bool = False,
    ) -> Invoked:
        """Send a request to a downstream for the agent behind `peer`. One that may change something makes the results
        that are known of the downstream old when it begins and when it ends.

        Raises what `carry` raises.
        """
        admit = Admit(call, method, params, peer, progress_token, modern_agent=modern, counts=counts)
        if is_read_only:
            return await carry(self.named(downstream_name(downstream)), downstream, admit)
        self.cache.forget(downstream)
        try:
            return await carry(self.named(downstream_name(downstream)), downstream, admit)
        finally:
            self.cache.forget(downstream)

    async def _redacted_error(self, refused: RpcError) -> RpcError:
        """Return an error of a downstream without its secrets."""
        said, _ = await self._redacted({"message": refused.message, "error": refused.data})
        return RpcError(refused.code, str(said["message"]), said["error"])

    async def _redacted(self, result: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
        """Return the result with its secrets masked, and their kinds."""
        text = "\n".join(redaction.lines_of(result))
        if len(text) <= _MASKED_HERE:
            return redaction.redact(self.masker, result, text)
        return await trio.to_thread.run_sync(redaction.redact, self.masker, result, text, abandon_on_cancel=True)


def _decided(now: OfferSnapshot, caller: GatewayCaller, target: Target, request_id: str | None = None) -> Effect:
    """Return what a call needs. Raises GatewayRefused if the agent's role denies it."""
    decision = now.decide(caller.identity, target.downstream, target.verb)
    if decision is Effect.DENY:
        role, _ = now.role_of(caller.identity)
        what = "you have no role, so you" if role is None else f"your role {role}"
        raise GatewayRefused(
            InvocationStatus.PERMISSION_DENIED,
            f"{what} may not call {target.label}, and nothing was sent: use another tool, or ask"
            f" the person to allow it (agent-intercom-ctl gateway explain {quote(role or 'ROLE')}"
            f" {target.downstream} {quote(one_line(target.verb)[:80])})",
            request_id=request_id,
        )
    return decision


def _require_offered(now: OfferSnapshot, target: Target, request_id: str | None) -> None:
    """Raise GatewayRefused if what is called is gone."""
    is_offered = target.downstream in now.configs
    if target.is_tool:
        offered = ((each.downstream, each.tool) for each in now.catalog.entries)
        is_offered = (target.downstream, target.verb) in offered
    if not is_offered:
        raise GatewayRefused(
            InvocationStatus.PERMISSION_DENIED,
            f"{target.label} was approved, but agents cannot call it any more, and nothing was sent: list the tools"
            " again, and call one of those",
            request_id=request_id,
        )


def _marked(result: JsonObject, redacted: tuple[str, ...], remaining: Remaining | None, invocation: str) -> JsonObject:
    """Add to `_meta` what was redacted, what remains of the budget, and the id of the record. A downstream's own values
    under these names are left out."""
    meta = {key: value for key, value in part(result, "_meta").items() if key not in _MARKS}
    marks: JsonObject = {INVOCATION: invocation}
    if redacted:
        marks[REDACTED] = list(redacted)
    if remaining is not None:
        limits: JsonObject = {
            name: value
            for name, value in (
                ("burst", remaining.burst),
                ("concurrent", remaining.concurrent),
                ("calls_today", remaining.calls),
            )
            if value is not None
        }
        if limits:
            marks[REMAINING] = limits
    return {**result, "_meta": {**meta, **marks}}


def error_text(result: JsonObject) -> str:
    """Return what a record says of a result that is an error: the beginning of the tool's own text. It may have
    secrets."""
    content = result.get("content")
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    said = next((text for each in blocks if isinstance(text := each.get("text"), str) and text.strip()), "")
    return f"the tool reports an error: {said}" if said else "the tool reports an error"


def _digest(state: str) -> bytes:
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).digest()


def _is_read_only(snapshot: OfferSnapshot, target: Target) -> bool:
    """Whether a call changes nothing: it reads a resource or a prompt, or the configuration says so of the tool."""
    return not target.is_tool or snapshot.is_read_only(target.downstream, target.verb)


def _has_more(meta: Json) -> bool:
    """Whether a request's `_meta` has more than every client sends."""
    return isinstance(meta, dict) and any(not key.startswith(_USUAL_META) for key in meta)
