"""The verbs of ctl: a table from each verb to its handler.

A handler takes the operator service, the caller and the request. It returns what JSON can hold, or raises an
`IntercomError`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import trio
from attrs import frozen

from intercom.local.operator_keys import PublicKey
from intercom.model import signing
from intercom.model.card import CHOICES, CardKind
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState, SignatureRefused
from intercom.model.session import Session, SessionMode
from intercom.model.verdict import Decision, Verdict
from intercom.operators.ctl import verbs_checkpoints, verbs_children, verbs_steering
from intercom.operators.ctl.caller import CHANNEL, Caller, act_of
from intercom.operators.ctl.entries import card_entries, card_entry, how_to_answer, plain, session_entry
from intercom.operators.ctl.wire import CtlRequest
from intercom.operators.desk import Desk

#: The default reason of a rejection.
DEFAULT_REASON = "rejected via local CLI"

#: The default number of log entries.
DEFAULT_LIMIT = 50

#: The status in a reply, by decision.
DONE = {
    Decision.APPROVE: "approved",
    Decision.REJECT: "rejected",
    Decision.CONTINUE: "continued",
    Decision.REFINE: "refined",
    Decision.STOP: "stopped",
    Decision.RESUME: "resumed",
    Decision.NUDGE: "nudged",
    Decision.DISMISS: "dismissed",
    Decision.ACCEPT: "accepted",
    Decision.PROCEED: "proceeding",
    Decision.CANCEL: "cancelled",
}

#: The arguments of `answer`: the decision for most cards, and the one for a standby, which is resumed.
ANSWERS = {
    "continue": (Decision.CONTINUE, Decision.RESUME),
    "refine": (Decision.REFINE, Decision.RESUME),
    "stop": (Decision.STOP, Decision.STOP),
    "dismiss": (Decision.DISMISS, Decision.DISMISS),
    "proceed": (Decision.PROCEED, Decision.PROCEED),
    "cancel": (Decision.CANCEL, Decision.CANCEL),
}

#: The decisions of the other verbs that answer a card.
_DECISIONS = {
    "approve": (Decision.APPROVE,),
    "reject": (Decision.REJECT,),
    "policy-accept": (Decision.ACCEPT,),
    "policy-reject": (Decision.REJECT,),
}


#: Verbs that resolve the session they are given themselves.
FIND_THEIR_SESSION = frozenset(
    {
        *("resume", "mode", "clear", "logs", "pause", "unpause", "steer", "steering"),
        *("checkpoint", "checkpoints"),
    }
)


Handler = Callable[[Desk, Caller, CtlRequest], Awaitable[Any]]


@frozen
class Verb:
    """One row of the table. `acts` marks the verbs that an agent's own processes may not use."""

    handler: Handler
    acts: bool
    summary: str


