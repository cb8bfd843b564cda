"""Who may act on the server: a person, and never an agent's own process.

Every command that acts goes through `Authorization`, on the terminal and in the browser. Three kinds of events are
recorded and announced on every channel: a refusal, an act right after a restart, and the first act from a terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio
from attrs import define, field, frozen

from intercom.local import processes
from intercom.local.processes import KnownAgents, NotExaminable, ProcessKey, Recognised, Who
from intercom.model.errors import IpcError, Unauthorized
from intercom.model.json_types import JsonObject
from intercom.model.process import Origin
from intercom.operators.commands.command_execution import CommandRequest
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.router_messages import Channel

log = logging.getLogger(__name__)

#: How long a restarted server waits for agents to reconnect, in seconds.
AWAIT_SECONDS = 5.0
#: How long after a restart acts are announced, in seconds.
RESTART_SECONDS = 10.0
#: Refusals of one source within this many seconds are announced together.
COALESCE_SECONDS = 60.0
#: How many sources of refusals are tracked separately; further sources are counted as one.
_MOST_SOURCES = 16

_OTHERS = -1


class Agents(Protocol):
    """The known agent processes; implemented by `intercom.agents.agent_process_records.KnownProcesses`."""

    @property
    def awaited(self) -> int: ...

    @property
    def is_restart(self) -> bool: ...

    def known(self) -> KnownAgents: ...


class NoAgents:
    """No agents are known or awaited."""

    awaited = 0
    is_restart = False

    def known(self) -> KnownAgents:
        return KnownAgents()


@frozen
class Connected:
    """The peer of one connection. `key` identifies the process that opened it; None if it could not be examined.
    `writers` are the pids that wrote the request; empty if the system does not report them."""

    pid: int
    key: ProcessKey | None
    writers: frozenset[int] = frozenset()


def connected(pid: int) -> Connected:
    """Examine the process that opened a connection. Call it at once, before the pid is reused."""
    try:
        return Connected(pid, processes.examine(pid).key)
    except NotExaminable:
        return Connected(pid, None)


async def as_typed(id: str) -> str:
    """Return an id as it was typed."""
    return id


@define(eq=False)
class Authorization:
    """Decides whether the sender of a request may act.

    `record` persists a security event and `tell` announces a line on every channel. `is_new_terminal` says whether a
    terminal has no recorded decision yet. With `trusting` every process may act. `channel` is where requests come from.
    `whole_id` returns the whole id for one that was typed; what it does not know it returns as it is.
    """

    agents: Agents
    record: Callable[[str, JsonObject], Awaitable[None]]
    tell: Callable[[str], None]
    is_new_terminal: Callable[[Origin], Awaitable[bool]]
    trusting: bool = False
    channel: Channel = Channel.CTL
    whole_id: Callable[[str], Awaitable[str]] = as_typed
    _began: float = field(factory=lambda: trio.current_time())
    _refused: dict[int, _Refusals] = field(factory=dict)
    _terminals: set[tuple[str | None, int | None, int | None, str | None]] = field(factory=set)

    async def require(self, request: CommandRequest, by: Connected, user: str, is_proven: Callable[[], bool]) -> Origin:
        """Authorize a request that changes something. Returns the origin of the act.

        If `trusting`, every sender is an operator. Otherwise this raises Unauthorized if the sender is an agent's
        process, or cannot be recognised. It raises IpcError with `retry_after` while agents of an earlier server run
        may still come back, for AWAIT_SECONDS at most.

        `is_proven` says whether the request carries a signature with a PIN typed for exactly this act. Then neither is
        raised: any process may send it, also one in an agent's terminal. It is called only if the request would be
        refused otherwise.
        """
        if self.trusting:
            return processes.origin(self.channel.value, by.pid)
        since = self._await_agents(is_proven)
        found = self._recognise(by)
        if found.who is not Who.OPERATOR and not is_proven():
            await self._refuse(request, found, user)
        await self._tell_of(request, found.origin, user, since)
        return found.origin

    async def require_browser(self, request: CommandRequest, pids: frozenset[int], user: str) -> Origin:
        """Authorize a request of a browser in which a person has signed in. Returns the origin of the act.

        `pids` are the processes at the other end, as far as the system shows them. A browser has no terminal, so its
        processes need none. Raises Unauthorized if one of them is an agent's, unless `trusting`, and IpcError as
        `require` does.
        """
        channel = self.channel.value
        if self.trusting:
            return processes.origin(channel, min(pids)) if pids else Origin(channel)
        since = self._await_agents(lambda: False)
        known = self.agents.known()
        found = [processes.recognise(pid, known, channel) for pid in sorted(pids)]
        for each in found:
            if each.who is Who.AGENT:
                await self._refuse(request, each, user)
        origin = found[0].origin if found else Origin(channel)
        await self._tell_of(request, origin, user, since)
        return origin

    def _await_agents(self, is_proven: Callable[[], bool]) -> float:
        """Raise IpcError while agents of an earlier server run may come back. Returns the seconds since the start."""
        since = trio.current_time() - self._began
        if self.agents.awaited and since < AWAIT_SECONDS and not is_proven():
            left = round(AWAIT_SECONDS - since + 0.05, 1)
            raise IpcError(
                f"the server has just started and does not know yet which processes are agents' ({self.agents.awaited}"
                f" of them may come back): nothing is decided for {left:g} s; try again then",
                code="unavailable",
                retry_after=left,
            )
        return since

    def _recognise(self, by: Connected) -> Recognised:
        found = processes.recognise(by.pid, self.agents.known(), self.channel.value)
        if found.who is Who.AGENT:
            return found
        why = None
        if by.key is None or found.origin.started != by.key.started:
            why = f"process {by.pid}, which opened the connection, has ended"
        elif by.writers - {by.pid}:
            others = ", ".join(str(pid) for pid in sorted(by.writers - {by.pid}))
            why = f"the connection was opened by process {by.pid} and is used by another ({others})"
        return found if why is None else Recognised(Who.UNKNOWN, why, found.origin)

    async def _refuse(self, request: CommandRequest, found: Recognised, user: str) -> None:
        """Report a refusal, and raise Unauthorized."""
        await self.report(request, found, user)
        raise Unauthorized(f"{found.why}; {_ADVICE[found.who]}")

    async def report(self, request: CommandRequest, found: Recognised, user: str) -> None:
        """Record a refusal, and announce it. Refusals of one source are announced together after the first."""
        summary = f"refused {request.command}{f' of {request.id}' if request.id else ''}: {found.why}"
        data: JsonObject = {
            "command": request.command,
            "id": request.id,
            "session": request.session,
            "who": found.who.value,
            "user": user,
            "pid": found.origin.pid,
            "origin": found.origin.to_data(),
        }
        source = found.origin.leader or found.origin.pid or 0
        if source not in self._refused and len(self._refused) >= _MOST_SOURCES:
            source = _OTHERS
        earlier = self._refused.get(source)
        if earlier is not None:
            earlier.more += 1
            earlier.last = summary
        else:
            self._refused[source] = _Refusals(trio.current_time(), data)
            log.warning(summary)
            self.tell(summary)
            await self._record(summary, data)

    async def flush(self, *, all_of_them: bool = False) -> None:
        """Announce coalesced refusals that are due; with `all_of_them` all of them."""
        now = trio.current_time()
        for source, held in list(self._refused.items()):
            if not all_of_them and now - held.since < COALESCE_SECONDS:
                continue
            del self._refused[source]
            if held.more:
                summary = f"{held.more} more like it in {now - held.since:.0f} s, the last of them: {held.last}"
                log.warning(summary)
                self.tell(summary)
                await self._record(summary, {**held.data, "count": held.more})
                if not all_of_them:
                    # The source is still active: coalesce its next refusals from the start.
                    self._refused[source] = _Refusals(now, held.data)

    async def keep_telling(self) -> None:
        """Flush at regular intervals, forever."""
        while True:
            await trio.sleep(COALESCE_SECONDS / 4)
            await self.flush()

    async def _tell_of(self, request: CommandRequest, origin: Origin, user: str, since: float) -> None:
        """Announce an allowed act that is unusual: right after a restart, or from a new terminal."""
        row = COMMANDS.get(request.command)
        # A sign-in on the page is no command, and is an act.
        if row is not None and row.only_shows:
            return
        said = []
        if self.agents.is_restart and since < RESTART_SECONDS:
            said.append(f"{since:.0f} s after the server started again")
        if await self._is_new(origin):
            # The description that follows names it.
            said.append("for the first time from this terminal")
        if said:
            on = f" on {await self.whole_id(request.id)}" if request.id else ""
            summary = f"{user} used {request.command}{on} {' and '.join(said)}: {origin.describe()}"
            self.tell(summary)
            data: JsonObject = {"command": request.command, "id": request.id, "user": user, "origin": origin.to_data()}
            await self._record(summary, data)

    async def _is_new(self, origin: Origin) -> bool:
        terminal = (origin.boot, origin.leader, origin.leader_started, origin.terminal)
        if terminal in self._terminals or origin.terminal is None:
            return False
        is_new = await self.is_new_terminal(origin)
        self._terminals.add(terminal)
        return is_new

    async def _record(self, summary: str, data: JsonObject) -> None:
        try:
            await self.record(summary, data)
        except Exception:
            # The refusal holds anyway, and people have been told.
            log.exception("a security event could not be recorded")


@define
class _Refusals:
    """Refusals of one source; `more` counts those not announced yet."""

    since: float
    data: JsonObject
    more: int = 0
    last: str = ""


_ADVICE = {
    Who.AGENT: (
        "an agent's own processes may not answer for it: use ctl in a terminal of its own, in which no agent was"
        " started, or set trust_agent_processes under [ctl] in the server's config"
    ),
    Who.UNKNOWN: (
        "only an operator at a terminal may do this: use ctl in a terminal window, or sign the decision with a key"
        " (agent-intercom-ctl key create), or set trust_agent_processes under [ctl] in the server's config"
    ),
}
