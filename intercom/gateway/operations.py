"""What people do with the gateway, from ctl and other channels."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from typing import Final

import trio
from attrs import define, evolve, field, frozen

from actors import Busy, Down, NotRunning, ask
from intercom.gateway import call_log_reader, health_report
from intercom.gateway.breaker import NEEDS_SIGN_IN
from intercom.gateway.budgets import MICROS
from intercom.gateway.call_journal import Invocation
from intercom.gateway.calls import error_text
from intercom.gateway.catalog import exposed_name, named_tool
from intercom.gateway.config_directory_check import faults_first, lint_findings
from intercom.gateway.downstream_config import DownstreamConfig, Sharing, expand
from intercom.gateway.health_report import target_of
from intercom.gateway.messages import (
    CallFailed,
    Describe,
    Downstream,
    GatewayRefused,
    InvocationStatus,
    RpcError,
    SetEnabled,
    downstream_name,
)
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.role_view import explain_role
from intercom.gateway.service import ANSWER_SECONDS, Gateway
from intercom.gateway.tool_arguments import misfits_of, parameters_of, read_arguments
from intercom.gateway.tool_change_cards import Admit
from intercom.masking import Masker
from intercom.model.card import Card
from intercom.model.decision import Signature, Verdict, signature_data
from intercom.model.errors import IntercomError, InvalidArguments, InvalidState, NotFound
from intercom.model.gateway_view import (
    BudgetView,
    CallResult,
    CallTail,
    CheckedCall,
    DownstreamDetail,
    DownstreamStatus,
    DownstreamView,
    EvidenceFound,
    EvidenceLine,
    HealthReport,
    LintFinding,
    RoleExplanation,
    ToolView,
)
from intercom.model.json_types import Json, JsonObject, part
from intercom.model.visible_text import one_line
from intercom.store import gateway as stored
from intercom.store.gateway import AllowedTool
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer_messages import Database

#: The role in the records of a person's own calls. No role of the configuration counts for them.
OPERATOR: Final = "operator"
#: How long a downstream's actor may take to describe itself (seconds). It never waits for the downstream.
DESCRIBE_SECONDS: Final = 2.0
#: The longest result that a person is shown whole, in characters of JSON, and how much is shown of a longer one.
RESULT_LENGTH: Final = 256 * 1024
SHOWN_LENGTH: Final = 32 * 1024
#: The most kept results that are shown in full at once.
MOST_SHOWN: Final = 20
#: How many of the latest acts are remembered.
REMEMBERED: Final = 20
#: The longest description of a tool that is shown beside others, and the longest message of a downstream, in
#: characters.
_DESCRIPTION: Final = 1_000
#: The most names in a message.
_NAMED: Final = 20


@frozen
class _NoClient:
    """The client behind a person's call, which has none: nothing can be asked of it."""

    id: str
    capabilities: JsonObject = field(factory=dict)

    def notify(self, method: str, params: JsonObject) -> None:
        pass

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        raise RpcError(-32601, "a person made this call with ctl, which cannot be asked: let an agent call this tool")


@define(eq=False)
class _Act:
    """An act of a person, and what came of it."""

    ended: trio.Event = field(factory=trio.Event)
    outcome: CallResult | IntercomError | None = None


