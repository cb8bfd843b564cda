"""Commands about checkpoints: take one, list them, restore one."""

from __future__ import annotations

from intercom.model.errors import Ambiguous, InvalidArguments, NotFound
from intercom.model.restore import Files
from intercom.operators.messages import Channel
from intercom.operators.slack.commands import choice
from intercom.operators.slack.commands.call import Call, session_line
from intercom.operators.slack.commands.once import once
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Option, Parameter
from intercom.operators.slack.draw import sessions as drawing
from intercom.operators.slack.draw.drawn import Drawn
from intercom.operators.slack.draw.text import amount
from intercom.sessions.checkpoint_taking import sentence

_CHANNEL = Channel.SLACK.value


async def take(call: Call) -> str:
    """Take a checkpoint of a session and the files of its workspace."""
    live = await call.house.desk.sessions()
    chosen, label = choice.session_and_text(live, call.arguments)
    found = choice.to_checkpoint(live, call.person) if chosen is None else chosen
    session = choice.require_control(found, call.person)

    async def act() -> str:
        taken = await call.house.desk.checkpoints.take(
            session.id, label, str(call.command.person), _CHANNEL, call.command.act_id
        )
        return f"took checkpoint {sentence(taken)}, of {session_line(session)}"

    return await once(call, act, session.id)


async def listed(call: Call) -> Drawn:
    """List the checkpoints of a session; default: of the person's only session. If there is no such session, or it has
    no checkpoint, all are listed."""
    if call.arguments.words:
        known = await call.house.desk.sessions(everything=True)
        session = choice.named(known, call.arguments.words[0])
        found = await call.house.desk.checkpoints.listed(session.id)
    else:
        try:
            session = choice.to_checkpoint(await call.house.desk.sessions(), call.person)
            found = await call.house.desk.checkpoints.listed(session.id)
        except (Ambiguous, NotFound):
            found = ()
        found = found or await call.house.desk.checkpoints.listed()
    return drawing.checkpoint_list(found, call.house.masker)


async def restore(call: Call) -> str:
    """Ask people whether to restore a checkpoint; the question is a card on every channel."""
    if not call.arguments.words:
        raise InvalidArguments(f"name a checkpoint: {call.entry.usage}")
    files = _files(call.arguments.options.get("--files"))
    desk = call.house.desk
    line = await desk.checkpoints.checkpoint(call.arguments.words[0])
    for session in await desk.sessions(everything=True):
        if session.id == line.session_id:
            choice.require_control(session, call.person)

    async def act() -> str:
        asked = await desk.checkpoints.ask_restore(
            line.id, files, str(call.command.person), _CHANNEL, call.command.act_id
        )
        found = asked.divergence
        changed = f"{amount(found.total, 'file')} changed since" if found.total else "no file has changed since"
        return f"checkpoint {line.label or line.id[:8]}: {changed}; proceed or cancel on the card in the channel"

    return await once(call, act, line.session_id)


def _files(given: str | None) -> Files:
    try:
        return Files(given or Files.LEAVE)
    except ValueError:
        raise InvalidArguments(f"--files takes one of {', '.join(Files)}, not {str(given)[:40]!r}") from None


TAKE = Entry(
    name="session-checkpoint",
    category=Category.CHECKPOINTS,
    summary="record how a session and its files stand",
    details=(
        "Takes a checkpoint: the session, what waits in it, and every file of its workspace that .gitignore does not"
        " leave out. Without a session, of the only one of yours that runs. The session goes on."
    ),
    example=f"{SLASH} session-checkpoint 1a2b3c4d before the refactoring",
    handler=take,
    parameters=(
        Parameter("session", "the beginning of its id, four characters or more"),
        Parameter("label", "what you call it", takes_rest=True),
    ),
    options=(Option("--session", "ID", "the session, where its id could be taken for the label's first word"),),
    owner_only=True,
    acts=True,
)

LIST = Entry(
    name="session-checkpoints",
    category=Category.CHECKPOINTS,
    summary="list checkpoints",
    details="Lists a session's checkpoints, newest first; without a session those of the only one of yours, or all.",
    example=f"{SLASH} session-checkpoints 1a2b3c4d",
    handler=listed,
    parameters=(Parameter("session", "the beginning of its id"),),
)

RESTORE = Entry(
    name="session-restore",
    category=Category.CHECKPOINTS,
    summary="go back to a checkpoint",
    details=(
        "Compares the checkpoint with the workspace and asks, on a card, whether to proceed. Then the session ends, and"
        " a new one goes on from the checkpoint with what waited in it. How things were before is kept as a checkpoint."
    ),
    example=f"{SLASH} session-restore 5e6f7a8b --files back",
    handler=restore,
    parameters=(Parameter("checkpoint", "the beginning of its id", required=True),),
    options=(
        Option(
            "--files",
            "HOW",
            "back (what was modified or deleted is put back), exact (what was added is removed, too); leave (they stay"
            " as they are, the default) only where the session is over",
        ),
    ),
    owner_only=True,
    acts=True,
)
