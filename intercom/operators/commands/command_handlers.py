"""The handlers of the operator commands: what each does, the same for every channel.

The gateway's are in `gateway_handlers`, the rooms' in `room_handlers`, and those about the server and its records in
`server_handlers`. What a handler is, is said in `caller_and_handler`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired

from attrs import evolve, frozen

from intercom.local.operator_keys import PublicKey
from intercom.model import signing
from intercom.model.card import ANSWERED, CHOICES, Card, CardKind, CardState
from intercom.model.checkpoint import CheckpointLine, CheckpointTaken, Files, LeftOut, Restore
from intercom.model.decision import PAST, Decision, Verdict
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState, SignatureRefused
from intercom.model.json_types import JsonObject
from intercom.model.policy import PolicyStatus
from intercom.model.process import AgentProcess
from intercom.model.session import Instruction, Session, SessionMode
from intercom.operators.commands import gateway_handlers, grant_handlers, room_handlers, server_handlers
from intercom.operators.commands.caller_and_handler import Caller, CommandHandler, handles, stripped
from intercom.operators.commands.command_table import COMMANDS, HOW_TO_ANSWER, LISTED, WATCH, decision_about
from intercom.operators.commands.json_forms import (
    amended_entry,
    amendment_in,
    card_entries,
    card_entry,
    checkpoint_entry,
    comments_in,
    form,
    instruction_entries,
    plain,
    process_entry,
    queued_entry,
    restore_entry,
    returns,
    session_entry,
    shape,
    under,
)
from intercom.operators.router_messages import Channel
from intercom.sessions.amendments import AmendedCard
from intercom.sessions.operator_service import OperatorService
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.spawner import LINES, Output
from intercom.sessions.trusted_keys import KeyStatus


def handler_of(name: str) -> CommandHandler[..., Any]:
    """Return the handler of this command. Raises InvalidArguments, which lists the commands, for any other word."""
    handler = HANDLERS.get(name)
    if handler is None:
        known = ", ".join(sorted([*HANDLERS, WATCH]))
        raise InvalidArguments(f"unknown command {name[:40]!r}; known: {known}")
    return handler


# --- what waits for a person ------------------------------------------------------------------------------------------


@frozen
class DecidedCard:
    """A card after the decision that was made."""

    card: Card
    decision: Decision


@returns(shape(request_id=str, session_id=str, status=str, state=CardState, decision_id=str | None))
def _decided_entry(answered: DecidedCard) -> JsonObject:
    done = answered.decision
    return {
        "request_id": answered.card.id,
        "session_id": answered.card.session_id,
        "status": "proceeding" if done is Decision.PROCEED else PAST[done],
        "state": answered.card.state.value,
        "decision_id": None if answered.card.decided is None else answered.card.decided.verdict_id,
    }


@handles("pending", card_entries)
async def pending(service: OperatorService, caller: Caller, session: str | None = None) -> Sequence[Card]:
    """Return the cards that wait for a person, oldest first."""
    return await service.pending(session)


@handles("show", card_entry)
async def show(service: OperatorService, caller: Caller, id: str) -> Card:
    return await service.card(id)


@handles("amend", amended_entry)
async def amend(
    service: OperatorService,
    caller: Caller,
    id: str,
    hunks: str | None = None,
    edit: str | None = None,
    shown: str | None = None,
    text: str | None = None,
    everything: bool = False,
) -> AmendedCard:
    """Return a proposal as it would be approved with these changes, and its hunks; with `everything` also the contents
    that can be edited. Without `shown`, the card as it is now counts as shown: nothing is decided here."""
    if hunks is None and edit is None:
        found = await service.amended_card(id, None, stripped(text))
    else:
        whole = (await service.card(id)).proposal_hash or ""
        found = await service.amended_card(id, amendment_in(hunks, edit, shown or whole), stripped(text))
    return found if everything else evolve(found, contents={})


@handles("approve", _decided_entry)
async def approve(
    service: OperatorService,
    caller: Caller,
    id: str,
    text: str | None = None,
    hunks: str | None = None,
    edit: str | None = None,
    shown: str | None = None,
) -> DecidedCard:
    """Approve a card; with `hunks` or `edit`, what they make of it. `shown` is then the `proposal_hash` of the card
    that the person saw."""
    amendment = amendment_in(hunks, edit, shown)
    return await _decide(service, id, evolve(caller.verdict(Decision.APPROVE, stripped(text)), amendment=amendment))


@handles("changes", _decided_entry)
async def changes(
    service: OperatorService, caller: Caller, id: str, comments: str | None = None, text: str | None = None
) -> DecidedCard:
    """Reject a proposal, with comments on its lines."""
    found = comments_in(comments)
    if not found:
        raise InvalidArguments("changes needs at least one comment on a file or a line; else use reject with a reason")
    return await _decide(service, id, evolve(caller.verdict(Decision.REJECT, stripped(text)), comments=found))


@handles("reject", _decided_entry)
async def reject(service: OperatorService, caller: Caller, id: str, reason: str | None = None) -> DecidedCard:
    return await _decide(service, id, caller.verdict(Decision.REJECT, reason or caller.default_reason))


@handles("answer", _decided_entry)
async def answer(
    service: OperatorService, caller: Caller, id: str, decision: str, text: str | None = None
) -> DecidedCard:
    text = stripped(text)
    if decision == "refine" and text is None:
        raise InvalidArguments("refine needs the text that the agent should follow")
    _, kind = await service.identify(id)
    return await _decide(service, id, caller.verdict(Decision(decision_about(kind.value, decision)), text))


async def _decide(service: OperatorService, prefix: str, verdict: Verdict) -> DecidedCard:
    id, kind = await service.identify(prefix)
    if verdict.decision not in CHOICES[kind]:
        raise InvalidState(
            f"{id} is a {kind.value} card, which {verdict.decision.value} does not answer; "
            f"use {_how_to_answer(kind, id)}"
        )
    # By its full id: meanwhile another request may have come to share the prefix.
    after = await service.decide(id, verdict)
    won = after.decided
    if won is not None and won.verdict_id == verdict.id:
        # People of the page, and programs, share its ids: a decision of somebody else is no repetition of this one.
        said = (verdict.decision.value, verdict.by, verdict.channel)
        if (won.decision, won.by, won.channel) != said:
            raise AlreadyDecided(
                f"this verdict_id belongs to another action ({won.decision} by {won.by}); give each action its own"
            )
    return DecidedCard(after, verdict.decision)


def _how_to_answer(kind: CardKind, request_id: str) -> str:
    """Return the command that answers a card of this kind, as part of a sentence."""
    if kind not in ANSWERED:
        return f"take-back {request_id} while it is queued: it is delivered to the agent by itself"
    commands = " or ".join(HOW_TO_ANSWER[kind]).format(id=request_id)
    more = ", or correct the files: the agent's next check_diff settles it" if kind is CardKind.APPLY else ""
    return f"{commands}{more}"


# --- sessions, and the agents that people start -----------------------------------------------------------------------

#: How many bytes of an output one reply holds.
PIECE = 128 * 1024

#: Why a session was ended, by channel; the audit log records it.
_WHY = {
    Channel.CTL: "ended with agent-intercom-ctl end",
    Channel.WEB: "ended in the browser",
    Channel.SLACK: "ended with /intercom session-end",
    Channel.EMBED: "ended by the program",
}


@frozen
class Listed:
    """Sessions, the process of each whose agent people started, and how many requests of each wait for people."""

    sessions: Sequence[Session]
    processes: Mapping[str, AgentProcess]
    waiting: Mapping[str, int]


@returns(shape(sessions=[shape("Session", session_entry, process=(process_entry, None), waiting=int)]))
def _listed_entry(listed: Listed) -> JsonObject:
    started = {id: process_entry(process) for id, process in listed.processes.items()}
    return {
        "sessions": [
            {**session_entry(each), "process": started.get(each.id), "waiting": listed.waiting.get(each.id, 0)}
            for each in listed.sessions
        ]
    }


@handles("list", _listed_entry)
async def list_sessions(service: OperatorService, caller: Caller, everything: bool = False) -> Listed:
    found = await service.sessions(everything=everything)
    # Ended sessions are kept for days, and most lists leave them out.
    named = None if everything else [each.id for each in found]
    return Listed(found, await service.agent_processes.everyone(named), await service.waiting())


@handles("resume", form(Session, "session_id=id", status="resumed"))
async def resume(
    service: OperatorService, caller: Caller, instruction: str | None = None, session: str | None = None
) -> Session:
    """Answer an agent's standby, or end its pause; default: the only agent that waits."""
    if service.signatures.required and caller.channel not in signing.SIGNED_HERE:
        raise SignatureRefused(
            "with an operator key each thing is signed by itself: use answer for an agent that stands by, and unpause"
            " for a session that is paused"
        )
    instruction = stripped(instruction)
    return await service.resume(session, instruction, caller.verdict(Decision.RESUME, instruction))


