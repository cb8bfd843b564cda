"""The built-in commands: sessions and their agents, checkpoints, and files of a workspace."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TypeVar

import trio
from attrs import evolve

from intercom.model.checkpoint import Files
from intercom.model.errors import Ambiguous, InvalidArguments, InvalidState, NotFound
from intercom.model.session import Session, SessionStatus
from intercom.operators.commands import command_handlers
from intercom.operators.slack.commands import command_call
from intercom.operators.slack.commands.command_call import (
    CommandCall,
    named,
    require_control,
    session_and_text,
    session_line,
    short,
)
from intercom.operators.slack.commands.slash_command_table import SLASH, Category, Entry, Option, Parameter, of_command
from intercom.operators.slack.draw import answers
from intercom.operators.slack.draw.answers import Run
from intercom.operators.slack.draw.blocks import Drawn, amount
from intercom.sessions.chat_messages import channel_of
from intercom.sessions.checkpoints.archive import sentence
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.spawner import LINES
from intercom.workspace import listing
from intercom.workspace.listing import DEEPEST, DEPTH

E = TypeVar("E", bound=StrEnum)


def _number(call: CommandCall, name: str, default: int, most: int) -> int:
    given = call.arguments.options.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= most):
        raise InvalidArguments(f"{name} is a number from 1 to {most}, not {given[:40]!r}")
    return int(given)


def _one_of(call: CommandCall, name: str, default: E) -> E:
    kind = type(default)
    given = call.arguments.options.get(name, default)
    try:
        return kind(given)
    except ValueError:
        raise InvalidArguments(f"{name} takes one of {', '.join(kind)}, not {given[:40]!r}") from None


def _required(call: CommandCall, given: str | None, what: str) -> str:
    if not given:
        raise InvalidArguments(f"{what}: {call.entry.usage}")
    return given


# --- sessions --------------------------------------------------------------------------------------------------------


async def list_pending(call: CommandCall) -> Drawn:
    """List what waits for a person, of all sessions or of one."""
    session = None if call.first_word is None else named(await call.deps.service.sessions(), call.first_word)
    found = await call.deps.service.pending(None if session is None else session.id)
    return answers.pending_list(found, call.deps.masker, now=call.deps.now())


async def list_sessions(call: CommandCall) -> Drawn:
    """List all sessions that have not ended."""
    found = await call.deps.service.sessions()
    newest_first = sorted(found, key=lambda each: each.updated_at, reverse=True)
    return answers.session_list(newest_first, call.deps.masker, now=call.deps.now())


async def start(call: CommandCall) -> str:
    """Start an agent. The caller owns the session; its thread is in the channel of the call."""
    prompt = _required(call, call.arguments.text, "say what the agent is to do")
    workspace = call.arguments.options.get("--workspace") or str((await call.workspace()).root)
    channel = await call.channel()

    async def act() -> str:
        caller = evolve(call.caller, chat_channel=channel)
        session = await command_handlers.start(call.deps.service, caller, prompt, workspace)
        return f"started {session_line(session)}; its thread in <#{channel}> shows its status"

    return await call.once(act, None)


async def pause(call: CommandCall) -> str:
    """Pause an agent."""
    session = await call.own_session(command_call.to_pause)
    how = f"{SLASH} session-resume resumes it"
    if session.is_paused:
        raise InvalidState(f"session {short(session)} is paused already; {how}")

    async def act() -> str:
        await command_handlers.pause(call.deps.service, call.caller, session.id)
        return f"paused {session_line(session)}; {how}"

    return await call.once(act, session.id)


async def resume(call: CommandCall) -> str:
    """Answer a standby, or let a paused session continue."""
    live = await call.deps.service.sessions()
    chosen, instruction = session_and_text(live, call.arguments)
    if chosen is None:
        cards = await call.deps.service.pending()
        chosen = command_call.to_resume(live, cards, call.person, has_instruction=instruction is not None)
    session = require_control(chosen, call.person)

    async def act() -> str:
        await command_handlers.resume(call.deps.service, call.caller, instruction, session.id)
        return f"resumed {session_line(session)}{', with your instruction' if instruction else ''}"

    return await call.once(act, session.id)


async def clear(call: CommandCall) -> str:
    """End a session. Its pending requests are interrupted, and its agent is told so with its next call."""
    if call.first_word is None:
        session = await call.own_session(command_call.to_clear)
    else:
        session = named(await call.deps.service.sessions(everything=True), call.first_word)
        if session.status is SessionStatus.TERMINATED:
            raise InvalidState(f"session {short(session)} is over already")
        require_control(session, call.person)

    async def act() -> str:
        await command_handlers.clear(call.deps.service, call.caller, session.id)
        return f"ended {session_line(session)}; its pending requests are interrupted"

    return await call.once(act, session.id)


async def steer(call: CommandCall) -> str:
    """Queue an instruction, which the agent gets with its next result."""
    live = await call.deps.service.sessions()
    chosen, given = session_and_text(live, call.arguments)
    text = _required(call, given, "say what the agent is to be told")
    session = chosen or command_call.to_steer(live, call.command.channel, partial(channel_of, call.deps.config))

    async def act() -> str:
        card = await command_handlers.steer(call.deps.service, call.caller, text, session.id)
        return f"queued for {session_line(session)}: {card.note or 'its message in the channel shows its delivery'}"

    return await call.once(act, session.id)


async def task(call: CommandCall) -> str:
    """Leave a task for a session's agent, or for the next agent in a workspace."""
    text = _required(call, call.arguments.text, "say what is to be done")
    options = call.arguments.options
    root, prefix = options.get("--workspace"), options.get("--session")
    if root is not None and prefix is not None:
        raise InvalidArguments("a task is for a session or for a workspace: give one of --session and --workspace")
    session: Session | None = None
    if prefix is not None:
        session = named(await call.deps.service.sessions(), prefix)
    elif root is None:
        root = str((await call.workspace()).root)
    id = None if session is None else session.id

    async def act() -> str:
        card = await command_handlers.task(call.deps.service, call.caller, text, id, root)
        where = card.workspace_root if session is None else session_line(session)
        return f"left for {where}: it {card.note}" if card.note else f"left for {where}"

    return await call.once(act, id)


