"""The operator service: what every channel, and a program that embeds us, can see and do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio
from attrs import define, evolve, field, frozen

from actors import Info, Name, System, ask
from intercom.local.operator_keys import PublicKey
from intercom.model.amendment import Amendment
from intercom.model.audit import LogEntry
from intercom.model.card import Card, CardKind, Notice
from intercom.model.chat_status import ChatStatus
from intercom.model.checkpoint import CheckpointLine, CheckpointTaken, Files, Restore
from intercom.model.decision import Decision, Signature, SignedCommand, Verdict, signature_data
from intercom.model.errors import (
    IntercomError,
    InvalidArguments,
    InvalidState,
    NotFound,
    SignatureRefused,
)
from intercom.model.gateway_view import GatewayOperations
from intercom.model.policy import PolicyStatus
from intercom.model.process import Origin
from intercom.model.room_view import RoomOperations
from intercom.model.server_view import ServerOperations
from intercom.model.session import Instruction, Kind, Session, SessionMode, SessionStatus, id_of_act
from intercom.model.web import WebOperations
from intercom.sessions import amendments, lookups, request_kinds
from intercom.sessions.amendments import AmendedCard
from intercom.sessions.checkpoints.checkpoint_messages import AnswerRestore, AskRestore, TakeCheckpoint
from intercom.sessions.grant_operations import GrantOperations
from intercom.sessions.history import HistoryCalls, LogVerifier, words_of
from intercom.sessions.lookups import ShownCards, ask_session, only, single
from intercom.sessions.messages import (
    CommandRuns,
    Decide,
    End,
    EndAbandoned,
    Pause,
    Resume,
    Steer,
    TakeBackDecision,
    Unpause,
)
from intercom.sessions.policies import PolicyRegistry
from intercom.sessions.processes.spawner import AgentProcesses
from intercom.sessions.rules_from_cards import RuleCalls
from intercom.sessions.session import retraction, steering
from intercom.sessions.session_deps import SessionDeps
from intercom.sessions.signatures import RecentRefusals, Signatures
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.store import audit, checkpoints, idempotency, instructions, sessions
from intercom.store import processes as known_processes
from intercom.store.checkpoints import restores
from intercom.store.idempotency import Scope
from intercom.store.rows import JsonObject
from intercom.store.store_and_reader import STORE_FAULTS, Reader
from intercom.store.writer_messages import Database
from intercom.workspace.files import check_workspace, version_control_root

T = TypeVar("T")

#: The default length of a listing.
LISTED = 50
_TASKS = (Kind.TASK,)
_MESSAGES = (Kind.NUDGE, Kind.STEER)


@frozen
class Steering:
    """Sessions are named by id or unique prefix; without a name, the only possible one is meant. Raises NotFound and
    Ambiguous. An `act_id` names an action: a repeated action is answered like the first time."""

    service: OperatorService

    async def pause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        """Pause the agent: its calls do nothing until `unpause`. Raises InvalidState for a session that has ended."""
        id = await self.service.named_session(
            session, lambda each: each.status is SessionStatus.ACTIVE, "session that could be paused", act_id
        )
        return await ask_session(self.service.system, id, Pause(by, channel))

    async def unpause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        """Unpause a session. Raises InvalidState if it is not paused."""
        id = await self.service.named_session(session, lambda each: each.is_paused, "paused session", act_id)
        return await ask_session(self.service.system, id, Unpause(act_id or self._deps.new_id(), by, channel))

    async def steer(
        self,
        session: str | None,
        text: str,
        by: str,
        channel: str,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card:
        """Queue a message for the agent: its next result carries it, or it ends the agent's standby. Raises
        SteerQueueFull, InvalidArguments for an empty or too long message, and InvalidState for a session that has
        ended. Raises SignatureRefused if a required signature is missing or wrong."""
        id = await self.service.named_session(session, _is_open, "session", act_id)
        asked = Steer(self._id(act_id), Kind.STEER, text, by, channel, signed)
        return await ask_session(self.service.system, id, asked)

    async def instructions(self, session: str | None = None, limit: int = LISTED) -> tuple[Instruction, ...]:
        """Return what agents were told or are to be told, oldest first; of one session, or of all."""
        id = None if session is None else await self.service.session_id(session)
        return await self.service.reader.read(partial(instructions.listed, limit=limit, session_id=id, kinds=_MESSAGES))

    async def add_task(
        self,
        text: str,
        by: str,
        channel: str,
        *,
        session: str | None = None,
        workspace: str | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card:
        """Leave a task for a session's agent, or for the next agent in a workspace, which gets it when it calls reboot
        or standby. `workspace` is a directory: a workspace's root, or one below it. Raises as `steer`, and
        WorkspaceRefused."""
        if (session is None) == (workspace is None):
            raise InvalidArguments("a task is for a session or for a workspace: name one of them")
        id = None if session is None else await self.service.session_id(session)
        root = None if workspace is None else await self.workspace_of(workspace)
        at = self._deps.now()
        instruction = Instruction(self._id(act_id), Kind.TASK, text, by, channel, at, id, root)
        kept, home = await self._deps.store.transact(
            partial(_leave, instruction=instruction, signed=signed, deps=self._deps)
        )
        card = request_kinds.card_of_instruction(kept, home)
        self._deps.card_router.tell(card)
        if kept.is_open and kept.taken_at is None:
            steering.tell_of_task(self.service.system, kept, await self.service.sessions())
        return card

    async def tasks(
        self, session: str | None = None, *, everything: bool = False, limit: int = LISTED
    ) -> tuple[Instruction, ...]:
        """Return the tasks that no agent has got yet, oldest first; with `everything`, the closed ones too."""
        id = None if session is None else await self.service.session_id(session)
        found = await self.service.reader.read(partial(instructions.listed, limit=limit, session_id=id, kinds=_TASKS))
        return tuple(each for each in found if everything or each.is_open)

    async def take_back(
        self,
        prefix: str,
        by: str,
        channel: str,
        act_id: str | None = None,
        origin: Origin | None = None,
        signed: SignedCommand | None = None,
        decision_id: str | None = None,
    ) -> Card:
        """Take back a decision, or cancel a message or a task. `decision_id` is the decision that is meant, if the
        request may be decided again meanwhile. Raises AlreadyDecided if it has reached an agent, or may be on its way,
        or is another decision now, InvalidState for one that takes effect at once, and SignatureRefused."""
        act = TakeBackDecision("", act_id or self._deps.new_id(), by, channel, origin, signed, decision_id)
        found = await retraction.find(self.service.reader, prefix)
        if found is None:
            try:
                _, kind = await self.service.identify(prefix)
            except NotFound:
                raise NotFound(f"no decision, message or task has an id that begins with {prefix!r}") from None
            raise InvalidState(f"what was decided about a {kind.value} card took effect at once; nothing was changed")
        return await retraction.take_back(self.service.system, self._deps, found, act)

    @property
    def _deps(self) -> SessionDeps:
        return self.service.deps

    def _id(self, act_id: str | None) -> str:
        """Return the instruction's id for an action: a repeated action is the same instruction."""
        return self._deps.new_id() if act_id is None else id_of_act(act_id)

    async def workspace_of(self, directory: str) -> str:
        """Return the workspace root for a task that is left in this directory. It is that of the nearest session, else
        the one of an agent started there. Raises WorkspaceRefused."""
        here, rooted = await trio.to_thread.run_sync(_workspaces_at, directory)
        known = {session.workspace_root for session in await self.service.sessions()}
        above = [root for root in known if here.is_relative_to(root)]
        return max(above, key=len) if above else str(rooted)