async def run(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Carry out one request and return the data of its reply.

    Raises InvalidArguments for an unknown verb, and NotFound for an unknown session, even if the verb ignores it. If
    there is an operator key, what changes something must be signed: raises SignatureRefused.
    """
    verb = verb_of(request)
    if verb.acts and request.command not in signing.OF_A_CARD | signing.UNSIGNED:
        await desk.admit_command(request.command, request.verdict_id, _subject(request), request.signature)
    if request.session is not None and request.command not in FIND_THEIR_SESSION:
        await desk.session_id(request.session)
    return await verb.handler(desk, caller, request)


def is_proven(desk: Desk, request: CtlRequest) -> bool:
    """Return whether the request carries a signature with a PIN typed for exactly this act: then any process may send
    it."""
    if request.command not in signing.OF_A_CARD:
        return desk.signatures.proves_command(request.command, request.verdict_id, _subject(request), request.signature)
    decisions = ANSWERS.get(request.decision or "", ()) if request.command == "answer" else _DECISIONS[request.command]
    return desk.signatures.proves_decision(request.id, decisions, request.verdict_id, request.signature)


def _subject(request: CtlRequest) -> str:
    """Return the hash of the command's effect, which its signature covers."""
    return signing.command_subject(request.command, request.meant)


def verb_of(request: CtlRequest) -> Verb:
    """Return the row of the request's verb. Raises InvalidArguments, which lists the verbs, for any other word."""
    verb = VERBS.get(request.command)
    if verb is None:
        known = ", ".join(sorted([*VERBS, "watch"]))
        raise InvalidArguments(f"unknown command {request.command[:40]!r}; known: {known}")
    return verb


async def _list(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    found, children = await desk.sessions(everything=request.everything), await desk.children.everyone()
    entries = []
    for session in found:
        child = children.get(session.id)
        process = None if child is None else verbs_children.child_entry(child)
        entries.append({**session_entry(session), "process": process})
    return {"sessions": entries}


async def _pending(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return card_entries(await desk.pending(request.session))


async def _show(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return card_entry(await desk.card(_id(request)))


async def _approve(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return await _decide(desk, request, _verdict(request, caller, Decision.APPROVE, request.text))


async def _reject(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return await _decide(desk, request, _verdict(request, caller, Decision.REJECT, request.reason or DEFAULT_REASON))


async def _answer(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    words = ANSWERS.get(request.decision or "")
    if words is None:
        raise InvalidArguments(f"answer takes one of {', '.join(ANSWERS)}")
    text = (request.text or "").strip() or None
    if request.decision == "refine" and text is None:
        raise InvalidArguments("refine needs the text the agent should go by")
    _, kind = await desk.identify(_id(request))
    decision = words[1] if kind is CardKind.STANDBY else words[0]
    return await _decide(desk, request, _verdict(request, caller, decision, text))


async def _resume(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    if desk.signatures.required:
        raise SignatureRefused(
            "with an operator key each thing is signed by itself: use answer for an agent that stands by, and unpause"
            " for a session that is paused"
        )
    # The older protocol names the session in `id`.
    named = request.whose
    text = (request.instruction or "").strip() or None
    session = await desk.resume(named, text, _verdict(request, caller, Decision.RESUME, text))
    return {"session_id": session.id, "status": "resumed"}


async def _mode(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    try:
        mode = SessionMode(request.mode or "")
    except ValueError:
        raise InvalidArguments(f"mode takes one of {', '.join(SessionMode)}") from None
    before, after = await desk.switch_mode(request.whose, mode, caller.name, CHANNEL)
    return {"previous_mode": before.value, "current_mode": after.value}


async def _nudge(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    text = (request.text or "").strip() or None
    act = act_of(request.verdict_id)
    found = await desk.nudge(_id(request), text, caller.name, CHANNEL, caller.origin, act, request.signed)
    if isinstance(found, Session):
        return {"session_id": found.id, "status": "nudged"}
    return {"request_id": found.id, "session_id": found.session_id, "status": "nudged", "note": found.note}


async def _nudge_text(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return {"text": desk.nudge_text()}


async def _tree(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return {"tree": plain(desk.tree()), "tasks": trio.lowlevel.current_statistics().tasks_living}


async def _slack(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    standing = await desk.chat_standing()
    return {"slack": None if standing is None else plain(standing)}


async def _log(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    found = await desk.audit(request.limit or DEFAULT_LIMIT, request.session)
    return {"entries": [plain(entry) for entry in found]}


async def _policy_accept(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    verdict = _verdict(request, caller, Decision.ACCEPT, None)
    card = await desk.decide_policy(request.workspace or request.id, verdict, request.sha256)
    return {"request_id": card.id, "status": "accepted", "workspace_root": card.workspace_root}


async def _policy_reject(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    verdict = _verdict(request, caller, Decision.REJECT, request.reason or DEFAULT_REASON)
    card = await desk.decide_policy(request.workspace or request.id, verdict, request.sha256)
    return {"request_id": card.id, "status": "rejected", "workspace_root": card.workspace_root}


async def _policies(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return {"policies": [plain(each) for each in await desk.policies()]}


async def _policy(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return plain(await desk.policy(request.workspace or _id(request)))


async def _keys(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    signatures = desk.signatures
    # Settings that were just signed are noticed here.
    await desk.note_settings()
    return {
        "required": signatures.has_keys,
        "keys": [plain(each) for each in signatures.status()],
        "unsigned_settings": signatures.unsigned_settings() if signatures.has_keys else None,
    }


async def _key_add(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    if request.public is None or request.signature is None:
        raise InvalidArguments("key-add takes a public key, its name, and a signature")
    key = PublicKey.of(request.public, request.name or "")
    by = request.signature
    added = await desk.add_key(key, by.at, by.key_id, by.value)
    return {"key_id": key.id, "status": "enrolled" if added else "enrolled before"}


async def _key_revoke(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    if request.signature is None:
        raise InvalidArguments("key-revoke takes a key's id and a signature")
    by = request.signature
    key = await desk.revoke_key(_id(request), by.at, by.key_id, by.value)
    return {"key_id": key.id, "status": "revoked"}


async def _version(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    return plain(desk.version())


#: `watch` has no row: the connection answers it with a stream.
VERBS: dict[str, Verb] = {
    "list": Verb(_list, False, "sessions and where they stand"),
    "pending": Verb(_pending, False, "what waits for a person, oldest first"),
    "show": Verb(_show, False, "one request, whole"),
    "approve": Verb(_approve, True, "approve a proposed change"),
    "reject": Verb(_reject, True, "reject a proposed change"),
    "answer": Verb(_answer, True, "answer a prompt, a standby, an alert or a restore"),
    "resume": Verb(_resume, True, "resume a waiting or paused session"),
    "mode": Verb(_mode, True, "say who is notified of a session's cards"),
    "nudge": Verb(_nudge, True, "prod an agent that has gone quiet"),
    "nudge-text": Verb(_nudge_text, False, "what a nudge without words says"),
    "start": Verb(verbs_children.start, True, "start an agent"),
    "clear": Verb(verbs_children.clear, True, "end a session, and its agent's processes"),
    "logs": Verb(verbs_children.logs, False, "what an agent that was started here wrote"),
    "pause": Verb(verbs_steering.pause, True, "hold an agent up: none of its calls does anything"),
    "unpause": Verb(verbs_steering.unpause, True, "let a paused agent go on"),
    "steer": Verb(verbs_steering.steer, True, "tell an agent something with its next result"),
    "steering": Verb(verbs_steering.steering, False, "what agents were told or are to be told"),
    "task": Verb(verbs_steering.task, True, "leave a task for an agent"),
    "task-workspace": Verb(verbs_steering.task_workspace, False, "which workspace a task left in a directory is for"),
    "tasks": Verb(verbs_steering.tasks, False, "the tasks that no agent has yet"),
    "take-back": Verb(verbs_steering.take_back, True, "let words or a task never reach an agent"),
    "checkpoint": Verb(verbs_checkpoints.take, True, "record how a session and its files stand"),
    "checkpoints": Verb(verbs_checkpoints.listed, False, "the checkpoints there are, newest first"),
    "restore": Verb(verbs_checkpoints.restore, True, "compare with a checkpoint, and ask whether to go back to it"),
    "restoring": Verb(verbs_checkpoints.restoring, False, "how a restore stands"),
    "tree": Verb(_tree, False, "the supervision tree"),
    "slack": Verb(_slack, False, "how the connection to Slack fares, and what waits to be sent"),
    "log": Verb(_log, False, "the newest entries of the audit trail, oldest first"),
    "policy-list": Verb(_policies, False, "how the workspaces' policies stand"),
    "policy-show": Verb(_policy, False, "one workspace's policy, whole"),
    "policy-accept": Verb(_policy_accept, True, "accept a workspace's policy"),
    "policy-reject": Verb(_policy_reject, True, "reject a workspace's policy"),
    "keys": Verb(_keys, False, "the operator keys, and whether decisions have to be signed"),
    "key-add": Verb(_key_add, True, "enrol an operator key"),
    "key-revoke": Verb(_key_revoke, True, "let an operator key count no more"),
    "version": Verb(_version, False, "which server answers"),
}


async def _decide(desk: Desk, request: CtlRequest, verdict: Verdict) -> Any:
    id, kind = await desk.identify(_id(request))
    if verdict.decision not in CHOICES[kind]:
        raise InvalidState(
            f"{id} is a {kind.value} card, which {verdict.decision.value} does not answer; "
            f"use {how_to_answer(kind, id)}"
        )
    # By its full id: meanwhile another request may have come to share the prefix.
    after = await desk.decide(id, verdict)
    won = after.decided
    if won is not None and won.verdict_id == verdict.id and won.decision != verdict.decision.value:
        raise AlreadyDecided(f"this verdict id stands for another act ({won.decision}); give each act its own")
    return {
        "request_id": after.id,
        "session_id": after.session_id,
        "status": DONE[verdict.decision],
        "state": after.state.value,
    }


def _id(request: CtlRequest) -> str:
    if request.id is None:
        raise InvalidArguments(f"{request.command} needs an id; see pending")
    return request.id


def _verdict(request: CtlRequest, caller: Caller, decision: Decision, text: str | None) -> Verdict:
    return Verdict(
        id=request.verdict_id or uuid.uuid4().hex,
        decision=decision,
        by=caller.name,
        channel=CHANNEL,
        at=datetime.now(UTC),
        text=text,
        origin=caller.origin,
        signature=request.signature,
    )
