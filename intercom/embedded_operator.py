"""A person who answers through this program: what ctl can do, as typed calls."""

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
from intercom.model.checkpoint import CheckpointLine
from intercom.model.child import Child
from intercom.model.origin import Origin
from intercom.model.restore import Files, Restore
from intercom.model.session import Session, SessionMode
from intercom.model.steering import Instruction
from intercom.model.verdict import Decision, Verdict
from intercom.operators.messages import Channel, Subscribe
from intercom.sessions.checkpoint_messages import CheckpointTaken
from intercom.sessions.children import LINES, Output
from intercom.sessions.spawning.output_files import Stream
from intercom.sessions.steering_desk import LISTED
from intercom.store.audit import AuditEntry

CHANNEL = "embed"


@frozen
class EmbeddedOperator:
    """`name` is who answered, on every card. Ids may be unique prefixes. All raise `IntercomError` kinds: NotFound,
    Ambiguous, AlreadyDecided for a verdict that came second, and so on."""

    app: App
    name: str

    async def pending(self) -> tuple[Card, ...]:
        """What waits for a person, oldest first."""
        return await self.app.desk.pending()

    async def show(self, id: str) -> Card:
        return await self.app.desk.card(id)

    async def approve(self, id: str) -> Card:
        return await self.answer(id, Decision.APPROVE)

    async def reject(self, id: str, reason: str | None = None) -> Card:
        return await self.answer(id, Decision.REJECT, reason)

    async def answer(self, id: str, decision: Decision, text: str | None = None) -> Card:
        """Give a verdict; returns the card as it stands after."""
        return await self.app.desk.decide(id, self._verdict(decision, text))

    async def resume(self, instruction: str | None = None, *, session: str | None = None) -> Session:
        """Give a waiting agent word to go on."""
        return await self.app.desk.resume(session, instruction, self._verdict(Decision.RESUME, instruction))

    async def mode(self, mode: SessionMode, *, session: str | None = None) -> tuple[SessionMode, SessionMode]:
        """Change who is notified; returns the mode before and after."""
        return await self.app.desk.switch_mode(session, mode, self.name, CHANNEL)

    async def nudge(self, id: str, text: str | None = None) -> Card | Session:
        return await self.app.desk.nudge(id, text, self.name, CHANNEL, _origin())

    async def end(self, session: str, why: str = "ended by the program") -> Session:
        """Terminate a session; what waits in it is interrupted, and an agent that people started ends."""
        return await self.app.desk.end(session, self.name, CHANNEL, why)

    async def start(
        self,
        prompt: str,
        *,
        workspace: str | None = None,
        mode: SessionMode | None = None,
        label: str | None = None,
        act: str | None = None,
    ) -> Session:
        """Start an agent (`host_cli` of the configuration) on a task; its session, once its process runs. `act` names
        the act, which then starts one agent however often it is repeated."""
        named = self._act(act)
        return await self.app.desk.children.start(
            prompt, by=self.name, channel=CHANNEL, workspace=workspace, mode=mode, label=label, act=named
        )

    async def children(self) -> dict[str, Child]:
        """The agents that people started, by session, with how their processes fare."""
        return await self.app.desk.children.everyone()

    async def output(
        self, session: str, stream: Stream = Stream.STDOUT, *, lines: int = LINES, start: int | None = None
    ) -> Output:
        """What an agent that people started wrote: its last `lines`, or from byte `start` on."""
        return await self.app.desk.children.output(session, stream, lines=lines, start=start)

    async def pause(self, session: str | None = None) -> Session:
        """Let no call of a session's agent do anything until `unpause`; without a name, of the only active one."""
        return await self.app.desk.steering.pause(session, self.name, CHANNEL)

    async def unpause(self, session: str | None = None) -> Session:
        """Let a paused session go on; without a name, the only one."""
        return await self.app.desk.steering.unpause(session, self.name, CHANNEL)

    async def steer(self, session: str, text: str, *, act: str | None = None) -> Card:
        """Queue words for an agent: they reach it with its next result, once. `act` names the act, which then queues
        them once however often it is repeated."""
        return await self.app.desk.steering.steer(session, text, self.name, CHANNEL, self._act(act))

    async def steering(self, session: str | None = None, limit: int = LISTED) -> tuple[Instruction, ...]:
        """What agents were told or are to be told, oldest first."""
        return await self.app.desk.steering.words(session, limit)

    async def add_task(
        self, text: str, *, session: str | None = None, workspace: str | None = None, act: str | None = None
    ) -> Card:
        """Leave a task for a session's agent, or for the next one in a workspace; `act` as in `steer`."""
        return await self.app.desk.steering.add_task(
            text, self.name, CHANNEL, session=session, workspace=workspace, act_id=self._act(act)
        )

    async def tasks(self, session: str | None = None, *, everything: bool = False) -> tuple[Instruction, ...]:
        """The tasks that no agent has yet, oldest first; with `everything`, those that are done with too."""
        return await self.app.desk.steering.tasks(session, everything=everything)

    async def take_back(self, id: str) -> Card:
        """Let words or a task never reach an agent."""
        return await self.app.desk.steering.take_back(id, self.name, CHANNEL)

    async def accept_policy(self, id_or_path: str | None = None) -> Card:
        """Accept a policy by the id of its card or by its workspace; without a name, the only one that waits."""
        return await self.app.desk.decide_policy(id_or_path, self._verdict(Decision.ACCEPT, None))

    async def reject_policy(self, id_or_path: str | None = None, reason: str | None = None) -> Card:
        """Reject the content that waits, named as in `accept_policy`."""
        return await self.app.desk.decide_policy(id_or_path, self._verdict(Decision.REJECT, reason))

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        return await self.app.desk.sessions(everything=everything)

    async def checkpoint(self, label: str | None = None, *, session: str | None = None) -> CheckpointTaken:
        """Record how a session and the files of its workspace stand; without `session`, the only one there is."""
        return await self.app.desk.checkpoints.take(session, label, self.name, CHANNEL)

    async def checkpoints(self, *, session: str | None = None) -> tuple[CheckpointLine, ...]:
        """The checkpoints of a session, or of all, newest first."""
        return await self.app.desk.checkpoints.listed(session)

    async def ask_restore(self, checkpoint: str, files: Files = Files.LEAVE) -> Restore:
        """Compare a checkpoint with its workspace, and ask whether to go back to it. Nothing changes until somebody
        says so: `answer(restore.id, Decision.PROCEED)`, or CANCEL."""
        return await self.app.desk.checkpoints.ask_restore(checkpoint, files, self.name, CHANNEL)

    async def restore(self, id: str) -> Restore:
        """How a restore stands; `successor_id` is the session that follows once it is handed over."""
        return await self.app.desk.checkpoints.restore(id)

    async def log(self, limit: int = 50, *, session: str | None = None) -> tuple[AuditEntry, ...]:
        return await self.app.desk.audit(limit, session)

    async def tree(self) -> Info:
        """The supervision tree as it is now."""
        return self.app.desk.tree()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[trio.MemoryReceiveChannel[Card | Notice]]:
        """Cards and notices as they come, the open ones first. A reader that falls far behind loses the newest."""
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

    def _act(self, act: str | None) -> str | None:
        return None if act is None else f"{CHANNEL}/{self.name}/{act}"

    def _verdict(self, decision: Decision, text: str | None) -> Verdict:
        return Verdict(str(uuid.uuid4()), decision, self.name, CHANNEL, self.app.context.now(), text, _origin())


def _origin() -> Origin:
    """The program that embeds us is where its decisions come from."""
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
        # Nobody reads; what is open can be asked for again.
        return
