"""The search for a hook's session: that of the agent whose client started it, if known."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import trio
from attrs import frozen

from actors import System, ask
from intercom.agents import kin, workspaces
from intercom.agents.door import Caller, Door
from intercom.agents.hook.clients import CLIENTS
from intercom.model.config import Config
from intercom.model.errors import InvalidArguments, NotFound, WorkspaceRefused
from intercom.sessions.presence import Presence
from intercom.sessions.reception_messages import Admit, Agent, Wanted, key_of

log = logging.getLogger("intercom.agents")

#: Time limit of the session registry, in seconds.
_SECONDS = 60.0


@frozen
class Where:
    """The origin of a hook, as it reports it: its client, conversation, directory, roots, and its session if known."""

    client: str
    conversation: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class Hook:
    """The dependencies of one hook connection. `doors` are the agent connections, `name` identifies this connection,
    and `pid` is the hook's process."""

    system: System
    config: Config
    presence: Presence
    doors: Mapping[str, tuple[Door, frozenset[int]]]
    name: str
    pid: int


async def find(hook: Hook, where: Where, guests: set[str]) -> str:
    """Return the running session of a hook; opens one if none is known. The key of an agent admitted for this is added
    to `guests` before its admission. The caller must report the departure of `guests`, also if this fails. Raises
    WorkspaceRefused if no session is known and a new one has no workspace."""
    found = await known(hook, where)
    if found is not None:
        return found
    root = await trio.to_thread.run_sync(_workspace, hook, where)
    client = CLIENTS[where.client].agent
    agent = Agent(f"{client}:{where.conversation or 'hook'}@{root}", client, root)
    guests.add(agent.key)
    hook.presence.came(agent.key, hook.name)
    return await ask(hook.system.named("reception"), Admit(agent), timeout=_SECONDS, retry=True)


async def known(hook: Hook, where: Where, *, guess: bool = True) -> str | None:
    """Return the running session of a hook; None if none is known.

    The candidates, in this order:
    - the session that the hook names; without `guess`, only if no other client's agent is in it
    - that of the agent whose client started the hook, by process ancestry
    - that of the agent with this conversation
    - with `guess`, that of this client's only agent in the workspace, if that agent's conversation is unknown

    Raises WorkspaceRefused for a connection without a workspace.
    """
    if where.client not in CLIENTS:
        raise InvalidArguments(f"no client is called {where.client[:80]!r}; there are: {', '.join(CLIENTS)}")
    reception = hook.system.named("reception")
    if where.session is not None:
        agent = hook.presence.here.get(key_of(where.session))
        if not guess and agent is not None and agent.client_name and not _is_its(where, agent.client_name):
            # A client that the session's agent started inherits its environment, but is another agent.
            return None
        try:
            return await ask(reception, Wanted(where.session), timeout=_SECONDS, retry=True)
        except NotFound:
            log.info("a hook names a session that is not known")
    for door in await _doors(hook, where):
        return await door.session(_caller(hook, where, door))
    agent = _by_name(hook, where)
    if agent is None and guess:
        agent = await trio.to_thread.run_sync(_by_workspace, hook, where)
    if agent is None:
        return None
    return await ask(reception, Admit(agent), timeout=_SECONDS, retry=True)


async def _doors(hook: Hook, where: Where) -> list[Door]:
    """Return the agent connections of this hook's client: those in whose workspace it is first, and then the newest
    first."""
    processes = {name: pids for name, (_, pids) in hook.doors.items()}
    names = await trio.to_thread.run_sync(kin.nearest, hook.pid, processes)
    found = [hook.doors[name][0] for name in reversed(names) if name in hook.doors]
    # A client that another client started has no part in the other's sessions.
    mine = [door for door in found if door.client_name is None or _is_its(where, door.client_name)]
    return sorted(mine, key=lambda door: not _stands_in(where, door))


def _is_its(where: Where, client_name: str | None) -> bool:
    """Whether this is the MCP name of the hook's client: every client's MCP name contains its name."""
    return where.client.partition("-")[0] in (client_name or "").lower()


def _stands_in(where: Where, door: Door) -> bool:
    root = door.workspace or door.cwd
    here = [where.cwd, *where.roots]
    return root is not None and any(each is not None and Path(each).is_relative_to(root) for each in here)


def _caller(hook: Hook, where: Where, door: Door) -> Caller:
    """Make the caller that the agent's own calls have: Codex names its conversation alike over MCP and to its hooks."""

    async def roots() -> list[str]:
        if door.cwd is None and not where.roots:
            # Over HTTP only the hook has the client's directory.
            return [Path(await trio.to_thread.run_sync(_workspace, hook, where)).as_uri()]
        return [Path(root).as_uri() for root in where.roots if Path(root).is_absolute()]

    thread = where.conversation if where.client == "codex" else None
    return Caller(CLIENTS[where.client].agent, thread or None, None, roots, None)


def _by_name(hook: Hook, where: Where) -> Agent | None:
    wanted = f":{where.conversation}@"
    found = [agent for key, agent in hook.presence.here.items() if where.conversation and wanted in key]
    return found[0] if len(found) == 1 else None


def _by_workspace(hook: Hook, where: Where) -> Agent | None:
    try:
        root = _workspace(hook, where)
    except WorkspaceRefused:
        return None
    found = [
        agent
        for agent in list(hook.presence.here.values())
        if agent.workspace == root and _is_its(where, agent.client_name)
    ]
    # An agent with a named conversation is in another conversation than this one.
    found = [agent for agent in found if not agent.key.endswith(f"@{agent.workspace}")]
    return found[0] if len(found) == 1 else None


def _workspace(hook: Hook, where: Where) -> str:
    roots = [Path(root).as_uri() for root in where.roots if Path(root).is_absolute()]
    return workspaces.choose(None, roots, where.cwd, hook.config.default_workspace_root)
