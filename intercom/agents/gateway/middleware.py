"""The gateway in the MCP server: answers agents' requests for downstreams' tools, and adds these to the lists.

It is a middleware of the SDK's server. A request for a downstream never reaches the SDK's handlers: they would validate
it against the SDK's models, and drop what these do not know. So results pass as the downstream gave them. What the SDK
adds to results of protocol version 2026-07-28, this adds itself.

A downstream's result stays as it is. What an operator says to the agent comes behind it, as one more text, if it is
the result of a tool. Other results have no place for it, and leave it to the next one.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import mcp_types as types
import trio
from attrs import define, evolve, field
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from intercom.agents import tool_call
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.gateway.client_peer import LEVELS, LOG_LEVEL_KEY, ClientPeer, Context, peer_of
from intercom.agents.gateway.open_calls import CAPABILITIES_TO_ASK, NOBODY, OpenCalls
from intercom.agents.gateway.search_tools import NAMES as SEARCH_NAMES
from intercom.agents.gateway.search_tools import SearchMode
from intercom.agents.mcp_request import caller_of, connection_and_response
from intercom.agents.tool_call import ToolCall, error_content, paused_content
from intercom.gateway.assignments import AgentIdentity
from intercom.gateway.call_cards import Target
from intercom.gateway.call_journal import JournalError
from intercom.gateway.calls import Answer, Approval, ApprovalPending, GatewayCaller
from intercom.gateway.catalog import SEPARATOR
from intercom.gateway.messages import CallFailed, GatewayRefused, InvocationStatus, RpcError
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.resources_and_prompts import PROMPTS, RESOURCES, Place
from intercom.gateway.service import Gateway
from intercom.model.errors import IntercomError, Paused, WorkspaceRefused
from intercom.model.json_types import Json, JsonObject, part
from intercom.model.metrics import Measured, ToolCalled
from intercom.model.request import Operation
from intercom.sessions.messages import Answered, AskPermission, Delivery, Undeliver, UseDownstream
from intercom.sessions.tools.tool import Hints, Tool

log = logging.getLogger("intercom.agents")

#: The message to the session before each call, as a tool: a paused agent's call waits, and instructions come with it.
_USE: Final = Tool(
    name="downstream", title="A downstream's tool", description="", takes=UseDownstream, result=object, hints=Hints()
)
#: The slot of the permissions that the gateway asks for.
_SLOT: Final = "gateway"
#: What says that a list is an agent's own, and may be another one the next time.
_FRESH: Final[JsonObject] = {"ttlMs": 0, "cacheScope": "private"}
#: How clients of 2026-07-28 hear of changes, and the name of all of them as a listener of the gateway.
_LISTEN: Final = "subscriptions/listen"
_SUBSCRIBERS: Final = "subscribers"
#: How long after its start the server lets a list wait for what downstreams offer, and a call for its tool (seconds).
#: The first start of a downstream may install it.
_LIST_SECONDS: Final = 5.0
_START_SECONDS: Final = 30.0
#: How often it is looked at whether they have said so (seconds): a list of nothing is no change.
_LOOK_SECONDS: Final = 0.1
#: The requests whose answers depend on what downstreams offer.
_OF_DOWNSTREAMS: Final = frozenset(
    {
        "tools/call",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    }
)
#: The schemes of Intercom's own resources, in lower case: no downstream answers for them.
_OWN_SCHEMES: Final = ("slack:", "intercom:")
_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
#: What a server with a gateway can do beyond its own tools.
_CAPABILITIES: Final[Mapping[str, JsonObject]] = {
    "prompts": {},
    "resources": {},
    "completions": {},
    "logging": {},
    "tools": {},
}


@define(eq=False)
class Subscribers:
    """The streams of clients of 2026-07-28 that want to hear of changed lists: what the SDK calls a bus."""

    _listeners: dict[object, Callable[[ServerEvent], None]] = field(factory=dict, init=False)
    #: Set at the next change.
    next_change: trio.Event = field(factory=trio.Event, init=False)
    _has_changed: bool = field(default=False, init=False)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Have `listener` called for each event. Returns what ends that."""
        key = object()
        self._listeners[key] = listener
        return partial(self._leave, key)

    def _leave(self, key: object) -> None:
        self._listeners.pop(key, None)

    async def publish(self, event: ServerEvent) -> None:
        """Tell all of an event. They only note it."""
        for listener in tuple(self._listeners.values()):
            listener(event)
        await trio.lowlevel.checkpoint()

    def changed(self) -> None:
        """Tell all that every list may have changed."""
        self._has_changed = True
        self.next_change.set()
        self.next_change = trio.Event()
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            self.tell(event)

    @property
    def has_changed(self) -> bool:
        """Whether anything has changed yet: what the gateway has at first is nothing."""
        return self._has_changed

    def tell(self, event: ServerEvent) -> None:
        """Tell all of an event, without a checkpoint."""
        for listener in tuple(self._listeners.values()):
            listener(event)


