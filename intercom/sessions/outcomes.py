"""Builds the answer for an agent from its request's row. All functions are pure."""

from __future__ import annotations

from intercom.model import clock
from intercom.model.approval import ApprovalRequest, ApprovalStatus
from intercom.model.errors import InvalidState
from intercom.model.prompt import ContinuationPrompt, Wait, WaitStatus
from intercom.model.steering import Instruction
from intercom.sessions import answers
from intercom.sessions.answers import (
    MAY_BE_DONE_NOW,
    NOBODY_ANSWERED,
    POLICY_LET_PASS,
    ClearanceAnswer,
    LateVerdict,
    PermissionAnswer,
    PromptAnswer,
    StandbyAnswer,
    to_json,
)

Asked = ApprovalRequest | ContinuationPrompt | Wait


def clearance(request: ApprovalRequest) -> ClearanceAnswer | None:
    """Return the answer of check_clearance; None while undecided. Raises InvalidState for a request that ended with its
    session."""
    match request.status:
        case ApprovalStatus.PENDING:
            return None
        case ApprovalStatus.APPROVED | ApprovalStatus.CONSUMED:
            return ClearanceAnswer("approved", request.id, auto_approved=request.auto_rule)
        case ApprovalStatus.REJECTED:
            return ClearanceAnswer("rejected", request.id, reason=request.decided.text if request.decided else None)
        case ApprovalStatus.EXPIRED:
            return ClearanceAnswer("timeout", request.id)
        case ApprovalStatus.INTERRUPTED:
            raise _ended(request)


def permission(request: ApprovalRequest) -> PermissionAnswer | None:
    """Return the answer to a permission hook; as `clearance`."""
    match request.status:
        case ApprovalStatus.PENDING:
            return None
        case ApprovalStatus.APPROVED:
            return PermissionAnswer("approved", request.id, message=MAY_BE_DONE_NOW)
        case ApprovalStatus.CONSUMED:
            return PermissionAnswer("allowed", request.id)
        case ApprovalStatus.REJECTED:
            return PermissionAnswer("denied", request.id, reason=request.decided.text if request.decided else None)
        case ApprovalStatus.EXPIRED:
            return PermissionAnswer("timeout", request.id)
        case ApprovalStatus.INTERRUPTED:
            raise _ended(request)


def prompt(request: ContinuationPrompt) -> PromptAnswer | None:
    """Return the answer of transmit; as `clearance`."""
    if request.status is WaitStatus.PENDING:
        return None
    if request.status is WaitStatus.INTERRUPTED or request.decision is None:
        raise _ended(request)
    if request.status is WaitStatus.EXPIRED:
        decision = request.decision.value
        return PromptAnswer(decision, request.instruction, message=NOBODY_ANSWERED[decision], timed_out=True)
    if is_of_policy(request):
        return PromptAnswer(request.decision.value, message=POLICY_LET_PASS, auto_approved=TRANSMIT_RULE)
    return PromptAnswer(request.decision.value, request.instruction)


def answer(request: Asked) -> object:
    """Return the answer for the call that waits for this request, of any kind; as `clearance`."""
    match request:
        case ApprovalRequest() if request.tool is not None:
            return permission(request)
        case ApprovalRequest():
            return clearance(request)
        case ContinuationPrompt():
            return prompt(request)
        case Wait():
            return standby(request)


def standby(request: Wait) -> StandbyAnswer | None:
    """Return the answer of standby; as `clearance`."""
    match request.status:
        case WaitStatus.PENDING:
            return None
        case WaitStatus.DECIDED:
            return StandbyAnswer("resumed", request.instruction)
        case WaitStatus.EXPIRED:
            return StandbyAnswer("timeout")
        case WaitStatus.INTERRUPTED:
            raise _ended(request)


def late(request: Asked) -> LateVerdict:
    """Return the request's answer as an attachment for another call's result."""
    match request:
        case ApprovalRequest() if request.tool is not None:
            return LateVerdict(request.id, "permission", request.title, _answer(permission(request)))
        case ApprovalRequest():
            return LateVerdict(request.id, "approval", request.title, _answer(clearance(request)))
        case ContinuationPrompt():
            return LateVerdict(request.id, "prompt", headline(request.prompt_text), _answer(prompt(request)))
        case Wait():
            return LateVerdict(request.id, "standby", headline(request.message), _answer(standby(request)))


def told(word: Instruction) -> answers.Instruction:
    """Return an instruction as an attachment of a result."""
    return answers.Instruction(word.id, word.kind.value, word.text, word.by, clock.to_text(word.at))


#: The channel of the decision that ends a standby at once, because instructions were queued already.
INBOX = "inbox"
#: The channel of a decision to overwrite a changed file that the configuration left to the agent.
FORCE = "force"


def ended_by_words(wait_id: str) -> str:
    """Return the id of the verdict by which an instruction ends this standby."""
    return f"steer/{wait_id}"


def is_automatic(request: Asked) -> bool:
    """Return whether it was decided as soon as it was asked, without a person."""
    return request.decided is not None and request.decided.channel in ("policy", FORCE, INBOX)


def is_of_policy(request: Asked) -> bool:
    """Return whether the workspace's policy decided it."""
    return request.decided is not None and request.decided.channel == "policy"


#: The name of the policy rule that answers questions.
TRANSMIT_RULE = "tool:transmit"


def headline(text: str, width: int = 80) -> str:
    """Return the first line of a text, cut to `width` characters."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= width else first[: width - 1] + "…"


def _answer(answer: object) -> dict[str, object]:
    assert answer is not None, "a late verdict has been decided"
    return to_json(answer)


def _ended(request: Asked) -> InvalidState:
    return InvalidState(f"request {request.id} ended with its session; ask again in a new one", request_id=request.id)
