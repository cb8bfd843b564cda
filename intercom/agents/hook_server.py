"""The hook server: answers clients' permission hooks (docs/reference/shim-wire.md), and the tool that asks the same.

A hook is a short process of the client that asks one question. It is answered in the session of the agent whose client
started it, with the same requests and cards as the agent's own calls. Without a known agent it gets its own session.

The tool is for Claude Code's `--permission-prompt-tool`. The client calls it itself, not its model, so it is not one of
the agents' tools; `[mcp] permission_prompt_tool` enables it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import trio
from attrs import define, evolve, field, frozen

from actors import System, ask
from intercom.agents import agent_process_records, argument_schemas
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.clients import CLIENTS, HOOKED, builtin_tools, client, hooks_of
from intercom.agents.hook_process import ASKED, PAUSED
from intercom.agents.sent_results import read_receipt, receipt, record_deliveries
from intercom.agents.tool_call import ToolCall, refusal
from intercom.model import limits
from intercom.model.config import Config
from intercom.model.errors import InvalidArguments, InvalidState, NotFound, Paused, WorkspaceRefused
from intercom.model.field_docs import doc
from intercom.model.json_types import JsonObject, part
from intercom.model.request import Operation
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.sessions.messages import (
    Activity,
    Admit,
    Agent,
    AgentsGone,
    Answered,
    AskPermission,
    Delivery,
    TakeInstructions,
    Undeliver,
    Wanted,
    key_of,
)
from intercom.sessions.request_kinds import PermissionAnswer, to_json
from intercom.sessions.tools.tool import Hints, Tool
from intercom.workspace import files

log = logging.getLogger("intercom.agents")

#: Time limit of the session registry, in seconds.
_SECONDS = 60.0


@frozen
class HookOrigin:
    """The origin of a hook, as it reports it: its client, conversation, directory, roots, and its session if known."""

    client: str
    conversation: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class HookDeps:
    """What one hook connection needs. `connections` are the agents' connections with their processes. `name` identifies
    this connection, and `pid` is the hook's process."""

    system: System
    config: Config
    connected_agents: ConnectedAgents
    connections: Mapping[str, tuple[AgentConnection, frozenset[int]]]
    name: str
    pid: int


async def session_of(hook: HookDeps, origin: HookOrigin, admitted: set[str]) -> str:
    """Return the running session of a hook; opens one if none is known. The key of an agent admitted for this is added
    to `admitted` before its admission. The caller must report the departure of `admitted`, also if this fails. Raises
    WorkspaceRefused if no session is known and a new one has no workspace."""
    found = await known_session(hook, origin)
    if found is not None:
        return found
    root = await trio.to_thread.run_sync(_workspace, hook, origin)
    client = hooks_of(origin.client).mcp_name
    agent = Agent(f"{client}:{origin.conversation or 'hook'}@{root}", client, root)
    admitted.add(agent.key)
    hook.connected_agents.came(agent.key, hook.name)
    return await ask(hook.system.named("registry"), Admit(agent), timeout=_SECONDS, retry=True)


async def known_session(hook: HookDeps, origin: HookOrigin, *, guess: bool = True) -> str | None:
    """Return the running session of a hook; None if none is known.

    The candidates, in this order:
    - the session that the hook names; without `guess`, only if no other client's agent is in it
    - that of the agent whose client started the hook, by process ancestry
    - that of the agent with this conversation
    - with `guess`, that of this client's only agent in the workspace, if that agent's conversation is unknown

    Raises WorkspaceRefused for a connection without a workspace.
    """
    if origin.client not in HOOKED:
        raise InvalidArguments(f"no client is called {origin.client[:80]!r}; there are: {', '.join(HOOKED)}")
    registry = hook.system.named("registry")
    if origin.session is not None:
        agent = hook.connected_agents.here.get(key_of(origin.session))
        if not guess and agent is not None and agent.client_name and not _is_named(origin, agent.client_name):
            # A client that the session's agent started inherits its environment, but is another agent.
            return None
        try:
            return await ask(registry, Wanted(origin.session), timeout=_SECONDS, retry=True)
        except NotFound:
            log.info("a hook names a session that is not known")
    for connection in await _connections(hook, origin):
        return await connection.session(_caller(hook, origin, connection))
    agent = _by_name(hook, origin)
    if agent is None and guess:
        agent = await trio.to_thread.run_sync(_by_workspace, hook, origin)
    if agent is None:
        return None
    return await ask(registry, Admit(agent), timeout=_SECONDS, retry=True)