@define(eq=False)
class GatewayPeople:
    """The operations of `intercom.model.gateway_view.GatewayOperations`."""

    gateway: Gateway
    store: Store
    reader: Reader
    masker: Masker = field(factory=Masker)
    _acts: OrderedDict[str, _Act] = field(factory=OrderedDict, init=False)

    # --- cards of changed tools -------------------------------------------------------------------------------------

    async def cards(self) -> tuple[Card, ...]:
        return self.gateway.cards.cards()

    async def find_card(self, prefix: str) -> Card | None:
        return self.gateway.cards.find(prefix)

    async def decide_card(self, card: Card, verdict: Verdict, admit: Admit) -> Card:
        return await self.gateway.cards.decide(card, verdict, admit)

    # --- state -------------------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[DownstreamView]:
        configs = (await self.gateway.current()).configs
        found = await self._describe_all()
        disabled = await self.reader.read(partial(_disabled, names=tuple(configs)))
        return [self._view(config, found.get(name), disabled.get(name)) for name, config in sorted(configs.items())]

    async def faults(self) -> Sequence[str]:
        return faults_first(self.gateway.snapshot.faults)

    async def show(self, name: str, tool: str | None = None) -> DownstreamDetail:
        await self.gateway.current()
        config = self.gateway.require(name)
        found = await self._describe(name)
        disabled, pins = await self.reader.read(partial(_disabled_and_pins, name=name))
        snapshot = self.gateway.snapshot
        offer = snapshot.offers.get(name) if found is None else found.offer
        marker = f"/{name}.json"
        _, tool = named_tool(snapshot.catalog, snapshot.configs, name, tool)
        tools = _tools(config, snapshot, found, pins, tool)
        if tool is not None and not tools:
            raise _no_tool(name, tool, [each.name for each in _tools(config, snapshot, found, pins, None)])
        return DownstreamDetail(
            summary=self._view(config, found, disabled),
            budget=_budget(config, found),
            sharing=config.sharing.value,
            expose=config.expose.value,
            capabilities=tuple(sorted(offer.capabilities)) if offer is not None else (),
            resources=0 if offer is None else len(offer.resources) + len(offer.templates),
            prompts=0 if offer is None else len(offer.prompts),
            classes=config.all_classes,
            tools=tools,
            faults=tuple(each for each in snapshot.faults if marker in each),
        )

    async def budgets(self) -> Sequence[BudgetView]:
        configs = self.gateway.snapshot.configs
        found = await self._describe_all()
        return [_budget(config, found.get(name)) for name, config in sorted(configs.items())]

    async def _describe_all(self) -> Mapping[str, Downstream]:
        """Return the state of all downstreams. One whose actor is restarting is left out."""
        found: dict[str, Downstream] = {}

        async def describe(name: str) -> None:
            state = await self._describe(name)
            if state is not None:
                found[name] = state

        async with trio.open_nursery() as nursery:
            for name in self.gateway.snapshot.configs:
                nursery.start_soon(describe, name)
        return found

    async def _describe(self, name: str) -> Downstream | None:
        try:
            actor = self.gateway.system.named(downstream_name(name))
            return await ask(actor, Describe(), timeout=DESCRIBE_SECONDS, retry=True)
        except (IntercomError, Busy, Down, NotRunning, trio.TooSlowError):
            return None

    def _view(self, config: DownstreamConfig, state: Downstream | None, disabled_by: str | None) -> DownstreamView:
        now = self.gateway.now()
        if state is None:
            return DownstreamView(
                config.name,
                config.transport.value,
                target_of(config),
                DownstreamStatus.OFFLINE,
                "the part of the server that speaks with it is restarting",
                now,
                config.enabled and disabled_by is None,
                disabled_by,
                description=config.description,
            )
        reason = state.breaker.reason
        if not state.enabled and disabled_by is not None:
            reason = f"{one_line(disabled_by)} has disabled it"
        elif not state.enabled and not config.enabled:
            reason = "its file disables it"
        return DownstreamView(
            name=config.name,
            transport=config.transport.value,
            target=target_of(config),
            status=DownstreamStatus(state.breaker.health.value),
            reason=reason,
            since=now - timedelta(seconds=state.since_seconds),
            is_enabled=state.enabled,
            disabled_by=disabled_by,
            circuit=state.breaker.circuit.value,
            description=config.description,
            protocol_version=state.offer.version,
            pid=state.pid,
            handshake_seconds=state.handshake_seconds,
            calls=state.calls,
            errors=state.errors,
            running=state.running,
            mean_seconds=state.mean_seconds,
            last_call_at=state.last_call_at,
            last_check_at=state.last_check_at,
            last_error=None if state.last_error is None else self.masker.mask(state.last_error).text,
            tools=len(state.offer.tools),
            withheld=state.withheld,
            needs_sign_in=state.enabled and config.signs_in and NEEDS_SIGN_IN in reason,
        )

    # --- acts --------------------------------------------------------------------------------------------------------

    async def test(self, name: str) -> HealthReport:
        gateway, config = self.gateway, self.gateway.require(name)
        expanding = partial(expand, lookup=gateway.lookup)
        return await health_report.examine(config, gateway.connect, expanding, gateway.now())

    async def set_enabled(
        self, name: str, enabled: bool, by: str, signature: Signature | None = None
    ) -> DownstreamView:
        config = self.gateway.require(name)
        if enabled and not config.enabled:
            raise InvalidState(f'the file of {name} disables it: remove "enabled": false there, which counts at once')
        # The store first: what a person decided must hold even if the server is killed now.
        at, signed = self.gateway.now(), signature_data(signature)
        work = partial(stored.record_enabled, downstream=name, enabled=enabled, by=by, at=at, signature=signed)
        await self.store.transact(work)
        actor = self.gateway.system.named(downstream_name(name))
        state = await ask(actor, SetEnabled(enabled), timeout=ANSWER_SECONDS, retry=True)
        return self._view(config, state, None if enabled else by)

    async def check(self, name: str, tool: str, arguments: str | None) -> CheckedCall:
        given = await self._checked(name, tool, arguments)
        return CheckedCall(name, tool, json.dumps(given, ensure_ascii=False))

    async def _checked(self, name: str, tool: str, arguments: str | None) -> JsonObject:
        """Return the arguments of a call that can be made, as far as is known now. Raises NotFound, InvalidState and
        InvalidArguments."""
        await self.gateway.current()
        self.gateway.require(name)
        schema = await self._require_tool(name, tool)
        given = read_arguments(arguments, schema)
        if misfits := await trio.to_thread.run_sync(misfits_of, schema, given):
            raise InvalidArguments(
                f"the arguments do not fit {tool[:80]}: {'; '.join(misfits)} (agent-intercom-ctl gateway show {name}"
                f" {tool[:80]} has them)"
            )
        return given

    async def call(self, name: str, tool: str, arguments: str | None, by: str, act: str | None = None) -> CallResult:
        given = await self._checked(name, tool, arguments)
        if act is None:
            return await self._call(name, tool, given, by, None)
        known = self._acts.get(act)
        if known is None:
            known = self._acts[act] = _Act()
            self._forget_acts()
            try:
                known.outcome = await self._call(name, tool, given, by, act)
            except IntercomError as refused:
                known.outcome = refused
            finally:
                known.ended.set()
        await known.ended.wait()
        if known.outcome is None:
            raise InvalidState("this call was cancelled, and may have had its effect: look before you call again")
        if isinstance(known.outcome, IntercomError):
            raise known.outcome
        return known.outcome

    def _forget_acts(self) -> None:
        """Forget the oldest acts that have ended: their results may be long."""
        ended = [act for act, each in self._acts.items() if each.ended.is_set()]
        for act in ended[: max(0, len(self._acts) - REMEMBERED)]:
            del self._acts[act]

    async def _call(self, name: str, tool: str, arguments: JsonObject, by: str, act: str | None) -> CallResult:
        log = self.gateway.log
        invocation = log.new(
            run_id="",
            agent_id=f"{OPERATOR}/{by}",
            agent_role=OPERATOR,
            tool=name,
            method=tool,
            arguments=arguments,
            call=act,
        )
        await log.ready()
        if act is not None and log.earlier(act) is not None:
            raise InvalidState(
                f"an earlier run of the server has sent this call of {name}, and its result is lost: look whether it"
                f" had its effect before you call again (agent-intercom-ctl gateway tail {name})",
                code=InvocationStatus.INTERRUPTED.value,
            )
        limits = self.gateway.require(name).budget
        invocation = evolve(invocation, cost=limits.cost_of(tool))
        log.begin(invocation)
        # A connection for this call alone, if the downstream keeps state for each agent.
        port = _NoClient(f"{OPERATOR}/{invocation.id}")
        try:
            return await self._sent(invocation, port, arguments)
        finally:
            config = self.gateway.snapshot.configs.get(name)
            if config is not None and config.sharing is Sharing.AGENT:
                self.gateway.leave(port.id)

    async def _sent(self, invocation: Invocation, port: _NoClient, arguments: JsonObject) -> CallResult:
        """Send a call whose record has begun, and end the record."""
        name, tool = invocation.tool, invocation.method
        params: JsonObject = {"name": tool, "arguments": arguments}
        began = trio.current_time()
        status, error, cost = InvocationStatus.CANCELLED, None, invocation.cost
        redacted: tuple[str, ...] = ()
        try:
            is_read_only = self.gateway.snapshot.is_read_only(name, tool)
            invoked = await self.gateway.calls.request(
                port, name, "tools/call", params, invocation.id, counts=True, is_read_only=is_read_only
            )
            cost = invoked.cost
            shown, text, redacted = await trio.to_thread.run_sync(_readable, self.masker, invoked.result)
            is_error = invoked.result.get("isError") is True
            status = InvocationStatus.ERROR if is_error else InvocationStatus.SUCCESS
            error = error_text(invoked.result) if is_error else None
        except GatewayRefused as refused:
            status, error = refused.status, refused.message
            raise
        except CallFailed as lost:
            is_late = lost.failure.value == "timeout"
            status, error = InvocationStatus.TIMEOUT if is_late else InvocationStatus.ERROR, lost.reason
            cost = cost if lost.was_sent else 0
            effect = "whether it had its effect is not known" if lost.was_sent else "nothing was sent"
            raise IntercomError(f"{name} gave no answer: {lost.reason}; {effect}", code="unavailable") from None
        except RpcError as refused:
            status, error = InvocationStatus.ERROR, f"error {refused.code}"
            said = one_line(self.masker.mask(refused.message[:_DESCRIPTION]).text)
            raise InvalidArguments(f"{name} refuses the call: {said} (error {refused.code})", code="mcp") from None
        except IntercomError as refused:
            status, error = InvocationStatus.ERROR, refused.message
            raise
        finally:
            seconds = trio.current_time() - began
            self.gateway.log.finish(
                evolve(
                    invocation,
                    seconds=seconds,
                    status=status,
                    error_message=error,
                    redaction_applied=bool(redacted),
                    cost=cost,
                )
            )
        return CallResult(name, tool, invocation.id, seconds, is_error, shown, text, redacted, cost / MICROS)

    async def _require_tool(self, name: str, tool: str) -> JsonObject:
        """Return the schema of a tool's arguments; an empty one if it is not known now. Raises NotFound for a tool that
        the downstream does not offer, and InvalidState for one that is withheld."""
        state = await self._describe(name)
        offered = {str(each.get("name")): each for each in state.offer.tools} if state is not None else {}
        if tool in offered:
            return part(offered[tool], "inputSchema")
        if state is not None and tool in state.withheld:
            raise InvalidState(
                f"{tool[:80]} of {name} is withheld, because it is not as it was allowed: decide about its card first"
                " (agent-intercom-ctl pending)"
            )
        if not offered:
            # It has never been connected. Its actor says why the call cannot be made.
            return {}
        raise _no_tool(name, tool, list(offered))

    # --- records -----------------------------------------------------------------------------------------------------

    async def tail(self, name: str | None = None, *, start: int | None = None, limit: int = 50) -> CallTail:
        if name is not None and name not in self.gateway.snapshot.configs and start is None:
            # A downstream that was removed still has its records.
            found = await self.reader.read(partial(call_log_reader.tail, name=name, start=start, limit=limit))
            if not found.calls:
                self.gateway.require(name)
            return found
        return await self.reader.read(partial(call_log_reader.tail, name=name, start=start, limit=limit))

    # --- roles and files ---------------------------------------------------------------------------------------------

    async def evidence(
        self, ids: Sequence[str] = (), *, session: str = "", name: str = "", tool: str = "", limit: int = 50
    ) -> EvidenceFound:
        if len(ids) > MOST_SHOWN:
            raise InvalidArguments(f"at most {MOST_SHOWN} results are shown at once: name fewer")
        if ids:
            return EvidenceFound(exports=await self.gateway.evidence.exported(ids))
        found = await self.gateway.evidence.listed(limit, run_id=session, tool=name, method=tool)
        return EvidenceFound(
            tuple(
                EvidenceLine(
                    each.id,
                    each.at,
                    each.run_id,
                    each.tool,
                    each.method,
                    each.invocation_id,
                    each.size,
                    each.redacted,
                )
                for each in found
            )
        )

    async def explain(self, role: str, name: str | None = None, tool: str | None = None) -> RoleExplanation:
        snapshot = await self.gateway.current()
        name, tool = named_tool(snapshot.catalog, snapshot.configs, name, tool)
        tools = [(each.downstream, each.tool) for each in snapshot.catalog.entries if name in (None, each.downstream)]
        notes = [] if name is None or tool is None else _notes(snapshot, name, tool)
        if tool is None and name is not None:
            self.gateway.require(name)
        return explain_role(snapshot.roles, snapshot.faults, role, tools, name, tool, notes)

    async def lint(self) -> Sequence[LintFinding]:
        snapshot = await self.gateway.reload()
        found = await self._describe_all()
        verbs: dict[str, tuple[str, ...] | None] = {}
        for name in snapshot.configs:
            state = found.get(name)
            is_known = state is not None and bool(state.offer.version)
            # What is withheld is there, too.
            verbs[name] = _names(state) if state is not None and is_known else None
        ids, agents = await self.reader.read(call_log_reader.sessions_and_agents)
        return lint_findings(snapshot.roles, snapshot.assignments, snapshot.faults, verbs, ids, agents)


