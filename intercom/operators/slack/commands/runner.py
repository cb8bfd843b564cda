"""The actor that carries out commands, each in a task of its own; and `help`."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import trio
from attrs import evolve, frozen

from actors import Actor, Name, Refused, Reply, ask
from intercom.model.errors import IntercomError, NotFound
from intercom.operators.slack.commands import call, custom, files, parsing, table
from intercom.operators.slack.commands import sessions as commands_sessions
from intercom.operators.slack.commands.call import Call, CommandDeps
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Parameter, Table, either
from intercom.operators.slack.draw import answers, blocks
from intercom.operators.slack.draw.answers import Run
from intercom.operators.slack.draw.blocks import Drawn, code, escaped, fitted
from intercom.operators.slack.envelopes import Command
from intercom.operators.slack.messages import CarryOut
from intercom.operators.slack.web_api import Json, RateLimited, SlackRefused, Unreachable
from intercom.sessions.lookups import UNANSWERED
from intercom.store import idempotency
from intercom.store.client import STORE_FAULTS, StoreUnavailable
from intercom.store.idempotency import Unfinished
from intercom.workspace.command_runner import Started, end_left


async def handle(call: Call) -> Drawn:
    """Show all commands, the commands of one category, or one command in full."""
    # A custom command's text comes from the configuration and may contain secrets.
    entries = [evolve(each, summary=call.deps.masker.mask(each.summary).text) for each in call.table.entries]
    groups: dict[Category, list[Entry]] = {}
    for each in entries:
        groups.setdefault(each.category, []).append(each)
    if not call.arguments.words:
        return answers.command_help(groups, table.TITLES)
    wanted = call.arguments.words[0].casefold()
    category = next((each for each in groups if each in (wanted, wanted.removesuffix("s"))), None)
    if category is not None:
        return answers.command_help(groups, table.TITLES, category)
    named = [each for each in entries if each.name.casefold() == wanted.removeprefix("/")]
    if named:
        return in_full(named[0])
    raise NotFound(
        f"there is no category or command {wanted[:40]!r}; the categories are {either(groups)},"
        f" and {SLASH} help lists the commands"
    )


def in_full(entry: Entry) -> Drawn:
    """Show one command: its usage, its effect, and each of its arguments."""
    lines = [f"{code(entry.usage)} {fitted(entry.summary, 300, flat=True)}", escaped(entry.details)]
    lines += [f"• {code(shape)} {escaped(doc)}" for shape, doc in entry.arguments]
    if entry.owner_only:
        lines.append("Of a session that somebody started, only they may do it.")
    lines.append(f"For example {code(entry.example)}")
    return Drawn(fitted(entry.usage, 300), (blocks.section(blocks.mrkdwn("\n".join(lines))),))


ENTRY = Entry(
    name="help",
    category=Category.HELP,
    summary="what there is",
    details="Lists the commands by category; of a category, with examples; of one command, all there is to say.",
    example=f"{SLASH} help files",
    handler=handle,
    parameters=(Parameter("category", "a category, or a command"),),
)

log = logging.getLogger(__name__)

#: Seconds until an unfinished command is acknowledged, if it is recorded: Slack gives up after 3.
ACK_SECONDS = 2.0
#: How long a command may take to be recorded, in seconds.
RECORD_SECONDS = 25.0
#: Seconds until the next look for interrupted commands after a failed one.
LOOK_BACK_SECONDS = 5.0
#: Pauses, in seconds, before each try to send the answer of a long command.
_TELLING = (0.0, 1.0, 5.0)

_PASSING = (Refused, *UNANSWERED)


async def run(runner: Name, command: Command) -> Json | None:
    """Have the actor `runner` carry out a command of an authorized person; return the payload of the acknowledgement.

    Returns once the payload is known or the command is recorded. A repetition is not carried out again. Raises
    StoreUnavailable (or the error of an unavailable actor) if the command could not be recorded. Then it must not be
    acknowledged.
    """
    return await ask(runner, CarryOut(command), timeout=RECORD_SECONDS, retry=True)


def build(config_commands: dict[str, str], runs: custom.Runs) -> Table:
    """Return the table of all commands under a configuration."""
    built_in = (*commands_sessions.ENTRIES, *files.ENTRIES, ENTRY)
    return Table((*built_in, *table.custom(config_commands, runs.handle, built_in)))


@frozen
class LookBack:
    """A message to itself: look for commands that an earlier server run left unfinished."""


class CommandRunner(Actor):
    """The actor that carries out commands; registered as `slack/commands`. If it stops, running commands are killed;
    the next incarnation reports that in their messages."""

    refusals = (Refused, IntercomError, StoreUnavailable)

    def __init__(self, deps: CommandDeps) -> None:
        super().__init__()
        self._house = deps
        self._table = build(dict(deps.config.commands), custom.Runs())
        self._has_looked = False

    def on_start(self) -> None:
        # By message, not here: the start of the server waits for this actor, and a store that is down restarts only
        # later.
        self.actor_ref.tell(LookBack())

    async def on_receive(self, message: Any) -> Any:
        if not self._has_looked:
            await self._look_back()
        if isinstance(message, CarryOut):
            self.spawn(_carry_out, self._house, self._table, message.command, self.defer())

    async def _look_back(self) -> None:
        try:
            left = await self._house.store.transact(idempotency.unfinished)
        except STORE_FAULTS:
            self.set_timer("look back", LOOK_BACK_SECONDS, LookBack())
            raise
        # Set before the first command: commands that begin from now on are not interrupted ones.
        self._has_looked = True
        self.spawn(_close, self._house, left)


class _Acknowledgement:
    """The acknowledgement of one command, sent once: with the answer, or before it is known."""

    def __init__(self, reply: Reply[Json | None]) -> None:
        self._reply = reply
        self._is_held = self._is_late = False
        self.given = False

    def hold(self) -> None:
        """Delay the acknowledgement until `record`, however late it gets: the command changes something."""
        self._is_held = True

    def record(self) -> None:
        """Note that the command is recorded."""
        self._is_held = False
        if self._is_late:
            self.give()

    def hurry(self) -> None:
        """Acknowledge now, unless the command is held: Slack's time limit is near."""
        self._is_late = True
        if not self._is_held:
            self.give()

    def give(self, payload: Json | None = None) -> None:
        if not self.given and not self._reply.done:
            self._reply.set(payload)
        self.given = True

    def refuse(self, why: Exception) -> None:
        """Fail, so that Slack delivers the command again."""
        if not self.given and not self._reply.done:
            self._reply.fail(why)
        self.given = True


