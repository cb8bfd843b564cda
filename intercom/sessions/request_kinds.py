"""The kinds of request, one row each: the card that people see, and the answer that the agent gets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import cattrs
from attrs import evolve, field, fields, frozen, has

from intercom.model import clock
from intercom.model.amendment import Change, Comment
from intercom.model.card import Card, CardKind, CardState
from intercom.model.decision import Verdict
from intercom.model.errors import InvalidState
from intercom.model.field_docs import doc
from intercom.model.grant import grant_of_rule
from intercom.model.metrics import Delivered, Settled
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ContinuationPrompt,
    InstructionWait,
    PromptType,
    WaitStatus,
)
from intercom.model.session import Instruction, Kind, ProgressItem, StallAlert, StallStatus
from intercom.model.visible_text import count, one_line, visible
from intercom.store.apply_journal import Entry
from intercom.store.requests import RequestTable, approvals, prompts, waits

A = TypeVar("A")

MAY_BE_DONE_NOW = "a person has allowed it: try exactly the same again, and it passes once"
#: Told with a decision that nobody made.
NOBODY_ANSWERED = {
    "continue": (
        "nobody answered in time: this is the configured default, and nobody consented to anything. Continue only with"
        " what you may do without asking. Do nothing that needs consent; ask again for that"
    ),
    "stop": "nobody answered in time, and the configured default is to stop: no person has decided this; end your turn",
}
#: Told with a proposal that nobody answered, and with a standby that nobody ended.
NOT_APPROVED = (
    "nobody answered in time, so this is not approved: do not write it; propose it again later, or call standby to wait"
    " for an instruction"
)
NO_INSTRUCTION = "nobody gave an instruction in time, and no person has decided anything: end your turn"
_ANSWERED = {
    "continue": "continue as planned, and do what the instruction says if there is one",
    "refine": "follow the instruction instead of your plan",
    "stop": "end the task now, start nothing new, and say what is unfinished",
}
#: Told with a person's decision about a question. A client may show it alone, long after the call.
PERSON_ANSWERED = {decision: f"a person answered: {what}" for decision, what in _ANSWERED.items()}
#: The same for an answer from a dialog of the agent's own client. Whether a person gave it is not known here.
CLIENT_ANSWERED = {decision: f"your client's dialog was answered: {what}" for decision, what in _ANSWERED.items()}
#: Told with the instruction that such a dialog gave to a standby.
FROM_CLIENT = "your client's dialog was answered: follow the instruction"
#: Told with a decision that the workspace's policy made.
POLICY_LET_PASS = "the workspace's policy answered this, and no person: continue, and ask again for what needs consent"
#: Told to a call in a session that an operator has paused.
PAUSED = (
    "this session was paused by an operator, and nothing was done: change nothing and start nothing new; call {tool}"
    " again {how}, and it waits until the operator resumes the session"
)

#: What every tool says of the field `message`.
MESSAGE = doc("What to do now, if the status needs an explanation.")


@frozen
class ClearanceAnswer:
    """The answer of check_clearance. `status` is approved, rejected, timeout or pending."""

    status: str = field(metadata=doc('"approved", "rejected", "timeout" or "pending".'))
    request_id: str = field(metadata=doc("The id of the request: for check_diff once approved, or to wait again."))
    reason: str | None = field(default=None, metadata=doc("Why a person rejected the change, if they said why."))
    auto_approved: str | None = field(
        default=None,
        metadata=doc(
            "The rule of the workspace's policy that approved the change, or grant/ID if a person permitted it in"
            " advance; nobody was asked."
        ),
    )
    message: str | None = field(default=None, metadata=MESSAGE)
    changes: tuple[Change, ...] = field(
        default=(),
        metadata=doc("What a person changed of your proposal before they approved it; check_diff writes the result."),
    )
    note: str | None = field(default=None, metadata=doc("What the person tells you with their approval."))
    comments: tuple[Comment, ...] = field(
        default=(), metadata=doc("With a rejection: what the person wants changed, by file and line.")
    )


@frozen
class PermissionAnswer:
    """The answer to a permission hook. `status` is allowed (do it, once), approved (a person agreed, not used yet),
    denied, timeout or pending. `rule` names the policy rule or the grant that allowed it."""

    status: str
    request_id: str | None = None
    reason: str | None = None
    rule: str | None = None
    message: str | None = None


@frozen
class PromptAnswer:
    """The answer of transmit. `decision` is continue, refine or stop; `status` is "pending" if the call ended before a
    person answered. `timed_out` says that nobody answered: the decision is a default, and no person consented.
    `auto_approved` names the policy rule that answered."""

    decision: str | None = field(default=None, metadata=doc('"continue", "refine" or "stop".'))
    instruction: str | None = field(default=None, metadata=doc("What the person tells you to do."))
    status: str | None = field(default=None, metadata=doc('"pending": nobody has answered yet; absent once answered.'))
    request_id: str | None = field(
        default=None, metadata=doc("The id of the question while it is pending: wait for it again with this id.")
    )
    message: str | None = field(default=None, metadata=MESSAGE)
    timed_out: bool | None = field(
        default=None,
        metadata=doc("true: nobody answered in time, the decision is a default and nobody consented to anything."),
    )
    auto_approved: str | None = field(
        default=None, metadata=doc("The rule of the workspace's policy that answered; no person was asked.")
    )


@frozen
class StandbyAnswer:
    """The answer of standby. `status` is resumed, timeout or pending."""

    status: str = field(metadata=doc('"resumed", "timeout" or "pending".'))
    instruction: str | None = field(default=None, metadata=doc("What the operator tells you to do."))
    request_id: str | None = field(
        default=None, metadata=doc("The id of this wait while it is pending: continue it with this id.")
    )
    message: str | None = field(default=None, metadata=MESSAGE)


@frozen
class LateVerdict:
    """A decision that came while no call was waiting for it. `kind` is approval, permission, prompt or standby;
    `answer` is what the waiting call would have returned."""

    request_id: str
    kind: str
    title: str
    answer: dict[str, Any]


@frozen
class DeliveredInstruction:
    """An operator's message attached to a result. `kind` is nudge, steer or task; `by` is its author, `at` when it was
    given."""

    id: str
    kind: str
    text: str
    by: str
    at: str


def to_json(answer: object) -> dict[str, Any]:
    """Write an answer as JSON values. Absent and empty fields are left out, unless the contract requires a null."""
    written = _plain(answer)
    assert isinstance(written, dict)
    return written


def from_json(kind: type[A], written: dict[str, Any]) -> A:
    """Read back what `to_json` wrote."""
    return cattrs.structure(written, kind)


def _plain(value: object) -> object:
    kind: type[Any] = type(value)
    if has(kind):
        out: dict[str, object] = {}
        for attribute in fields(kind):
            inner = getattr(value, attribute.name)
            if attribute.metadata.get("keep") or (inner is not None and inner != ()):
                out[attribute.name] = _plain(inner)
        return out
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


Asked = ApprovalRequest | ContinuationPrompt | InstructionWait


_CLEARANCE = {
    ApprovalStatus.APPROVED: "approved",
    ApprovalStatus.CONSUMED: "approved",
    ApprovalStatus.REJECTED: "rejected",
    ApprovalStatus.EXPIRED: "timeout",
}
#: Told with an approval. A client may show the answer alone, in a notification long after the call.
APPROVED = (
    "a person approved this change in Intercom: call check_diff with this request_id, which writes exactly what was"
    " approved"
)
#: Told with an approval by the policy or by a grant.
AUTO_APPROVED = (
    "nobody needed to be asked about this change: call check_diff with this request_id, which writes exactly what was"
    " approved"
)
#: Told with an approval that a person changed.
_AMENDED = (
    "a person changed your proposal before they approved it: check_diff writes what was approved, and not what you"
    " proposed; read the files again afterwards, and do not write what was left out by other means. {text}"
)
#: Told with a rejection that requests changes.
_REVISE = (
    "a person asks for changes: revise the proposal as the comments say, and call check_clearance with the new one"
)
_PERMISSION = {
    ApprovalStatus.APPROVED: "approved",
    ApprovalStatus.CONSUMED: "allowed",
    ApprovalStatus.REJECTED: "denied",
    ApprovalStatus.EXPIRED: "timeout",
}


def _clearance(request: ApprovalRequest) -> ClearanceAnswer:
    status = _CLEARANCE[request.status]
    rule = request.auto_rule if status == "approved" else None
    plain = ClearanceAnswer(status, request.id, _reason(request), auto_approved=rule)
    if status == "timeout":
        return evolve(plain, message=NOT_APPROVED)
    if request.decided is None:
        return plain
    if is_automatic(request):
        return evolve(plain, message=AUTO_APPROVED) if status == "approved" else plain
    text, details = request.decided.text, request.told
    if status == "rejected":
        return plain if details is None else evolve(plain, comments=details.comments, message=_REVISE)
    if details is None:
        return evolve(plain, note=text, message=APPROVED)
    return evolve(plain, changes=details.changes, note=details.note, message=_AMENDED.format(text=text))


def permission(request: ApprovalRequest) -> PermissionAnswer:
    """Return the answer to a permission hook about a request that is decided."""
    status = _PERMISSION[request.status]
    message = MAY_BE_DONE_NOW if status == "approved" else None
    return PermissionAnswer(status, request.id, _reason(request), message=message)


def _reason(request: ApprovalRequest) -> str | None:
    if request.status is not ApprovalStatus.REJECTED or request.decided is None:
        return None
    return request.decided.text or NO_REASON


#: The reason of a rejection for which the person gave none.
NO_REASON = "rejected by operator"


def _prompt(request: ContinuationPrompt) -> PromptAnswer:
    if request.decision is None:
        raise _ended(request)
    decision = request.decision.value
    if request.status is WaitStatus.EXPIRED:
        return PromptAnswer(decision, request.instruction, message=NOBODY_ANSWERED[decision], timed_out=True)
    if is_of_policy(request):
        return PromptAnswer(decision, message=POLICY_LET_PASS, auto_approved=TRANSMIT_RULE)
    told = CLIENT_ANSWERED if is_of_client(request) else PERSON_ANSWERED
    return PromptAnswer(decision, request.instruction, message=told[decision])


def _standby(request: InstructionWait) -> StandbyAnswer:
    if request.status is WaitStatus.EXPIRED:
        return StandbyAnswer("timeout", message=NO_INSTRUCTION)
    return StandbyAnswer("resumed", request.instruction, message=FROM_CLIENT if is_of_client(request) else None)


def answer(request: Asked) -> object | None:
    """Return the answer for the call that waits for this request; None while it is undecided. Raises InvalidState for a
    request that ended with its session."""
    if request.status.value == "pending":
        return None
    if request.status.value == "interrupted":
        raise _ended(request)
    return of(request).answer(request)


def late(request: Asked) -> LateVerdict:
    """Return a decided request's answer as an attachment for another call's result."""
    kind, said = of(request), answer(request)
    assert said is not None, "a late verdict has been decided"
    return LateVerdict(request.id, kind.name, kind.title(request), to_json(said))


def told(instruction: Instruction) -> DeliveredInstruction:
    """Return an instruction as an attachment of a result."""
    return DeliveredInstruction(
        instruction.id, instruction.kind.value, instruction.text, instruction.by, clock.to_text(instruction.at)
    )


#: The channel of the decision that ends a standby at once, because instructions were queued already.
INBOX = "inbox"
#: The channel of a decision to overwrite a changed file that the configuration left to the agent.
FORCE = "force"
#: The channel of a decision that a person made in advance, by a grant.
GRANTED = "grant"
#: The channel of an answer from a dialog of the agent's own client.
ELICITED = "elicitation"


def ended_by_instructions(wait_id: str) -> str:
    """Return the id of the verdict by which an instruction ends this standby."""
    return f"steer/{wait_id}"


def is_ended_by_instructions(wait: InstructionWait) -> bool:
    """Return whether instructions ended this standby, as its record says."""
    return wait.decided is not None and wait.decided.verdict_id == ended_by_instructions(wait.id)


def is_automatic(request: Asked) -> bool:
    """Return whether it was decided as soon as it was asked, without a person."""
    return request.decided is not None and request.decided.channel in ("policy", FORCE, INBOX, GRANTED)


def is_of_policy(request: Asked) -> bool:
    """Return whether the workspace's policy decided it."""
    return request.decided is not None and request.decided.channel == "policy"