async def _connections(hook: HookDeps, origin: HookOrigin) -> list[AgentConnection]:
    """Return the agent connections of this hook's client: those in whose workspace it is first, and then the newest
    first."""
    processes = {name: pids for name, (_, pids) in hook.connections.items()}
    names = await trio.to_thread.run_sync(agent_process_records.nearest, hook.pid, processes)
    found = [hook.connections[name][0] for name in reversed(names) if name in hook.connections]
    # A client that another client started has no part in the other's sessions.
    own = [each for each in found if each.client_name is None or _is_named(origin, each.client_name)]
    return sorted(own, key=lambda each: not _works_in(origin, each))


def _is_named(origin: HookOrigin, client_name: str | None) -> bool:
    """Whether this is the MCP name of the hook's client."""
    return CLIENTS[origin.client].is_named(client_name)


def _works_in(origin: HookOrigin, connection: AgentConnection) -> bool:
    root = connection.workspace or connection.cwd
    here = [origin.cwd, *origin.roots]
    return root is not None and any(each is not None and Path(each).is_relative_to(root) for each in here)


def _caller(hook: HookDeps, origin: HookOrigin, connection: AgentConnection) -> Caller:
    """Make the caller that the agent's own calls have."""

    async def roots() -> list[str]:
        if connection.cwd is None and not origin.roots:
            # Over HTTP only the hook has the client's directory.
            return [Path(await trio.to_thread.run_sync(_workspace, hook, origin)).as_uri()]
        return [Path(root).as_uri() for root in origin.roots if Path(root).is_absolute()]

    hooks = hooks_of(origin.client)
    thread = origin.conversation if hooks.names_thread else None
    return Caller(hooks.mcp_name, thread or None, None, roots, None)


def _by_name(hook: HookDeps, origin: HookOrigin) -> Agent | None:
    wanted = f":{origin.conversation}@"
    found = [agent for key, agent in hook.connected_agents.here.items() if origin.conversation and wanted in key]
    return found[0] if len(found) == 1 else None


def _by_workspace(hook: HookDeps, origin: HookOrigin) -> Agent | None:
    try:
        root = _workspace(hook, origin)
    except WorkspaceRefused:
        return None
    found = [
        agent
        for agent in list(hook.connected_agents.here.values())
        if agent.workspace == root and _is_named(origin, agent.client_name)
    ]
    # An agent with a named conversation is in another conversation than this one.
    found = [agent for agent in found if not agent.key.endswith(f"@{agent.workspace}")]
    # A process that continues an ended one's session beside its own is one agent.
    found = [agent for agent in found if agent.key not in hook.connected_agents.stand_ins] or found
    return found[0] if len(found) == 1 else None


def _workspace(hook: HookDeps, origin: HookOrigin) -> str:
    roots = [Path(root).as_uri() for root in origin.roots if Path(root).is_absolute()]
    return files.choose_workspace(None, roots, origin.cwd, hook.config.default_workspace_root)


def operation_of(found: client.Operation) -> Operation:
    """Convert an operation from a hook's table to the model's value."""
    return argument_schemas.read(Operation, found._asdict() | {"touches": list(found.touches)})


@frozen
class HookAnswer:
    """What a hook gets: `behavior` is allow or deny, `message` is for the model. `request_id` is the request of a no.
    `receipt` is for the hook to give back once it has passed the answer on."""

    behavior: str
    message: str
    request_id: str | None = None
    receipt: str | None = None