@frozen
class ModeChanged:
    """The mode of a session before and after a change."""

    previous_mode: SessionMode
    current_mode: SessionMode


@handles("mode", plain)
async def mode(service: OperatorService, caller: Caller, mode: str, session: str | None = None) -> ModeChanged:
    changed = service.switch_mode(session, SessionMode(mode), caller.name, caller.channel.value, caller.act)
    return ModeChanged(*await changed)


@handles("start", form(Session, "session_id=id", "workspace_root", status="started"))
async def start(
    service: OperatorService, caller: Caller, text: str = "", workspace: str | None = None, label: str | None = None
) -> Session:
    """Start an agent. A local user has no chat id, so the session has no owner then."""
    return await service.agent_processes.start(
        text,
        by=caller.name,
        channel=caller.channel.value,
        workspace=workspace,
        owner=caller.owner,
        mode=None if caller.chat_channel is None else SessionMode.REMOTE,
        chat_channel=caller.chat_channel,
        label=stripped(label),
        act=caller.act,
    )


@returns(shape(status="ended", session_id=NotRequired[str], sessions=NotRequired[list[str]]))
def _ended_entry(ended: Session | tuple[Session, ...]) -> JsonObject:
    if isinstance(ended, tuple):
        return {"status": "ended", "sessions": [each.id for each in ended]}
    return {"status": "ended", "session_id": ended.id}


