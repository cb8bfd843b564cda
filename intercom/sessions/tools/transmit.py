"""transmit: the agent asks a person how to continue; the policy may answer in the person's place."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar

from attrs import field, frozen

from intercom.model import limits
from intercom.model.config import OnTimeout
from intercom.model.decision import Decided, Decision
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.field_docs import doc
from intercom.model.policy import PolicyAnswer
from intercom.model.request import ContinuationPrompt, PromptType, WaitStatus
from intercom.model.session import SessionMode
from intercom.sessions import request_kinds
from intercom.sessions.messages import RecordedRequest, ToolRequest
from intercom.sessions.request_kinds import PromptAnswer
from intercom.sessions.session.actor import UNREADABLE, SessionActor
from intercom.sessions.session.new_requests import record_request
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools.tool import WAIT_AGAIN, Hints, Tool
from intercom.store import requests
from intercom.workspace.policy import Query
from intercom.workspace.policy_watcher import Evaluate

DESCRIPTION = """\
Ask the operator how to go on, and wait for the answer: "continue" as planned, "refine" by the instruction, or \
"stop". While it is "pending", call again.
Ask whether to go on, what was meant, how to recover from an error, or whether the cost is acceptable.
- decision "continue": continue as planned. "refine": follow the instruction instead. "stop": end the task now.
- "timed_out": true with a decision: nobody answered, so nobody consented. Do what the message says.
- "auto_approved": the workspace's policy answered, and no person.
- status "pending": no answer yet; call again with only this request_id."""

_NOT_ANSWERED_YET = (
    "no answer yet: call transmit again with this request_id to continue waiting; do not assume an answer"
)
#: The policy's answer about a question that people are always asked.
_ASKED = PolicyAnswer(False)
#: The most of a number that only people read: larger ones are refused.
_ANY = 10**12


@frozen
class Transmit(ToolRequest[RecordedRequest[PromptAnswer]]):
    """Ask a person a question. With `request_id`, only re-attach to that question."""

    nothing_required: ClassVar[bool] = True

    prompt_text: str | None = field(
        default=None, metadata=doc("The question, in full. Needed for a new question.", min_length=1, most=limits.TEXT)
    )
    prompt_type: PromptType = field(default=PromptType.CONTINUATION, metadata=doc("What kind of question it is."))
    elapsed_seconds: int | None = field(
        default=None, metadata=doc("Seconds since a person last said something.", minimum=0, maximum=_ANY)
    )
    actions_taken: int | None = field(
        default=None, metadata=doc("How many actions you have taken since then.", minimum=0, maximum=_ANY)
    )
    request_id: str | None = field(default=None, metadata=doc(WAIT_AGAIN, min_length=1, most=limits.NAME))

    @property
    def waits_while_paused(self) -> bool:
        return self.request_id is None


async def handle(session: SessionActor, asked: Transmit) -> RecordedRequest[PromptAnswer]:
    """Record a question, once per call. The policy may answer it at once, except an error recovery."""
    session.require_open()
    session.touch("transmit")
    if asked.request_id is not None:
        return await _opened(session, await session.find_of(ContinuationPrompt, asked.request_id), asked.call)
    if asked.prompt_text is None or not asked.prompt_text.strip():
        raise InvalidArguments("prompt_text is needed for a new question (or request_id for an old one)")
    now = session.now()
    prompt = ContinuationPrompt(
        id=session.deps.new_id(),
        session_id=session.id,
        prompt_text=asked.prompt_text,
        prompt_type=asked.prompt_type,
        status=WaitStatus.PENDING,
        created_at=now,
        elapsed_seconds=asked.elapsed_seconds,
        actions_taken=asked.actions_taken,
        expires_at=_prompt_deadline(session, asked.prompt_type, now),
        call=asked.call,
    )
    rule = (await _judged(session, asked.prompt_type)).matched_rule
    decided = None
    if rule is not None:
        decided = Decided(f"policy/{prompt.id}", Decision.CONTINUE, "policy", "policy", now)
    earlier = partial(requests.by_call, session_id=session.id, call=asked.call)
    kept, _ = await record_request(session, prompt, earlier, rule=rule, decided=decided)
    return await _opened(session, kept, asked.call)


def on_timeout(session: SessionActor, kind: PromptType) -> OnTimeout:
    """Return what happens to an unanswered question of this type."""
    timeouts = session.deps.config.timeouts
    return timeouts.prompt_by_type.get(kind, timeouts.prompt_on_timeout)


async def ask_policy_again(session: SessionActor, request: request_kinds.Asked) -> None:
    """Ask the policy again about a question it answered, before the agent is told. With an operator key the recorded
    answer proves nothing; only the current policy counts. Raises IntercomError (unavailable) while the policy cannot be
    read."""
    if not isinstance(request, ContinuationPrompt) or not session.is_for_policy(request):
        return
    found = await _judged(session, request.prompt_type)
    if found == UNREADABLE:
        raise IntercomError(str(found.why), code="unavailable")
    session.change(SessionState.grant, request.id, found.matched_rule is not None)


def _prompt_deadline(session: SessionActor, kind: PromptType, now: datetime) -> datetime | None:
    if on_timeout(session, kind) is OnTimeout.HOLD:
        return None
    return now + timedelta(seconds=session.deps.config.timeouts.prompt_seconds)


async def _judged(session: SessionActor, kind: PromptType) -> PolicyAnswer:
    """Ask the policy about a question of this type."""
    config = session.deps.config.policy
    if kind is PromptType.ERROR_RECOVERY:
        return _ASKED
    if config.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE:
        return _ASKED
    found = await session.judge(Evaluate(Query("transmit")))
    # A command pattern that matches the tool's name is not a rule for the tool.
    return found if (found.matched_rule or "tool:").startswith("tool:") else _ASKED


async def _opened(session: SessionActor, prompt: ContinuationPrompt, call: str) -> RecordedRequest[PromptAnswer]:
    await ask_policy_again(session, prompt)
    return session.reply_to_call(prompt, call)


TOOL = Tool(
    name="transmit",
    legacy_name="forward_prompt",
    title="Ask the operator",
    description=DESCRIPTION,
    takes=Transmit,
    result=PromptAnswer,
    hints=Hints(open_world=True),
    handle=handle,
    pending=lambda id: PromptAnswer(status="pending", request_id=id, message=_NOT_ANSWERED_YET),
    offers_tasks=True,
)