def is_of_client(request: Asked) -> bool:
    """Return whether a dialog of the agent's own client answered it: then nobody knows whether a person did."""
    return request.decided is not None and request.decided.channel == ELICITED


#: The name of the policy rule that answers questions.
TRANSMIT_RULE = "tool:transmit"


def headline(text: str, width: int = 80) -> str:
    """Return the first line of a text, cut to `width` characters."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= width else first[: width - 1] + "…"


def _ended(request: Asked) -> InvalidState:
    return InvalidState(f"request {request.id} ended with its session; ask again in a new one", request_id=request.id)


def settled(request: Asked, now: datetime) -> Settled:
    """Return the metric of a settled request. Without a decision, it ended `now`."""
    verdict = request.decided
    if verdict is None:
        return Settled(request.id, of(request).card, request.status.value, "none", _between(request.created_at, now))
    waited = _between(request.created_at, verdict.at)
    return Settled(request.id, of(request).card, verdict.decision, verdict.channel, waited)


def delivered(request: Asked) -> Delivered | None:
    """Return the metric of an answer that reached the agent; None if there is no answer, or it has not arrived."""
    if request.decided is None or request.delivered_at is None:
        return None
    return Delivered(request.id, of(request).card, _between(request.decided.at, request.delivered_at))


def answered(card: Card, verdict: Verdict, now: datetime) -> Settled | None:
    """Return the metric of a person's answer that no call waits for: to an alert, a policy, a stuck apply. None for
    requests, which are measured by `settled`. Each answer to an alert counts."""
    if card.kind in _REQUESTS:
        return None
    waited = _between(card.created_at, now)
    return Settled(verdict.id, card.kind, verdict.decision.value, verdict.channel, waited)


def _between(before: datetime, after: datetime) -> float:
    # The wall clock may have been set back meanwhile.
    return max(0.0, (after - before).total_seconds())


_STATE: dict[str, CardState] = {
    ApprovalStatus.PENDING: CardState.PENDING,
    ApprovalStatus.APPROVED: CardState.APPROVED,
    ApprovalStatus.REJECTED: CardState.REJECTED,
    ApprovalStatus.CONSUMED: CardState.APPLIED,
    WaitStatus.DECIDED: CardState.ANSWERED,
    WaitStatus.EXPIRED: CardState.EXPIRED,
    WaitStatus.INTERRUPTED: CardState.INTERRUPTED,
}
_PROMPT_TITLE = {
    PromptType.CONTINUATION: "Shall I go on?",
    PromptType.CLARIFICATION: "Needs an answer",
    PromptType.ERROR_RECOVERY: "Hit an error",
    PromptType.RESOURCE_WARNING: "Uses a lot",
}
_STALL_STATE = {
    StallStatus.PENDING: CardState.PENDING,
    StallStatus.NUDGED: CardState.PENDING,
    StallStatus.ESCALATED: CardState.PENDING,
    StallStatus.SELF_RECOVERED: CardState.CLOSED,
    StallStatus.DISMISSED: CardState.CLOSED,
}

_INSTRUCTION_KIND = {Kind.NUDGE: CardKind.STEER, Kind.STEER: CardKind.STEER, Kind.TASK: CardKind.TASK}
_INSTRUCTION_TITLE = {Kind.NUDGE: "Nudge", Kind.STEER: "To the agent", Kind.TASK: "Task"}
#: The channel of an automatic nudge, which no person gave.
AUTOMATIC = "alert"
#: The author of automatic nudges.
INTERCOM = "intercom"
#: The prefix of the channel of a person's message to an alert. The alert's card shows such a message.
ON_ALERT = "alert/"


def is_told_of_on_alert(instruction: Instruction) -> bool:
    """Return whether an alert's card shows this instruction, so that it needs no card of its own."""
    return instruction.channel == AUTOMATIC or instruction.channel.startswith(ON_ALERT)