def _workspaces_at(directory: str) -> tuple[Path, Path]:
    """Return the resolved directory, and the workspace of an agent that is started in it."""
    here = check_workspace(Path(directory))
    return here, check_workspace(version_control_root(here) or here)


def _leave(
    db: Database, instruction: Instruction, signed: SignedCommand | None, deps: SessionDeps
) -> tuple[Instruction, str]:
    """Record the task. Returns it as it is recorded, and its workspace."""
    home = instruction.workspace_root
    if instruction.session_id is not None:
        session = sessions.get(db, instruction.session_id)
        assert session is not None, "it was found a moment ago, and sessions are kept for days"
        home = session.workspace_root
        if session.status is SessionStatus.TERMINATED:
            raise InvalidState("this session was ended; leave the task for its workspace, or for another session")
    return steering.queue(db, deps, instruction, signed, home or ""), home or ""


def _is_open(session: Session) -> bool:
    return session.status is not SessionStatus.INTERRUPTED


#: Time limit of comparing a workspace, including the wait for other comparisons; and of a decision. In seconds.
LOOK_SECONDS = 600.0
ANSWER_SECONDS = 30.0


@frozen
class CheckpointCalls:
    """The checkpoint calls. `actor` is the actor `checkpoints`. `session_id` finds a session by the prefix of its id;
    without a prefix, the only session."""

    actor: Name
    reader: Reader
    session_id: Callable[[str | None], Awaitable[str]]

    async def take(
        self, session: str | None, label: str | None, by: str, channel: str, act_id: str | None = None
    ) -> CheckpointTaken:
        """Take a checkpoint of a session and its workspace; without `session`, of the only session. One `act_id` takes
        one checkpoint, however often it is repeated. Raises NotFound, Ambiguous, and FileError if the workspace is
        gone."""
        id = await self.session_id(session)
        label = " ".join((label or "").split())[:200] or None
        wish = TakeCheckpoint(_named_checkpoint(act_id, "checkpoint"), id, label, by, channel)
        return await ask(self.actor, wish, timeout=LOOK_SECONDS, retry=True)

    async def listed(self, session: str | None = None) -> tuple[CheckpointLine, ...]:
        """Return the checkpoints of a session, or of all, newest first."""
        id = None if session is None else await self.session_id(session)
        return await self.reader.read(partial(checkpoints.of, session_id=id))

    async def checkpoint(self, prefix: str) -> CheckpointLine:
        """Return a checkpoint by the prefix of its id. Raises NotFound and Ambiguous."""
        return await self.reader.read(partial(_one, prefix=prefix))

    async def ask_restore(
        self, checkpoint: str, files: Files, by: str, channel: str, act_id: str | None = None
    ) -> Restore:
        """Compare a checkpoint with its workspace, and ask whether to restore it. The question is a card, answered with
        proceed or cancel; nothing changes before. Raises NotFound and Ambiguous, FileError if the workspace is gone,
        and InvalidState, with the differences, if a session would end and no file be put back."""
        line = await self.checkpoint(checkpoint)
        wish = AskRestore(_named_checkpoint(act_id, "restore"), line.id, files, by, channel)
        card = await ask(self.actor, wish, timeout=LOOK_SECONDS, retry=True)
        return await self.restore(card.id)

    async def restore(self, id: str) -> Restore:
        """Return a restore by its whole id. Raises NotFound."""
        found = await self.reader.read(partial(restores.get, id=id))
        if found is None:
            raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
        return found

    async def answer(self, id: str, verdict: Verdict) -> Card:
        """Proceed with a restore, or cancel it. The first decision wins: raises AlreadyDecided for a later one."""
        return await ask(self.actor, AnswerRestore(id, verdict), timeout=ANSWER_SECONDS, retry=True)


