"""Commands about agents that people start: start one, read its output."""

from __future__ import annotations

from functools import partial

import trio

from intercom.model.errors import InvalidArguments, NotFound
from intercom.model.session import Session, SessionMode
from intercom.operators.messages import Channel
from intercom.operators.slack.commands import choice
from intercom.operators.slack.commands.call import Call, elsewhere, session_line
from intercom.operators.slack.commands.once import once
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Option, Parameter
from intercom.operators.slack.draw import output as drawing
from intercom.operators.slack.draw.drawn import Drawn, FileDrawn
from intercom.operators.slack.draw.masks import Mask
from intercom.operators.slack.draw.output import Run
from intercom.sessions.children import LINES, Output
from intercom.sessions.spawning.output_files import Stream

#: How much output is read for a message and its file, in bytes and in lines.
_PIECE = 128 * 1024
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
        session = await call.house.desk.children.start(
            prompt,
            by=str(call.command.person),
            channel=Channel.SLACK.value,
            workspace=workspace,
            owner=call.person,
            mode=SessionMode.REMOTE,
            chat_channel=channel,
            act=call.command.act_id,
        )
        return f"started {session_line(session)}; its thread in <#{channel}> tells how it goes"

    return await once(call, act, None)


async def logs(call: Call) -> Drawn | None:
    """Show the end of an agent's output in the channel; if it is long, attach the requested part as a file."""
    session = await _started_here(call)
    stream = _stream(call.arguments.options.get("--stream"))
    lines = _lines(call.arguments.options.get("--lines"))
    found = await call.house.desk.children.output(session.id, stream, lines=lines, limit=_PIECE, masked=True)
    drawn, beside = await trio.to_thread.run_sync(partial(_draw, found, session, call.house.masker))
    channel = await call.channel()
    await call.house.show(call.key, channel, drawn, beside, call.asked, f"of {session_line(session)}")
    return None if channel == call.command.channel else elsewhere(channel)


async def _started_here(call: Call) -> Session:
    """Return the named session; default: the session of the agent that was started last."""
    children = await call.house.desk.children.everyone()
    sessions = await call.house.desk.sessions(everything=True)
    if call.arguments.words:
        return choice.named(sessions, call.arguments.words[0])
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
    title = f"{found.stream.value} of session {choice.short(session)}"
    if found.is_going:
        run = Run.RUNNING
    elif found.exit is not None and found.exit.is_success:
        run = Run.DONE
    else:
        run = Run.STOPPED if found.exit is None else Run.FAILED
    code = None if found.exit is None or found.is_going else found.exit.code
    drawn = drawing.output(title, found.text, run, masker, code_=code)
    return drawn, drawing.output_file(title, found.text, masker)


START = Entry(
    name="session-start",
    category=Category.SESSIONS,
    summary="start an agent on a task",
    details=(
        "Starts the agent that the server's configuration names (`host_cli`), with what follows as its task, word for"
        " word. It works in the workspace of this channel's sessions, else in the default one. The session is yours:"
        " only you may end it from Slack. Its thread tells how it goes."
    ),
    example=f"{SLASH} session-start make the tests pass again",
    handler=start,
    parameters=(Parameter("prompt", "the agent's task", required=True, takes_rest=True),),
    options=(
        Option("--workspace", "DIR", "the directory it works in, as a whole path"),
        Option("--session", "ID", "work where this session does"),
    ),
    acts=True,
)

LOGS = Entry(
    name="session-logs",
    category=Category.SESSIONS,
    summary="show what an agent wrote that was started here",
    details=(
        "Shows the end of what the agent wrote, a long one as a file. Without a session, of the agent you started last."
        " Secrets that are recognised are masked."
    ),
    example=f"{SLASH} session-logs 1a2b3c4d --lines 50",
    handler=logs,
    parameters=(Parameter("session", "the beginning of its id"),),
    options=(
        Option("--lines", "N", f"how many lines, 1 to {_MOST_LINES}; left out: {LINES}"),
        Option("--stream", "NAME", "stdout or stderr; left out: stdout"),
    ),
)