@handles("clear", _ended_entry)
async def clear(
    service: OperatorService, caller: Caller, session: str | None = None, interrupted: bool = False
) -> Session | tuple[Session, ...]:
    """End a session; if people started its agent, end the agent's processes too. With `interrupted`, end all sessions
    whose agents are away."""
    if (session is None) is not interrupted:
        raise InvalidArguments("end needs a session's id (see list) or --interrupted, and not both")
    why = _WHY[caller.channel]
    if session is None:
        return await service.end_interrupted(caller.name, caller.channel.value, why)
    return await service.end(session, caller.name, caller.channel.value, why)


_PIECE_OF_OUTPUT = form(Output, "session_id", "stream", "text", "start", "end", "is_going")


@returns(shape(_PIECE_OF_OUTPUT, exit=str | None))
def _output_entry(found: Output) -> JsonObject:
    return {**_PIECE_OF_OUTPUT(found), "exit": None if found.exit is None else str(found.exit)}


@handles("logs", _output_entry)
async def logs(
    service: OperatorService,
    caller: Caller,
    session: str,
    stream: str = Stream.STDOUT,
    limit: int = LINES,
    start: int | None = None,
) -> Output:
    """Return a piece of an agent's output: the last `limit` lines, or what follows byte `start`. Secrets are masked
    for a chat."""
    masked = caller.channel is Channel.SLACK
    return await service.agent_processes.output(
        session, Stream(stream), lines=limit, start=start, limit=PIECE, masked=masked
    )


# --- what reaches an agent at work ------------------------------------------------------------------------------------


@handles("pause", form(Session, "session_id=id", status="paused"))
async def pause(service: OperatorService, caller: Caller, session: str | None = None) -> Session:
    """Pause an agent; default: the only active session."""
    return await service.steering.pause(session, caller.name, caller.channel.value, caller.act)


@handles("unpause", form(Session, "session_id=id", "status"))
async def unpause(service: OperatorService, caller: Caller, session: str | None = None) -> Session:
    """Let a paused agent continue; default: the only paused session."""
    return await service.steering.unpause(session, caller.name, caller.channel.value, caller.act)


@returns(shape(request_id=NotRequired[str], session_id=str, status="nudged", note=NotRequired[str | None]))
def _nudged_entry(nudged: Card | Session) -> JsonObject:
    if isinstance(nudged, Session):
        return {"session_id": nudged.id, "status": "nudged"}
    return {"request_id": nudged.id, "session_id": nudged.session_id, "status": "nudged", "note": nudged.note}


@handles("nudge", _nudged_entry)
async def nudge(service: OperatorService, caller: Caller, id: str, text: str | None = None) -> Card | Session:
    """Remind an agent. `id` is that of an alert or of a session."""
    return await service.nudge(
        id, stripped(text), caller.name, caller.channel.value, caller.origin, caller.act, caller.signed
    )