_STUCK = "apply-"


def card_of(request: Asked, workspace_root: str, *, away: bool = False, note: str | None = None) -> Card:
    """Return the card of a request. `away` says that no call waits for the answer."""
    kind = of(request)
    card = partial(
        Card,
        id=request.id,
        kind=kind.card,
        session_id=request.session_id,
        workspace_root=workspace_root,
        created_at=request.created_at,
        state=_state(request),
        expires_at=request.expires_at,
        decided=request.decided,
        away=away,
        delivered=request.delivered_at is not None,
    )
    match request:
        case ApprovalRequest():
            return card(
                title=request.title,
                body=request.description,
                detail=_path(request),
                risk=request.risk_level,
                files=request.files,
                diff=visible(request.diff_content) or None if request.preview is None else request.preview,
                diff_from_agent=request.preview is None,
                remarks=request.remarks,
                masked=request.masked,
                note=note or _fate(request),
                proposal_hash=request.proposal_hash,
                amendable=request.is_amendable,
                amended=bool(request.told and request.told.changes),
            )
        case ContinuationPrompt():
            effort = []
            if request.elapsed_seconds is not None:
                effort.append(f"running for {_span(request.elapsed_seconds)}")
            if request.actions_taken is not None:
                effort.append(count(request.actions_taken, "action") + " taken")
            title, detail = _PROMPT_TITLE[request.prompt_type], ", ".join(effort) or None
            asked = request.prompt_type
            return card(title=title, body=request.prompt_text, detail=detail, note=note, prompt_type=asked)
        case InstructionWait():
            return card(title="Waits for work", body=request.message, note=note)


