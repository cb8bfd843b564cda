"""A stand-in for the service: cards in a dict, with the refusals the real one gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from attrs import evolve

from actors import Info
from intercom.local.operator_keys import PublicKey
from intercom.local.processes import KnownAgents, known_agents, lineage
from intercom.model.audit import LogEntry
from intercom.model.card import Card, CardKind, CardState
from intercom.model.chat_status import ChatStatus
from intercom.model.checkpoint import (
    CheckpointLine,
    CheckpointTaken,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Files,
    LeftOut,
    Restore,
    RestoreState,
)
from intercom.model.decision import Decided, Decision, Signature, SignedCommand, Verdict
from intercom.model.errors import AlreadyDecided, Ambiguous, InvalidArguments, InvalidState, NotFound
from intercom.model.policy import PolicyStatus
from intercom.model.process import AgentProcess, AgentProcessState, Exit, Origin
from intercom.model.request import ChangeKind, FileChange, RiskLevel
from intercom.model.session import Instruction, Kind, Session, SessionMode, SessionStatus
from intercom.sessions.checkpoints.restore import of_restore
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.spawner import Output
from intercom.sessions.request_kinds import card_of_instruction
from intercom.sessions.signatures import without_keys

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

DIFF = """--- a/src/app.py
+++ b/src/app.py
@@ -1,2 +1,2 @@
-old = 1
+new = 2
 same = 3
"""

POLICY = PolicyStatus(
    workspace_root="/home/me/project",
    status="waiting",
    source=".intercom/settings.json",
    sha256="ab" * 32,
    grants="nothing",
    text='{"enabled": true, "tools": ["transmit"]}\n',
    ways=('tool added: "transmit"',),
    trial="would have let 1 of 2 past requests pass: \x1b[2J",
    accepted_sha256="cd" * 32,
    accepted_by="kim",
    accepted_channel="ctl",
    accepted_at=START,
    request_id="policy-0123456789abcdef",
)

_AFTER = {Decision.APPROVE: CardState.APPROVED, Decision.REJECT: CardState.REJECTED, Decision.DISMISS: CardState.CLOSED}


def card(request_id: str, kind: CardKind = CardKind.APPROVAL, **more: Any) -> Card:
    """A card of session `s-1`, whole for its kind."""
    fields: dict[str, Any] = {
        "session_id": "s-1",
        "workspace_root": "/home/me/project",
        "title": f"{kind.value} {request_id}",
        "created_at": START,
    }
    if kind is CardKind.APPROVAL:
        change = FileChange("src/app.py", ChangeKind.WRITE, "aa" * 32, "bb" * 32, added=1, removed=1)
        fields |= {"risk": RiskLevel.HIGH, "files": (change,), "diff": DIFF, "expires_at": START + timedelta(hours=1)}
    return Card(request_id, kind, **(fields | more))


def session(session_id: str, **more: Any) -> Session:
    fields: dict[str, Any] = {
        "owner_user_id": "",
        "workspace_root": "/home/me/project",
        "status": SessionStatus.ACTIVE,
        "mode": SessionMode.LOCAL,
        "created_at": START,
        "updated_at": START,
    }
    return Session(session_id, **(fields | more))


class StandInChildren:
    """What it was asked to do stands in the service's `acts`; `text` is what its agents write."""

    def __init__(self, service: StandInService) -> None:
        self._service = service
        self.text = "one\ntwo\n"
        self.is_going = False

    async def start(self, prompt: str, **more: Any) -> Session:
        if not prompt.strip():
            raise InvalidArguments("a prompt is needed: say what the agent is to do")
        self._service.acts.append(("start", prompt, {name: value for name, value in more.items() if value}))
        started = session("s-new", prompt=prompt)
        self._service.all_sessions[started.id] = started
        return started

    async def everyone(self, sessions: Collection[str] | None = None) -> dict[str, AgentProcess]:
        return {"s-new": AgentProcess("s-new", AgentProcessState.RUNNING, START, "me")}

    async def output(
        self,
        session: str,
        stream: Stream = Stream.STDOUT,
        *,
        lines: int = 200,
        start: int | None = None,
        limit: int = 1000,
        masked: bool = False,
    ) -> Output:
        found = await self._service.find(session)
        self._service.acts.append(("output", found.id, stream.value, lines, start))
        text = self.text[start or 0 :][:limit]
        begin = start or 0
        return Output(found.id, stream, text, begin, begin + len(text), self.is_going, Exit(code=0))