def _no_tool(name: str, tool: str, names: Sequence[str]) -> NotFound:
    near = get_close_matches(tool[:80], names, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names[:_NAMED])}"
    if not names:
        hint = f"none of its tools is known now (agent-intercom-ctl gateway test {name})"
    return NotFound(f"{name} has no tool {tool[:80]!r}; {one_line(hint)}", code="unknown_tool")


def _names(state: Downstream) -> tuple[str, ...]:
    return (*(str(each.get("name")) for each in state.offer.tools), *state.withheld)


def _readable(masker: Masker, result: JsonObject) -> tuple[JsonObject | None, str, tuple[str, ...]]:
    """Return a result with its secrets masked, or the beginning of one that is too long; and the secrets' kinds."""
    text = json.dumps(result, ensure_ascii=False)
    if len(text) > RESULT_LENGTH:
        # More than is shown, because half a secret at the cut would not be recognised.
        part = masker.mask(text[: 2 * SHOWN_LENGTH])
        return None, part.text[:SHOWN_LENGTH], tuple(dict.fromkeys(part.kinds))
    masked = masker.mask(text)
    shown: JsonObject = masker.mask_all(result, frozenset({"data", "blob"}))
    if shown == result:
        return shown, "", ()
    return shown, "", tuple(dict.fromkeys(masked.kinds)) or ("secret",)