#: How many lines of output are read for a message and its file.
_MOST_LINES = 5000


async def logs(call: CommandCall) -> Drawn | None:
    """Show the end of an agent's output in the channel; if it is long, attach the requested part as a file."""
    session = await _started_here(call)
    stream = _one_of(call, "--stream", Stream.STDOUT)
    lines = _number(call, "--lines", LINES, _MOST_LINES)
    found = await command_handlers.logs(call.deps.service, call.caller, session.id, stream, lines)
    title = f"{found.stream.value} of session {short(session)}"
    ended = None if found.is_going else found.exit
    if found.is_going:
        run = Run.RUNNING
    elif ended is None:
        run = Run.STOPPED
    else:
        run = Run.DONE if ended.is_success else Run.FAILED
    code = None if ended is None else ended.code
    # In worker threads, as below: the search for secrets in a long text takes time.
    draw = partial(answers.output, title, found.text, run, call.deps.masker, code_=code)
    drawn = await trio.to_thread.run_sync(draw)
    beside = await trio.to_thread.run_sync(answers.output_file, title, found.text, call.deps.masker)
    return await call.show(drawn, beside, f"of {session_line(session)}")


async def _started_here(call: CommandCall) -> Session:
    """Return the named session; default: the session of the agent that was started last."""
    running = await call.deps.service.agent_processes.everyone()
    known = await call.deps.service.sessions(everything=True)
    if call.first_word is not None:
        return named(known, call.first_word)
    found = [each for each in known if each.id in running]
    if not found:
        raise NotFound(f"no agent was started here; see {SLASH} help session-start")
    own = [each for each in found if each.owner_user_id == call.person] or found
    return max(own, key=lambda each: running[each.id].created_at)


# --- checkpoints -----------------------------------------------------------------------------------------------------


async def take_checkpoint(call: CommandCall) -> str:
    """Take a checkpoint of a session and the files of its workspace."""
    live = await call.deps.service.sessions()
    chosen, label = session_and_text(live, call.arguments)
    session = require_control(chosen or command_call.to_checkpoint(live, call.person), call.person)

    async def act() -> str:
        taken = await command_handlers.checkpoint(call.deps.service, call.caller, label or "", session.id)
        return f"took checkpoint {sentence(taken)}, of {session_line(session)}"

    return await call.once(act, session.id)


