r"""Intercom inside another program: the same server, with typed calls for agents and operators.

In Trio and in asyncio:

    async with intercom.open(workspace="/srv/project") as switchboard:
        agent = switchboard.agent("release-bot")
        answer = await agent.check_clearance("Bump the version", "1.2.3\n", "VERSION")

In asyncio the server runs in a thread of its own, and the calls are carried there and back.

Synchronous code uses the same objects, and makes each call through `run`:

    with intercom.start(workspace="/srv/project") as switchboard:
        agent = switchboard.agent("release-bot")
        answer = switchboard.run(agent.ping, "starting")

People answer from `agent-intercom-ctl`. The program itself can answer through `switchboard.operator("ann")`.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import trio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import evolve, field, frozen

from actors import Actor, Info, ask
from intercom._version import __version__
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.hook_server import PERMISSION_PROMPT
from intercom.agents.tool_call import ToolCall
from intercom.app import App
from intercom.asyncio_calls import (
    THREAD,
    Handover,
    callable_from_asyncio,
    hand_over,
    in_own_thread,
    is_asyncio,
    run_in_server,
)
from intercom.local import config_file, lock, processes, server_secrets
from intercom.local.places import places, private_directory
from intercom.model.amendment import Amendment, Comment
from intercom.model.audit import AuditEntry
from intercom.model.card import Card, Notice
from intercom.model.checkpoint import CheckpointLine, CheckpointTaken, Files, Restore
from intercom.model.config import Config
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.grant import GrantLine
from intercom.model.metrics import ToolCalled
from intercom.model.policy import RulePreview, RuleWritten
from intercom.model.process import AgentProcess, Origin
from intercom.model.request import Operation, RiskLevel
from intercom.model.session import Instruction, Session, SessionMode
from intercom.operators.commands import caller_and_handler, command_handlers, grant_handlers
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.router_messages import Channel, Subscribe
from intercom.sessions.amendments import AmendedCard
from intercom.sessions.messages import Answered, AskPermission, RecordedRequest, TakeInstructions, ToolRequest
from intercom.sessions.operator_service import LISTED, OperatorService
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.spawner import LINES, Output
from intercom.sessions.request_kinds import PermissionAnswer
from intercom.sessions.tools import ping
from intercom.sessions.tools.auto_check import AutoCheck, CheckAnswer, CheckContext, FileAccess
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.switch_freq import ModeAnswer, SwitchFreq
from intercom.sessions.tools.tool import Tool
from intercom.sessions.tools.tool_table import TOOLS
from intercom.sessions.tools.transmit import Transmit

if TYPE_CHECKING:
    from intercom.operators.slack.settings import SlackSetup

A = TypeVar("A")
P = ParamSpec("P")
Typed = Callable[Concatenate["EmbeddedAgent", P], Coroutine[Any, Any, Answered[A]]]

_BY_CLASS: dict[type[Any], Tool] = {tool.takes: tool for tool in TOOLS}


@overload
def _typed(takes: Callable[P, ToolRequest[RecordedRequest[A]]]) -> Typed[P, A]: ...
@overload
def _typed(takes: Callable[P, ToolRequest[Answered[A]]]) -> Typed[P, A]: ...
def _typed(takes: Any) -> Any:
    """Return the method that calls a tool: its arguments are the fields of the tool's own class."""

    async def call(self: EmbeddedAgent, *args: Any, **kwargs: Any) -> Answered[Any]:
        return await self.call(takes(*args, **kwargs))

    call.__name__, call.__doc__ = _BY_CLASS[takes].name, _BY_CLASS[takes].description
    return call


