"""Authorization: whether what asks at the local socket may act, and what people are told about that.

Every verb that acts goes through `Authorization.require`. What is refused, what is decided right after a restart, and
what is decided from a terminal for the first time is put on record and told on every channel.
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

#: How long after its start a server that follows another waits for agents to come back, in seconds.
AWAIT_SECONDS = 5.0
#: For how long after a restart people are told of what is decided.
RESTART_SECONDS = 10.0
#: Refusals of one source within so many seconds are told of together.
COALESCE_SECONDS = 60.0
#: How many sources of refusals are told apart; those beyond are told of as one.
_MOST_SOURCES = 16

_OTHERS = -1


class Agents(Protocol):
    """What is known of agents' processes, as `intercom.agents.processes.AgentProcesses` has it."""

    @property
    def awaited(self) -> int: ...

    @property
    def is_restart(self) -> bool: ...

    def known(self) -> KnownAgents: ...


class NoAgents:
    """Nobody is known, and nobody is awaited."""

    awaited = 0
    is_restart = False

    def known(self) -> KnownAgents:
        return KnownAgents()


@frozen
class Connected:
    """One connection's other end. `key` names the process that opened it, None where that could not be told when it
    came; `writers` are the pids that wrote the request, empty where the system does not tell."""

    pid: int
    key: ProcessKey | None
    writers: frozenset[int] = frozenset()


def connected(pid: int) -> Connected:
    """The process that has opened a connection; to be called as soon as that is there."""
    try:
        return Connected(pid, processes.examine(pid).key)
    except NotExaminable:
        return Connected(pid, None)


@define(eq=False)
class Authorization:
    """`record` puts a security event on record, `tell` tells people on every channel, and `is_new_terminal` says
    whether a terminal is one that nobody has decided from. With `trusting` everybody may act."""

    agents: Agents
    record: Callable[[str, dict[str, Any]], Awaitable[None]]
    tell: Callable[[str], None]
    is_new_terminal: Callable[[Origin], Awaitable[bool]]
    trusting: bool = False
    _began: float = field(factory=lambda: trio.current_time())
    _refused: dict[int, _Refusals] = field(factory=dict)
    _terminals: set[tuple[str | None, int | None, int | None, str | None]] = field(factory=set)

    async def require(self, request: CtlRequest, by: Connected, user: str, is_proven: Callable[[], bool]) -> Origin:
        """Let the caller act, and say where the act comes from; raises Unauthorized.

        An act that `is_proven`, by a signature with a PIN typed for it, may come from anywhere, also from a terminal in
        which an agent runs; that is verified only where it matters. Without it, an agent's process may not act, and
        what cannot be recognised. While agents of an earlier server are awaited, nobody may: raises IpcError, which
        says for how long to wait.
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
        """Tell of refusals that were held back, once their time has come."""
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
                    # It goes on, so the next ones are held back from the start.
                    self._refused[source] = _Refusals(now, held.data)

    async def keep_telling(self) -> None:
        """Flush again and again."""
        while True:
            await trio.sleep(COALESCE_SECONDS / 4)
            await self.flush()

    async def _tell_of(self, request: CtlRequest, found: Recognised, user: str, since: float) -> None:
        """Tell people of an act that they may want to know of although it was allowed."""
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
            # The refusal stands all the same, and people have been told.
            log.exception("a security event could not be recorded")


@define
class _Refusals:
    """Refusals of one source: `more` of them have not been told of."""

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