def _state(request: Asked) -> CardState:
    state = _STATE[request.status]
    if state is CardState.APPLIED and of(request) is PERMISSION:
        # The client performs the operation itself. All that is known is that it was told.
        return CardState.DELIVERED
    is_granted = state in (CardState.APPROVED, CardState.ANSWERED)
    # An approval or an answer that reached its agent becomes delivered. A rejection or time-out keeps its state.
    return CardState.DELIVERED if is_granted and request.delivered_at else state


def _path(request: ApprovalRequest) -> str:
    """Return the path of the change: the canonical path, not the agent's spelling. The place of an operation is the
    agent's text, on one line: further lines could look like the card's own."""
    if request.tool is not None:
        return one_line(request.file_path)
    known = [path for file in request.files for path in file.paths]
    return request.file_path if request.file_path in known else (known or [""])[-1]


def _fate(request: ApprovalRequest) -> str | None:
    if request.status is ApprovalStatus.EXPIRED and request.decided is not None:
        return "approved, but not applied in time, or withdrawn; propose it again"
    if request.decided is not None and (details := request.told) is not None:
        return "changes requested" if details.comments else "approved with changes"
    if request.tool is not None and request.status in (ApprovalStatus.APPROVED, ApprovalStatus.CONSUMED):
        used = request.status is ApprovalStatus.CONSUMED
        # The client does it itself, or the gateway sends it.
        return f"{request.tool}: approved for one use, which {'was made' if used else 'has not been made yet'}"
    if request.auto_rule is None:
        return None
    by = "a person in advance" if grant_of_rule(request.auto_rule) is not None else "the policy"
    return f"approved by {by}: {request.auto_rule}"