class StandInSteering:
    """Words are kept; a session is paused at once."""

    def __init__(self, service: StandInService) -> None:
        self.service = service
        self.kept: dict[str, Instruction] = {}

    async def pause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        found = self.service._session(session)
        self.service.acts.append(("pause", found.id, by, channel, act_id))
        paused = attrs.evolve(found, status=SessionStatus.PAUSED, paused_by=by, paused_at=START)
        self.service.all_sessions[found.id] = paused
        return paused

    async def unpause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        found = self.service._session(session)
        if not found.is_paused:
            raise InvalidState("the session is not paused: it is active")
        self.service.acts.append(("unpause", found.id, by, channel, act_id))
        going_on = attrs.evolve(found, status=SessionStatus.ACTIVE, paused_by=None, paused_at=None)
        self.service.all_sessions[found.id] = going_on
        return going_on

    async def steer(
        self,
        session: str | None,
        text: str,
        by: str,
        channel: str,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card:
        found = self.service._session(session)
        self.service.acts.append(("steer", found.id, text, by, channel, act_id))
        return self._keep(Instruction("w-1", Kind.STEER, text, by, channel, START, found.id))

    async def instructions(self, session: str | None = None, limit: int = 50) -> tuple[Instruction, ...]:
        if session is not None:
            self.service._session(session)
        return tuple(word for word in self.kept.values() if word.kind is Kind.STEER)[:limit]

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
        if session is not None:
            self.service._session(session)
        self.service.acts.append(("task", text, by, channel, session, workspace, act_id))
        return self._keep(Instruction("t-1", Kind.TASK, text, by, channel, START, session, workspace))

    async def workspace_of(self, directory: str) -> str:
        return directory

    async def tasks(
        self, session: str | None = None, *, everything: bool = False, limit: int = 50
    ) -> tuple[Instruction, ...]:
        if session is not None:
            self.service._session(session)
        return tuple(word for word in self.kept.values() if word.kind is Kind.TASK and (everything or word.is_open))

    async def take_back(
        self,
        prefix: str,
        by: str,
        channel: str,
        act_id: str | None = None,
        origin: object = None,
        signed: object = None,
        decision_id: str | None = None,
    ) -> Card:
        found = self.kept.get(prefix)
        if found is None:
            raise NotFound(f"no decision, message or task has an id that begins with {prefix!r}")
        self.service.acts.append(("take back", prefix, by, channel))
        return self._keep(attrs.evolve(found, closed_at=START))

    def _keep(self, word: Instruction) -> Card:
        self.kept[word.id] = word
        return card_of_instruction(word, "/home/me/project")


class StandInAgents:
    """The processes on record are those of the service's `clients`."""

    def __init__(self, service: StandInService) -> None:
        self._service = service
        self.awaited = 0
        self.is_restart = False

    def known(self) -> KnownAgents:
        return known_agents(entry for pid in self._service.clients for entry in lineage(pid))


class StandInService:
    """What it was asked to do stands in `acts`; `crash` is raised by the next call that reads."""

    def __init__(self, *cards: Card, sessions: Sequence[Session] = ()) -> None:
        self.cards = {each.id: each for each in cards}
        self.all_sessions = {each.id: each for each in sessions or (session("s-1"),)}
        self.acts: list[tuple[Any, ...]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.clients: frozenset[int] = frozenset()
        self.terminals: set[str | None] = set()
        self.chat: ChatStatus | None = None
        self.chat_people: tuple[str, ...] | None = None
        self.crash: BaseException | None = None
        self.agent_processes = StandInChildren(self)
        self.steering = StandInSteering(self)
        self.checkpoints = StandInCheckpoints(self)
        self.signatures = without_keys()
        self.rooms: Any = None
        self.gateway: Any = None
        self.no_gateway_reason = ""
        self.web: Any = None
        self.server: Any = None

    async def note_settings(self) -> None:
        pass

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        if self.crash is not None:
            raise self.crash
        ended = SessionStatus.TERMINATED
        return tuple(each for each in self.all_sessions.values() if everything or each.status is not ended)

    async def session_id(self, prefix: str) -> str:
        return self._session(prefix).id

    async def pending(self, session_id: str | None = None) -> tuple[Card, ...]:
        if session_id is not None:
            self._session(session_id)
        open_cards = [each for each in self.cards.values() if each.state is CardState.PENDING]
        return tuple(each for each in open_cards if session_id in (None, each.session_id))

    async def card(self, prefix: str) -> Card:
        found = [each for each in self.cards.values() if each.id.startswith(prefix)]
        if not found:
            raise NotFound(f"no request or alert begins with {prefix}; see pending")
        if len(found) > 1 and prefix not in self.cards:
            raise Ambiguous(f"{prefix} fits more than one request", ids=[each.id for each in found])
        return self.cards.get(prefix) or found[0]

    def seen(self, card: Card) -> None:
        """Nothing to remember: all cards are at hand."""

    async def identify(self, prefix: str) -> tuple[str, CardKind]:
        card = await self.card(prefix)
        return card.id, card.kind

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        found = await self.card(prefix)
        self.acts.append(("decide", found.id, verdict.decision.value, verdict.text, verdict.by, verdict.channel))
        if found.decided is not None and found.decided.verdict_id != verdict.id:
            raise AlreadyDecided(f"{found.decided.by} was first ({found.decided.decision})", by=found.decided.by)
        if found.kind is CardKind.RESTORE:
            self.checkpoints.decided(found.id, proceed=verdict.decision is Decision.PROCEED)
        if found.decided is None:
            decided = Decided.of(verdict, verdict.at)
            state = _AFTER.get(verdict.decision, CardState.ANSWERED)
            self.cards[found.id] = attrs.evolve(found, decided=decided, state=state)
        return self.cards[found.id]

    def show_restore(self, restore: Restore) -> None:
        """The question of a restore is a card like any other."""
        self.cards[restore.id] = of_restore(restore)

    async def waiting(self) -> Mapping[str, int]:
        return Counter(each.session_id for each in self.cards.values() if each.state is CardState.PENDING)

    async def resume(self, session: str | None, instruction: str | None, verdict: Verdict) -> Session:
        self.acts.append(("resume", session, instruction, verdict.decision.value))
        return self._session(session)

    async def switch_mode(
        self, session: str | None, mode: SessionMode, by: str, channel: str, act_id: str | None = None
    ) -> tuple[SessionMode, SessionMode]:
        found = self._session(session)
        self.acts.append(("mode", found.id, mode.value, by, channel))
        self.all_sessions[found.id] = attrs.evolve(found, mode=mode)
        return found.mode, mode

    def nudge_text(self) -> str:
        return "go on"

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
        self.acts.append(("nudge", prefix, text))
        return self.all_sessions[prefix] if prefix in self.all_sessions else await self.card(prefix)

    async def end(self, session: str, by: str, channel: str, why: str) -> Session:
        found = self._session(session)
        self.acts.append(("end", found.id, by, channel, why))
        self.all_sessions[found.id] = attrs.evolve(found, status=SessionStatus.TERMINATED)
        return self.all_sessions[found.id]

    async def end_interrupted(self, by: str, channel: str, why: str) -> tuple[Session, ...]:
        away = [each for each in self.all_sessions.values() if each.status is SessionStatus.INTERRUPTED]
        return tuple([await self.end(each.id, by, channel, why) for each in away])

    def command_runs(self, session: str, command: str, seconds: float) -> None:
        self.acts.append(("command", session, command, seconds))

    async def policies(self) -> tuple[PolicyStatus, ...]:
        return (POLICY, attrs.evolve(POLICY, workspace_root="/other", fault="line 1: broken"))

    async def policy(self, prefix_or_path: str) -> PolicyStatus:
        self.acts.append(("policy-show", prefix_or_path))
        return POLICY

    async def decide_policy(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card:
        self.acts.append(("policy", prefix_or_path))
        waiting = [each for each in self.cards.values() if each.kind is CardKind.POLICY]
        if not waiting:
            raise InvalidState("no policy waits to be accepted")
        return waiting[0]

    async def audit(
        self, limit: int, session: str | None = None, *, text: str | None = None, before: int | None = None
    ) -> tuple[LogEntry, ...]:
        if session is not None:
            self._session(session)
        return (LogEntry(1, START, "verdict", "s-1", "me", "approved r-1", {"limit": limit}),)[:limit]

    async def chat_status(self) -> ChatStatus | None:
        return self.chat

    def tree(self) -> Info:
        child = Info("store", "store", "Writer", "running", 1, 7, 2, "OSError: disk full", START.timestamp())
        return Info("root", "root", "Supervisor", "running", started_at=START.timestamp(), children=(child,))

    def admit_command(
        self, command: str, act_id: str | None, subject: str, signature: Signature | None, channel: str = "ctl"
    ) -> None:
        return None

    async def once(self, act_id: str | None, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        return await work()

    async def add_key(self, key: PublicKey, at: str, by: str, signature: str) -> bool:
        self.acts.append(("add key", key.id, by))
        return True

    def unsigned_policies(self) -> str | None:
        return None

    async def revoke_key(self, id: str, at: str, by: str, signature: str) -> PublicKey:
        raise NotFound(f"no operator key {id!r} is enrolled here")

    async def security_event(self, summary: str, data: dict[str, Any]) -> None:
        self.events.append((summary, data))

    async def is_new_terminal(self, origin: Origin) -> bool:
        is_new = origin.terminal not in self.terminals
        self.terminals.add(origin.terminal)
        return is_new

    async def find(self, name: str) -> Session:
        return self._session(name)

    def _session(self, name: str | None) -> Session:
        if name is None and len(self.all_sessions) > 1:
            raise Ambiguous("several sessions wait; name one with --session", sessions=list(self.all_sessions))
        if name is not None and name not in self.all_sessions:
            raise NotFound(f"no session {name}")
        return self.all_sessions[name] if name else next(iter(self.all_sessions.values()))


class StandInCheckpoints:
    """What it was asked to do stands in the service's `acts`; a restore that is proceeded with is `end` at once."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self.lines: dict[str, CheckpointLine] = {}
        self.restores: dict[str, Restore] = {}
        self.end = RestoreState.DONE
        self.instead: dict[str, Any] | None = None

    async def take(
        self, session: str | None, label: str | None, by: str, channel: str, act_id: str | None = None
    ) -> CheckpointTaken:
        found = await self._service.find(session)
        self._service.acts.append(("checkpoint", found.id, label, by, channel))
        at = found.created_at + timedelta(seconds=len(self.lines))
        line = CheckpointLine(f"c-{len(self.lines) + 1}", found.id, found.workspace_root, at, label, 3, 42, 2)
        self.lines[line.id] = line
        return CheckpointTaken(line, (LeftOut("files that cannot be read", 1, ("secret",)),))

    async def listed(self, session: str | None = None) -> tuple[CheckpointLine, ...]:
        found = [each for each in self.lines.values() if session in (None, each.session_id)]
        return tuple(reversed(found))

    async def checkpoint(self, prefix: str) -> CheckpointLine:
        for line in self.lines.values():
            if line.id.startswith(prefix):
                return line
        raise NotFound(f"no checkpoint has an id that begins with {prefix!r}")

    async def ask_restore(
        self, checkpoint: str, files: Files, by: str, channel: str, act_id: str | None = None
    ) -> Restore:
        line = await self.checkpoint(checkpoint)
        self._service.acts.append(("restore", line.id, files.value, by, channel))
        if files is Files.LEAVE:
            raise InvalidState(
                "nothing was changed: the files would stay as they are, and the session would end",
                label=line.label,
                checkpoint_id=line.id,
                workspace_root=line.workspace_root,
                modified=1,
                deleted=0,
                added=1,
                remarks=["a remark"],
                diverged=[{"path": "a.txt", "kind": "modified"}, {"path": "new\x1b.txt", "kind": "added"}],
            )
        first = (Divergence("a.txt", DivergenceKind.MODIFIED), Divergence("new\x1b.txt", DivergenceKind.ADDED))
        made = Restore(
            id=f"restore-{len(self.restores) + 1}",
            checkpoint_id=line.id,
            session_id=line.session_id,
            successor_id="s-next",
            safety_id="c-before",
            workspace_root=line.workspace_root,
            state=RestoreState.ASKED,
            files=files,
            asked_by=by,
            asked_via=channel,
            created_at=line.created_at,
            updated_at=line.created_at,
            label=line.label,
            divergence=DivergenceSummary(1, 0, 1, first, ("a remark",)),
        )
        self.restores[made.id] = made
        self._service.show_restore(made)
        return made

    async def restore(self, id: str) -> Restore:
        found = self.restores.get(id)
        if found is None:
            raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
        return found

    def decided(self, id: str, proceed: bool) -> None:
        """A verdict came for the card of this restore; with `instead`, only after another took its place."""
        if self.instead is not None:
            other = evolve(self.restores[id], id=f"restore-{len(self.restores) + 1}", **self.instead)
            self.restores[other.id], self.instead = other, None
            self._service.show_restore(other)
            note = f"asked again as {other.id}"
            self.restores[id] = evolve(self.restores[id], state=RestoreState.OUTDATED, note=note)
            return
        state = self.end if proceed else RestoreState.CANCELLED
        if id in self.restores:
            # A test may show a restore's card that nobody has asked for here.
            self.restores[id] = evolve(self.restores[id], state=state, note=f"it is {state.value}")
