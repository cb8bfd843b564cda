"""switch_freq: changes who is notified of a session's cards, for its agent or for a person."""

from __future__ import annotations

from attrs import field, frozen

from intercom.model.errors import InvalidState, SlackError
from intercom.model.field_docs import INTERNAL, doc
from intercom.model.session import Session, SessionMode
from intercom.sessions.messages import Answered, ToolRequest
from intercom.sessions.request_kinds import from_json, to_json
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools.tool import Hints, Tool
from intercom.store import idempotency, sessions
from intercom.store.idempotency import Scope
from intercom.store.rows import JsonObject
from intercom.store.writer_messages import Database

DESCRIPTION = """\
Change who is notified of your requests: remote (chat), local (terminal), hybrid (both). Use it when the \
operator asks you to. It never changes who may answer."""


@frozen
class SwitchFreq(ToolRequest[Answered["ModeAnswer"]]):
    """Change who is notified of the session's cards, not who may answer them. People ask this too: then `from_agent` is
    false, and it is done while the session is paused. Refused with `invalid_state` once the session has ended."""

    mode: SessionMode = field(metadata=doc("Who is notified: remote (chat), local (terminal), or hybrid (both)."))
    by: str = field(default="agent", kw_only=True, metadata=INTERNAL)
    channel: str = field(default="mcp", kw_only=True, metadata=INTERNAL)
    from_agent: bool = field(default=True, kw_only=True, metadata=INTERNAL)

    @property
    def waits_while_paused(self) -> bool:
        return self.from_agent


@frozen
class ModeAnswer:
    previous_mode: str = field(metadata=doc("Who was notified before: remote, local or hybrid."))
    current_mode: str = field(metadata=doc("Who is notified now: remote, local or hybrid."))


async def handle(session: SessionActor, asked: SwitchFreq) -> Answered[ModeAnswer]:
    """Raises SlackError for `remote` if no Slack is set up: nobody would be notified. Raises InvalidState."""
    recorded = await session.transact(_recorded, session, asked)
    if recorded is not None:
        return Answered(from_json(ModeAnswer, recorded))
    session.require_open()
    if asked.mode is SessionMode.REMOTE and session.deps.chat is None:
        raise SlackError(
            "slack is not set up, so nobody would be notified in mode remote: stay in local or hybrid, or have a person"
            " run agent-intercom slack login"
        )
    row, answer = await session.transact(_switch, session=session, asked=asked)
    session.change(SessionState.moved, row)
    session.notify(f"mode is {answer.current_mode} (was {answer.previous_mode}), set by {asked.by}")
    return session.answered(asked.call, answer)


def _switch(db: Database, session: SessionActor, asked: SwitchFreq) -> tuple[Session, ModeAnswer]:
    done = _recorded(db, session, asked)
    previous = None if done is not None else sessions.set_mode(db, session.id, asked.mode, session.now())
    row = sessions.get(db, session.id)
    assert row is not None, "the session's row outlives its actor"
    if done is not None:
        return row, from_json(ModeAnswer, done)
    if previous is None:
        raise InvalidState("the session has ended; its mode cannot be changed")
    answer = ModeAnswer(previous.value, asked.mode.value)
    session.record(db, asked.by, "mode", f"{previous.value} to {asked.mode.value}", channel=asked.channel)
    if asked.from_agent:
        session.record_answer(db, asked.call, "switch_freq", answer)
    else:
        idempotency.record(db, Scope.MODE, asked.call, to_json(answer), session.now(), session_id=session.id)
    return row, answer


def _recorded(db: Database, session: SessionActor, asked: SwitchFreq) -> JsonObject | None:
    if asked.from_agent:
        return session.recorded_answer(db, asked.call)
    return idempotency.answer(db, Scope.MODE, asked.call)


TOOL = Tool(
    name="switch_freq",
    legacy_name="set_operational_mode",
    title="Change who is notified",
    description=DESCRIPTION,
    takes=SwitchFreq,
    result=ModeAnswer,
    hints=Hints(idempotent=True),
    handle=handle,
)
