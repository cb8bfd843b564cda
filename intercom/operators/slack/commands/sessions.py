"""Commands about sessions and agents: list, start, resume, pause, steer, end."""

from __future__ import annotations

from functools import partial

import trio
from attrs import evolve

from intercom.model.errors import InvalidArguments, InvalidState, NotFound
from intercom.model.session import Session, SessionStatus
from intercom.operators.commands import handlers
from intercom.operators.slack.commands import call as commands_call
from intercom.operators.slack.commands.call import Call, elsewhere, once, session_line
from intercom.operators.slack.commands.table import SLASH, Category, Option, of_command
from intercom.operators.slack.draw import answers
from intercom.operators.slack.draw.answers import Run
from intercom.operators.slack.draw.blocks import Drawn, FileDrawn, Mask
from intercom.sessions.context import channel_of
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.spawner import LINES, Output


async def list_sessions(call: Call) -> Drawn:
    """List all sessions that have not ended."""
    found = await call.deps.service.sessions()
    newest_first = sorted(found, key=lambda each: each.updated_at, reverse=True)
    return answers.session_list(newest_first, call.deps.masker, now=call.deps.now())


async def resume(call: Call) -> str:
    """Answer a standby, or let a paused session continue."""
    live = await call.deps.service.sessions()
    chosen, instruction = commands_call.session_and_text(live, call.arguments)
    if chosen is None:
        chosen = commands_call.to_resume(
            live, await call.deps.service.pending(), call.person, has_instruction=instruction is not None
        )
    session = commands_call.require_control(chosen, call.person)

    async def act() -> str:
        await handlers.resume(call.deps.service, call.caller, instruction, session.id)
        told = ", with your instruction" if instruction else ""
        return f"resumed {session_line(session)}{told}"

    return await once(call, act, session.id)


async def clear(call: Call) -> str:
    """End a session. Its pending requests are interrupted, and its agent is told so with its next call."""
    live = await call.deps.service.sessions()
    names = call.arguments.words
    found = await _to_end(call, names[0]) if names else commands_call.to_clear(live, call.person)
    session = commands_call.require_control(found, call.person)

    async def act() -> str:
        await handlers.clear(call.deps.service, call.caller, session.id)
        return f"ended {session_line(session)}; what waited in it is interrupted"

    return await once(call, act, session.id)


async def _to_end(call: Call, name: str) -> Session:
    session = commands_call.named(await call.deps.service.sessions(everything=True), name)
    if session.status is SessionStatus.TERMINATED:
        raise InvalidState(f"session {commands_call.short(session)} is over already")
    return session


SESSIONS = of_command(
    "list",
    "sessions",
    Category.SESSIONS,
    list_sessions,
    details="Lists the sessions that are not over: their state, workspace, last tool and when they were last active.",
    example="sessions",
)

RESUME = of_command(
    "resume",
    "session-resume",
    Category.SESSIONS,
    resume,
    details=(
        "Lets a paused session continue, and answers an agent that stands by. Without a session: the one that began to"
        " wait last. What follows is the agent's instruction, word for word; with one, name the session if several"
        " wait."
    ),
    example="session-resume 1a2b3c4d run the tests again",
    owner_only=True,
)

CLEAR = of_command(
    "clear",
    "session-clear",
    Category.SESSIONS,
    clear,
    details=(
        "Ends a session; what waits in it is interrupted. The processes of an agent that was started here end with it:"
        " they have five seconds, and are killed then. Without a session, the only one that is yours to end."
    ),
    example="session-clear 1a2b3c4d",
    owner_only=True,
)

#: How many lines of output are read for a message and its file.
_MOST_LINES = 5000


async def start(call: Call) -> str:
    """Start an agent. The caller owns the session; its thread is in the channel of the call."""
    prompt = call.arguments.text
    if not prompt:
        raise InvalidArguments(f"say what the agent is to do: {call.entry.usage}")
    named = call.arguments.options.get("--workspace")
    workspace = named if named is not None else str((await call.workspace()).root)
    channel = await call.channel()

    async def act() -> str:
        caller = evolve(call.caller, chat_channel=channel)
        session = await handlers.start(call.deps.service, caller, prompt, workspace)
        return f"started {session_line(session)}; its thread in <#{channel}> tells how it goes"

    return await once(call, act, None)


async def logs(call: Call) -> Drawn | None:
    """Show the end of an agent's output in the channel; if it is long, attach the requested part as a file."""
    session = await _started_here(call)
    stream = _stream(call.arguments.options.get("--stream"))
    lines = _lines(call.arguments.options.get("--lines"))
    found = await handlers.logs(call.deps.service, call.caller, session.id, stream, lines)
    drawn, beside = await trio.to_thread.run_sync(partial(_draw, found, session, call.deps.masker))
    channel = await call.channel()
    await call.deps.show(call.key, channel, drawn, beside, call.asked, f"of {session_line(session)}")
    return None if channel == call.command.channel else elsewhere(channel)


async def _started_here(call: Call) -> Session:
    """Return the named session; default: the session of the agent that was started last."""
    children = await call.deps.service.children.everyone()
    sessions = await call.deps.service.sessions(everything=True)
    if call.arguments.words:
        return commands_call.named(sessions, call.arguments.words[0])
    found = [each for each in sessions if each.id in children]
    if not found:
        raise NotFound(f"no agent was started here; see {SLASH} help session-start")
    own = [each for each in found if each.owner_user_id == call.person] or found
    return max(own, key=lambda each: children[each.id].created_at)