@handles("nudge-text", under("text"))
async def nudge_text(service: OperatorService, caller: Caller) -> str:
    return service.nudge_text()


@handles("steer", queued_entry)
async def steer(service: OperatorService, caller: Caller, text: str = "", session: str | None = None) -> Card:
    """Queue an instruction for an agent; default: the only live session."""
    return await service.steering.steer(session, text, caller.name, caller.channel.value, caller.act, caller.signed)


@handles("steering", instruction_entries)
async def steering(
    service: OperatorService, caller: Caller, session: str | None = None, limit: int = LISTED
) -> Sequence[Instruction]:
    """Return the instructions that agents were or will be told, the newest last."""
    return await service.steering.instructions(session, limit)


@handles("task", queued_entry)
async def task(
    service: OperatorService, caller: Caller, text: str = "", session: str | None = None, workspace: str | None = None
) -> Card:
    """Leave a task for a session's agent, or for the next agent in the workspace of a directory: one of the two."""
    return await service.steering.add_task(
        text,
        caller.name,
        caller.channel.value,
        session=session,
        workspace=workspace,
        act_id=caller.act,
        signed=caller.signed,
    )


@handles("task-workspace", under("workspace_root"))
async def task_workspace(service: OperatorService, caller: Caller, workspace: str) -> str:
    """Return the workspace that a task left in this directory belongs to."""
    return await service.steering.workspace_of(workspace)


@handles("tasks", instruction_entries)
async def tasks(
    service: OperatorService, caller: Caller, session: str | None = None, everything: bool = False, limit: int = LISTED
) -> Sequence[Instruction]:
    """Return the tasks that no agent has yet; with `everything` all tasks."""
    return await service.steering.tasks(session, everything=everything, limit=limit)


@returns(shape(request_id=str, session_id=str | None, status="taken back", note=NotRequired[str | None]))
def _taken_back_entry(card: Card) -> JsonObject:
    entry: JsonObject = {"request_id": card.id, "session_id": card.session_id or None, "status": "taken back"}
    return {**entry, "note": card.note} if card.kind in ANSWERED else entry


@handles("take-back", _taken_back_entry)
async def take_back(service: OperatorService, caller: Caller, id: str, decision_id: str | None = None) -> Card:
    """Take back a decision, an instruction or a task before it reaches an agent. With `decision_id`, the decision that
    the person saw: one that was made since stays."""
    return await service.steering.take_back(
        id, caller.name, caller.channel.value, caller.act, caller.origin, caller.signed, decision_id
    )


# --- checkpoints ------------------------------------------------------------------------------------------------------

#: The shortest prefix of a session id that is accepted if a label could stand there.
SHORTEST_ID = 4


@returns(shape(checkpoint_entry, status="taken", left_out=[LeftOut]))
def _taken_entry(taken: CheckpointTaken) -> JsonObject:
    left_out = [plain(each) for each in taken.left_out]
    return {"status": "taken", **checkpoint_entry(taken.checkpoint), "left_out": left_out}


@handles("checkpoint", _taken_entry)
async def checkpoint(
    service: OperatorService, caller: Caller, label: str | None = None, session: str | None = None
) -> CheckpointTaken:
    """Take a checkpoint. Without `session`, the first word of `label` names a session if it is a prefix of its id."""
    first, _, rest = ((label := stripped(label)) or "").partition(" ")
    known = await service.sessions(everything=True) if session is None and len(first) >= SHORTEST_ID else ()
    if any(each.id.startswith(first) for each in known):
        session, label = first, stripped(rest)
    return await service.checkpoints.take(session, label, caller.name, caller.channel.value, caller.act)


@returns(shape(checkpoints=[checkpoint_entry]))
def _checkpoint_entries(found: Sequence[CheckpointLine]) -> JsonObject:
    return {"checkpoints": [checkpoint_entry(each) for each in found]}


@handles("checkpoints", _checkpoint_entries)
async def checkpoints(service: OperatorService, caller: Caller, session: str | None = None) -> Sequence[CheckpointLine]:
    return await service.checkpoints.listed(session)


@handles("restore", restore_entry)
async def restore(service: OperatorService, caller: Caller, id: str, files: str = Files.LEAVE) -> Restore:
    """Ask people whether to go back to a checkpoint; nothing changes until they answer."""
    return await service.checkpoints.ask_restore(id, Files(files), caller.name, caller.channel.value, caller.act)


