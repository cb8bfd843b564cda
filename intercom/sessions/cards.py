"""Builds the cards that people see from database rows. All functions are pure."""

from __future__ import annotations

from intercom.model.approval import ApprovalRequest, ApprovalStatus
from intercom.model.card import Card, CardKind, CardState
from intercom.model.instruction import Instruction, Kind
from intercom.model.prompt import ContinuationPrompt, PromptType, Wait, WaitStatus
from intercom.model.session import ProgressItem
from intercom.model.stall import StallAlert, StallStatus
from intercom.model.visible_text import visible
from intercom.sessions.answers import Asked, headline
from intercom.store.journal import Entry

_APPROVAL_STATE = {
    ApprovalStatus.PENDING: CardState.PENDING,
    ApprovalStatus.APPROVED: CardState.APPROVED,
    ApprovalStatus.REJECTED: CardState.REJECTED,
    ApprovalStatus.EXPIRED: CardState.EXPIRED,
    ApprovalStatus.CONSUMED: CardState.APPLIED,
    ApprovalStatus.INTERRUPTED: CardState.INTERRUPTED,
}
_WAIT_STATE = {
    WaitStatus.PENDING: CardState.PENDING,
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

_WORDS_KIND = {Kind.NUDGE: CardKind.STEER, Kind.STEER: CardKind.STEER, Kind.TASK: CardKind.TASK}
_WORDS_TITLE = {Kind.NUDGE: "Nudge", Kind.STEER: "To the agent", Kind.TASK: "Task"}
#: The channel of an automatic nudge, which no person gave.
AUTOMATIC = "alert"
#: The author of automatic nudges.
INTERCOM = "intercom"
#: The prefix of the channel of a person's message to an alert. The alert's card shows such a message.
ON_ALERT = "alert/"


def is_told_of_on_alert(word: Instruction) -> bool:
    """Return whether an alert's card shows this instruction, so that it needs no card of its own."""
    return word.channel == AUTOMATIC or word.channel.startswith(ON_ALERT)


_STUCK = "apply-"


def of_request(request: Asked, workspace_root: str, *, away: bool = False, note: str | None = None) -> Card:
    """Return the card of an approval, a prompt or a standby. `away` says that no call waits for the answer."""
    match request:
        case ApprovalRequest():
            return _approval(request, workspace_root, away, note)
        case ContinuationPrompt():
            return _prompt(request, workspace_root, away, note)
        case Wait():
            return _standby(request, workspace_root, away, note)


def _approval(request: ApprovalRequest, root: str, away: bool, note: str | None) -> Card:
    state = _APPROVAL_STATE[request.status]
    if state is CardState.APPLIED and request.tool is not None:
        # The client performs the operation itself. All that is known is that it was told.
        state = CardState.DELIVERED
    if state in (CardState.APPROVED, CardState.REJECTED, CardState.EXPIRED) and request.delivered_at:
        # An approval that reached its agent becomes delivered. A rejection or time-out keeps its state.
        state = CardState.DELIVERED if state is CardState.APPROVED else state
    return Card(
        id=request.id,
        kind=CardKind.APPROVAL,
        session_id=request.session_id,
        workspace_root=root,
        title=request.title,
        created_at=request.created_at,
        state=state,
        body=request.description,
        detail=_path(request),
        risk=request.risk_level,
        files=request.files,
        diff=visible(request.diff_content) or None if request.preview is None else request.preview,
        diff_from_agent=request.preview is None,
        remarks=request.remarks,
        masked=request.masked,
        expires_at=request.expires_at,
        decided=request.decided,
        away=away,
        note=note or _fate(request),
        proposal_hash=request.proposal_hash,
    )


def _path(request: ApprovalRequest) -> str:
    """Return the path of the change: the canonical path, not the agent's spelling."""
    known = [path for file in request.files for path in file.paths]
    return request.file_path if request.tool is not None or request.file_path in known else (known or [""])[-1]


def _fate(request: ApprovalRequest) -> str | None:
    if request.status is ApprovalStatus.EXPIRED and request.decided is not None:
        return "approved, but not applied in time, or taken back; propose it again"
    if request.tool is not None:
        used = request.status is ApprovalStatus.CONSUMED
        return f"{request.tool}: the client does it itself, {'and was told' if used else 'once it is told'}"
    return f"approved by the policy: {request.auto_rule}" if request.auto_rule else None


def _prompt(request: ContinuationPrompt, root: str, away: bool, note: str | None) -> Card:
    effort = []
    if request.elapsed_seconds is not None:
        effort.append(f"running for {_span(request.elapsed_seconds)}")
    if request.actions_taken is not None:
        effort.append(_counted(request.actions_taken, "action") + " taken")
    return Card(
        id=request.id,
        kind=CardKind.PROMPT,
        session_id=request.session_id,
        workspace_root=root,
        title=_PROMPT_TITLE[request.prompt_type],
        created_at=request.created_at,
        state=_waited(request),
        body=request.prompt_text,
        detail=", ".join(effort) or None,
        expires_at=request.expires_at,
        decided=request.decided,
        away=away,
        note=note,
    )


def _standby(request: Wait, root: str, away: bool, note: str | None) -> Card:
    return Card(
        id=request.id,
        kind=CardKind.STANDBY,
        session_id=request.session_id,
        workspace_root=root,
        title="Waits for work",
        created_at=request.created_at,
        state=_waited(request),
        body=request.message,
        expires_at=request.expires_at,
        decided=request.decided,
        away=away,
        note=note,
    )


def _waited(request: ContinuationPrompt | Wait) -> CardState:
    if request.status is WaitStatus.DECIDED and request.delivered_at:
        return CardState.DELIVERED
    return _WAIT_STATE[request.status]


def of_stall(alert: StallAlert, workspace_root: str, *, note: str | None = None) -> Card:
    """Return the card of a stall alert."""
    title = f"Quiet for {_span(alert.idle_seconds)}"
    if alert.status is StallStatus.ESCALATED:
        title = f"Still quiet after {_counted(alert.nudge_count, 'nudge')}" if alert.nudge_count else title
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


def of_words(word: Instruction, workspace_root: str) -> Card:
    """Return the card of an instruction: queued, then delivered or closed."""
    state = CardState.QUEUED if word.is_open else CardState.CLOSED if word.delivered_at is None else CardState.DELIVERED
    title = headline(word.text)
    return Card(
        id=word.id,
        kind=_WORDS_KIND[word.kind],
        session_id=word.session_id or "",
        workspace_root=word.workspace_root or workspace_root,
        title=f"{_WORDS_TITLE[word.kind]}: {title}",
        created_at=word.at,
        state=state,
        body=word.text if word.text.strip() != title else None,
        detail=f"from {word.by}",
        note=_way(word),
    )


def _way(word: Instruction) -> str:
    if word.delivered_at is not None:
        return f"the agent has it since {word.delivered_at:%Y-%m-%d %H:%M:%S} UTC"
    if word.closed_at is not None:
        return "not delivered: taken back, or the session ended first"
    if word.kind is not Kind.TASK or word.taken_at is not None:
        return "goes with the agent's next result"
    whose = "this session's agent" if word.session_id is not None else "an agent of this workspace"
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


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def stuck_id(request_id: str) -> str:
    """Return the id of the card of a stuck apply of this request."""
    return f"{_STUCK}{request_id}"


def is_stuck(card_id: str) -> bool:
    """Return whether this is the id of such a card."""
    return card_id.startswith(_STUCK)


def request_of(card_id: str) -> str:
    """Return the id of the request that such a card is about."""
    return card_id.removeprefix(_STUCK)


def of_stuck(entry: Entry, request: ApprovalRequest) -> Card:
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
        note="put the files right and let the agent call check_diff again; or dismiss it to give the change up",
    )
