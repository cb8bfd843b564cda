"""The gate: the server's end of a client's permission hook (docs/reference/shim-wire.md).

A hook is a process of the client that asks one thing and goes. It is answered in the session of the agent whose client
started it, with the same requests and cards as the agent's own calls; where no agent is known, in a session of its own.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from actors import Busy, Down, NotRunning, System, ask
from intercom.agents import arguments, kin, workspaces
from intercom.agents.door import Caller, Door
from intercom.agents.hook.clients import CLIENTS
from intercom.agents.hook.errand import ASKED, TOLD
from intercom.agents.leave import verdict
from intercom.model import crash_points
from intercom.model.config import Config
from intercom.model.errors import IntercomError, InvalidArguments, NotFound, Paused
from intercom.model.operation import Operation
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import Answered, AwaitUnpaused, Deliver, Delivery, Undeliver, Withdraw
from intercom.sessions.permission_messages import AskPermission, AwaitPermission
from intercom.sessions.presence import Presence
from intercom.sessions.reception_messages import Admit, Agent, AgentsGone, Wanted
from intercom.sessions.stall_messages import Activity

log = logging.getLogger("intercom.agents")

_SECONDS = 60.0

NextLine = Callable[[], Awaitable[bytes | None]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@frozen
class Where:
    """Where a hook was started, as it says: its client, the client's name of the conversation, its directory and
    roots, and the session it belongs to, if it knows."""

    client: str
    conversation: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class PermissionParams:
    """What `intercom/permission` takes."""

    call: str
    client: str
    slot: str
    operation: Operation
    conversation: str = ""
    turn: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class StoppingParams:
    """What `intercom/stopping` takes."""

    call: str
    client: str
    slot: str = ""
    conversation: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class Gate:
    """What one hook's connection needs: `doors` are the connections of shims, `name` this one's own, `pid` the hook's
    process."""

    system: System
    config: Config
    presence: Presence
    doors: Mapping[str, tuple[Door, frozenset[int]]]
    name: str
    pid: int


async def attend(gate: Gate, next_line: NextLine, send: Send) -> None:
    """Answer the one question of a hook, and see to it that the answer is known to have reached it or not. When the
    hook goes first, what it asked stays open."""
    line = await next_line()
    if line is None:
        return
    told = trio.Event()
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            while (said := await next_line()) is not None:
                if _method(said) == TOLD:
                    told.set()
            nursery.cancel_scope.cancel()

        nursery.start_soon(listen)
        await _answer(gate, line, send, told)
        nursery.cancel_scope.cancel()


async def _answer(gate: Gate, line: bytes, send: Send, told: trio.Event) -> None:
    said = _read(line)
    try:
        match said.get("method"):
            case "intercom/permission":
                await _permission(gate, said, send, told)
            case "intercom/stopping":
                arguments.read(StoppingParams, said.get("params"))
                await send(_result({"words": None}))
            case _:
                raise IntercomError("a hook asks intercom/permission or intercom/stopping", code="invalid_arguments")
    except IntercomError as refused:
        await send(_error(refused.error_code, refused.message))
    except Busy:
        await send(_error("busy", "too many requests wait in this session; try again in a moment"))
    except (Down, NotRunning, trio.TooSlowError):
        await send(_error("unavailable", "a part of the server is restarting; try again"))
    except trio.BrokenResourceError:
        raise
    except Exception:
        log.exception("a hook could not be answered")
        await send(_error("mcp", "the server failed on this question; the fault is in its log"))


async def _permission(gate: Gate, said: dict[str, Any], send: Send, told: trio.Event) -> None:
    given = arguments.read(PermissionParams, said.get("params"))
    where = Where(given.client, given.conversation, given.cwd, given.roots, given.session)
    agent = None
    try:
        session_id, agent = await find(gate, where)
        gate.system.named(f"stall/{session_id}").tell(Activity())
        asked = AskPermission(given.call, given.client, given.operation, given.slot, given.turn)

        async def shown(request_id: str) -> None:
            await send(
                {"jsonrpc": "2.0", "method": ASKED, "params": {"request_id": request_id, "session_id": session_id}}
            )

        answer = await decided(gate.system, session_id, asked, shown)
        session = gate.system.named(f"session/{session_id}")
        try:
            crash_points.reach("answer.leaving")
            await send(_result(verdict(answer)))
            crash_points.reach("answer.left")
            if answer.request_id and answer.status != "allowed":
                await told.wait()
                await ask(session, Deliver((Delivery(given.call, (answer.request_id,)),)), timeout=_SECONDS, retry=True)
        finally:
            session.tell(Undeliver((given.call,)))
    finally:
        if agent is not None:
            gate.presence.left(agent.key, gate.name)
            gate.system.named("reception").tell(AgentsGone((agent.key,)))


async def decided(
    system: System,
    session_id: str,
    asked: AskPermission,
    shown: Callable[[str], Awaitable[None]],
    patience: float = math.inf,
) -> PermissionAnswer:
    """Ask leave, and wait for a person where that is needed. `shown` hears which request a person was asked; after
    `patience` seconds of waiting the answer is "pending". When this is cancelled the request stays open."""
    session = system.named(f"session/{session_id}")
    until = trio.current_time() + patience
    while True:
        try:
            opened = await ask(session, asked, timeout=_SECONDS, retry=True)
        except Paused:
            # Nothing was asked yet. Should the hook be out of patience first, it is told of the pause.
            with trio.move_on_at(until):
                await ask(session, AwaitUnpaused(), retry=True)
                continue
            raise
        if opened.answered is not None:
            return opened.answered.answer
        ticket = uuid.uuid4().hex
        answered: Answered[PermissionAnswer] | None = None
        try:
            await shown(opened.request_id)
            with trio.move_on_at(until):
                wanted = AwaitPermission(asked.call, opened.request_id, ticket)
                answered = await ask(session, wanted, retry=True)
        finally:
            if answered is None:
                session.tell(Withdraw(asked.call, opened.request_id, ticket))
        if answered is None:
            return PermissionAnswer("pending", opened.request_id)
        if answered.answer.status != "approved":
            return answered.answer
        # A person has said yes. To use that is to ask again; another use of the same may have been faster.


async def find(gate: Gate, where: Where) -> tuple[str, Agent | None]:
    """The session that a hook belongs to, running; and the agent it was let in as, where it has a session of its own.

    In this order: the one it names; that of the agent whose client started it, by the processes; of the agent with
    this conversation; of the only agent of this client in the workspace. Raises WorkspaceRefused where all fail and
    there is no workspace for a new one.
    """
    if where.client not in CLIENTS:
        raise InvalidArguments(f"no client is called {where.client[:80]!r}; there are: {', '.join(CLIENTS)}")
    reception = gate.system.named("reception")
    if where.session is not None:
        try:
            return await ask(reception, Wanted(where.session), timeout=_SECONDS, retry=True), None
        except NotFound:
            log.info("a hook names a session that is not known")
    for door in await _doors(gate, where):
        return await door.session(_caller(where)), None
    agent = _by_name(gate, where)
    if agent is not None:
        return await ask(reception, Admit(agent), timeout=_SECONDS, retry=True), None
    root = await trio.to_thread.run_sync(_workspace, gate, where)
    agent = _by_workspace(gate, where, root)
    if agent is not None:
        return await ask(reception, Admit(agent), timeout=_SECONDS, retry=True), None
    client = CLIENTS[where.client].agent
    agent = Agent(f"{client}:{where.conversation or 'hook'}@{root}", client, root)
    gate.presence.came(agent.key, gate.name)
    return await ask(reception, Admit(agent), timeout=_SECONDS, retry=True), agent


async def _doors(gate: Gate, where: Where) -> list[Door]:
    """The shims' connections that this hook's client has; of several, those in whose workspace it stands first."""
    processes = {name: pids for name, (_, pids) in gate.doors.items()}
    names = await trio.to_thread.run_sync(kin.nearest, gate.pid, processes)
    found = [gate.doors[name][0] for name in names if name in gate.doors]
    return sorted(found, key=lambda door: not _stands_in(where, door))


def _stands_in(where: Where, door: Door) -> bool:
    root = door.workspace or door.cwd
    here = [where.cwd, *where.roots]
    return root is not None and any(each is not None and Path(each).is_relative_to(root) for each in here)


def _caller(where: Where) -> Caller:
    """As the agent's own calls say who they are: Codex names its conversation over MCP as to its hooks."""

    async def roots() -> list[str]:
        return [Path(root).as_uri() for root in where.roots if Path(root).is_absolute()]

    thread = where.conversation if where.client == "codex" else None
    return Caller(CLIENTS[where.client].agent, thread or None, None, roots, None)


def _by_name(gate: Gate, where: Where) -> Agent | None:
    wanted = f":{where.conversation}@"
    found = [agent for key, agent in gate.presence.here.items() if where.conversation and wanted in key]
    return found[0] if len(found) == 1 else None


def _by_workspace(gate: Gate, where: Where, root: str) -> Agent | None:
    prefix = where.client.partition("-")[0]
    found = [
        agent
        for agent in gate.presence.here.values()
        if agent.workspace == root and prefix in (agent.client_name or "").lower()
    ]
    return found[0] if len(found) == 1 else None


def _workspace(gate: Gate, where: Where) -> str:
    roots = [Path(root).as_uri() for root in where.roots if Path(root).is_absolute()]
    return workspaces.choose(None, roots, where.cwd, gate.config.default_workspace_root)


def _read(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _method(line: bytes) -> object:
    return _read(line).get("method")


def _result(value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": value}


def _error(code: str, message: str) -> dict[str, Any]:
    error = {"code": -32000, "message": message, "data": {"error_code": code}}
    return {"jsonrpc": "2.0", "id": 1, "error": error}