@frozen
@callable_from_asyncio
class EmbeddedAgent:
    """The agent `name` in one `workspace`; all its calls share a session.

    Each call returns `Answered`: the `answer`, and what is attached to it (`late_verdicts`, `instructions`). Waiting
    calls have no time limit; nor has any call while the session is paused. Cancel a call to stop waiting: the request
    stays open. All raise `IntercomError` kinds, as documented for the tools. `session_id` names the session that a
    person started or restored for this agent.
    """

    app: App
    name: str
    workspace: str | None
    session_id: str | None = None
    portal: BlockingPortal | None = field(default=None, repr=False, eq=False)

    check_clearance = _typed(CheckClearance)
    check_diff = _typed(CheckDiff)
    transmit = _typed(Transmit)
    standby = _typed(Standby)
    broadcast = _typed(Broadcast)
    reboot = _typed(Reboot)
    ping = _typed(Ping)

    @overload
    async def call(self, given: ToolRequest[RecordedRequest[A]]) -> Answered[A]: ...
    @overload
    async def call(self, given: ToolRequest[Answered[A]]) -> Answered[A]: ...
    async def call(self, given: Any) -> Answered[Any]:
        """Call the tool with these arguments, a value of the tool's own class."""
        async with self._call(_BY_CLASS[type(given)], given) as call:
            return await self._done(call, await call.run())

    async def auto_check(
        self,
        tool_name: str,
        *,
        file_path: str | None = None,
        risk_level: RiskLevel = RiskLevel.LOW,
        operation: FileAccess = FileAccess.WRITE,
        args: str | tuple[str, ...] = (),
    ) -> Answered[CheckAnswer]:
        """Ask the workspace's policy."""
        return await self.call(AutoCheck(tool_name, CheckContext(file_path, risk_level, operation, args)))

    async def switch_freq(self, mode: SessionMode) -> Answered[ModeAnswer]:
        """Change the notification mode."""
        return await self.call(SwitchFreq(mode, by=self.name, channel="embed"))

    async def ask_permission(self, operation: Operation) -> Answered[PermissionAnswer]:
        """Ask permission for an operation of this program, as a client's permission hook does, and wait for the
        decision. `status` is "allowed" (once), "denied" or "timeout"."""
        async with self._call(PERMISSION_PROMPT) as call:
            answer = await call.permission(AskPermission(call.name, "embed", operation, "embed"))
            own = answer.request_id if answer.status != "allowed" else None
            return await self._done(call, call.finish(Answered(answer), own))

    async def before_stopping(self) -> Answered[None]:
        """Return pending decisions and instructions before the agent stops, as a client's stop hook does. If there are
        none, the agent counts as stopped until its next call."""
        async with self._call(ping.TOOL) as call:
            return await self._done(call, call.finish(await call.ask(TakeInstructions(call.name))))

    @asynccontextmanager
    async def _call(self, tool: Tool, given: Any = None) -> AsyncIterator[ToolCall]:
        connection = self._connection()
        began, outcome = time.monotonic(), "cancelled"
        try:
            call = await connection.open_call(tool, given, _caller(self.name, connection.key))
            try:
                yield call
            except BaseException:
                # No result reaches the program, so the pending deliveries stay pending.
                connection.sent_results.abandon(call.name, call.session_id)
                raise
            outcome = "ok"
        except IntercomError as refused:
            outcome = refused.error_code
            raise
        finally:
            self.app.measured(ToolCalled(tool.name, outcome, time.monotonic() - began))

    async def _done(self, call: ToolCall, answered: Answered[A]) -> Answered[A]:
        """Finish the call. Its result counts as delivered because the program gets it as the return value."""
        connection = self._connection()

        async def deliver() -> None:
            connection.close_call(call)
            with trio.CancelScope(shield=True):
                # From here on the program gets its answer, even if it cancels the call.
                await connection.sent_results.reached(call.name)

        if not hand_over(Handover(deliver, partial(connection.sent_results.abandon, call.name, call.session_id))):
            await deliver()
        return answered

    def _connection(self) -> AgentConnection:
        key = f"embed:{self.name}:{self.workspace or ''}"
        of = key if self.session_id is None else f"{key}:{self.session_id}"
        app, session_id = self.app, self.session_id
        return app.embedded_connections.setdefault(
            of,
            AgentConnection(
                app.system, app.config, app.connected_agents, key, self.workspace, None, session_id=session_id
            ),
        )


def _caller(name: str, key: str) -> Caller:
    async def no_roots() -> list[str]:
        return []

    return Caller(f"agent-intercom/{name}", None, f"{key}/{uuid.uuid4()}", no_roots, None)


CHANNEL = Channel.EMBED.value


