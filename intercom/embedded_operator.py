"""A person who answers through this program: the operator commands as typed calls."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Info, ask
from intercom.app import App
from intercom.local import processes
from intercom.model.card import Card, Notice
from intercom.model.checkpoint import CheckpointLine, Files, Restore
from intercom.model.decision import Decision, Verdict
from intercom.model.process import AgentProcess, Origin
from intercom.model.session import Instruction, Session, SessionMode
from intercom.operators.commands import handlers
from intercom.operators.commands.handlers import Caller, handler_of
from intercom.operators.messages import Channel, Subscribe
from intercom.sessions.checkpoints.messages import CheckpointTaken
from intercom.sessions.operator_service import LISTED
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.spawner import LINES, Output
from intercom.store.audit import AuditEntry

CHANNEL = Channel.EMBED.value


@frozen
class EmbeddedOperator:
    """The operator `name`, which every card shows as the author of a decision. Ids may be unique prefixes. All calls
    raise `IntercomError` kinds: NotFound, Ambiguous, AlreadyDecided if another decision came first, and so on."""

    app: App
    name: str

    async def pending(self) -> tuple[Card, ...]:
        """Return the open cards, oldest first."""
        return await self.app.service.pending()

    async def show(self, id: str) -> Card:
        return await self.app.service.card(id)

    async def approve(self, id: str) -> Card:
        return await self.answer(id, Decision.APPROVE)

    async def reject(self, id: str, reason: str | None = None) -> Card:
        return await self.answer(id, Decision.REJECT, reason)

    async def answer(self, id: str, decision: Decision, text: str | None = None) -> Card:
        """Decide a card. Returns the card after the decision."""
        return await self.app.service.decide(id, self._verdict(decision, text))

    async def resume(self, instruction: str | None = None, *, session: str | None = None) -> Session:
        """Resume a waiting agent, with an optional instruction."""
        return await handlers.resume(self.app.service, self._caller(), instruction, session)

    async def mode(self, mode: SessionMode, *, session: str | None = None) -> tuple[SessionMode, SessionMode]:
        """Change the notification mode. Returns the mode before and after."""
        changed = await handlers.mode(self.app.service, self._caller(), mode, session)
        return changed.previous_mode, changed.current_mode

    async def nudge(self, id: str, text: str | None = None) -> Card | Session:
        return await handlers.nudge(self.app.service, self._caller(), id, text)

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
        return await self.app.service.children.start(
            prompt, by=self.name, channel=CHANNEL, workspace=workspace, mode=mode, label=label, act=named
        )

    async def children(self) -> dict[str, AgentProcess]:
        """Return the agents that people started, by session, with the status of their processes."""
        return await self.app.service.children.everyone()

    async def output(
        self, session: str, stream: Stream = Stream.STDOUT, *, lines: int = LINES, start: int | None = None
    ) -> Output:
        """Return output of an agent that people started: its last `lines`, or all from byte `start`."""
        return await self.app.service.children.output(session, stream, lines=lines, start=start)

    async def pause(self, session: str | None = None) -> Session:
        """Pause all calls of a session's agent until `unpause`. Without a name, the only active session is meant."""
        return await handlers.pause(self.app.service, self._caller(), session)

    async def unpause(self, session: str | None = None) -> Session:
        """Unpause a session. Without a name, the only paused one is meant."""
        return await handlers.unpause(self.app.service, self._caller(), session)

    async def steer(self, session: str, text: str, *, act: str | None = None) -> Card:
        """Queue an instruction for an agent, which gets it once, with its next result. With `act`, repeated calls of
        the same `act` queue it only once."""
        return await handlers.steer(self.app.service, self._caller(act), text, session)

    async def steering(self, session: str | None = None, limit: int = LISTED) -> tuple[Instruction, ...]:
        """Return delivered and queued instructions, oldest first."""
        return await self.app.service.steering.words(session, limit)

    async def add_task(
        self, text: str, *, session: str | None = None, workspace: str | None = None, act: str | None = None
    ) -> Card:
        """Queue a task for a session's agent, or for the next agent in a workspace; `act` as in `steer`."""
        return await handlers.task(self.app.service, self._caller(act), text, session, workspace)

    async def tasks(self, session: str | None = None, *, everything: bool = False) -> tuple[Instruction, ...]:
        """Return the tasks that no agent has yet, oldest first; with `everything`, also the finished ones."""
        return await self.app.service.steering.tasks(session, everything=everything)

    async def take_back(self, id: str) -> Card:
        """Cancel an instruction or a task that no agent has yet."""
        return await handlers.take_back(self.app.service, self._caller(), id)

    async def accept_policy(self, id_or_path: str | None = None) -> Card:
        """Accept a policy by the id of its card or by its workspace. Without a name, the only pending one is meant."""
        return await handlers.policy_accept(self.app.service, self._caller(), id_or_path)

    async def reject_policy(self, id_or_path: str | None = None, reason: str | None = None) -> Card:
        """Reject a pending policy, named as in `accept_policy`."""
        return await handlers.policy_reject(self.app.service, self._caller(), id_or_path, reason=reason)

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
        return await handlers.restore(self.app.service, self._caller(), checkpoint, files)

    async def restore(self, id: str) -> Restore:
        """Return a restore with its status. `successor_id` is the session that follows once it is handed over."""
        return await self.app.service.checkpoints.restore(id)

    async def log(self, limit: int = 50, *, session: str | None = None) -> tuple[AuditEntry, ...]:
        return await self.app.service.audit(limit, session)

    async def tree(self) -> Info:
        """Return the current supervision tree."""
        return self.app.service.tree()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[trio.MemoryReceiveChannel[Card | Notice]]:
        """Receive cards and notices as they come, the open cards first. A reader that is far behind loses the
        newest."""
        sender, receiver = trio.open_memory_channel[Card | Notice](1000)
        name = f"watch/{uuid.uuid4()}"
        feed = self.app.system.adopt(_Feed(sender), name)
        try:
            operators = self.app.system.named("operators")
            for card in await ask(operators, Subscribe(name, Channel.EMBED), timeout=10.0, retry=True):
                _offer(sender, card)
            yield receiver
        finally:
            feed.stop(block=False)

    async def command(self, name: str, /, *, act: str | None = None, **arguments: Any) -> Any:
        """Carry out any operator command by its name, such as `take-back`. The arguments are those of its function in
        `intercom.operators.commands.handlers`; the result is what that returns. `act` as in `steer`. Raises
        InvalidArguments for an unknown name, and TypeError for an unknown argument."""
        return await handler_of(name)(self.app.service, self._caller(act), **arguments)

    def _caller(self, act: str | None = None) -> Caller:
        return Caller(self.name, Channel.EMBED, _origin(), act=self._act(act), at=self.app.context.now())

    def _act(self, act: str | None) -> str | None:
        return None if act is None else f"{CHANNEL}/{self.name}/{act}"

    def _verdict(self, decision: Decision, text: str | None) -> Verdict:
        return Verdict(str(uuid.uuid4()), decision, self.name, CHANNEL, self.app.context.now(), text, _origin())


def _origin() -> Origin:
    """Return the origin of decisions: the program that embeds Intercom."""
    return processes.origin(CHANNEL, os.getpid())


class _Feed(Actor):
    def __init__(self, sender: trio.MemorySendChannel[Card | Notice]) -> None:
        super().__init__()
        self._sender = sender

    def on_receive(self, message: Any) -> None:
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
