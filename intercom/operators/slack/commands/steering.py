"""Commands about working agents: pause, steer, and leave a task."""

from __future__ import annotations

from functools import partial

from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.session import Session
from intercom.operators.messages import Channel
from intercom.operators.slack.commands import choice
from intercom.operators.slack.commands.call import Call, session_line
from intercom.operators.slack.commands.once import once
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Option, Parameter
from intercom.sessions.chat import channel_of


async def pause(call: Call) -> str:
    """Pause an agent."""
    live = await call.house.desk.sessions()
    names = call.arguments.words
    found = choice.named(live, names[0]) if names else choice.to_pause(live, call.person)
    session = choice.require_control(found, call.person)
    if session.is_paused:
        raise InvalidState(f"session {choice.short(session)} is paused already; {SLASH} session-resume lets it go on")

    async def act() -> str:
        await call.house.desk.steering.pause(session.id, str(call.command.person), Channel.SLACK.value)
        return f"paused {session_line(session)}; {SLASH} session-resume lets it go on"

    return await once(call, act, session.id)


async def steer(call: Call) -> str:
    """Queue an instruction, which the agent gets with its next result."""
    live = await call.house.desk.sessions()
    named, text = choice.session_and_text(live, call.arguments)
    if text is None:
        raise InvalidArguments(f"say what the agent is to be told: {call.entry.usage}")
    shown = partial(channel_of, call.house.config)
    session = named or choice.to_steer(live, call.command.channel, shown)

    async def act() -> str:
        by, channel = str(call.command.person), Channel.SLACK.value
        card = await call.house.desk.steering.steer(session.id, text, by, channel, call.command.act_id)
        return f"queued for {session_line(session)}: {card.note or 'its message in the channel says when it is there'}"

    return await once(call, act, session.id)


async def task(call: Call) -> str:
    """Leave a task for a session's agent, or for the next agent in a workspace."""
    text = call.arguments.text
    if not text:
        raise InvalidArguments(f"say what is to be done: {call.entry.usage}")
    options = call.arguments.options
    session: Session | None = None
    root: str | None = options.get("--workspace")
    if "--session" in options:
        if root is not None:
            raise InvalidArguments("a task is for a session or for a workspace: give one of --session and --workspace")
        session = choice.named(await call.house.desk.sessions(), options["--session"])
    elif root is None:
        root = str((await call.workspace()).root)

    async def act() -> str:
        card = await call.house.desk.steering.add_task(
            text,
            str(call.command.person),
            Channel.SLACK.value,
            session=None if session is None else session.id,
            workspace=root,
            act_id=call.command.act_id,
        )
        where = card.workspace_root if session is None else session_line(session)
        return f"left for {where}: it {card.note}" if card.note else f"left for {where}"

    return await once(call, act, None if session is None else session.id)


PAUSE = Entry(
    name="session-pause",
    category=Category.SESSIONS,
    summary="hold an agent up",
    details=(
        "Holds an agent up: none of its calls does anything, and no verdict reaches it, until session-resume. Without a"
        " session, the only one of yours that runs."
    ),
    example=f"{SLASH} session-pause 1a2b3c4d",
    handler=pause,
    parameters=(Parameter("session", "the beginning of its id"),),
    owner_only=True,
    acts=True,
)

STEER = Entry(
    name="steer",
    category=Category.SESSIONS,
    summary="tell an agent something while it works",
    details=(
        "Queues words for an agent. They reach it with its next result, or end its standby; the message in its thread"
        " says when. Without a session, the only one that runs in this channel."
    ),
    example=f"{SLASH} steer 1a2b3c4d leave the old tests as they are",
    handler=steer,
    parameters=(
        Parameter("session", "the beginning of its id, four characters or more"),
        Parameter("text", "what the agent is told", required=True, takes_rest=True),
    ),
    options=(Option("--session", "ID", "the session, where its id could be taken for the first word"),),
    acts=True,
)

TASK = Entry(
    name="task",
    category=Category.SESSIONS,
    summary="leave a task for an agent",
    details=(
        "Leaves a task in the inbox: the next agent that works in the workspace of this channel's sessions takes it"
        " when it starts (reboot) or has nothing to do (standby)."
    ),
    example=f"{SLASH} task update the changelog",
    handler=task,
    parameters=(Parameter("text", "what is to be done", required=True, takes_rest=True),),
    options=(
        Option("--workspace", "DIR", "another workspace, as a whole path"),
        Option("--session", "ID", "for this session's agent alone"),
    ),
    acts=True,
)