@frozen
@callable_from_asyncio
class EmbeddedOperator:
    """The operator `name`, which every card shows as the author of a decision. Ids may be unique prefixes. All calls
    raise `IntercomError` kinds: NotFound, Ambiguous, AlreadyDecided if another decision came first, and so on."""

    app: App
    name: str
    portal: BlockingPortal | None = field(default=None, repr=False, eq=False)

    async def pending(self) -> tuple[Card, ...]:
        """Return the open cards, oldest first."""
        return await self.app.service.pending()

    async def show(self, id: str) -> Card:
        return await self.app.service.card(id)

    async def approve(
        self,
        id: str,
        *,
        hunks: Sequence[int] = (),
        texts: Mapping[str, str] | None = None,
        shown: str | None = None,
        note: str | None = None,
    ) -> Card:
        """Approve a card. With `hunks` only those of the proposal, or with `texts` other contents of its files, by
        path. `shown` is then the `proposal_hash` of the card that the person saw: of the one in `amended`, or of the
        proposal whose hunks they chose. The agent is told the `note`."""
        amendment = None
        if hunks or texts is not None:
            if shown is None:
                raise InvalidArguments("an amendment needs shown: the proposal_hash of the card that the person saw")
            amendment = Amendment(shown, tuple(hunks), tuple((texts or {}).items()))
        return await self.app.service.decide(id, evolve(self._verdict(Decision.APPROVE, note), amendment=amendment))

    async def amended(
        self, id: str, *, hunks: Sequence[int] = (), texts: Mapping[str, str] | None = None, note: str | None = None
    ) -> AmendedCard:
        """Return a proposal as it would be approved with these changes, and its hunks. Changes nothing."""
        amendment = None
        if hunks or texts is not None:
            shown = (await self.show(id)).proposal_hash or ""
            amendment = Amendment(shown, tuple(hunks), tuple((texts or {}).items()))
        return await self.app.service.amended_card(id, amendment, note)

    async def request_changes(self, id: str, comments: Sequence[Comment], note: str | None = None) -> Card:
        """Reject a proposal, with comments on its lines."""
        verdict = evolve(self._verdict(Decision.REJECT, note), comments=tuple(comments))
        return await self.app.service.decide(id, verdict)

    async def reject(self, id: str, reason: str | None = None) -> Card:
        return await self.answer(id, Decision.REJECT, reason)

    async def answer(self, id: str, decision: Decision, text: str | None = None) -> Card:
        """Decide a card. Returns the card after the decision."""
        return await self.app.service.decide(id, self._verdict(decision, text))

    async def resume(self, instruction: str | None = None, *, session: str | None = None) -> Session:
        """Resume a waiting agent, with an optional instruction."""
        return await command_handlers.resume(self.app.service, self._caller(), instruction, session)

    async def mode(self, mode: SessionMode, *, session: str | None = None) -> tuple[SessionMode, SessionMode]:
        """Change the notification mode. Returns the mode before and after."""
        changed = await command_handlers.mode(self.app.service, self._caller(), mode, session)
        return changed.previous_mode, changed.current_mode

    async def nudge(self, id: str, text: str | None = None) -> Card | Session:
        return await command_handlers.nudge(self.app.service, self._caller(), id, text)

    async def end(self, session: str, why: str = "ended by the program") -> Session:
        """End a session: interrupt its open requests, and end its agent if people started it."""
        return await self.app.service.end(session, self.name, CHANNEL, why)

    async def start(
        self,
        prompt: str,
        *,
        workspace: str | None = None,
        mode: SessionMode | None = None,
        label: str | None = None,
        act: str | None = None,
    ) -> Session:
        """Start an agent (`host_cli` of the configuration) on a task. Returns its session once its process runs. With
        `act`, repeated calls of the same `act` start one agent only."""
        named = self._act(act)
        return await self.app.service.agent_processes.start(
            prompt, by=self.name, channel=CHANNEL, workspace=workspace, mode=mode, label=label, act=named
        )

    async def children(self) -> dict[str, AgentProcess]:
        """Return the agents that people started, by session, with the status of their processes."""
        return await self.app.service.agent_processes.everyone()

    async def output(
        self, session: str, stream: Stream = Stream.STDOUT, *, lines: int = LINES, start: int | None = None
    ) -> Output:
        """Return output of an agent that people started: its last `lines`, or all from byte `start`."""
        return await self.app.service.agent_processes.output(session, stream, lines=lines, start=start)

    async def pause(self, session: str | None = None) -> Session:
        """Pause all calls of a session's agent until `unpause`. Without a name, the only active session is meant."""
        return await command_handlers.pause(self.app.service, self._caller(), session)

    async def unpause(self, session: str | None = None) -> Session:
        """Unpause a session. Without a name, the only paused one is meant."""
        return await command_handlers.unpause(self.app.service, self._caller(), session)

    async def steer(self, session: str, text: str, *, act: str | None = None) -> Card:
        """Queue an instruction for an agent, which gets it once, with its next result. With `act`, repeated calls of
        the same `act` queue it only once."""
        return await command_handlers.steer(self.app.service, self._caller(act), text, session)

    async def steering(self, session: str | None = None, limit: int = LISTED) -> tuple[Instruction, ...]:
        """Return delivered and queued instructions, oldest first."""
        return await self.app.service.steering.instructions(session, limit)

    async def add_task(
        self, text: str, *, session: str | None = None, workspace: str | None = None, act: str | None = None
    ) -> Card:
        """Queue a task for a session's agent, or for the next agent in a workspace; `act` as in `steer`."""
        return await command_handlers.task(self.app.service, self._caller(act), text, session, workspace)

    async def tasks(self, session: str | None = None, *, everything: bool = False) -> tuple[Instruction, ...]:
        """Return the tasks that no agent has yet, oldest first; with `everything`, also the finished ones."""
        return await self.app.service.steering.tasks(session, everything=everything)

    async def take_back(self, id: str, *, decision_id: str | None = None, act: str | None = None) -> Card:
        """Take back a decision, an instruction or a task that no agent has yet; `act` as in `steer`. `decision_id` is
        the decision that is meant (`Card.decided.verdict_id`): one that was made since stays."""
        return await command_handlers.take_back(self.app.service, self._caller(act), id, decision_id)

    async def accept_policy(self, id_or_path: str | None = None) -> Card:
        """Accept a policy by the id of its card or by its workspace. Without a name, the only pending one is meant."""
        return await command_handlers.policy_accept(self.app.service, self._caller(), id_or_path)

    async def reject_policy(self, id_or_path: str | None = None, reason: str | None = None) -> Card:
        """Reject a pending policy, named as in `accept_policy`."""
        return await command_handlers.policy_reject(self.app.service, self._caller(), id_or_path, reason=reason)

    async def grant(
        self,
        id: str,
        *,
        duration: str | None = None,
        uses: int | None = None,
        pattern: str | None = None,
        risk: RiskLevel | None = None,
        act: str | None = None,
    ) -> GrantLine:
        """Permit requests like this card's in advance, in its session, for a `duration` such as "20m" and a number of
        uses; `act` as in `steer`. `pattern` and `risk` are those of the card by default."""
        count = None if uses is None else str(uses)
        return await grant_handlers.grant(
            self.app.service, self._caller(act), id, duration=duration, uses=count, pattern=pattern, risk=risk
        )

    async def grants(self, session: str | None = None, *, everything: bool = False) -> tuple[GrantLine, ...]:
        """Return the grants that are in force, oldest first; with `everything`, also those that are over."""
        return await self.app.service.grants.listed(session, everything=everything)

    async def revoke(self, id: str) -> GrantLine:
        """End a grant at once."""
        return await grant_handlers.revoke(self.app.service, self._caller(), id)

    async def rule_preview(self, id: str, *, pattern: str | None = None, risk: RiskLevel | None = None) -> RulePreview:
        """Return the policy with a rule that lets what this card asks pass, and what it would have let through."""
        return await self.app.service.rules.preview(id, pattern=pattern, risk=risk)

    async def allow(
        self, id: str, *, pattern: str | None = None, risk: RiskLevel | None = None, sha256: str | None = None
    ) -> RuleWritten:
        """Add that rule to the workspace's policy, and accept it. `sha256` is that of the preview: another policy is
        not written."""
        written: RuleWritten = await grant_handlers.allow(
            self.app.service, self._caller(), id, pattern=pattern, risk=risk, sha256=sha256
        )
        return written

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        return await self.app.service.sessions(everything=everything)

    async def checkpoint(self, label: str | None = None, *, session: str | None = None) -> CheckpointTaken:
        """Record the state of a session and the files of its workspace. Without `session`, the only one is meant."""
        return await self.app.service.checkpoints.take(session, label, self.name, CHANNEL)

    async def checkpoints(self, *, session: str | None = None) -> tuple[CheckpointLine, ...]:
        """Return the checkpoints of a session, or of all sessions, newest first."""
        return await self.app.service.checkpoints.listed(session)

    async def ask_restore(self, checkpoint: str, files: Files = Files.LEAVE) -> Restore:
        """Compare a checkpoint with its workspace, and ask whether to restore it. Nothing changes before a decision:
        `answer(restore.id, Decision.PROCEED)`, or CANCEL."""
        return await command_handlers.restore(self.app.service, self._caller(), checkpoint, files)

    async def restore(self, id: str) -> Restore:
        """Return a restore with its status. `successor_id` is the session that follows once it is handed over."""
        return await self.app.service.checkpoints.restore(id)

    async def log(self, limit: int = 50, *, session: str | None = None) -> tuple[AuditEntry, ...]:
        return await self.app.service.audit(limit, session)

    async def tree(self) -> Info:
        """Return the current supervision tree."""
        return self.app.service.tree()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[Card | Notice]]:
        """Receive cards and notices as they come, the open cards first. A reader that is far behind loses the
        newest."""
        sender, receiver = trio.open_memory_channel[Card | Notice](1000)
        name = f"watch/{uuid.uuid4()}"
        feed = self.app.system.adopt(_Feed(sender), name)
        try:
            card_router = self.app.system.named("card_router")
            for card in await ask(card_router, Subscribe(name, Channel.EMBED), timeout=10.0, retry=True):
                _offer(sender, card)
            yield receiver
        finally:
            feed.stop(block=False)

    async def command(self, name: str, /, *, act: str | None = None, **arguments: Any) -> Any:
        """Carry out any operator command by its name, such as `take-back`. The arguments are those of its function in
        `intercom.operators.commands.command_handlers`; the result is what that returns. `act` as in `steer`. Raises
        InvalidArguments for an unknown name, and TypeError for an unknown argument."""
        return await handler_of(name)(self.app.service, self._caller(act), **arguments)

    def _caller(self, act: str | None = None) -> caller_and_handler.Caller:
        return caller_and_handler.Caller(
            self.name, Channel.EMBED, _origin(), act=self._act(act), at=self.app.session_deps.now()
        )

    def _act(self, act: str | None) -> str | None:
        return None if act is None else f"{CHANNEL}/{self.name}/{act}"

    def _verdict(self, decision: Decision, text: str | None) -> Verdict:
        return Verdict(str(uuid.uuid4()), decision, self.name, CHANNEL, self.app.session_deps.now(), text, _origin())