def _notes(snapshot: OfferSnapshot, name: str, tool: str) -> list[str]:
    """Return what else decides about a call of a tool."""
    config = snapshot.configs.get(name)
    if config is None:
        near = get_close_matches(name[:80], snapshot.configs, 1)
        hint = f": did you mean {near[0]}?" if near else "."
        return [f"Note: no MCP server is called {one_line(name)[:80]}{hint}"]
    offer = snapshot.offers.get(name)
    if not config.offers(tool):
        return [f"Note: the file of {name} lets nobody have this tool (capabilities, disabledTools)."]
    if offer is not None and offer.version and all(each.get("name") != tool for each in offer.tools):
        near = get_close_matches(tool[:80], [str(each.get("name")) for each in offer.tools], 1)
        hint = f": did you mean {near[0]}?" if near else "."
        return [one_line(f"Note: {name} does not offer this tool now, or it is withheld{hint}")]
    return []


def _tools(
    config: DownstreamConfig,
    snapshot: OfferSnapshot,
    state: Downstream | None,
    pins: Mapping[str, AllowedTool],
    only: str | None,
) -> tuple[ToolView, ...]:
    """Return all tools with the beginnings of their descriptions, or one with its whole description."""
    offer = snapshot.offers.get(config.name) if state is None else state.offer
    offered: dict[str, Mapping[str, Json]] = {}
    for each in offer.tools if offer is not None else ():
        offered[str(each.get("name"))] = each
    withheld = frozenset(state.withheld) if state is not None else frozenset()
    marks = state.marks if state is not None else {}
    exposed = {each.tool: each.name for each in snapshot.catalog.entries if each.downstream == config.name}
    found = []
    for name in sorted({*offered, *withheld}):
        if only not in (None, name):
            continue
        pin = pins.get(name)
        description = str(offered.get(name, {}).get("description") or "")
        if only is None and len(description) > _DESCRIPTION:
            description = f"{description[:_DESCRIPTION]}..."
        found.append(
            ToolView(
                name,
                exposed.get(name) or exposed_name(config.name, name),
                description,
                name in withheld,
                config.is_read_only(name),
                tuple(str(mark) for mark in marks.get(name, ())),
                None if pin is None else pin.allowed_at,
                None if pin is None else pin.allowed_by,
                None if pin is None else pin.sha256,
                () if only is None else parameters_of(part(offered.get(name, {}), "inputSchema")),
            )
        )
    return tuple(found)