def hook_answer(answer: PermissionAnswer) -> HookAnswer:
    """Return what a hook gets for this answer."""
    if answer.status == "allowed":
        why = f"allowed by the policy: {answer.rule}" if answer.rule else "a person has allowed it"
        return HookAnswer("allow", f"{why}: {answer.reason}" if answer.reason else why)
    match answer.status:
        case "denied":
            reason = f": {answer.reason}" if answer.reason else ""
            why = f"a person has refused this{reason}; do not do it by other means"
        case "timeout":
            why = "nobody answered in time, so this is not allowed; ask again later, or do something else"
        case _:
            why = (
                f"not decided yet: request {answer.request_id} still waits for a person; do not do this by other means;"
                " try exactly the same again to continue waiting"
            )
    return HookAnswer("deny", why, answer.request_id)


def stop_message(answered: Answered[None]) -> str:
    """Return the text for an agent that is about to stop: undelivered decisions, and people's instructions."""
    lines = [
        f'the decision on "{late.title}" (request {late.request_id}): {json.dumps(late.answer)}'
        for late in answered.late_verdicts
    ]
    lines += [each.text for each in answered.instructions]
    return "\n".join(["before you stop, read this from an operator:", *lines])


@frozen
class PermissionPrompt:
    open_to_more: ClassVar[bool] = True

    tool_name: str = field(metadata=doc("The tool that is to be used.", min_length=1, most=limits.NAME))
    input: dict[str, Any] = field(metadata=doc("What it is to be used with.", verbatim=True))
    tool_use_id: str | None = field(
        default=None, metadata=doc("The client's name of this use of the tool.", most=limits.NAME)
    )


@frozen
class PermissionVerdict:
    """The decision in Claude Code's format."""

    behavior: str = field(metadata=doc('"allow" or "deny".'))
    updatedInput: dict[str, Any] | None = field(  # noqa: N815 - the client's spelling
        default=None, metadata=doc("The input to use: the one that was asked about.")
    )
    message: str | None = field(default=None, metadata=doc("Why not, for the model."))


PERMISSION_PROMPT = Tool(
    name="permission_prompt",
    title="Ask permission for a tool",
    description="For Claude Code's --permission-prompt-tool, not for you: may this tool be used with this input? The"
    " workspace's policy answers, or a person.",
    takes=PermissionPrompt,
    result=PermissionVerdict,
    hints=Hints(open_world=True),
)


async def permission_prompt(call: ToolCall) -> Answered[PermissionVerdict]:
    """Answer a call of this tool in Claude Code's format."""
    given: PermissionPrompt = call.given
    allowed = Answered(PermissionVerdict("allow", given.input))
    found = builtin_tools.operation(given.tool_name, given.input)
    if found.kind == client.OWN:
        return allowed
    if found.kind == client.INNER:
        # The client has asked, so a person decides even about its inner tools.
        found = builtin_tools.other(client.OTHER, given.tool_name, given.input)
    asked = AskPermission(call.name, "claude-code", operation_of(found), "claude-code/permission-prompt")
    answer = await call.permission(asked)
    if answer.request_id and answer.status not in ("allowed", "pending"):
        call.delivery = Delivery(call.name, (answer.request_id,))
    said = hook_answer(answer)
    return allowed if said.behavior == "allow" else Answered(PermissionVerdict("deny", message=said.message))


#: A hook asks once and confirms once. A connection with more requests than this is not a hook.
_MOST_QUESTIONS = 4

NextLine = Callable[[], Awaitable[bytes | None]]
Send = Callable[[JsonObject], Awaitable[None]]


@frozen
class PermissionParams(HookOrigin):
    """The parameters of `intercom/permission`."""

    call: str = field(kw_only=True)
    slot: str = field(kw_only=True)
    operation: Operation = field(kw_only=True)
    turn: str = ""


@frozen
class StoppingParams(HookOrigin):
    """The parameters of `intercom/stopping`."""

    call: str = field(kw_only=True)
    slot: str = ""


@frozen
class ToldParams:
    """The parameters of `intercom/told`."""

    receipt: str


async def attend(hook: HookDeps, next_line: NextLine, send: Send) -> None:
    """Answer a hook's requests until it disconnects. Unanswered requests stay open. Deliveries that the hook did not
    confirm become pending again."""
    connection = _HookConnection(hook, send)
    try:
        async with trio.open_nursery() as nursery:
            asked = 0
            while (line := await next_line()) is not None:
                if not line.startswith(b'{"intercom"'):
                    asked += 1
                    if asked > _MOST_QUESTIONS:
                        break
                    nursery.start_soon(connection.answer, line)
            nursery.cancel_scope.cancel()
    finally:
        connection.close()


