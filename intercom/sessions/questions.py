"""Questions: an agent asks whether to continue (transmit), or for work (standby)."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from intercom.model import crash_points
from intercom.model.config import OnTimeout
from intercom.model.errors import IntercomError, InvalidArguments, NotFound
from intercom.model.policy import PolicyAnswer
from intercom.model.prompt import ContinuationPrompt, PromptDecision, PromptType, Wait, WaitStatus
from intercom.model.session import SessionMode
from intercom.model.steering import Instruction
from intercom.model.verdict import Decided
from intercom.sessions import measures, outcomes, steering, summary
from intercom.sessions.actor import UNREADABLE, SessionActor
from intercom.sessions.answers import PromptAnswer, StandbyAnswer
from intercom.sessions.limits import require_room
from intercom.sessions.messages import Answered, AskPrompt, AwaitPrompt, AwaitStandby, Opened, StandBy
from intercom.store import prompts, requests, waits
from intercom.store.messages import Database
from intercom.workspace.messages import Evaluate
from intercom.workspace.policy import Query

#: The longest timeout of a standby, in seconds. Longer ones are cut to it.
LONGEST_STANDBY = 7 * 86400
#: The policy's answer about a question that people are always asked.
_ASKED = PolicyAnswer(False)


async def ask_prompt(session: SessionActor, asked: AskPrompt) -> Opened[PromptAnswer]:
    """Record a question, once per call. The policy may answer it at once, except an error recovery."""
    session.require_open()
    session.touch("transmit")
    if asked.request_id is not None:
        return await _opened_prompt(session, await _prompt(session, asked.request_id), asked.call)
    if asked.prompt_text is None or not asked.prompt_text.strip():
        raise InvalidArguments("prompt_text is needed for a new question (or request_id for an old one)")
    now = session.now()
    prompt = ContinuationPrompt(
        id=session.context.new_id(),
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
    kept, is_new = await session.transact(partial(_keep_prompt, session=session, prompt=prompt, rule=rule))
    crash_points.reach("request.recorded")
    if is_new:
        session.watch_expiry(kept)
        if kept.status is WaitStatus.PENDING:
            session.show_soon(kept)
        elif rule is not None:
            session.context.measured(measures.settled(kept, now))
            session.riders.verdicts[kept.id] = outcomes.late(kept)
            summary.let_pass(session, kept.prompt_text, rule)
    return await _opened_prompt(session, kept, asked.call)


async def await_prompt(session: SessionActor, asked: AwaitPrompt) -> Answered[PromptAnswer] | None:
    prompt = await _prompt(session, asked.request_id)
    await ask_policy_again(session, prompt)
    answer = session.unless_paused(outcomes.prompt(session.trusted(prompt)))
    if answer is not None:
        return session.answered(asked.call, answer, own=prompt.id)
    session.wait(prompt, asked.call, asked.ticket)
    return None


async def stand_by(session: SessionActor, asked: StandBy) -> Opened[StandbyAnswer]:
    """Record a standby, once per call. It ends at once if instructions or a task wait for the agent."""
    session.require_open()
    session.touch("standby")
    await session.refuse_words()
    if asked.request_id is not None:
        return await _wait_again(session, asked.request_id, asked.call)
    now = session.now()
    seconds = min(asked.timeout_seconds or session.context.config.timeouts.wait_seconds, LONGEST_STANDBY)
    wait = Wait(
        id=session.context.new_id(),
        session_id=session.id,
        message=asked.message,
        status=WaitStatus.PENDING,
        created_at=now,
        expires_at=now + timedelta(seconds=seconds) if seconds > 0 else None,
        call=asked.call,
    )
    has_words = steering.has_words(session)
    kept, is_new, queued = await session.transact(partial(_keep_wait, session=session, wait=wait, has_words=has_words))
    crash_points.reach("request.recorded")
    steering.took(session, queued)
    if is_new and kept.status is WaitStatus.PENDING:
        session.watch_expiry(kept)
        session.show_soon(kept)
    elif is_new:
        session.riders.verdicts[kept.id] = outcomes.late(kept)
    return _opened_wait(session, kept, asked.call)


async def _wait_again(session: SessionActor, request_id: str, call: str) -> Opened[StandbyAnswer]:
    wait = await _wait(session, request_id)
    if wait.status is WaitStatus.PENDING and not session.row.is_paused:
        has_words = steering.has_words(session)
        wait, ended, queued = await session.transact(
            partial(_look_in, session=session, wait=wait, has_words=has_words, channel=steering.CHANNEL)
        )
        steering.took(session, queued)
        if ended:
            session.settle(wait)
    return _opened_wait(session, wait, call)


async def await_standby(session: SessionActor, asked: AwaitStandby) -> Answered[StandbyAnswer] | None:
    wait = await _wait(session, asked.request_id)
    answer = session.unless_paused(outcomes.standby(session.trusted(wait)))
    if answer is not None:
        return session.answered(asked.call, answer, own=wait.id)
    session.wait(wait, asked.call, asked.ticket)
    return None


def on_timeout(session: SessionActor, kind: PromptType) -> OnTimeout:
    """Return what happens to an unanswered question of this type."""
    timeouts = session.context.config.timeouts
    return timeouts.prompt_by_type.get(kind, timeouts.prompt_on_timeout)


async def ask_policy_again(session: SessionActor, request: outcomes.Asked) -> None:
    """Ask the policy again about a question it answered, before the agent is told. With an operator key the recorded
    answer proves nothing; only the current policy counts. Raises IntercomError (unavailable) while the policy cannot be
    read."""
    if not isinstance(request, ContinuationPrompt) or not session.is_for_policy(request):
        return
    found = await _judged(session, request.prompt_type)
    if found == UNREADABLE:
        raise IntercomError(str(found.why), code="unavailable")
    session.let_pass_now.discard(request.id)
    if found.matched_rule is not None:
        session.let_pass_now.add(request.id)


def _prompt_deadline(session: SessionActor, kind: PromptType, now: datetime) -> datetime | None:
    if on_timeout(session, kind) is OnTimeout.HOLD:
        return None
    return now + timedelta(seconds=session.context.config.timeouts.prompt_seconds)


async def _judged(session: SessionActor, kind: PromptType) -> PolicyAnswer:
    """Ask the policy about a question of this type."""
    config = session.context.config.policy
    if kind is PromptType.ERROR_RECOVERY:
        return _ASKED
    if config.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE:
        return _ASKED
    found = await session.judge(Evaluate(Query("transmit")))
    # A command pattern that matches the tool's name is not a rule for the tool.
    return found if (found.matched_rule or "tool:").startswith("tool:") else _ASKED


def _keep_prompt(
    db: Database, session: SessionActor, prompt: ContinuationPrompt, rule: str | None
) -> tuple[ContinuationPrompt, bool]:
    earlier = requests.by_call(db, session.id, prompt.call or "")
    if isinstance(earlier, ContinuationPrompt):
        return earlier, earlier.id == prompt.id
    if rule is None:
        require_room(db, session)
    prompts.insert(db, prompt)
    session.record(
        db,
        "agent",
        "prompt_asked",
        outcomes.headline(prompt.prompt_text),
        request_id=prompt.id,
        type=prompt.prompt_type,
    )
    if rule is not None:
        decided = Decided(f"policy/{prompt.id}", PromptDecision.CONTINUE, "policy", "policy", prompt.created_at)
        prompts.decide(db, prompt.id, WaitStatus.DECIDED, decided)
        session.record(db, "policy", "auto_approved", "transmit", request_id=prompt.id, matched_rule=rule)
    kept = prompts.get(db, prompt.id)
    assert kept is not None, "just inserted"
    return kept, True


def _keep_wait(
    db: Database, session: SessionActor, wait: Wait, has_words: bool
) -> tuple[Wait, bool, tuple[Instruction, ...]]:
    earlier = requests.by_call(db, session.id, wait.call or "")
    if isinstance(earlier, Wait):
        session.context.signatures.note_ended(db, earlier)
        return earlier, earlier.id == wait.id, session.queued(db)
    require_room(db, session)
    waits.insert(db, wait)
    session.record(db, "agent", "standby", outcomes.headline(wait.message), request_id=wait.id)
    kept, _, queued = _look_in(db, session, wait, has_words, outcomes.INBOX)
    return kept, True, queued


def _look_in(
    db: Database, session: SessionActor, wait: Wait, has_words: bool, channel: str
) -> tuple[Wait, bool, tuple[Instruction, ...]]:
    """End the standby if instructions or a task wait. Returns it, whether it ended, and the queued instructions."""
    ended = steering.end_wait(db, session, waits.get(db, wait.id) or wait, has_words, "intercom", channel)
    return waits.get(db, wait.id) or wait, ended, session.queued(db)


async def _prompt(session: SessionActor, request_id: str) -> ContinuationPrompt:
    request = await session.find(request_id)
    if not isinstance(request, ContinuationPrompt):
        raise NotFound(f"request {request_id} is no prompt", code="request_not_found")
    return request


async def _wait(session: SessionActor, request_id: str) -> Wait:
    request = await session.find(request_id)
    if not isinstance(request, Wait):
        raise NotFound(f"request {request_id} is no standby", code="request_not_found")
    return request


async def _opened_prompt(session: SessionActor, prompt: ContinuationPrompt, call: str) -> Opened[PromptAnswer]:
    await ask_policy_again(session, prompt)
    answer = session.unless_paused(outcomes.prompt(session.trusted(prompt)))
    return Opened(prompt.id, session.answered(call, answer, own=prompt.id) if answer else None)


def _opened_wait(session: SessionActor, wait: Wait, call: str) -> Opened[StandbyAnswer]:
    answer = session.unless_paused(outcomes.standby(session.trusted(wait)))
    return Opened(wait.id, session.answered(call, answer, own=wait.id) if answer else None)