async def _carry_out(deps: CommandDeps, known: Table, command: Command, reply: Reply[Json | None]) -> None:
    ack = _Acknowledgement(reply)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_acknowledge_in_time, ack)
        payload = await _answer(deps, known, command, ack)
        nursery.cancel_scope.cancel()
    if not ack.given:
        ack.give(payload)
    elif payload is not None:
        await _tell(deps, command.response_url, payload)


async def _acknowledge_in_time(ack: _Acknowledgement) -> None:
    await trio.sleep(ACK_SECONDS)
    ack.hurry()


async def _answer(deps: CommandDeps, known: Table, command: Command, ack: _Acknowledgement) -> Json | None:
    """Return the message for the person; never raises. A command that could not be recorded is refused, so that Slack
    delivers it again."""
    try:
        told = await _do(deps, known, command, ack)
    except call.Repeated as repeated:
        told = repeated.answer
    except STORE_FAULTS as why:
        ack.refuse(why)
        told = "this could not be recorded just now, and may not have been done; try again"
    except IntercomError as refusal:
        told = f"{refusal}"
    except _PASSING:
        told = "a part of the server is restarting; try again"
    except Exception:
        log.exception("the command %s failed", command.act_id)
        told = "this failed for a reason that the server's log tells"
    return None if told is None else payload_of(told, deps)


async def _do(deps: CommandDeps, known: Table, command: Command, ack: _Acknowledgement) -> Drawn | str | None:
    said = parsing.read(command.text)
    entry = known.find(said.name or ENTRY.name)
    if entry.acts:
        ack.hold()
        await call.check(deps, command.act_id)
    arguments = parsing.parse(
        said.text,
        {each.name: each.value for each in entry.options},
        # The handler of a custom command itself rejects arguments.
        most=None if entry.category is table.Category.CUSTOM else len(entry.parameters),
        takes_text=any(each.takes_rest for each in entry.parameters),
    )
    return await entry.handler(Call(deps, command, known, entry, arguments, ack.record, ack.give))


def payload_of(told: Drawn | str, deps: CommandDeps) -> Json:
    """Return a message that only the person sees."""
    if isinstance(told, str):
        text = deps.masker.mask(told).text
        told = Drawn(fitted(text, 2_900), (blocks.section(blocks.plain(text)),))
    return {"response_type": "ephemeral", "text": told.text, "blocks": list(told.blocks)}


async def _tell(deps: CommandDeps, response_url: str, payload: Json) -> None:
    """Send the answer of a command that was acknowledged before its end."""
    for pause in _TELLING:
        await trio.sleep(pause)
        try:
            await deps.web.respond(response_url, payload)
            return
        except RateLimited as limited:
            await trio.sleep(min(limited.retry_after, 60.0))
        except SlackRefused as refused:
            log.warning("the answer to a command could not be given: %s", refused)
            return
        except Unreachable as away:
            log.info("the answer to a command could not be given yet: %s", away)
    log.warning("the answer to a command could not be given: slack is not reachable")


async def _close(deps: CommandDeps, left: tuple[Unfinished, ...]) -> None:
    """End the processes of interrupted commands, and say in their messages that they were interrupted."""
    for each in left:
        try:
            if each.process is not None and await end_left(Started(*each.process)):
                log.warning("the command %s had outlived the server that started it, and was ended", each.act_id)
            told = call.UNKNOWN
            if "row" in each.note:
                told = call.INTERRUPTED
                await _show_interrupted(deps, each.note)
            work = partial(idempotency.finish, act_id=each.act_id, answer={"told": told}, at=deps.now())
            await deps.store.transact(work)
        except STORE_FAULTS as why:
            # The next start finds it again.
            log.warning("an interrupted command could not be closed: %s", why)


async def _show_interrupted(deps: CommandDeps, note: dict[str, Any]) -> None:
    title = f"{note['name']}: {deps.config.commands.get(note['name'], 'no longer configured')}"
    draw = partial(answers.output, title, call.INTERRUPTED, Run.STOPPED, deps.masker)
    drawn = await trio.to_thread.run_sync(draw)
    await deps.show(note["row"], note["to"], drawn, None, note["asked"])