@define
class _HookConnection:
    """One hook's connection. `unsure` maps calls whose answers may not have reached the hook to their sessions.
    `admitted` are the agents that it was admitted as, or is about to be, if it has its own sessions."""

    hook: HookDeps
    send: Send
    unsure: dict[str, str] = field(factory=dict, init=False)
    admitted: set[str] = field(factory=set, init=False)

    async def answer(self, line: bytes) -> None:
        request = _read(line)
        id = request.get("id")
        try:
            await self.send({"jsonrpc": "2.0", "id": id, "result": await self._result(request)})
        except trio.BrokenResourceError:
            raise
        except Exception as failed:
            refused = refusal(failed, "a hook's question")
            told: JsonObject = {"error_code": refused.error_code}
            error: JsonObject = {"code": -32000, "message": refused.message, "data": told}
            await self.send({"jsonrpc": "2.0", "id": id, "error": error})

    async def _result(self, request: JsonObject) -> JsonObject:
        params = part(request, "params")
        match request.get("method"):
            case "intercom/permission":
                return await self._permission(argument_schemas.read(PermissionParams, params))
            case "intercom/stopping":
                return await self._stopping(argument_schemas.read(StoppingParams, params))
            case "intercom/told":
                return await self._told(argument_schemas.read(ToldParams, params))
        known = "intercom/permission, intercom/stopping or intercom/told"
        raise InvalidArguments(f"a hook asks {known}; does it have another version?")

    async def _permission(self, given: PermissionParams) -> JsonObject:
        session_id = await session_of(self.hook, given, self.admitted)
        self.hook.system.named(f"stall/{session_id}").tell(Activity())
        session = self.hook.system.named(f"session/{session_id}")

        async def told(request_id: str | None) -> None:
            asked = {} if request_id is None else {"request_id": request_id}
            method = PAUSED if request_id is None else ASKED
            await self.send({"jsonrpc": "2.0", "method": method, "params": {**asked, "session_id": session_id}})

        # Noted before asking: the session may answer after the hook has gone.
        self.unsure[given.call] = session_id
        call = ToolCall(given.call, PERMISSION_PROMPT, session_id, session, None, told=told)
        asked = AskPermission(given.call, given.client, given.operation, given.slot, given.turn)
        answer = await call.permission(asked)
        result = hook_answer(answer)
        if answer.request_id and answer.status != "allowed":
            result = evolve(result, receipt=receipt(session_id, Delivery(given.call, (answer.request_id,))))
        else:
            self.unsure.pop(given.call, None)
        return to_json(result)

    async def _stopping(self, given: StoppingParams) -> JsonObject:
        try:
            # Instructions are for one agent, so its session is never guessed.
            session_id = await known_session(self.hook, given, guess=False)
            if session_id is None:
                return {"words": None}
            self.unsure[given.call] = session_id
            session = self.hook.system.named(f"session/{session_id}")
            answered = await ask(session, TakeInstructions(given.call), timeout=_SECONDS, retry=True)
        except (InvalidState, Paused):
            # Ended or paused: the agent may stop.
            return {"words": None}
        told = answered.delivery(given.call)
        if told is None:
            self.unsure.pop(given.call, None)
            return {"words": None}
        return {"words": stop_message(answered), "receipt": receipt(session_id, told)}

    async def _told(self, given: ToldParams) -> JsonObject:
        """Record the delivery of a receipt that the hook has printed. An earlier server run may have issued the
        receipt."""
        session_id, delivery = read_receipt(given.receipt)
        await record_deliveries(self.hook.system, session_id, (delivery,))
        self.unsure.pop(delivery.call, None)
        return {}

    def close(self) -> None:
        for call, session_id in self.unsure.items():
            self.hook.system.named(f"session/{session_id}").tell(Undeliver((call,)))
        for key in self.admitted:
            self.hook.connected_agents.left(key, self.hook.name)
        if self.admitted:
            self.hook.system.named("registry").tell(AgentsGone((*self.admitted,)))


def _read(line: bytes) -> JsonObject:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