@handles("restoring", restore_entry)
async def restoring(service: OperatorService, caller: Caller, id: str) -> Restore:
    """Return the state of a restore, by its whole id."""
    return await service.checkpoints.restore(id)


# --- the workspaces' policies -----------------------------------------------------------------------------------------


@handles("policy-list", under("policies"))
async def policy_list(service: OperatorService, caller: Caller) -> Sequence[PolicyStatus]:
    return await service.policies()


@handles("policy-show", plain)
async def policy_show(
    service: OperatorService, caller: Caller, id: str | None = None, workspace: str | None = None
) -> PolicyStatus:
    named = workspace or id
    if named is None:
        raise InvalidArguments("policy-show needs an id; see pending")
    return await service.policy(named)


@handles("policy-accept", form(Card, "request_id=id", "workspace_root", status="accepted"))
async def policy_accept(
    service: OperatorService,
    caller: Caller,
    id: str | None = None,
    workspace: str | None = None,
    sha256: str | None = None,
) -> Card:
    """Accept a policy; default: the only one that waits. `sha256` is the hash of the text that the person saw."""
    return await service.decide_policy(workspace or id, caller.verdict(Decision.ACCEPT, None), sha256)


@handles("policy-reject", form(Card, "request_id=id", "workspace_root", status="rejected"))
async def policy_reject(
    service: OperatorService,
    caller: Caller,
    id: str | None = None,
    workspace: str | None = None,
    sha256: str | None = None,
    reason: str | None = None,
) -> Card:
    verdict = caller.verdict(Decision.REJECT, reason or caller.default_reason)
    return await service.decide_policy(workspace or id, verdict, sha256)


# --- operator keys: a command that changes them brings a signature of its own -----------------------------------------


@returns(
    shape(
        required=bool,
        keys=[KeyStatus],
        unsigned_settings=str | None,
        unsigned_settings_text=str | None,
        unsigned_settings_advice=str | None,
        unsigned_policies=str | None,
    )
)
def _keys_entry(found: Mapping[str, object]) -> JsonObject:
    return {name: plain(part) for name, part in found.items()}


@handles("keys", _keys_entry)
async def keys(service: OperatorService, caller: Caller) -> Mapping[str, object]:
    keyring = service.signatures.keyring
    # Settings that were just signed are noticed here.
    await service.note_settings()
    unsigned = keyring.unsigned_settings() if keyring.has_keys else None
    return {
        "required": keyring.has_keys,
        "keys": keyring.status(),
        "unsigned_settings": unsigned.sentence() if unsigned else None,
        "unsigned_settings_text": unsigned.text if unsigned else None,
        "unsigned_settings_advice": unsigned.advice if unsigned else None,
        "unsigned_policies": service.unsigned_policies(),
    }


@frozen
class KeyAdded:
    key: PublicKey
    is_new: bool


@returns(shape(key_id=str, status=Literal["enrolled", "enrolled before"]))
def _added_entry(added: KeyAdded) -> JsonObject:
    return {"key_id": added.key.id, "status": "enrolled" if added.is_new else "enrolled before"}


@handles("key-add", _added_entry)
async def key_add(service: OperatorService, caller: Caller, public: str, name: str = "") -> KeyAdded:
    by = caller.signature
    if by is None:
        raise InvalidArguments("key-add needs a public key, its name, and a signature")
    key = PublicKey.of(public, name)
    return KeyAdded(key, await service.add_key(key, by.at, by.key_id, by.value))


@handles("key-revoke", form(PublicKey, "key_id=id", status="revoked"))
async def key_revoke(service: OperatorService, caller: Caller, id: str) -> PublicKey:
    by = caller.signature
    if by is None:
        raise InvalidArguments("key-revoke needs a key's id and a signature")
    return await service.revoke_key(id, by.at, by.key_id, by.value)


#: All handlers, by the name of the command.
HANDLERS: dict[str, CommandHandler[..., Any]] = {
    each.row.name: each
    for module in (vars(), vars(gateway_handlers), vars(grant_handlers), vars(room_handlers), vars(server_handlers))
    for each in list(module.values())
    if isinstance(each, CommandHandler)
}
_ALONE = set(HANDLERS) ^ set(COMMANDS)
assert not _ALONE, f"a row of the table without a handler here, or a handler without a row: {', '.join(sorted(_ALONE))}"