async def list_checkpoints(call: CommandCall) -> Drawn:
    """List the checkpoints of a session; default: of the person's only session. If there is no such session, or it has
    no checkpoint, all are listed."""
    service = call.deps.service
    if call.first_word is not None:
        session = named(await service.sessions(everything=True), call.first_word)
        return answers.checkpoint_list(await service.checkpoints.listed(session.id), call.deps.masker)
    try:
        session = command_call.to_checkpoint(await service.sessions(), call.person)
        found = await service.checkpoints.listed(session.id)
    except (Ambiguous, NotFound):
        found = ()
    return answers.checkpoint_list(found or await service.checkpoints.listed(), call.deps.masker)


async def restore(call: CommandCall) -> str:
    """Ask people whether to restore a checkpoint; the question is a card on every channel."""
    name = _required(call, call.first_word, "name a checkpoint")
    files = _one_of(call, "--files", Files.LEAVE)
    service = call.deps.service
    line = await service.checkpoints.checkpoint(name)
    for session in await service.sessions(everything=True):
        if session.id == line.session_id:
            require_control(session, call.person)

    async def act() -> str:
        asked = await command_handlers.restore(service, call.caller, line.id, files)
        found = asked.divergence
        changed = f"{amount(found.total, 'file')} changed since" if found.total else "no file has changed since"
        return f"checkpoint {line.label or line.id[:8]}: {changed}; proceed or cancel on the card in the channel"

    return await call.once(act, line.session_id)


# --- files -----------------------------------------------------------------------------------------------------------


async def list_files(call: CommandCall) -> Drawn | None:
    """Show the tree of a directory in the channel."""
    depth = _number(call, "--depth", DEPTH, DEEPEST)
    workspace = await call.workspace()
    tree = await trio.to_thread.run_sync(listing.tree, workspace.root, call.first_word or ".", depth)
    text = "\n".join(tree.lines)
    draw = partial(answers.tree, tree.path, text, tree.directories, tree.files, tree.depth, call.deps.masker)
    return await call.show(*await trio.to_thread.run_sync(draw), f"in {workspace.root}")


async def show_file(call: CommandCall) -> Drawn | None:
    """Show the text of a file, or some of its lines, in the channel."""
    path = _required(call, call.first_word, "name a file")
    asked = call.arguments.options.get("--lines")
    lines = None if asked is None else listing.read_range(asked)
    workspace = await call.workspace()
    found = await trio.to_thread.run_sync(listing.show, workspace.root, path, lines)
    draw = partial(
        answers.file,
        found.path,
        found.text,
        found.size,
        found.modified,
        call.deps.masker,
        lines=None if found.is_whole else (found.first, found.last),
        total=found.line_count,
        masked=found.masked,
    )
    return await call.show(*await trio.to_thread.run_sync(draw), f"in {workspace.root}")


# --- the table -------------------------------------------------------------------------------------------------------

_SESSION = Option("--session", "ID", "look in this session's workspace")