def _stream(given: str | None) -> Stream:
    try:
        return Stream(given or Stream.STDOUT)
    except ValueError:
        raise InvalidArguments(f"--stream is {' or '.join(Stream)}, not {str(given)[:40]!r}") from None


def _lines(given: str | None) -> int:
    if given is None:
        return LINES
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= _MOST_LINES):
        raise InvalidArguments(f"--lines is a number from 1 to {_MOST_LINES}, not {given[:40]!r}")
    return int(given)


def _draw(found: Output, session: Session, masker: Mask) -> tuple[Drawn, FileDrawn | None]:
    title = f"{found.stream.value} of session {commands_call.short(session)}"
    if found.is_going:
        run = Run.RUNNING
    elif found.exit is not None and found.exit.is_success:
        run = Run.DONE
    else:
        run = Run.STOPPED if found.exit is None else Run.FAILED
    code = None if found.exit is None or found.is_going else found.exit.code
    drawn = answers.output(title, found.text, run, masker, code_=code)
    return drawn, answers.output_file(title, found.text, masker)


START = of_command(
    "start",
    "session-start",
    Category.SESSIONS,
    start,
    details=(
        "Starts the agent that the server's configuration names (`host_cli`), with what follows as its task, word for"
        " word. It works in the workspace of this channel's sessions, else in the default one. The session is yours:"
        " only you may end it from Slack. Its thread tells how it goes."
    ),
    example="session-start make the tests pass again",
    options=(
        Option("--workspace", "DIR", "the directory it works in, as a whole path"),
        Option("--session", "ID", "work where this session does"),
    ),
)

LOGS = of_command(
    "logs",
    "session-logs",
    Category.SESSIONS,
    logs,
    details=(
        "Shows the end of what the agent wrote, a long one as a file. Without a session, of the agent you started last."
        " Secrets that are recognised are masked."
    ),
    example="session-logs 1a2b3c4d --lines 50",
    options=(
        Option("--lines", "N", f"how many lines, 1 to {_MOST_LINES} (default {LINES})"),
        Option("--stream", "NAME", "stdout or stderr (default stdout)"),
    ),
)


async def pause(call: Call) -> str:
    """Pause an agent."""
    live = await call.deps.service.sessions()
    names = call.arguments.words
    found = commands_call.named(live, names[0]) if names else commands_call.to_pause(live, call.person)
    session = commands_call.require_control(found, call.person)
    if session.is_paused:
        raise InvalidState(
            f"session {commands_call.short(session)} is paused already; {SLASH} session-resume lets it go on"
        )

    async def act() -> str:
        await handlers.pause(call.deps.service, call.caller, session.id)
        return f"paused {session_line(session)}; {SLASH} session-resume lets it go on"

    return await once(call, act, session.id)


async def steer(call: Call) -> str:
    """Queue an instruction, which the agent gets with its next result."""
    live = await call.deps.service.sessions()
    named, text = commands_call.session_and_text(live, call.arguments)
    if text is None:
        raise InvalidArguments(f"say what the agent is to be told: {call.entry.usage}")
    shown = partial(channel_of, call.deps.config)
    session = named or commands_call.to_steer(live, call.command.channel, shown)

    async def act() -> str:
        card = await handlers.steer(call.deps.service, call.caller, text, session.id)
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
        session = commands_call.named(await call.deps.service.sessions(), options["--session"])
    elif root is None:
        root = str((await call.workspace()).root)

    async def act() -> str:
        id = None if session is None else session.id
        card = await handlers.task(call.deps.service, call.caller, text, id, root)
        where = card.workspace_root if session is None else session_line(session)
        return f"left for {where}: it {card.note}" if card.note else f"left for {where}"

    return await once(call, act, None if session is None else session.id)


PAUSE = of_command(
    "pause",
    "session-pause",
    Category.SESSIONS,
    pause,
    details=(
        "Pauses an agent: its calls do nothing, and no decision reaches it, until session-resume. Without a session,"
        " the only one of yours that runs."
    ),
    example="session-pause 1a2b3c4d",
    owner_only=True,
)

STEER = of_command(
    "steer",
    "steer",
    Category.SESSIONS,
    steer,
    details=(
        "Queues a message for an agent. It reaches the agent with its next result, or ends its standby; the message in"
        " its thread says when. Without a session, the only one that runs in this channel."
    ),
    example="steer 1a2b3c4d leave the old tests as they are",
)

TASK = of_command(
    "task",
    "task",
    Category.SESSIONS,
    task,
    details=(
        "Leaves a task in the inbox: the next agent that works in the workspace of this channel's sessions takes it"
        " when it starts (reboot) or has nothing to do (standby)."
    ),
    example="task update the changelog",
    options=(
        Option("--workspace", "DIR", "another workspace, as a whole path"),
        Option("--session", "ID", "for this session's agent alone"),
    ),
)

#: The commands of this module, in the order of help.
ENTRIES = (SESSIONS, START, PAUSE, RESUME, CLEAR, STEER, TASK, LOGS)