def card_of_alert(alert: StallAlert, workspace_root: str, *, note: str | None = None) -> Card:
    """Return the card of a stall alert."""
    title = f"Quiet for {_span(alert.idle_seconds)}"
    if alert.status is StallStatus.ESCALATED:
        title = f"Still quiet after {count(alert.nudge_count, 'nudge')}" if alert.nudge_count else title
    ended = {StallStatus.SELF_RECOVERED: "the agent is back", StallStatus.DISMISSED: "dismissed"}.get(alert.status)
    return Card(
        id=alert.id,
        kind=CardKind.STALL,
        session_id=alert.session_id,
        workspace_root=workspace_root,
        title=title,
        created_at=alert.created_at,
        state=_STALL_STATE[alert.status],
        body="\n".join(map(_step, alert.progress_snapshot or ())) or None,
        detail=headline(f"last tool: {alert.last_tool}") if alert.last_tool else None,
        note=note or ended,
        escalated=alert.status is StallStatus.ESCALATED,
    )


def card_of_instruction(instruction: Instruction, workspace_root: str) -> Card:
    """Return the card of an instruction: queued, then delivered or closed."""
    state = (
        CardState.QUEUED
        if instruction.is_open
        else CardState.CLOSED
        if instruction.delivered_at is None
        else CardState.DELIVERED
    )
    title = headline(instruction.text)
    return Card(
        id=instruction.id,
        kind=_INSTRUCTION_KIND[instruction.kind],
        session_id=instruction.session_id or "",
        workspace_root=instruction.workspace_root or workspace_root,
        title=f"{_INSTRUCTION_TITLE[instruction.kind]}: {title}",
        created_at=instruction.at,
        state=state,
        body=instruction.text if instruction.text.strip() != title else None,
        detail=f"from {instruction.by}",
        note=_way(instruction),
        delivered=instruction.delivered_at is not None,
    )