def _budget(config: DownstreamConfig, state: Downstream | None) -> BudgetView:
    limits = config.budget
    view = BudgetView(
        downstream=config.name,
        requests_per_second=limits.requests_per_second,
        burst=None if limits.requests_per_second is None else limits.burst_size,
        concurrency=limits.concurrency_limit,
        timeout_seconds=limits.timeout_seconds,
        daily_calls=limits.daily_quota or None,
        daily_cost=limits.daily_cost / MICROS if limits.daily_cost else None,
    )
    if state is None:
        return view
    left, usage = state.remaining, state.usage
    # What was used on an earlier day does not count any more.
    is_today = usage.day == (left.resets_at - timedelta(days=1)).date()
    return evolve(
        view,
        calls_today=usage.calls if is_today else 0,
        cost_today=usage.cost / MICROS if is_today else 0.0,
        running=state.running,
        burst_left=left.burst,
        concurrency_left=left.concurrent,
        calls_left=left.calls,
        cost_left=None if left.cost is None else left.cost / MICROS,
        resets_at=left.resets_at,
    )


# --- in the store ----------------------------------------------------------------------------------------------------


def _disabled(db: Database, names: Sequence[str]) -> Mapping[str, str]:
    found = {name: stored.disabled_by(db, name) for name in names}
    return {name: by for name, by in found.items() if by is not None}


def _disabled_and_pins(db: Database, name: str) -> tuple[str | None, Mapping[str, AllowedTool]]:
    return stored.disabled_by(db, name), {each.tool: each for each in stored.pins_of(db, name)}