def _origin() -> Origin:
    """Return the origin of decisions: the program that embeds Intercom."""
    return processes.origin(CHANNEL, os.getpid())


class _Feed(Actor):
    def __init__(self, sender: trio.MemorySendChannel[Card | Notice]) -> None:
        super().__init__()
        self._sender = sender

    def on_receive(self, message: object) -> None:
        if isinstance(message, Card | Notice):
            _offer(self._sender, message)

    def on_stop(self) -> None:
        self._sender.close()


def _offer(sender: trio.MemorySendChannel[Card | Notice], item: Card | Notice) -> None:
    try:
        sender.send_nowait(item)
    except (trio.WouldBlock, trio.BrokenResourceError):
        # The reader is slow or gone; open cards can be listed again.
        return


R = TypeVar("R")


@frozen
class Switchboard:
    """A running server. `service` is the service behind the operators' channels; `agent` and `operator` are simpler."""

    app: App = field(repr=False)
    workspace: str | None = None
    portal: BlockingPortal | None = field(default=None, repr=False, kw_only=True)

    @property
    def service(self) -> OperatorService:
        return self.app.service

    def agent(self, name: str, workspace: str | None = None, *, session_id: str | None = None) -> EmbeddedAgent:
        """Return the agent of this name. Calls of one name and workspace share a session, also after a restart.
        `session_id` names a session that a person started or restored; the agent's calls then belong to it."""
        return EmbeddedAgent(self.app, name, workspace or self.workspace, session_id, self.portal)

    def operator(self, name: str) -> EmbeddedOperator:
        """Return the person of this name, who answers through this program."""
        return EmbeddedOperator(self.app, name, self.portal)

    async def call(self, call: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call of `service`, or any other that belongs into the server's event loop, and return its result. In a
        Trio program it is the same as awaiting the call."""
        if self.portal is None or not is_asyncio():
            return await call(*args, **kwargs)
        return await run_in_server(self.portal, partial(call, *args, **kwargs))


@frozen
class SyncSwitchboard(Switchboard):
    """A `Switchboard` for a program without an event loop."""

    def run(self, call: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make one call of an agent, an operator or `service`, and wait for its result. Raises what the call raises. It
        may be used from any thread."""
        assert self.portal is not None, "it was opened in a thread of its own"
        return self.portal.call(partial(call, *args, **kwargs))


def open(
    config: Config | Path | str | None = None,
    *,
    workspace: str | None = None,
    ctl: bool = True,
    slack: SlackSetup | None = None,
) -> AbstractAsyncContextManager[Switchboard]:
    """Run Intercom in this program while the `async with` block runs: in its own event loop if that is Trio, in a
    thread of its own if that is asyncio.

    `config` is a configuration or the path of one; the default is `Config()`, not the user's own file. `workspace` is
    the default for agents. With `ctl`, people can answer from agent-intercom-ctl. When the block ends, open requests
    stay pending.

    `slack` connects the server to Slack, where people can answer too. `intercom.operators.slack.settings.settle(config,
    os.environ)` makes one from keychain and environment, as a server does.

    Raises ConfigError for an unusable configuration, and DatabaseLocked if another server has the database.
    """
    opened = partial(_opened, config=config, workspace=workspace, ctl=ctl, slack=slack)
    return in_own_thread(opened) if is_asyncio() else opened(None)


@asynccontextmanager
async def _opened(
    portal: BlockingPortal | None,
    config: Config | Path | str | None,
    *,
    workspace: str | None,
    ctl: bool,
    slack: SlackSetup | None,
) -> AsyncIterator[Switchboard]:
    settled = config_file.load(Path(config)) if isinstance(config, Path | str) else config or Config()
    where = places(settled.ipc_name)
    database = config_file.database_path(settled, where)
    if not database.parent.is_dir():
        private_directory(str(database.parent))
    with lock.acquire(database, version=__version__) as held:
        sockets = frozenset({"ctl"}) if ctl else frozenset[str]()
        secrets = server_secrets.read(settled.rooms, os.environ)
        proxy = server_secrets.proxy_secret(settled.web, os.environ, by_client=False) if ctl else None
        app = App(evolve(settled), where, database, sockets, slack=slack, secrets=secrets, proxy_secret=proxy)
        app.renew_lock = held.renew
        async with app.system:
            yield Switchboard(app, workspace, portal=portal)


@contextmanager
def start(
    config: Config | Path | str | None = None,
    *,
    workspace: str | None = None,
    ctl: bool = True,
    slack: SlackSetup | None = None,
) -> Iterator[SyncSwitchboard]:
    """Run Intercom in its own thread while the `with` block runs; otherwise as `open`."""
    with ExitStack() as entered:
        portal = entered.enter_context(start_blocking_portal("trio", name=THREAD))
        opened = _opened(portal, config, workspace=workspace, ctl=ctl, slack=slack)
        server = portal.wrap_async_context_manager(opened)
        switchboard = server.__enter__()
        # The server does not see an error of the block: it ends in order, and the error stays what it is.
        entered.callback(server.__exit__, None, None, None)
        yield SyncSwitchboard(switchboard.app, workspace, portal=portal)
