"""Authorization of requests at the local socket.

Every verb with `acts` goes through `Authorization.require`. Three kinds of events are recorded and announced on every
channel: a refusal, an act right after a restart, and the first act from a terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio
from attrs import define, field, frozen

from intercom.local import processes, recognition
from intercom.local.processes import NotExaminable, ProcessKey
from intercom.local.recognition import KnownAgents, Recognised, Who
from intercom.model.errors import IpcError, Unauthorized
from intercom.model.origin import Origin
from intercom.operators.ctl.caller import CHANNEL
from intercom.operators.ctl.wire import CtlRequest

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
    """The known agent processes; implemented by `intercom.agents.processes.AgentProcesses`."""

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


@define(eq=False)
class Authorization:
    """Decides whether the sender of a request may act.

    `record` persists a security event and `tell` announces a line on every channel. `is_new_terminal` says whether a
    terminal has no recorded decision yet. With `trusting` every process may act.
    """

    agents: Agents
    record: Callable[[str, dict[str, Any]], Awaitable[None]]
    tell: Callable[[str], None]
    is_new_terminal: Callable[[Origin], Awaitable[bool]]
    trusting: bool = False
    _began: float = field(factory=lambda: trio.current_time())
    _refused: dict[int, _Refusals] = field(factory=dict)
    _terminals: set[tuple[str | None, int | None, int | None, str | None]] = field(factory=set)

    async def require(self, request: CtlRequest, by: Connected, user: str, is_proven: Callable[[], bool]) -> Origin:
        """Authorize the request and return the origin of the act.

        Raises Unauthorized if the sender is an agent's process or cannot be recognised. Raises IpcError with
        `retry_after` while agents of an earlier server run are awaited. Neither applies if `is_proven`: the request
        carries a signature with a PIN typed for it. Then any process may send it, also one in an agent's terminal. The
        signature is verified only if it matters.
        """
        if self.trusting:
            return processes.origin(CHANNEL, by.pid)
        since = trio.current_time() - self._began
        if self.agents.awaited and since < AWAIT_SECONDS and not is_proven():
            left = round(AWAIT_SECONDS - since + 0.05, 1)
            raise IpcError(
                f"the server has just started and does not know yet which processes are agents' ({self.agents.awaited}"
                f" of them may come back): nothing is decided for {left:g} s; try again then",
                code="unavailable",
                retry_after=left,
            )
        found = self._recognise(by)
        if found.who is not Who.OPERATOR and not is_proven():
            await self._refuse(request, found, user)
        await self._tell_of(request, found, user, since)
        return found.origin

    def _recognise(self, by: Connected) -> Recognised:
        found = recognition.recognise(by.pid, self.agents.known(), CHANNEL)
        if found.who is Who.AGENT:
            return found
        why = None
        if by.key is None or found.origin.started != by.key.started:
            why = f"process {by.pid}, which opened the connection, has ended"
        elif by.writers - {by.pid}:
            others = ", ".join(str(pid) for pid in sorted(by.writers - {by.pid}))
            why = f"the connection was opened by process {by.pid} and is used by another ({others})"
        return found if why is None else Recognised(Who.UNKNOWN, why, found.origin)

    async def _refuse(self, request: CtlRequest, found: Recognised, user: str) -> None:
        summary = f"refused {request.command}{f' of {request.id}' if request.id else ''}: {found.why}"
        data = {
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
        raise Unauthorized(f"{found.why}; {_ADVICE[found.who]}")

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

    async def _tell_of(self, request: CtlRequest, found: Recognised, user: str, since: float) -> None:
        """Announce an allowed act that is unusual: right after a restart, or from a new terminal."""
        origin = found.origin
        what = f"{user} used {request.command}{f' on {request.id}' if request.id else ''}"
        said = []
        if self.agents.is_restart and since < RESTART_SECONDS:
            said.append(f"{since:.0f} s after the server started again")
        if await self._is_new(origin):
            said.append(f"for the first time from {origin.terminal or 'no terminal'}")
        if said:
            summary = f"{what} {' and '.join(said)}: {origin.describe()}"
            self.tell(summary)
            data = {"command": request.command, "id": request.id, "user": user, "origin": origin.to_data()}
            await self._record(summary, data)

    async def _is_new(self, origin: Origin) -> bool:
        terminal = (origin.boot, origin.leader, origin.leader_started, origin.terminal)
        if terminal in self._terminals or origin.terminal is None:
            return False
        is_new = await self.is_new_terminal(origin)
        self._terminals.add(terminal)
        return is_new

    async def _record(self, summary: str, data: dict[str, Any]) -> None:
        try:
            await self.record(summary, data)
        except Exception:
            # The refusal holds anyway, and people have been told.
            log.exception("a security event could not be recorded")


@define
class _Refusals:
    """Refusals of one source; `more` counts those not announced yet."""

    since: float
    data: dict[str, Any]
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