def _named_checkpoint(act_id: str | None, kind: str) -> str:
    """Return the id of what an action creates: always the same for one action."""
    return str(uuid.uuid4() if act_id is None else uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}/{act_id}"))


def _one(db: Database, prefix: str) -> CheckpointLine:
    ids = checkpoints.with_prefix(db, prefix) if prefix else ()
    id = only([prefix] if prefix in ids else list(ids), prefix, "checkpoint")
    line = checkpoints.line(db, id)
    assert line is not None, "read in one transaction"
    return line


R = TypeVar("R")

#: The codes of errors that are not the final answer of a command.
_PASSING = frozenset({"busy", "unavailable"})


@define(eq=False)
class OperatorService:
    """`chat` returns the chat channel's status, and `chat_people` are the ids of those who may answer there; None if
    there is no chat channel. `rooms` is None if there are none, and so is `gateway`: `no_gateway_reason` says why if
    the configuration has one. `web` is None if there is no page. `server` is what is known of the server itself.
    `agent_processes` are the agents that people start."""

    system: System
    deps: SessionDeps
    reader: Reader
    policy_registry: PolicyRegistry
    agent_processes: AgentProcesses
    chat: Callable[[], Awaitable[ChatStatus]] | None = None
    chat_people: tuple[str, ...] | None = None
    rooms: RoomOperations | None = None
    gateway: GatewayOperations | None = None
    no_gateway_reason: str = ""
    web: WebOperations | None = None
    server: ServerOperations | None = None
    _shown: ShownCards = field(factory=ShownCards, init=False, repr=False)
    _verifier: LogVerifier = field(factory=LogVerifier, init=False, repr=False)
    _told: RecentRefusals = field(factory=lambda: RecentRefusals(), init=False, repr=False)

    @property
    def checkpoints(self) -> CheckpointCalls:
        """The calls that take, list and restore checkpoints."""
        return CheckpointCalls(self.system.named("checkpoints"), self.reader, self._named_or_only)

    @property
    def grants(self) -> GrantOperations:
        """The calls about what people permit in advance."""
        return GrantOperations(self.deps, self.reader, self.session_id)

    @property
    def history(self) -> HistoryCalls:
        """The calls about past requests and the audit log."""
        return HistoryCalls(self.reader, self.signatures.keyring.places, self._verifier, self.session_id)

    @property
    def rules(self) -> RuleCalls:
        """The calls that make rules of a policy from cards."""
        return RuleCalls(self.deps, self.reader, self.policy_registry)

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        """Return the sessions that are not over, oldest first; with `everything`, all sessions in the database."""
        return await self.reader.read(lookups.all_sessions if everything else sessions.live)

    async def waiting(self) -> Mapping[str, int]:
        """Return how many requests of each session wait for people, by its id."""
        return await self.reader.read(lookups.waiting)

    async def pending(self, session_id: str | None = None) -> tuple[Card, ...]:
        """Return the cards that wait for a person, oldest first; of one session, by the prefix of its id. Raises
        NotFound and Ambiguous."""
        if session_id is not None:
            session_id = await self.session_id(session_id)
        read = await self.reader.read(partial(lookups.open_cards, session_id=session_id))
        found = await lookups.with_away(self.system, read)
        for card in found:
            self.seen(card)
        proposed = () if session_id is not None else self.policy_registry.cards()
        paused = () if session_id is not None or self.rooms is None else await self.rooms.cards()
        changed = () if session_id is not None or self.gateway is None else await self.gateway.cards()
        return tuple(sorted((*found, *proposed, *paused, *changed), key=lambda card: card.created_at))

    async def card(self, prefix: str) -> Card:
        """Return any current or past card, by a unique prefix of its id. Raises NotFound and Ambiguous."""
        proposed = await self.policy_registry.find(prefix) or await self._room_card(prefix)
        if proposed is None and self.gateway is not None:
            proposed = await self.gateway.find_card(prefix)
        if proposed is not None:
            return proposed
        found = await self.reader.read(partial(lookups.named_card, prefix=prefix))
        (card,) = await lookups.with_away(self.system, (found,))
        self.seen(card)
        return card

    async def identify(self, prefix: str) -> tuple[str, CardKind]:
        """Return the whole id of a card, and its kind, which never changes. Raises NotFound and Ambiguous."""
        id, kind, _ = await self._whose(prefix)
        return id, kind

    async def amended_card(self, prefix: str, amendment: Amendment | None, note: str | None = None) -> AmendedCard:
        """Return a proposal as it would be approved with this amendment; without one, as it is, with its hunks. Changes
        nothing. Raises NotFound and Ambiguous, and what `amendments.look` raises."""
        id, kind = await self.identify(prefix)
        if kind is not CardKind.APPROVAL:
            raise InvalidState(f"{id} is a {kind.value} card, of which no part can be chosen")
        request, root = await self.reader.read(partial(lookups.approval, id=id))
        return await trio.to_thread.run_sync(amendments.look, request, root, amendment, note)

    async def _whose(self, prefix: str) -> tuple[str, CardKind, str]:
        # As a rule the operator was shown the card just before.
        shown = self._shown.find(prefix)
        if shown is not None:
            return prefix, *shown
        card = await self.card(prefix)
        return card.id, card.kind, card.session_id

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        """Answer a card. The first verdict wins: raises AlreadyDecided for a later one, which changes nothing. The same
        verdict (by its id) again is answered like the first time. If an operator key exists, raises SignatureRefused
        for a missing or wrong signature, and tells people."""
        try:
            return await self._decide(prefix, verdict)
        except SignatureRefused as refused:
            await self._tell_refused(prefix, verdict, refused)
            raise

    async def _tell_refused(self, prefix: str, verdict: Verdict, refused: SignatureRefused) -> None:
        who = f"{verdict.by} ({verdict.channel})"
        summary = f"refused to {verdict.decision.value} {prefix} for {who}: {refused.message}"
        data = {"request_id": prefix, "decision": verdict.decision.value, "channel": verdict.channel}
        await self.security_event(summary, {**data, "origin": verdict.origin_data})
        if self._told.is_new(f"{prefix} {refused.message}", self.deps.now()):
            self.deps.card_router.tell(Notice(summary, "error", self.deps.now()))

    async def _decide(self, prefix: str, verdict: Verdict) -> Card:
        if verdict.amendment is not None or verdict.comments:
            # Only a session knows what to do with these. Another part would decide about the whole.
            id, found = await self.identify(prefix)
            if found is not CardKind.APPROVAL:
                raise InvalidState(f"{id} is a {found.value} card, of which no part can be chosen or commented on")
        proposed = await self.policy_registry.find(prefix)
        if proposed is not None:
            return self._count(await self.policy_registry.decide(proposed, verdict), verdict)
        if self.rooms is not None and (paused := await self._room_card(prefix)) is not None:
            done = await self.rooms.decide_card(paused, verdict, self.policy_registry.signatures.admit)
            if paused.decided is None:
                await self._record_room(done)
            return self._count(done, verdict)
        if self.gateway is not None and (changed := await self.gateway.find_card(prefix)) is not None:
            decided = await self.gateway.decide_card(changed, verdict, self.policy_registry.signatures.admit)
            return self._count(decided, verdict)
        id, kind, session_id = await self._whose(prefix)
        if kind is CardKind.RESTORE:
            return self._count(await self.checkpoints.answer(id, verdict), verdict)
        return self._count(await ask_session(self.system, session_id, Decide(id, verdict)), verdict)

    async def _room_card(self, prefix: str) -> Card | None:
        return None if self.rooms is None else await self.rooms.find_card(prefix)

    async def _record_room(self, card: Card) -> None:
        """Record a decision about a paused room in the audit log."""
        decided = card.decided
        assert decided is not None, "it was decided just now"
        data = {
            "request_id": card.id,
            "room_id": card.detail,
            "channel": decided.channel,
            "origin": None if decided.origin is None else decided.origin.to_data(),
            "signature": signature_data(decided.signature),
        }
        kind, now = f"room_{decided.decision}", self.deps.now()
        await self.deps.store.transact(
            partial(
                audit.record, at=now, kind=kind, session_id=None, who=decided.by, summary=str(card.title), data=data
            )
        )

    async def resume(self, session: str | None, instruction: str | None, verdict: Verdict) -> Session:
        """Resume a waiting agent; without `session`, the only one that waits. Raises NotFound and Ambiguous."""
        id = (
            await self.session_id(session)
            if session is not None
            else await self._find_once(verdict.id, lookups.only_waiting)
        )
        given = evolve(verdict, decision=Decision.RESUME, text=instruction)
        return await ask_session(self.system, id, Resume(given))

    async def switch_mode(
        self, session: str | None, mode: SessionMode, by: str, channel: str, act_id: str | None = None
    ) -> tuple[SessionMode, SessionMode]:
        """Change who is notified of a session's cards; default: the only session. Returns the old and the new mode. A
        repeated `act_id` is answered as the first time, and changes nothing."""
        id = await self.named_session(session, _is_open, "session", act_id)
        call = act_id or self.deps.new_id()
        asked = SwitchFreq(mode, by=by, channel=channel, from_agent=False, call=call)
        answered = await ask_session(self.system, id, asked)
        return SessionMode(answered.answer.previous_mode), SessionMode(answered.answer.current_mode)

    def nudge_text(self) -> str:
        """Return the default message of a nudge."""
        return self.deps.config.stall.default_nudge_message

    async def nudge(
        self,
        prefix: str,
        text: str | None,
        by: str,
        channel: str,
        origin: Origin | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card | Session:
        """Send an agent a message with its next result, by the id of a stall alert or a session. `act_id` names the
        action, `signed` is the command that a person signed."""
        what, id = await self.reader.read(partial(lookups.nudged, prefix=prefix))
        instruction_id = self.deps.new_id() if act_id is None else id_of_act(act_id)
        if what == "alert":
            verdict = Verdict(
                instruction_id, Decision.NUDGE, by, channel, self.deps.now(), text, origin, command=signed
            )
            return await self.decide(id, verdict)
        message = text or self.nudge_text()
        await ask_session(self.system, id, Steer(instruction_id, Kind.NUDGE, message, by, channel, signed))
        session = await self.reader.read(partial(sessions.get, id=id))
        assert session is not None, "it has answered just now"
        return session

    async def end(self, session: str, by: str, channel: str, why: str) -> Session:
        """End a session; its pending requests are interrupted."""
        return await ask_session(self.system, await self.session_id(session), End(by, channel, why))

    async def end_interrupted(self, by: str, channel: str, why: str) -> tuple[Session, ...]:
        """End the sessions whose agents are away; their pending requests are interrupted. One whose agent comes back
        meanwhile goes on. Leaves out what `sessions.abandoned_before` does. Returns those that were ended."""
        ended = []
        now = self.deps.now()
        away = await self.reader.read(partial(sessions.abandoned_before, cutoff=now, limit=-1))
        for session in await self.sessions():
            is_away = session.id in away and session.status is SessionStatus.INTERRUPTED
            if is_away and await ask_session(self.system, session.id, EndAbandoned(now, why, by, channel)):
                ended.append(session)
        return tuple(ended)

    def unsigned_policies(self) -> str | None:
        """Return a message about the policies that were accepted without a signature; None if there are none."""
        return self.policy_registry.unsigned_notice()

    def command_runs(self, session: str, command: str, seconds: float) -> None:
        """Tell a session that a command runs in its workspace for so many seconds at most, or has ended (0)."""
        self.system.named(f"session/{session}").tell(CommandRuns(command, seconds))

    async def decide_policy(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card:
        """Accept or reject a policy, by its card's id or its workspace; without a name, the only one that waits.
        `shown` is the hash of the content that the person was shown."""
        return self._count(await self.policy_registry.decide_named(prefix_or_path, verdict, shown), verdict)

    async def policies(self) -> tuple[PolicyStatus, ...]:
        """Return the status of the policies of all known workspaces."""
        return await self.policy_registry.all()

    async def policy(self, prefix_or_path: str) -> PolicyStatus:
        """Return the status of one policy, by its card's id or its workspace."""
        return await self.policy_registry.status(prefix_or_path)

    def _count(self, card: Card, verdict: Verdict) -> Card:
        told = request_kinds.answered(card, verdict, self.deps.now())
        if told is not None:
            self.deps.measured(told)
        return card

    async def audit(
        self, limit: int, session: str | None = None, *, text: str | None = None, before: int | None = None
    ) -> tuple[LogEntry, ...]:
        """Return the newest audit entries (older than `before`, with all words of `text`), oldest first, each with the
        title of the request that it is about."""
        id = await self.session_id(session) if session is not None else None
        words = words_of(text)
        read = self.reader.search if words else self.reader.read
        return await read(partial(lookups.log, limit=limit, session_id=id, before_id=before, words=words))

    async def security_event(self, summary: str, data: Mapping[str, object]) -> None:
        """Record a forbidden attempt in the audit log."""
        await self.deps.store.transact(
            partial(
                audit.record,
                at=self.deps.now(),
                kind="security",
                session_id=None,
                who="intercom",
                summary=summary,
                data=dict(data),
            )
        )

    async def is_new_terminal(self, origin: Origin) -> bool:
        """Record that a person decides from this terminal. Returns whether it was never used before."""
        work = partial(known_processes.is_new_terminal, origin=origin, at=self.deps.now())
        return await self.deps.store.transact(work)

    def tree(self) -> Info:
        return self.system.inspect()

    async def chat_status(self) -> ChatStatus | None:
        """Return the chat channel's status: its connection, its queue and its errors; None without a chat channel."""
        return None if self.chat is None else await self.chat()

    def seen(self, card: Card) -> None:
        """Remember the card's session: a card that was shown may be answered next."""
        self._shown.remember(card)

    @property
    def steering(self) -> Steering:
        """The calls that pause agents and send them messages."""
        return Steering(self)

    # --- operator keys -----------------------------------------------------------------------------------------------

    @property
    def signatures(self) -> Signatures:
        """Which decisions count."""
        return self.deps.signatures

    def admit_command(
        self, command: str, act_id: str | None, subject: str, signature: Signature | None, channel: str = "ctl"
    ) -> None:
        """Check the signature of a command that answers no card. Does nothing if there is no operator key. Raises
        SignatureRefused."""
        self.signatures.admit_command(command, act_id, subject, signature, self.deps.now(), channel)

    async def once(self, act_id: str | None, work: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        """Carry out a command whose signature counts once, or that ends something, and return the data of its answer.

        Sent again, it is answered as the first time, also if that was a refusal, and nothing is done: a process that
        saw the signature must not use it later. A passing failure is no answer. Between the effect and this record the
        server may crash, so the effect has to be safe to repeat under `act_id` too.
        """
        if act_id is None:
            return await work()
        told = await self.reader.read(partial(idempotency.answer, scope=Scope.SIGNED, id=act_id))
        if told is None:
            try:
                told = {"data": await work()}
            except STORE_FAULTS:
                raise
            except IntercomError as refused:
                if refused.error_code in _PASSING:
                    raise
                details = json.loads(json.dumps(refused.details, default=str))
                told = {"error": refused.message, "code": refused.error_code, "details": details}
            kept = partial(idempotency.first_answer, scope=Scope.SIGNED, id=act_id, given=told, at=self.deps.now())
            told = await self.deps.store.transact(kept)
        if "error" in told:
            raise IntercomError(told["error"], code=told["code"], **told["details"])
        data: JsonObject = told["data"]
        return data

    async def add_key(self, key: PublicKey, at: str, by: str, signature: str) -> bool:
        """Enrol an operator key; False if it is enrolled already. Raises SignatureRefused."""
        added = await self._transact_once(partial(self._add_key, key=key, at=at, by=by, signature=signature))
        if added:
            text = f"operator key {key.id} ({key.name}) counts from now on: decisions have to be signed"
            settings = self.signatures.keyring.unsigned_settings()
            for told in (text, settings.sentence() if settings else None, self.unsigned_policies()):
                if told is not None:
                    self.deps.card_router.tell(Notice(told, "warning", self.deps.now()))
        return added

    async def note_settings(self) -> None:
        """Record which settings a person has signed, if they are new, and tell people."""
        keyring = self.signatures.keyring
        if not keyring.has_new_settings:
            return
        if (signed := await self._transact_once(partial(keyring.note_settings, now=self.deps.now()))) is not None:
            self.deps.card_router.tell(Notice(keyring.new_settings(signed), "success", self.deps.now()))

    async def revoke_key(self, id: str, at: str, by: str, signature: str) -> PublicKey:
        """Revoke an operator key, and return it. Raises SignatureRefused and NotFound."""
        key = await self._transact_once(partial(self._revoke_key, id=id, at=at, by=by, signature=signature))
        rest = "" if self.signatures.required else ": no operator key is left, and decisions need no signature"
        text = f"operator key {key.id} ({key.name}) was revoked{rest}"
        self.deps.card_router.tell(Notice(text, "warning", self.deps.now()))
        return key

    def _add_key(self, db: Database, key: PublicKey, at: str, by: str, signature: str) -> bool:
        added = self.signatures.keyring.add(db, key, at, by, signature, self.deps.now())
        if added:
            self.signatures.keyring.note_settings(db, self.deps.now())
            self._record_key(db, "operator_key_added", key, by=by, at=at, signature=signature)
        return added

    def _revoke_key(self, db: Database, id: str, at: str, by: str, signature: str) -> PublicKey:
        key = self.signatures.keyring.revoke(db, id, at, by, signature, self.deps.now())
        self._record_key(db, "operator_key_revoked", key, by=by, at=at, signature=signature)
        return key

    def _record_key(self, db: Database, kind: str, key: PublicKey, **said: str) -> None:
        data = {"key_id": key.id, "public": key.public, **said}
        audit.record(db, self.deps.now(), kind, None, key.name or key.id, f"operator key {key.id}", data)

    async def _transact_once(self, work: Callable[[Database], R]) -> R:
        """Run work about keys and signatures, which is not safe to repeat: a signature counts once."""
        return await self.deps.store.transact(work, retry=False)

    # --- finding -----------------------------------------------------------------------------------------------------

    async def session_id(self, prefix: str) -> str:
        """Return the whole id of a session. Raises NotFound and Ambiguous."""
        return await lookups.session_id(self.reader, prefix)

    async def named_session(
        self, prefix: str | None, fits: Callable[[Session], bool], what: str, act_id: str | None = None
    ) -> str:
        """Return the whole id of a session; without a name, of the only live session that fits. A repeated `act_id`
        gets the session of the first time. Raises NotFound and Ambiguous."""
        if prefix is not None:
            return await self.session_id(prefix)
        return await self._find_once(
            act_id, lambda db: single([one.id for one in sessions.live(db) if fits(one)], what)
        )

    async def _find_once(self, act_id: str | None, find: Callable[[Database], str]) -> str:
        if act_id is None:
            return await self.reader.read(find)
        work = partial(lookups.by_act, act_id=act_id, find=find, at=self.deps.now())
        return await self.deps.store.transact(work)

    async def _named_or_only(self, prefix: str | None) -> str:
        return await self.named_session(prefix, _is_open, "session")