@define(eq=False)
class GatewayMiddleware:
    """Answers the requests that concern downstreams; others pass. `measured` gets every finished call."""

    gateway: Gateway
    server: Server[object]
    measured: Measured
    #: The least severe log messages that each agent wants, by the id of its connection.
    _levels: dict[str, str] = field(factory=dict, init=False)
    _held: OpenCalls = field(factory=OpenCalls, init=False)
    _subscribers: Subscribers = field(factory=lambda: Subscribers(), init=False)
    _search: SearchMode = field(init=False)
    #: Until when requests wait for downstreams that the start of the server has started, too (`time.monotonic`).
    _starts_until: float = field(factory=lambda: time.monotonic() + _START_SECONDS, init=False)

    def __attrs_post_init__(self) -> None:
        self.gateway.listen(_SUBSCRIBERS, self._subscribers.changed)
        listen = ListenHandler(self._subscribers)
        self.server.add_request_handler(_LISTEN, types.SubscriptionsListenRequestParams, listen)
        self._search = SearchMode(lambda: self.gateway.snapshot, self.gateway.call_tool)

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.session.client_params is None and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # Before the handshake the SDK answers alone.
            return await self._greeted(ctx, call_next)
        params = ctx.params or {}
        if time.monotonic() < self._starts_until:
            await self._started(ctx.method, params.get("name"))
        match ctx.method:
            case "tools/call":
                name = params.get("name")
                if isinstance(name, str) and (self._is_search(name) or self.gateway.has_tool(name)):
                    return await self._call(ctx, name)
            case "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" if not params.get(
                "cursor"
            ):
                return await self._list(ctx, call_next)
            case "prompts/get" if str(params.get("name")) not in self.gateway.own_prompts:
                return await self._read(ctx, self._prompt(ctx))
            case "resources/read":
                place = self._resource(ctx)
                if place is not None:
                    return await self._read(ctx, place)
            case "completion/complete":
                return await self._complete(ctx)
            case "logging/setLevel":
                return await self._set_level(ctx)
            case "initialize" | "server/discover":
                return await self._greeted(ctx, call_next)
            case "resources/subscribe" | "resources/unsubscribe" if not self._is_modern(ctx):
                return self._watch(ctx, self._resource(ctx))
            case "subscriptions/listen":
                return await self._stream(ctx, call_next)
        return await call_next(ctx)

    async def _started(self, method: str, name: Json) -> None:
        """Wait, just after the start of the server, until downstreams have said what they offer. Clients read their
        lists once, right after they have started the server; and a shim repeats calls to the next server."""
        wait = _START_SECONDS if method == "tools/call" else _LIST_SECONDS
        until = self._starts_until - _START_SECONDS + wait
        while time.monotonic() < until and self._is_awaited(method, name):
            with trio.move_on_after(_LOOK_SECONDS):
                await self._subscribers.next_change.wait()

    def _is_awaited(self, method: str, name: Json) -> bool:
        snapshot = self.gateway.snapshot
        starting = {
            each for each, config in snapshot.configs.items() if config.enabled and not _has_said(snapshot, each)
        }
        if method == "tools/call":
            if not isinstance(name, str) or name in self.gateway.own_tools - SEARCH_NAMES:
                return False
            if snapshot.catalog.find(name) is not None:
                return False
            before, separator, _ = name.partition(SEPARATOR)
            if separator and snapshot.configs:
                return before in starting
        return method in _OF_DOWNSTREAMS and (bool(starting) or not self._subscribers.has_changed)

    async def _greeted(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Declare what downstreams make possible."""
        answer = await call_next(ctx)
        if not isinstance(answer, dict) or not isinstance(declared := answer.get("capabilities"), Mapping):
            return answer
        more = {name: {**own, **part(dict(declared), name)} for name, own in _CAPABILITIES.items()}
        changing: JsonObject = {name: {**more[name], "listChanged": True} for name in ("tools", "resources", "prompts")}
        part(changing, "resources")["subscribe"] = True
        return {**answer, "capabilities": {**declared, **more, **changing}}

    # --- lists -------------------------------------------------------------------------------------------------------

    async def _list(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        answer = await call_next(ctx)
        return self._with(answer, ctx) if isinstance(answer, dict) else answer

    def _with(self, answer: JsonObject, ctx: Context) -> JsonObject:
        """Add to a list what downstreams have. It is an agent's own then: a cache must not give it to another one."""
        self._listen(ctx)
        agent = _identity(ctx)
        match ctx.method:
            case "tools/list":
                key, more = "tools", (*self.gateway.listed(agent), *self._search.listed(agent))
            case "resources/list":
                key, more = "resources", self.gateway.resources(agent)
            case "resources/templates/list":
                key, more = "resourceTemplates", self.gateway.templates(agent)
            case _:
                key, more = "prompts", self.gateway.prompts(agent)
        known = answer.get(key)
        found = {**answer, key: [*(known if isinstance(known, list) else []), *more]}
        return {**found, **_FRESH} if "cacheScope" in answer else found

    def _listen(self, ctx: Context) -> None:
        """Tell the client when its lists change, until its connection is closed. Clients of 2026-07-28 listen by
        themselves."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        connection, _ = connection_and_response(ctx)
        # The channel outside of requests is private, too.
        peer = ClientPeer(connection.name, {}, ctx.session._connection.outbound)

        def changed() -> None:
            for kind in ("tools", "resources", "prompts"):
                peer.notify(f"notifications/{kind}/list_changed", {})

        self.gateway.listen(connection.name, changed)
        self._leave_with(connection)

    def _leave_with(self, connection: AgentConnection) -> None:
        connection.when_closed("gateway", partial(self._leave, connection.name))

    def _leave(self, agent: str) -> None:
        self._levels.pop(agent, None)
        self._held.leave(agent)
        self.gateway.leave(agent)

    # --- resources, prompts, completions, logs -----------------------------------------------------------------------

    def _prompt(self, ctx: Context) -> tuple[Target, JsonObject]:
        params = self._params(ctx)
        name = str(params.get("name", ""))
        place = self.gateway.find_prompt(_identity(ctx), name)
        if place is None:
            raise MCPError(types.INVALID_PARAMS, f"no prompt is called {name[:80]!r}: list the prompts again")
        target = Target(place.downstream, PROMPTS, f"the prompt {name[:80]}", is_tool=False)
        return target, {**params, "name": place.name}

    def _resource(self, ctx: Context) -> tuple[Target, JsonObject] | None:
        params = self._params(ctx)
        address = params.get("uri")
        if not isinstance(address, str) or address.lower().startswith(_OWN_SCHEMES):
            return None
        place = self.gateway.find_resource(_identity(ctx), address)
        if place is None:
            return None
        target = Target(place.downstream, RESOURCES, f"resources of {place.downstream}", is_tool=False)
        return target, {**params, "uri": place.name}

    async def _read(self, ctx: Context, found: tuple[Target, JsonObject]) -> JsonObject:
        """Read a resource or a prompt. A failure is an error of the protocol: their results have no other form."""
        target, params = found
        shown: JsonObject = {key: params[key] for key in ("name", "uri", "arguments") if key in params}

        async def carry_out(caller: GatewayCaller) -> JsonObject:
            return await self.gateway.calls.carry_out(caller, target, ctx.method, params, shown)

        try:
            result, _ = await self._carry_out(ctx, target.label, carry_out, tells=False)
        except RpcError as refused:
            raise MCPError(refused.code, refused.message, refused.data) from None
        except ApprovalPending as pending:
            raise MCPError(types.INTERNAL_ERROR, str(_pending(target.label, pending)["message"])) from None
        except Exception as failed:
            raise MCPError(types.INTERNAL_ERROR, _refusal(failed, target).message) from None
        return self._finished(ctx, {**_FRESH, **result} if self._is_modern(ctx) else result)

    def _params(self, ctx: Context) -> JsonObject:
        """Return the parameters of a request. An agent of an older version sets its log level once, and a downstream of
        2026-07-28 is told of it with each request."""
        params: JsonObject = dict(ctx.params or {})
        level = None if self._is_modern(ctx) else self._levels.get(connection_and_response(ctx)[0].name)
        return params if level is None else {**params, "_meta": {**part(params, "_meta"), LOG_LEVEL_KEY: level}}

    async def _complete(self, ctx: Context) -> JsonObject:
        """Complete an argument of a prompt or a template. What nobody completes has no completions."""
        params = self._params(ctx)
        ref = part(params, "ref")
        agent = _identity(ctx)
        nothing: JsonObject = {"completion": {"values": []}}
        kind, named = ref.get("type"), {key for key in ("name", "uri") if key in ref}
        if kind == "ref/prompt" and named == {"name"}:
            place, key, verb = self.gateway.find_prompt(agent, str(ref["name"])), "name", PROMPTS
        elif kind == "ref/resource" and named == {"uri"}:
            place, key, verb = self.gateway.find_template(agent, str(ref["uri"])), "uri", RESOURCES
        else:
            raise MCPError(types.INVALID_PARAMS, "ref must be a ref/prompt with a name, or a ref/resource with a uri")
        # Nobody is asked while somebody types: what a person would be asked about has no completions.
        if place is None or not self.gateway.may_at_once(agent, place.downstream, verb):
            return self._finished(ctx, nothing)
        target = Target(place.downstream, verb, f"completions of {place.downstream}", is_tool=False)
        sent = {**params, "ref": {"type": kind, key: place.name}}
        # What the answer depends on: equal ones may be answered from the cache.
        shown = {"ref": sent["ref"], "argument": params.get("argument"), "context": params.get("context")}

        async def carry_out(caller: GatewayCaller) -> JsonObject:
            return await self.gateway.calls.carry_out(caller, target, ctx.method, sent, shown)

        try:
            result, _ = await self._carry_out(ctx, target.label, carry_out, tells=False)
        except (RpcError, CallFailed, IntercomError):
            result = nothing
        return self._finished(ctx, result)

    async def _set_level(self, ctx: Context) -> JsonObject:
        """Note from which severity on this agent wants log messages, and ask downstreams for the least severe that any
        agent wants."""
        level = (ctx.params or {}).get("level")
        if level not in LEVELS:
            raise MCPError(types.INVALID_PARAMS, f"level must be one of {', '.join(LEVELS)}")
        connection, _ = connection_and_response(ctx)
        self._levels[connection.name] = str(level)
        self._leave_with(connection)
        self.gateway.set_log_level(min(self._levels.values(), key=LEVELS.index))
        return self._finished(ctx, {})

    def _watch(self, ctx: Context, found: tuple[Target, JsonObject] | None) -> JsonObject:
        """Tell the client when a resource changes, until it unsubscribes or its connection is closed."""
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "no downstream has a resource with this uri: list the resources again")
        target, params = found
        connection, _ = connection_and_response(ctx)
        agent, shown = _identity(ctx), str((ctx.params or {})["uri"])
        place = Place(target.downstream, str(params["uri"]))
        if ctx.method == "resources/unsubscribe":
            self.gateway.watchers.unwatch(connection.name, place)
            return self._finished(ctx, {})
        peer = ClientPeer(connection.name, {}, ctx.session._connection.outbound)

        def changed() -> None:
            # Its role may have changed meanwhile.
            if self.gateway.find_resource(agent, shown) is not None:
                peer.notify("notifications/resources/updated", {"uri": shown})

        self._leave_with(connection)
        if not self.gateway.watchers.watch(connection.name, {place: changed}):
            raise MCPError(types.INVALID_PARAMS, "too many resources are subscribed, or its address is too long")
        return self._finished(ctx, {})

    async def _stream(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Hold the stream on which a client of 2026-07-28 hears of changes. It acknowledges what it gets: resources
        that are nobody's are left out."""
        params = dict(ctx.params or {})
        wanted, agent, watcher = part(params, "notifications"), _identity(ctx), f"stream {uuid.uuid4()}"
        asked = wanted.get("resourceSubscriptions")
        shown = [each for each in (asked if isinstance(asked, list) else []) if isinstance(each, str)]
        places = {each: place for each in shown if (place := self.gateway.find_resource(agent, each)) is not None}
        tells = {place: partial(self._subscribers.tell, ResourceUpdated(each)) for each, place in places.items()}
        try:
            known = self.gateway.watchers.watch(watcher, tells)
            watched: list[Json] = [each for each, place in places.items() if place in known]
            wanted = {**wanted, "resourceSubscriptions": watched or None}
            return await call_next(replace(ctx, params={**params, "notifications": wanted}))
        finally:
            self.gateway.watchers.leave(watcher)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _call(self, ctx: Context, name: str) -> JsonObject:
        """Call a downstream's tool, and measure it. A failure is a result, but an error of the protocol passes."""
        began = time.monotonic()
        outcome = "cancelled"
        try:
            try:
                result = await self._answer(ctx, name)
                outcome = "error" if result.get("isError") else "ok"
            except RpcError as refused:
                outcome = str(refused.code)
                raise MCPError(refused.code, refused.message, refused.data) from None
            except ApprovalPending as pending:
                outcome = "pending"
                result = _result(_pending(name, pending))
            except Paused as paused:
                outcome = "paused"
                result = _result(paused_content(name, paused))
            except Exception as failed:
                called = self._search.tool_of(name, dict(ctx.params or {}))
                if isinstance(failed, WorkspaceRefused):
                    await self._record_without_session(ctx, called, failed)
                refused_call = _refusal(failed, self.gateway.target(called))
                outcome = refused_call.error_code
                result = _result(_error(refused_call), is_error=True)
            return self._finished(ctx, result)
        finally:
            self.measured(ToolCalled("gateway", outcome, time.monotonic() - began))

    async def _record_without_session(self, ctx: Context, called: str, refused: WorkspaceRefused) -> None:
        """Record a call of an agent that has no workspace, and so no session."""
        if self._is_search(called):
            return
        params = self._params(ctx)
        if called != params.get("name"):
            params = part(params, "arguments")
        agent, target, log = _identity(ctx), self.gateway.target(called), self.gateway.log
        role, _ = self.gateway.snapshot.role_of(agent)
        with suppress(JournalError):
            await log.ready()
            invocation = log.new(
                run_id="",
                agent_id=agent.id,
                agent_role=role or "",
                tool=target.downstream,
                method=target.verb,
                arguments=params.get("arguments"),
                call=caller_of(ctx).call_name,
            )
            status = InvocationStatus.WORKSPACE_REFUSED
            log.refuse(evolve(invocation, status=status, error_message=refused.message))

    def _is_search(self, name: str) -> bool:
        return name in SEARCH_NAMES and self.gateway.snapshot.has_search

    async def _answer(self, ctx: Context, name: str) -> JsonObject:
        params = self._params(ctx)

        async def carry_out(caller: GatewayCaller) -> JsonObject:
            call_tool = self._search.call if self._is_search(name) else self.gateway.call_tool
            return await call_tool(caller, name, params)

        result, answered = await self._carry_out(ctx, name, carry_out)
        return _with_told(result, answered)

    async def _carry_out(
        self,
        ctx: Context,
        label: str,
        act: Callable[[GatewayCaller], Awaitable[JsonObject]],
        *,
        tells: bool = True,
    ) -> tuple[JsonObject, Answered[object]]:
        """Carry out a request in the agent's session: it waits while that is paused. Returns its result, and what an
        operator says to the agent: nothing unless `tells`, which says that the result has a place for it."""
        connection, response = connection_and_response(ctx)
        caller = caller_of(ctx)
        peer = peer_of(ctx, connection.name, self._levels.get(connection.name))
        params = ctx.params or {}
        state = params.get("requestState")
        owner = NOBODY if connection.anonymous else connection.name
        # Downstreams may have a connection for this agent alone.
        self._leave_with(connection)
        async with connection.answering(_USE, UseDownstream(label), caller, ctx.request_id, response) as call:
            answered = await call.run()
            rejected: list[str] = []
            refusal: GatewayRefused | None = None
            result: JsonObject = {}
            asking = GatewayCaller(
                identity=_identity(ctx, call.session_id),
                peer=peer,
                run_id=call.session_id,
                ask=partial(_ask, call, connection.client_name or "agent", rejected),
                call=caller.call_name,
                progress_token=_progress_token(ctx),
                modern=self._is_modern(ctx),
                is_anonymous=connection.anonymous,
            )
            token = asking.progress_token
            try:
                if self._held.is_open_call(state):
                    answers = params.get("inputResponses")
                    result = await self._held.resume(owner, label, peer, token, str(state), answers)
                elif asking.modern and peer.capabilities.keys() & CAPABILITIES_TO_ASK:
                    result = await self._held.run(
                        owner, label, peer, token, lambda asked: act(evolve(asking, peer=asked))
                    )
                else:
                    result = await act(asking)
            except GatewayRefused as refused:
                if not rejected:
                    raise
                refusal = refused
            finally:
                await peer.close()
            if not tells or refusal is not None or result.get("resultType") == "input_required":
                answered = _untold(call, answered)
            if rejected:
                # The error says it, so the agent must not hear of it again.
                call.delivery = Delivery(call.name, tuple(rejected))
        if refusal is not None:
            raise refusal
        return result, answered

    def _is_modern(self, ctx: Context) -> bool:
        return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def _finished(self, ctx: Context, result: JsonObject) -> JsonObject:
        """Add what protocol version 2026-07-28 requires of every result."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return result
        meta = result.get("_meta")
        own: JsonObject = {_SERVER_INFO: self.server.server_info_stamp}
        return {"resultType": "complete", **result, "_meta": {**(meta if isinstance(meta, dict) else {}), **own}}


def _identity(ctx: Context, session_id: str | None = None) -> AgentIdentity:
    """Return who an agent is, for its role. Before its first call it has no session, unless it was started for one."""
    connection, _ = connection_and_response(ctx)
    client = ctx.session.client_params
    return AgentIdentity(
        id=connection.name,
        client=client.client_info.name if client is not None else None,
        session=session_id or connection.session_id or connection.known_session(caller_of(ctx)),
        token=connection.role_token,
    )


def _has_said(snapshot: OfferSnapshot, downstream: str) -> bool:
    """Whether a downstream has said what it offers, now or in an earlier run."""
    offer = snapshot.offers.get(downstream)
    return offer is not None and bool(offer.version or offer.tools)


def _progress_token(ctx: Context) -> str | int | None:
    meta = (ctx.params or {}).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


async def _ask(call: ToolCall, client: str, rejected: list[str], operation: Operation) -> Approval:
    """Ask the policy, then a person, whether a call may be sent. An approval is used up by the answer "allowed", and a
    rejection is added to `rejected`."""
    # The name tells a repetition after a crash from another call with the same arguments.
    answer = await call.permission(AskPermission(call.name, client, operation, _SLOT))
    match answer.status:
        case "allowed":
            return Approval(Answer.ALLOWED, answer.request_id, answer.rule or answer.reason)
        case "pending":
            return Approval(Answer.PENDING, answer.request_id)
    if answer.request_id is not None:
        rejected.append(answer.request_id)
    said = Answer.TIMED_OUT if answer.status == "timeout" else Answer.DENIED
    return Approval(said, answer.request_id, answer.reason)


def _untold(call: ToolCall, answered: Answered[object]) -> Answered[object]:
    """Leave what is told to the agent to another result."""
    if call.delivery is not None:
        call.session.tell(Undeliver((call.name,)))
        call.delivery = None
    return Answered(answered.answer)


def _with_told(result: JsonObject, answered: Answered[object]) -> JsonObject:
    """Add what an operator says to the agent, behind the downstream's own result."""
    told = tool_call.content(answered)
    if not told:
        return result
    content = result.get("content")
    text: JsonObject = {"type": "text", "text": f"From Intercom: {json.dumps(told, ensure_ascii=False)}"}
    return {**result, "content": [*(content if isinstance(content, list) else []), text]}


def _result(content: JsonObject, *, is_error: bool = False) -> JsonObject:
    text: JsonObject = {"type": "text", "text": json.dumps(content, ensure_ascii=False)}
    # Without structured content: it would have to fit the schema of the downstream's tool.
    return {"content": [text], "isError": is_error}


def _pending(name: str, pending: ApprovalPending) -> JsonObject:
    return {
        "status": "pending",
        "request_id": pending.request_id,
        "message": f"a person has not decided about this call yet, and nothing was sent: call {name} again with the"
        " same arguments to keep waiting",
    }


def _error(refused: IntercomError) -> JsonObject:
    content = error_content(refused)
    if isinstance(refused, GatewayRefused) and refused.retry_after is not None:
        content["retry_after_seconds"] = round(refused.retry_after, 1)
    return content


def _refusal(failed: Exception, target: Target) -> IntercomError:
    """Return the error that the agent gets for a failed call."""
    if not isinstance(failed, CallFailed):
        return tool_call.refusal(failed, target.label)
    downstream = target.downstream
    effect = (
        "whether the call had its effect is not known: look before you call again"
        if failed.was_sent
        else "nothing was sent: call again in a moment"
    )
    code = "timeout" if failed.failure.value == "timeout" else "downstream_failed"
    return IntercomError(f"{downstream} {_clause(failed.reason)}; {effect}", code=code)


def _clause(reason: str) -> str:
    """Return a reason so that it can follow the name of a downstream."""
    return reason if reason.split(" ")[0] in ("did", "was", "could", "sent", "has") else f"failed: {reason}"