def _way(instruction: Instruction) -> str:
    if instruction.delivered_at is not None:
        return f"the agent has it since {instruction.delivered_at:%Y-%m-%d %H:%M:%S} UTC"
    if instruction.closed_at is not None:
        return "not delivered: cancelled, or the session ended first"
    if instruction.kind is not Kind.TASK or instruction.taken_at is not None:
        return "goes with the agent's next result"
    whose = "this session's agent" if instruction.session_id is not None else "an agent of this workspace"
    return f"waits until {whose} calls reboot or standby"


def _step(item: ProgressItem) -> str:
    return f"{item.status.value.replace('_', ' ')}: {item.label}"


def _span(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, past = divmod(minutes, 60)
    if hours:
        return f"{hours} h {past} min" if past else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{rest} s"


def stuck_id(request_id: str) -> str:
    """Return the id of the card of a stuck apply of this request."""
    return f"{_STUCK}{request_id}"


def is_stuck(card_id: str) -> bool:
    """Return whether this is the id of such a card."""
    return card_id.startswith(_STUCK)


def request_of(card_id: str) -> str:
    """Return the id of the request that such a card is about."""
    return card_id.removeprefix(_STUCK)


def card_of_stuck(entry: Entry, request: ApprovalRequest) -> Card:
    """Return the card of an apply that stopped half-way."""
    return Card(
        id=stuck_id(request.id),
        kind=CardKind.APPLY,
        session_id=entry.session_id,
        workspace_root=entry.workspace_root,
        title=f"Stopped half-way: {request.title}",
        created_at=entry.at,
        body=entry.note,
        files=request.files,
        note="correct the files and let the agent call check_diff again; or dismiss it to give up the change",
    )


@frozen
class RequestKind:
    """One kind of request. `name` is what agents know it as, `asked` the kind of the audit entry of a new one, `title`
    its line for people, `answer` its answer once it is decided, and `audited` what else that entry holds."""

    card: CardKind
    name: str
    table: RequestTable[Any, Any]
    asked: str
    title: Callable[[Any], str]
    answer: Callable[[Any], object]
    audited: Callable[[Any], dict[str, object]] = lambda _request: {}


CLEARANCE = RequestKind(
    CardKind.APPROVAL,
    "approval",
    approvals,
    "clearance_asked",
    lambda request: str(request.title),
    _clearance,
    lambda request: {
        "files": [path for file in request.files for path in file.paths],
        "proposal_hash": request.proposal_hash,
    },
)
PERMISSION = RequestKind(
    CardKind.APPROVAL,
    "permission",
    approvals,
    "permission_asked",
    lambda request: str(request.title),
    permission,
    lambda request: {"tool": request.tool},
)
PROMPT = RequestKind(
    CardKind.PROMPT,
    "prompt",
    prompts,
    "prompt_asked",
    lambda request: headline(request.prompt_text),
    _prompt,
    lambda request: {"type": request.prompt_type},
)
STANDBY = RequestKind(
    CardKind.STANDBY, "standby", waits, "standby", lambda request: headline(request.message), _standby
)
_REQUESTS = frozenset({CardKind.APPROVAL, CardKind.PROMPT, CardKind.STANDBY})


def of(request: Asked) -> RequestKind:
    """Return the kind of a request."""
    match request:
        case ApprovalRequest():
            return CLEARANCE if request.tool is None else PERMISSION
        case ContinuationPrompt():
            return PROMPT
        case InstructionWait():
            return STANDBY
