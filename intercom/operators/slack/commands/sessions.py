"""Commands about sessions: list them, resume one, end one."""

from __future__ import annotations

from intercom.model.errors import InvalidState
from intercom.model.origin import Origin
from intercom.model.session import Session, SessionStatus
from intercom.model.verdict import Decision, Verdict
from intercom.operators.messages import Channel
from intercom.operators.slack.commands import choice
from intercom.operators.slack.commands.call import Call, session_line
from intercom.operators.slack.commands.once import once
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Option, Parameter
from intercom.operators.slack.draw import sessions as drawing
from intercom.operators.slack.draw.drawn import Drawn


async def list_sessions(call: Call) -> Drawn:
    """List all sessions that have not ended."""
    found = await call.house.desk.sessions()
    newest_first = sorted(found, key=lambda each: each.updated_at, reverse=True)
    return drawing.session_list(newest_first, call.house.masker, now=call.house.now())


async def resume(call: Call) -> str:
    """Answer a standby, or let a paused session continue."""
    live = await call.house.desk.sessions()
    chosen, instruction = choice.session_and_text(live, call.arguments)
    if chosen is None:
        chosen = choice.to_resume(
            live, await call.house.desk.pending(), call.person, has_instruction=instruction is not None
        )
    session = choice.require_control(chosen, call.person)

    async def act() -> str:
        verdict = Verdict(
            call.command.act_id,
            Decision.RESUME,
            str(call.command.person),
            Channel.SLACK.value,
            call.house.now(),
            instruction,
            Origin(Channel.SLACK.value),
        )
        await call.house.desk.resume(session.id, instruction, verdict)
        told = ", with your instruction" if instruction else ""
        return f"resumed {session_line(session)}{told}"

    return await once(call, act, session.id)


async def clear(call: Call) -> str:
    """End a session. Its pending requests are interrupted, and its agent is told so with its next call."""
    live = await call.house.desk.sessions()
    names = call.arguments.words
    found = await _to_end(call, names[0]) if names else choice.to_clear(live, call.person)
    session = choice.require_control(found, call.person)

    async def act() -> str:
        by, why = str(call.command.person), f"cleared with {SLASH} session-clear"
        await call.house.desk.end(session.id, by, Channel.SLACK.value, why)
        return f"ended {session_line(session)}; what waited in it is interrupted"

    return await once(call, act, session.id)


async def _to_end(call: Call, name: str) -> Session:
    session = choice.named(await call.house.desk.sessions(everything=True), name)
    if session.status is SessionStatus.TERMINATED:
        raise InvalidState(f"session {choice.short(session)} is over already")
    return session


SESSIONS = Entry(
    name="sessions",
    category=Category.SESSIONS,
    summary="list the sessions",
    details="Lists the sessions that are not over: their state, workspace, last tool and when they were last active.",
    example=f"{SLASH} sessions",
    handler=list_sessions,
)

RESUME = Entry(
    name="session-resume",
    category=Category.SESSIONS,
    summary="let a waiting agent go on",
    details=(
        "Lets a paused session go on, and answers an agent that stands by. Without a session: the one that began to"
        " wait last. What follows is the agent's instruction, word for word; with one, name the session where several"
        " wait."
    ),
    example=f"{SLASH} session-resume 1a2b3c4d run the tests again",
    handler=resume,
    parameters=(
        Parameter("session", "the beginning of its id, four characters or more"),
        Parameter("instruction", "what the agent is to do", takes_rest=True),
    ),
    options=(Option("--session", "ID", "the session, where its id could be taken for the instruction's first word"),),
    owner_only=True,
    acts=True,
)

CLEAR = Entry(
    name="session-clear",
    category=Category.SESSIONS,
    summary="end a session",
    details=(
        "Ends a session; what waits in it is interrupted. The processes of an agent that was started here end with it:"
        " they have five seconds, and are killed then. Without a session, the only one that is yours to end."
    ),
    example=f"{SLASH} session-clear 1a2b3c4d",
    handler=clear,
    parameters=(Parameter("session", "the beginning of its id"),),
    owner_only=True,
    acts=True,
)