#: The built-in commands, in the order of help.
ENTRIES = (
    of_command(
        "list",
        "sessions",
        Category.SESSIONS,
        list_sessions,
        details=(
            "Lists the sessions that are not over: their state, workspace, last tool and when they were last active."
        ),
        example="sessions",
    ),
    Entry(
        name="pending",
        category=Category.SESSIONS,
        summary="list what waits for you",
        details=(
            "Lists what waits for you, oldest first: its risk, its kind, its title and since when. Its card in the"
            " channel has the buttons."
        ),
        example=f"{SLASH} pending",
        handler=list_pending,
        parameters=(Parameter("session", "the beginning of the id of the only session to list; default: all"),),
    ),
    of_command(
        "start",
        "session-start",
        Category.SESSIONS,
        start,
        details=(
            "Starts the agent that the server's configuration names (`host_cli`), with what follows as its task, word"
            " for word. It works in the workspace of this channel's sessions, else in the default one. The session is"
            " yours: only you may end it from Slack. Its thread shows its status."
        ),
        example="session-start make the tests pass again",
        options=(
            Option("--workspace", "DIR", "the directory it works in, as a whole path"),
            Option("--session", "ID", "work where this session does"),
        ),
    ),
    of_command(
        "pause",
        "session-pause",
        Category.SESSIONS,
        pause,
        details=(
            "Pauses an agent: its calls do nothing, and no decision reaches it, until session-resume. Without a"
            " session, the only one of yours that runs."
        ),
        example="session-pause 1a2b3c4d",
        owner_only=True,
    ),
    of_command(
        "resume",
        "session-resume",
        Category.SESSIONS,
        resume,
        details=(
            "Lets a paused session continue, and answers an agent that stands by. Without a session: the one that began"
            " to wait last. What follows is the agent's instruction, word for word; with one, name the session if"
            " several wait."
        ),
        example="session-resume 1a2b3c4d run the tests again",
        owner_only=True,
    ),
    of_command(
        "clear",
        "session-end",
        Category.SESSIONS,
        clear,
        details=(
            "Ends a session; its pending requests are interrupted. The processes of an agent that was started here end"
            " with it: they have five seconds, and are killed then. Without a session, your only one."
        ),
        example="session-end 1a2b3c4d",
        owner_only=True,
        alias="session-clear",
    ),
    of_command(
        "steer",
        "steer",
        Category.SESSIONS,
        steer,
        details=(
            "Queues a message for an agent. It reaches the agent with its next result, or ends its standby; the message"
            " in its thread says when. Without a session, the only one that runs in this channel."
        ),
        example="steer 1a2b3c4d leave the old tests as they are",
    ),
    of_command(
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
    ),
    of_command(
        "logs",
        "session-logs",
        Category.SESSIONS,
        logs,
        details=(
            "Shows the end of what the agent wrote, a long one as a file. Without a session, of the agent you started"
            " last. Secrets that are recognised are masked."
        ),
        example="session-logs 1a2b3c4d --lines 50",
        options=(
            Option("--lines", "N", f"how many lines, 1 to {_MOST_LINES} (default {LINES})"),
            Option("--stream", "NAME", "stdout or stderr (default stdout)"),
        ),
    ),
    of_command(
        "checkpoint",
        "session-checkpoint",
        Category.CHECKPOINTS,
        take_checkpoint,
        details=(
            "Takes a checkpoint: the session, its pending requests, and every file of its workspace that .gitignore"
            " does not exclude. Without a session, of the only one of yours that runs. The session continues."
        ),
        example="session-checkpoint 1a2b3c4d before the refactoring",
        owner_only=True,
    ),
    of_command(
        "checkpoints",
        "session-checkpoints",
        Category.CHECKPOINTS,
        list_checkpoints,
        details=(
            "Lists a session's checkpoints, newest first; without a session those of the only one of yours, or all."
        ),
        example="session-checkpoints 1a2b3c4d",
    ),
    of_command(
        "restore",
        "session-restore",
        Category.CHECKPOINTS,
        restore,
        details=(
            "Compares the checkpoint with the workspace and asks, on a card, whether to proceed. Then the session ends,"
            " and a new one continues from the checkpoint with its pending requests. The state before is stored as a"
            " checkpoint."
        ),
        example="session-restore 5e6f7a8b --files back",
        options=(
            Option(
                "--files",
                "HOW",
                "back (what was modified or deleted is put back), exact (what was added is removed, too); leave (they"
                " stay as they are, the default) only if the session has ended",
            ),
        ),
        owner_only=True,
    ),
    Entry(
        name="list-files",
        category=Category.FILES,
        summary="list a directory of the workspace",
        details=(
            "Draws the directory as a tree in the channel. Hidden directories, node_modules and target are left out"
            " below the one named; links are shown and not followed."
        ),
        example=f"{SLASH} list-files src --depth 2",
        handler=list_files,
        parameters=(Parameter("path", "a directory, relative to the workspace; default: the workspace itself"),),
        options=(Option("--depth", "N", f"how many levels, 1 to {DEEPEST}; default: {DEPTH}"), _SESSION),
    ),
    Entry(
        name="show-file",
        category=Category.FILES,
        summary="show a file of the workspace",
        details=(
            "Shows the text of a file in the channel, a long one as a file. Secrets that are recognised are masked."
        ),
        example=f"{SLASH} show-file src/main.py --lines 10:50",
        handler=show_file,
        parameters=(Parameter("path", "the file, relative to the workspace", required=True),),
        options=(Option("--lines", "A:B", "only the lines A to B, counted from 1; A: and :B work too"), _SESSION),
    ),
)
