"""The actor of one downstream: its connection, its breaker, its budget, its pins, and the calls that run.

The actor admits calls or refuses them, and counts those that run; the task that asks carries its call itself
(`downstream_calls`). `breaker` decides what happens to the connection, and `budgets` which calls are refused: this
module carries out their effects. `offered_tools` decides which tools agents see. A connection that fails is replaced
here; agents only see failed calls.

With `sharing = "agent"` each agent has a connection of its own, made by its first call. The main connection then only
serves to list the tools and to see that the downstream works.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import trio
from attrs import evolve, frozen
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from actors import Actor, Refused, Reply
from intercom.gateway import breaker, budgets
from intercom.gateway import downstream_tasks as tasks
from intercom.gateway.breaker import Breaker, CallSucceeded, Circuit, Connect, Failure, Health, HealthChanged
from intercom.gateway.budgets import Allowed, Meter, Usage
from intercom.gateway.connection import Connection
from intercom.gateway.downstream_calls import not_reached
from intercom.gateway.downstream_config import DownstreamConfig, Sharing
from intercom.gateway.downstream_lists import DownstreamLists
from intercom.gateway.downstream_tasks import (
    AgentConnected,
    AgentConnectionOver,
    AgentDisconnected,
    Checked,
    Connected,
    DownstreamDeps,
    Listed,
    ListsChanged,
    Lost,
    Marked,
    NotConnected,
    Recalled,
    ResourcesUpdated,
    Watched,
)
from intercom.gateway.messages import (
    Admit,
    AdmitAgain,
    AgentGone,
    AgentPeer,
    Allow,
    CallEnded,
    CallFailed,
    Cancel,
    Configure,
    Describe,
    Downstream,
    GatewayRefused,
    InvocationStatus,
    RequireAdmission,
    ResourcesChanged,
    Run,
    SetEnabled,
    SetLogLevel,
    SignInChanged,
    Watch,
)
from intercom.gateway.offered_tools import OfferedTools, ReadLists, ShowChanges
from intercom.model.errors import IntercomError
from intercom.model.visible_text import one_line

log = logging.getLogger("intercom.gateway")

#: How often an idle connection is checked with a request of the protocol (seconds).
CHECK_SECONDS: Final = 60.0
#: The most calls that wait while the connection is made, and the most calls in all.
MOST_PARKED: Final = 1000
MOST_CALLS: Final = 5000
#: How long an agent's own connection is kept without a call (seconds).
OWN_IDLE_SECONDS: Final = 600.0
#: The most agents with a connection of their own: each may be a process. As many again may still be ending.
MOST_OWN: Final = 32
#: When an agent should try again for which there was no room (seconds).
ROOM_SECONDS: Final = 5.0
#: The calls over which the mean time is taken.
_MEASURED: Final = 100
_CHECK, _PROBE = "check", "probe"


@frozen
class _Check:
    """It is time to check an idle connection."""


@frozen
class _ProbeDue:
    """The time that the breaker asked for is over."""


@frozen
class _WaitedTooLong:
    """The time of a call is over that waits for a connection."""

    call: str


@frozen
class _Own:
    """The connection of one agent; None while it is made. `has_failed` says that its last call failed."""

    number: int
    scope: trio.CancelScope
    connection: Connection | None
    used_at: float
    has_failed: bool = False


class DownstreamActor(Actor):
    """One downstream. See the module."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused, IntercomError, CallFailed)
    # All calls can end at once, and none of these messages may be lost.
    mailbox_size: ClassVar[int] = 4 * MOST_CALLS

    def __init__(self, config: DownstreamConfig, deps: DownstreamDeps) -> None:
        super().__init__()
        self._config = config
        self._deps = deps
        #: Whether a person lets it run. Its file may disable it, too.
        self._allowed = True
        self._breaker = Breaker(breaker.Phase.OPEN, "it is disabled", 0.0)
        self._meter = Meter(Usage(deps.now().date()))
        self._offered = OfferedTools(self, deps, config)
        self._connection: Connection | None = None
        self._connecting: trio.CancelScope | None = None
        self._over = trio.Event()
        self._over.set()
        self._version: str | None = None
        self._own: dict[str, _Own] = {}
        self._owns = 0
        #: The numbers of the agents' connections that are not over yet.
        self._live_owns: set[int] = set()
        self._parked: dict[str, tuple[Run, Reply[Run]]] = {}
        #: The calls that tasks carry now. Each of them tells `CallEnded` or `Cancel`.
        self._running: dict[str, Run] = {}
        #: Read again by each incarnation: agents say it once.
        self._log_level = deps.log_level()
        #: The resources that agents watch, those that the downstream was asked to tell of, and the task for that.
        self._watched = self._told = frozenset[str]()
        self._watching: trio.CancelScope | None = None
        self._calls = self._errors = 0
        self._seconds: deque[float] = deque(maxlen=_MEASURED)
        self._last_call_at: datetime | None = None
        self._last_check_at: datetime | None = None
        self._last_error: str | None = None

    @property
    def _name(self) -> str:
        return self._config.name

    @property
    def _enabled(self) -> bool:
        return self._config.enabled and self._allowed

    async def on_start(self) -> None:
        """Recall pins and usage, and begin to connect."""
        known = await self._deps.recall(self._name)
        self._meter = Meter(known.usage)
        self._allowed = known.disabled_by is None
        self._offered.start(known, is_enabled=self._enabled)
        for fault in known.faults:
            self._deps.tell(fault, "warning")
        self.set_timer(_CHECK, CHECK_SECONDS, _Check())
        if self._enabled:
            self._begin()

    def on_receive(self, message: object) -> Any:
        """Handle a message of the protocol, or of a background task."""
        match message:
            case Admit():
                return self._admit(message)
            case RequireAdmission(tool):
                self._require_admission(tool)
            case CallEnded():
                self._ended(message)
            case AdmitAgain(ended):
                return self._admit_again(ended)
            case Cancel(admit, was_sent):
                self._cancel(admit, was_sent=was_sent)
            case _WaitedTooLong(call):
                self._refuse_parked(call)
            case Describe():
                return self._describe()
            case Connected(number, connection, lists):
                self._connected(number, connection, lists)
            case NotConnected(number, reason, detail):
                self._not_connected(number, reason, detail)
            case Lost(number, reason):
                self._lost(number, reason)
            case ListsChanged():
                self._deps.forget(self._name)
                self._offered.read_soon()
            case ReadLists():
                self._offered.read(self._connection, self._breaker.connection)
            case Listed(number, lists):
                self._offered.listed(lists if number == self._breaker.connection else None)
            case Recalled():
                self._offered.recalled(message)
            case ShowChanges():
                self._offered.show_due_changes()
            case Marked():
                self._offered.marked(message)
            case _Check():
                self._check()
            case Checked(number, failure):
                self._last_check_at = self._deps.now()
                event = CallSucceeded(number) if failure is None else breaker.CallFailed(number, failure)
                self._step(event)
            case _ProbeDue():
                self._step(breaker.ProbeDue())
            case AgentConnected(agent, number, connection):
                self._own_connected(agent, number, connection)
            case AgentDisconnected(agent, number, reason):
                self._own_ended(agent, number, reason)
            case AgentConnectionOver(number):
                self._live_owns.discard(number)
            case SetLogLevel(level):
                self._log_level = level
                self._ask_for_logs()
            case Watch(addresses):
                if addresses != self._watched:
                    self._watched = addresses
                    self._watch()
            case Watched(number, addresses):
                if number == self._breaker.connection:
                    self._told, self._watching = addresses, None
                    self._watch()
            case ResourcesUpdated():
                self._resources_updated(message)
            case AgentGone(agent):
                self._agent_gone(agent)
            case SetEnabled(enabled):
                self._change(self._config, allowed=enabled)
                return self._describe()
            case SignInChanged():
                self._deps.forget(self._name)
                if self._enabled:
                    self._connect_again("its sign-in has changed")
            case Configure(config):
                self._change(config, allowed=self._allowed)
            case Allow(sha256, accepted):
                self._offered.allow(sha256, accepted=accepted)
            case _:
                return super().on_receive(message)
        return None

    # --- the connection ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        # Numbers never return: what an earlier connection still reports is not about this one.
        number = self._breaker.connection + 1
        started, _ = breaker.start(trio.current_time())
        self._breaker = evolve(started, connection=number)
        self._perform((Connect(number),))

    def _step(self, event: breaker.Event) -> None:
        before = self._breaker
        self._breaker, effects = breaker.step(
            before, event, trio.current_time(), self._config.breaker, self._deps.random()
        )
        is_renewed = self._breaker.connection != before.connection or self._breaker.circuit is Circuit.OPEN
        if is_renewed and isinstance(event, breaker.CallFailed | breaker.ProbeDue):
            # Calls have failed too often: the agents' connections on which they did are made again, too.
            for agent in [agent for agent, own in self._own.items() if own.has_failed]:
                self._end_own(agent)
        self._perform(effects)

    def _perform(self, effects: Sequence[breaker.Effect]) -> None:
        for effect in effects:
            match effect:
                case Connect(number):
                    self._connect(number)
                case breaker.ProbeAfter(seconds):
                    self.set_timer(_PROBE, seconds, _ProbeDue())
                case HealthChanged(_, after):
                    self._tell_health(after)
        if self._breaker.circuit is Circuit.OPEN:
            self._disconnect()

    def _tell_health(self, health: Health) -> None:
        level = "info" if health is Health.READY else "warning"
        self._deps.tell(f"the downstream {self._name} is {health}: {self._breaker.reason}", level)

    def _connect(self, number: int) -> None:
        self._disconnect()
        after, self._over = self._over, trio.Event()
        self._connecting = self.spawn(
            tasks.hold_connection,
            self._deps,
            self._config,
            number,
            self._version,
            self.actor_ref.tell,
            after,
            self._over,
        )

    def _disconnect(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._connection = None

    def _connected(self, number: int, connection: Connection, lists: DownstreamLists) -> None:
        if number != self._breaker.connection or self._connecting is None:
            return
        self._connection = connection
        self._deps.forget(self._name)
        self._version = connection.version
        self._last_check_at = self._deps.now()
        self._last_error = None
        self._step(breaker.HandshakeSucceeded(number))
        self._offered.connected(connection, lists)
        self._ask_for_logs()
        if self._watching is not None:
            self._watching.cancel()
        self._told, self._watching = frozenset(), None
        self._watch(is_new=True)
        self._settle_parked()

    def _not_connected(self, number: int, reason: str, detail: str) -> None:
        if number != self._breaker.connection:
            return
        self._last_error = f"the connection {reason}{f' ({detail})' if detail else ''}"
        is_first = self._breaker.health is Health.OFFLINE and not self._breaker.attempts
        self._step(breaker.HandshakeFailed(number, reason))
        if is_first:
            # It was Offline before, too, but people do not know yet that it does not start.
            self._tell_health(self._breaker.health)
        self._settle_parked()

    def _ask_for_logs(self) -> None:
        """Ask for the log messages that agents want. In 2026-07-28 each request says that itself."""
        connection, wanted = self._connection, self._log_level
        if connection is None or wanted is None or connection.version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return
        if "logging" in connection.capabilities:
            self.spawn(tasks.set_log_level, connection, wanted)

    def _watch(self, *, is_new: bool = False) -> None:
        """Have the downstream tell of changes of the resources that agents watch, and in 2026-07-28 of its lists."""
        connection, number = self._connection, self._breaker.connection
        if connection is None or (self._watched == self._told and not is_new):
            return
        if connection.version not in HANDSHAKE_PROTOCOL_VERSIONS:
            if self._watching is not None:
                self._watching.cancel()
            self._told = self._watched
            self._watching = self.spawn(tasks.listen, connection, self._watched, self.actor_ref.tell)
        elif self._watching is None and self._watched != self._told and _has_subscriptions(connection):
            # One after the other, so that the last one counts.
            self._watching = self.spawn(
                tasks.subscribe, connection, number, self._told, self._watched, self.actor_ref.tell
            )

    def _resources_updated(self, updated: ResourcesUpdated) -> None:
        self._deps.forget(self._name)
        found = self._watched & updated.addresses
        updated.addresses.clear()
        if found:
            self._deps.publish(ResourcesChanged(self._name, found))

    def _lost(self, number: int, reason: str) -> None:
        if number != self._breaker.connection:
            return
        self._last_error = f"the connection {reason}"
        self._connection = None
        self._step(breaker.ConnectionLost(number, reason))
        self._settle_parked()

    def _shut(self, reason: str) -> None:
        """End all connections. Calls that run fail."""
        self.cancel_timer(_PROBE)
        self._disconnect()
        for agent in tuple(self._own):
            self._end_own(agent)
        number = self._breaker.connection + 1
        self._breaker = Breaker(breaker.Phase.OPEN, reason, trio.current_time(), connection=number)
        if not self._enabled:
            self._settle_parked()

    def _connect_again(self, reason: str) -> None:
        """End all connections, and begin a new one now, whatever the delay until the next was."""
        self._shut(reason)
        self._begin()

    def _change(self, config: DownstreamConfig, *, allowed: bool) -> None:
        """Use this configuration, and what a person says. What does not concern the connection does not end it."""
        before, was_enabled = self._config, self._enabled
        self._config, self._allowed = config, allowed
        is_other = before.connection_part != config.connection_part
        if is_other:
            self._version = None
        if self._enabled and (is_other or not was_enabled):
            self._connect_again("its configuration has changed")
        elif self._enabled != was_enabled:
            self._shut("it is disabled")
        self._offered.configure(config, is_enabled=self._enabled)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _admit(self, admit: Admit) -> Run | None:
        """Return the call with its connection. If that is not made yet, the answer comes when it is."""
        now = trio.current_time()
        self._require_usable(now)
        if admit.call in self._running or admit.call in self._parked:
            raise IntercomError("a call with this name is under way: give each call a name of its own")
        allowed: Allowed | None = None
        if admit.counts:
            self._meter, allowed = self._counted(admit.tool, now)
        return self._place(Run(admit, allowed, now + self._config.budget.timeout_seconds, self._config))

    def _require_admission(self, tool: str) -> None:
        now = trio.current_time()
        self._require_usable(now)
        self._counted(tool, now)

    def _require_usable(self, now: float) -> None:
        self._require_enabled()
        if self._breaker.circuit is Circuit.OPEN:
            raise self._refusal(now)
        if len(self._parked) >= MOST_PARKED or len(self._parked) + len(self._running) >= MOST_CALLS:
            busy = f"too many calls wait for {self._name}, and this one was not sent: call again in a moment"
            raise GatewayRefused(InvocationStatus.RATE_LIMITED, busy, 1.0)

    def _counted(self, tool: str, now: float) -> tuple[Meter, Allowed]:
        """Return the meter with one more call of this tool. Raises GatewayRefused if the budget does not allow it."""
        budget = self._config.budget
        meter, result = budgets.start(budget, self._meter, tool, now, self._deps.now())
        if isinstance(result, budgets.Refused):
            sentence = budgets.refusal(self._name, budget, result)
            raise GatewayRefused(InvocationStatus.RATE_LIMITED, sentence, result.retry_after)
        return meter, result

    def _admit_again(self, ended: CallEnded) -> Run | None:
        """As `_admit`, for a call whose connection was lost. It is counted already."""
        run = ended.run
        if not self._take_out(ended):
            raise CallFailed(Failure.TRANSPORT, "it was cancelled")
        if run.was_sent != ended.was_sent:
            run = evolve(run, was_sent=ended.was_sent)
        if self._breaker.circuit is Circuit.OPEN or not self._enabled:
            raise self._give_up(run)
        return self._place(run)

    def _place(self, run: Run) -> Run | None:
        """Return an accepted call with its connection, or let it wait for one. Raises GatewayRefused or CallFailed if
        there is no room for a connection."""
        placed = self._placed(run)
        if placed is None:
            self._park(run, self.defer())
        return placed

    def _require_enabled(self) -> None:
        if not self._enabled:
            raise GatewayRefused(
                InvocationStatus.DISABLED,
                f"{self._name} is disabled, and nothing was sent: go on without it, or ask the person to run"
                f" agent-intercom-ctl gateway enable {self._name}",
            )

    def _withheld(self, tool: str) -> GatewayRefused:
        return GatewayRefused(
            InvocationStatus.PERMISSION_DENIED,
            f"{self._name} has changed its tool {one_line(tool)[:80]}, and nothing was sent: go on without it until a"
            " person has accepted the change (agent-intercom-ctl pending)",
        )

    def _refusal(self, now: float) -> GatewayRefused:
        refused = breaker.refusal(self._name, self._breaker, now)
        if refused is None:
            return not_reached(self._name, "it was not connected in time")
        return GatewayRefused(InvocationStatus.CIRCUIT_OPEN, refused.message, refused.retry_after)

    def _placed(self, run: Run) -> Run | None:
        """Return a call with its connection, which runs from now on; None if the connection is still being made. Raises
        as `_place`."""
        admit = run.admit
        if not self._has_room_for(admit.agent):
            many = (
                f"{MOST_OWN} agents use {self._name} already, each over a connection of its own, and nothing was sent:"
                f" repeat this call in {budgets.duration(ROOM_SECONDS)}, or go on without {self._name}"
            )
            raise self._give_up(run, GatewayRefused(InvocationStatus.RATE_LIMITED, many, ROOM_SECONDS))
        connection, own = self._connection_for(admit.agent)
        if connection is None:
            return None
        # The connection may be another one than that of which the agent saw the tools.
        if admit.method == "tools/call" and self._offered.is_withheld(admit.tool):
            raise self._give_up(run, self._withheld(admit.tool))
        placed = self._running[admit.call] = run.over(self._config, connection, self._breaker.connection, own)
        return placed

    def _connection_for(self, agent: AgentPeer | None) -> tuple[Connection | None, int | None]:
        """Return the connection for a call, None while it is made; and its number if it is the agent's own."""
        if agent is None or self._config.sharing is not Sharing.AGENT:
            connection = self._connection
            is_usable = connection is not None and self._breaker.takes_calls and not connection.is_lost
            return connection if is_usable else None, None
        own = self._own.get(agent.id)
        if own is not None and own.connection is not None and own.connection.is_lost:
            self._end_own(agent.id)
            own = None
        if own is None:
            self._owns += 1
            number, version = self._owns, self._version
            self._live_owns.add(number)
            scope = self.spawn(
                tasks.hold_agent_connection, self._deps, self._config, agent.id, number, version, self.actor_ref.tell
            )
            own = _Own(number, scope, None, trio.current_time())
        self._own[agent.id] = evolve(own, used_at=trio.current_time())
        return own.connection, own.number

    def _park(self, run: Run, reply: Reply[Run]) -> None:
        """Let a call wait for its connection, until its time is over."""
        call = run.admit.call
        self._parked[call] = run, reply
        left = max(0.0, run.ends_at - trio.current_time())
        self.set_timer(("parked", call), left, _WaitedTooLong(call))

    def _unpark(self, call: str) -> tuple[Run, Reply[Run]] | None:
        self.cancel_timer(("parked", call))
        return self._parked.pop(call, None)

    def _settle_parked(self, which: Callable[[Run], bool] = lambda _run: True) -> None:
        """Admit the calls that waited for the connection, or refuse them if there will be none soon."""
        for run, reply in [each for each in self._parked.values() if which(each[0])]:
            self._unpark(run.admit.call)
            if reply.abandoned:
                self._uncount(run)
                continue
            try:
                if self._breaker.circuit is Circuit.OPEN or not self._enabled:
                    raise self._give_up(run)
                placed = self._placed(run)
            except (GatewayRefused, CallFailed) as refusal:
                reply.fail(refusal)
            else:
                if placed is None:
                    self._park(run, reply)
                else:
                    reply.set(placed)

    def _refuse_parked(self, call: str, refusal: GatewayRefused | CallFailed | None = None) -> None:
        """Refuse a call that waits no more, if it still waits."""
        parked = self._unpark(call)
        if parked is not None:
            run, reply = parked
            refusal = self._give_up(run, refusal)
            if not reply.abandoned:
                reply.fail(refusal)

    def _give_up(self, run: Run, refusal: GatewayRefused | CallFailed | None = None) -> GatewayRefused | CallFailed:
        """Uncount a call that gets no connection, and return its refusal. One that was sent before may have had an
        effect, and says so."""
        self._uncount(run)
        if run.was_sent:
            return CallFailed(Failure.TRANSPORT, "it was lost, and there is no other connection yet")
        try:
            self._require_enabled()
        except GatewayRefused as disabled:
            return disabled
        return refusal or self._refusal(trio.current_time())

    def _uncount(self, run: Run, *, was_sent: bool = False) -> None:
        """Note that an accepted call has ended. One that was never sent, now or earlier, costs nothing."""
        if run.allowed is None:
            return
        if was_sent or run.was_sent:
            self._meter = budgets.finish(self._meter)
            self._calls += 1
            self._last_call_at = self._deps.now()
        else:
            self._meter = budgets.cancel(self._config.budget, self._meter, run.allowed)

    def _ended(self, ended: CallEnded) -> None:
        run = ended.run
        if not self._take_out(ended):
            return
        self._uncount(run, was_sent=ended.was_sent)
        if run.allowed is not None and ended.was_sent:
            self._seconds.append(ended.seconds)
            if ended.error is not None:
                self._errors += 1
                self._last_error = f"the last call {ended.error}"

    def _take_out(self, ended: CallEnded) -> bool:
        """Note that a call runs no more, and what that says of the downstream. Returns False if it does not run."""
        run = ended.run
        if self._running.get(run.admit.call) is not run:
            return False
        del self._running[run.admit.call]
        if ended.event is not None:
            self._note_own(run, ended.event)
            self._step(ended.event)
        return True

    def _cancel(self, admit: Admit, *, was_sent: bool) -> None:
        """Forget a call whose task has given up."""
        running, parked = self._running.get(admit.call), self._parked.get(admit.call)
        if running is not None and running.admit is admit:
            del self._running[admit.call]
            self._uncount(running, was_sent=was_sent)
        elif parked is not None and parked[0].admit is admit:
            self._unpark(admit.call)
            self._uncount(parked[0])

    # --- connections of single agents --------------------------------------------------------------------------------

    def _has_room_for(self, agent: AgentPeer | None) -> bool:
        """Whether this agent has a connection or may get one. The one that was idle longest ends for it."""
        if agent is None or self._config.sharing is not Sharing.AGENT:
            return True
        own = self._own.get(agent.id)
        if own is not None and (own.connection is None or not own.connection.is_lost):
            return True
        if len(self._live_owns) >= 2 * MOST_OWN:
            return False
        if own is not None or len(self._own) < MOST_OWN:
            return True
        runs = (*(run for run, _ in self._parked.values()), *self._running.values())
        busy = {run.admit.agent.id for run in runs if run.admit.agent is not None}
        idle = [each for each in self._own if each not in busy]
        if not idle:
            return False
        self._end_own(min(idle, key=lambda each: self._own[each].used_at))
        return True

    def _own_connected(self, agent: str, number: int, connection: Connection) -> None:
        own = self._own.get(agent)
        if own is not None and own.number == number:
            self._own[agent] = evolve(own, connection=connection)
            self._deps.forget(self._name)
            self._settle_parked(lambda run: _is_of(run, agent))

    def _own_ended(self, agent: str, number: int, reason: str) -> None:
        own = self._own.get(agent)
        if own is None or own.number != number:
            return
        del self._own[agent]
        self._last_error = f"the connection of an agent {reason}"
        if own.connection is not None:
            self._settle_parked(lambda run: _is_of(run, agent))
            return
        for call in [call for call, (run, _) in self._parked.items() if _is_of(run, agent)]:
            self._refuse_parked(call, not_reached(self._name, f"the connection {reason}"))
        # Each call would start the program once more, so this counts until a back-off.
        self._step(breaker.CallFailed(self._breaker.connection, Failure.TRANSPORT))

    def _agent_gone(self, agent: str) -> None:
        self._end_own(agent)
        if self._config.sharing is Sharing.AGENT:
            for call in [call for call, (run, _) in self._parked.items() if _is_of(run, agent)]:
                self._refuse_parked(call, CallFailed(Failure.TRANSPORT, "it was cancelled", was_sent=False))

    def _note_own(self, run: Run, event: breaker.Event) -> None:
        agent = run.admit.agent
        own = None if agent is None else self._own.get(agent.id)
        if agent is not None and own is not None and own.number == run.own:
            failed = isinstance(event, breaker.CallFailed) and event.failure is not Failure.TOOL_ERROR
            self._own[agent.id] = evolve(own, has_failed=failed)

    def _end_own(self, agent: str) -> None:
        own = self._own.pop(agent, None)
        if own is not None:
            own.scope.cancel()

    # --- health and description --------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Check an idle connection with a request of the protocol, never with a tool."""
        self.set_timer(_CHECK, CHECK_SECONDS, _Check())
        idle = trio.current_time() - OWN_IDLE_SECONDS
        busy = {run.admit.agent.id for run in self._running.values() if run.admit.agent is not None}
        for agent, own in tuple(self._own.items()):
            if own.used_at < idle and agent not in busy:
                self._end_own(agent)
        if self._connection is not None and not self._running:
            self.spawn(tasks.check, self._connection, self._breaker.connection, self.actor_ref.tell)

    def _describe(self) -> Downstream:
        connection = self._connection
        at = self._deps.now()
        return Downstream(
            config=self._config,
            enabled=self._enabled,
            breaker=self._breaker,
            offer=self._offered.offer,
            usage=self._meter.usage,
            remaining=budgets.left(self._config.budget, self._meter, trio.current_time(), at),
            calls=self._calls,
            errors=self._errors,
            running=len(self._running),
            mean_seconds=math.fsum(self._seconds) / len(self._seconds) if self._seconds else None,
            last_call_at=self._last_call_at,
            last_check_at=self._last_check_at,
            last_error=self._last_error,
            pid=None if connection is None else connection.pid,
            handshake_seconds=None if connection is None else connection.handshake_seconds,
            since_seconds=max(0.0, trio.current_time() - self._breaker.since),
            withheld=self._offered.withheld,
            marks=dict(self._offered.marks),
        )


def _is_of(run: Run, agent: str) -> bool:
    """Whether a call is one of this agent."""
    return run.admit.agent is not None and run.admit.agent.id == agent


def _has_subscriptions(connection: Connection) -> bool:
    """Whether a downstream of an older version tells of changes of its resources."""
    declared = connection.capabilities.get("resources")
    return isinstance(declared, Mapping) and declared.get("subscribe") is True
