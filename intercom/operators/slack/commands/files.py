"""Commands about files and checkpoints of a workspace."""

from __future__ import annotations

from functools import partial

import trio

from intercom.model.checkpoint import Files
from intercom.model.errors import Ambiguous, InvalidArguments, NotFound
from intercom.operators.commands import handlers
from intercom.operators.slack.commands import call as commands_call
from intercom.operators.slack.commands.call import Call, once, session_line
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Option, Parameter, of_command
from intercom.operators.slack.draw import answers
from intercom.operators.slack.draw.blocks import Drawn, FileDrawn, Mask, amount
from intercom.sessions.checkpoints.archive import sentence
from intercom.workspace import listing
from intercom.workspace.listing import DEEPEST, DEPTH, FileText, Tree

_SESSION = Option("--session", "ID", "look in this session's workspace")


async def list_files(call: Call) -> Drawn | None:
    """Show the tree of a directory in the channel."""
    depth = _depth(call.arguments.options.get("--depth"))
    path = call.arguments.words[0] if call.arguments.words else "."
    workspace = await call.workspace()
    tree = await trio.to_thread.run_sync(listing.tree, workspace.root, path, depth)
    drawn, beside = await trio.to_thread.run_sync(_tree, tree, call.deps.masker)
    return await call.show(drawn, beside, workspace)


async def show_file(call: Call) -> Drawn | None:
    """Show the text of a file, or some of its lines, in the channel."""
    if not call.arguments.words:
        raise InvalidArguments(f"name a file: {call.entry.usage}")
    asked = call.arguments.options.get("--lines")
    lines = None if asked is None else listing.read_range(asked)
    workspace = await call.workspace()
    found = await trio.to_thread.run_sync(listing.show, workspace.root, call.arguments.words[0], lines)
    drawn, beside = await trio.to_thread.run_sync(_file, found, call.deps.masker)
    return await call.show(drawn, beside, workspace)


def _depth(given: str | None) -> int:
    if given is None:
        return DEPTH
    if not (given.isascii() and given.isdecimal() and len(given) < 4):
        raise InvalidArguments(f"--depth is a number from 1 to {DEEPEST}, not {given[:40]!r}")
    return int(given)


def _tree(tree: Tree, masker: Mask) -> tuple[Drawn, FileDrawn | None]:
    return answers.tree(tree.path, "\n".join(tree.lines), tree.directories, tree.files, tree.depth, masker)


def _file(found: FileText, masker: Mask) -> tuple[Drawn, FileDrawn | None]:
    draw = partial(answers.file, found.path, found.text, found.size, found.modified, masker)
    draw = partial(draw, total=found.line_count, masked=found.masked)
    return draw() if found.is_whole else draw(lines=(found.first, found.last))


LIST = Entry(
    name="list-files",
    category=Category.FILES,
    summary="list a directory of the workspace",
    details=(
        "Draws the directory as a tree in the channel. Hidden directories, node_modules and target are left out below "
        "the one named; links are shown and not followed."
    ),
    example=f"{SLASH} list-files src --depth 2",
    handler=list_files,
    parameters=(Parameter("path", "a directory, relative to the workspace; left out: the workspace itself"),),
    options=(Option("--depth", "N", f"how many levels, 1 to {DEEPEST}; left out: {DEPTH}"), _SESSION),
)

SHOW = Entry(
    name="show-file",
    category=Category.FILES,
    summary="show a file of the workspace",
    details="Shows the text of a file in the channel, a long one as a file. Secrets that are recognised are masked.",
    example=f"{SLASH} show-file src/main.py --lines 10:50",
    handler=show_file,
    parameters=(Parameter("path", "the file, relative to the workspace", required=True),),
    options=(Option("--lines", "A:B", "only the lines A to B, counted from 1; A: and :B work too"), _SESSION),
)


async def take(call: Call) -> str:
    """Take a checkpoint of a session and the files of its workspace."""
    live = await call.deps.service.sessions()
    chosen, label = commands_call.session_and_text(live, call.arguments)
    found = commands_call.to_checkpoint(live, call.person) if chosen is None else chosen
    session = commands_call.require_control(found, call.person)

    async def act() -> str:
        taken = await handlers.checkpoint(call.deps.service, call.caller, label, session.id)
        return f"took checkpoint {sentence(taken)}, of {session_line(session)}"

    return await once(call, act, session.id)


async def listed(call: Call) -> Drawn:
    """List the checkpoints of a session; default: of the person's only session. If there is no such session, or it has
    no checkpoint, all are listed."""
    if call.arguments.words:
        known = await call.deps.service.sessions(everything=True)
        session = commands_call.named(known, call.arguments.words[0])
        found = await call.deps.service.checkpoints.listed(session.id)
    else:
        try:
            session = commands_call.to_checkpoint(await call.deps.service.sessions(), call.person)
            found = await call.deps.service.checkpoints.listed(session.id)
        except (Ambiguous, NotFound):
            found = ()
        found = found or await call.deps.service.checkpoints.listed()
    return answers.checkpoint_list(found, call.deps.masker)


async def restore(call: Call) -> str:
    """Ask people whether to restore a checkpoint; the question is a card on every channel."""
    if not call.arguments.words:
        raise InvalidArguments(f"name a checkpoint: {call.entry.usage}")
    files = _files(call.arguments.options.get("--files"))
    service = call.deps.service
    line = await service.checkpoints.checkpoint(call.arguments.words[0])
    for session in await service.sessions(everything=True):
        if session.id == line.session_id:
            commands_call.require_control(session, call.person)

    async def act() -> str:
        asked = await handlers.restore(service, call.caller, line.id, files)
        found = asked.divergence
        changed = f"{amount(found.total, 'file')} changed since" if found.total else "no file has changed since"
        return f"checkpoint {line.label or line.id[:8]}: {changed}; proceed or cancel on the card in the channel"

    return await once(call, act, line.session_id)


def _files(given: str | None) -> Files:
    try:
        return Files(given or Files.LEAVE)
    except ValueError:
        raise InvalidArguments(f"--files takes one of {', '.join(Files)}, not {str(given)[:40]!r}") from None


TAKE = of_command(
    "checkpoint",
    "session-checkpoint",
    Category.CHECKPOINTS,
    take,
    details=(
        "Takes a checkpoint: the session, what waits in it, and every file of its workspace that .gitignore does not"
        " leave out. Without a session, of the only one of yours that runs. The session goes on."
    ),
    example="session-checkpoint 1a2b3c4d before the refactoring",
    owner_only=True,
)

LIST_CHECKPOINTS = of_command(
    "checkpoints",
    "session-checkpoints",
    Category.CHECKPOINTS,
    listed,
    details="Lists a session's checkpoints, newest first; without a session those of the only one of yours, or all.",
    example="session-checkpoints 1a2b3c4d",
)

RESTORE = of_command(
    "restore",
    "session-restore",
    Category.CHECKPOINTS,
    restore,
    details=(
        "Compares the checkpoint with the workspace and asks, on a card, whether to proceed. Then the session ends, and"
        " a new one goes on from the checkpoint with what waited in it. How things were before is kept as a checkpoint."
    ),
    example="session-restore 5e6f7a8b --files back",
    options=(
        Option(
            "--files",
            "HOW",
            "back (what was modified or deleted is put back), exact (what was added is removed, too); leave (they stay"
            " as they are, the default) only where the session is over",
        ),
    ),
    owner_only=True,
)

#: The commands of this module, in the order of help.
ENTRIES = (TAKE, LIST_CHECKPOINTS, RESTORE, LIST, SHOW)
