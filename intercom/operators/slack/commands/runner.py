"""The actor that carries out commands, each in a task of its own; `help`; and the commands of the configuration."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from attrs import define, evolve, field, frozen

from actors import Actor, Name, Refused, Reply, ask
from intercom.model.errors import FileError, IntercomError, InvalidArguments, NotFound
from intercom.operators.slack.commands import builtin, command_call, grant_commands, slash_command_table
from intercom.operators.slack.commands.command_call import CommandCall, CommandDeps, Repeated
from intercom.operators.slack.commands.slash_command_table import SLASH, Category, Entry, Parameter, Table, either
from intercom.operators.slack.draw import answers, blocks
from intercom.operators.slack.draw.answers import Run
from intercom.operators.slack.draw.blocks import Drawn, FileDrawn, code, escaped, fitted
from intercom.operators.slack.envelope_parser import Command
from intercom.operators.slack.slack_messages import CarryOut
from intercom.operators.slack.web_api import Json, RateLimited, SlackRefused, Unreachable
from intercom.sessions.lookups import UNANSWERED
from intercom.store import idempotency
from intercom.store.idempotency import Unfinished
from intercom.store.store_and_reader import STORE_FAULTS, StoreUnavailable
from intercom.workspace.command_runner import Ending, Output, Ran, Started, end_left, run

log = logging.getLogger(__name__)

# --- help ------------------------------------------------------------------------------------------------------------


async def show_help(call: CommandCall) -> Drawn:
    """Show all commands, the commands of one category, or one command in full."""
    # A custom command's text comes from the configuration and may contain secrets.
    entries = [evolve(each, summary=call.deps.masker.mask(each.summary).text) for each in call.table.entries]
    groups = Table(tuple(entries)).categories()
    if call.first_word is None:
        return answers.command_help(groups, slash_command_table.TITLES)
    wanted = call.first_word.casefold()
    category = next((each for each in groups if each in (wanted, wanted.removesuffix("s"))), None)
    if category is not None:
        return answers.command_help(groups, slash_command_table.TITLES, category)
    for entry in entries:
        if entry.name.casefold() == wanted.removeprefix("/"):
            return _in_full(entry)
    raise NotFound(
        f"there is no category or command {wanted[:40]!r}; the categories are {either(groups)},"
        f" and {SLASH} help lists the commands"
    )


def _in_full(entry: Entry) -> Drawn:
    """Show one command: its usage, its effect, and each of its arguments."""
    lines = [f"{code(entry.usage)} {fitted(entry.summary, 300, flat=True)}", escaped(entry.details)]
    lines += [f"• {code(shape)} {escaped(doc)}" for shape, doc in entry.arguments]
    if entry.owner_only:
        lines.append("Only the person who started a session may do this to it.")
    lines.append(f"For example {code(entry.example)}")
    return Drawn(fitted(entry.usage, 300), (blocks.section(blocks.mrkdwn("\n".join(lines))),))


HELP = Entry(
    name="help",
    category=Category.HELP,
    summary="list the commands",
    details="Lists the commands by category; of a category, with examples; of one command, everything about it.",
    example=f"{SLASH} help files",
    handler=show_help,
    parameters=(Parameter("category", "a category, or a command"),),
)

# --- commands of the configuration -----------------------------------------------------------------------------------

#: Seconds until the message of a running command is posted, and between its updates. A command that ends earlier is
#: shown once, at its end.
FIRST_SECONDS = 1.0
EVERY_SECONDS = 2.0

#: How long it may take to end a command that has run too long, in seconds.
ENDING_SECONDS = 10.0

#: How many commands run at the same time.
AT_ONCE = 4


@define
class Runs:
    """Runs commands of the configuration, a few at a time, exactly as configured."""

    _running: int = field(default=0, init=False)

    async def handle(self, call: CommandCall) -> Drawn | None:
        """Run the command of this name. It is acknowledged once it is recorded; the channel shows its output."""
        name = call.entry.name
        if call.arguments.words:
            raise InvalidArguments(
                f"{name} takes no arguments: it runs exactly what the configuration says; only --session is understood"
            )
        command = call.deps.config.commands[name]
        workspace = await call.workspace()
        channel = await call.channel()
        if self._running >= AT_ONCE:
            raise IntercomError(f"{AT_ONCE} commands run already; try again when one has ended", code="busy")
        self._running += 1
        try:
            note: Json = {"line": call.line, "row": call.key, "to": channel, "name": name, "asked": call.asked}
            await call.begin(note, None if workspace.session is None else workspace.session.id)
            call.accept()
            shown = _CustomRun(
                call, command, channel, workspace.root, Output(call.deps.config.command_output_limit_bytes)
            )
            session = None if workspace.session is None else workspace.session.id
            if session is not None:
                call.deps.service.command_runs(session, call.command.act_id, _limit(call))
            try:
                await shown.run()
            finally:
                if session is not None:
                    call.deps.service.command_runs(session, call.command.act_id, 0.0)
            await call.deps.finish(call.command.act_id, None)
        finally:
            self._running -= 1
        return call.pointer_to(channel)


def _limit(call: CommandCall) -> float:
    """Return how long a command may run, in seconds, with some time to end it."""
    return call.deps.config.timeouts.command_timeout_seconds + ENDING_SECONDS


@frozen
class _CustomRun:
    """One run of a configured command, with the message that shows its output during and after it."""

    call: CommandCall
    command: str
    channel: str
    root: Path
    output: Output

    async def run(self) -> None:
        deps = self.call.deps
        timeout = deps.config.timeouts.command_timeout_seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            try:
                ran: Ran | None = await run(
                    self.command,
                    self.root,
                    self.output,
                    timeout=timeout,
                    environ=deps.environ,
                    on_start=self._note_process,
                )
                text = ""
            except FileError as refused:
                ran, text = None, str(refused)
            nursery.cancel_scope.cancel()
        if ran is None:
            await self._show(Run.FAILED, text, last=True)
            return
        how, note = _end(ran, timeout)
        await self._show(how, f"{self.output.text()}{note}", ran, last=True)

    async def _note_process(self, process: Started) -> None:
        """Record the process, so that a server that starts after a kill can end it."""
        deps, act_id = self.call.deps, self.call.command.act_id
        with suppress(*STORE_FAULTS):
            await deps.store.transact(
                partial(idempotency.started, act_id=act_id, pid=process.pid, began=process.at, at=deps.now())
            )

    async def _follow(self) -> None:
        await trio.sleep(FIRST_SECONDS)
        seen = -1
        while True:
            if (total := self.output.total) != seen:
                # A store that is down for a while does not end the command; its output is shown later.
                with suppress(*STORE_FAULTS):
                    await self._show(Run.RUNNING, self.output.text(whole_lines=True))
                    seen = total
            await trio.sleep(EVERY_SECONDS)

    async def _show(self, how: Run, text: str, ran: Ran | None = None, *, last: bool = False) -> None:
        # In a worker thread: the search for secrets in a long text takes time.
        drawn, file = await trio.to_thread.run_sync(self._draw, how, text, ran, last)
        deps = self.call.deps
        await deps.show(self.call.key, self.channel, drawn, file, self.call.asked, f"in {self.root}")

    def _draw(self, how: Run, text: str, ran: Ran | None, last: bool) -> tuple[Drawn, FileDrawn | None]:
        masker = self.call.deps.masker
        title = f"{self.call.entry.name}: {self.command}"
        exited = ran is not None and ran.ending is Ending.EXITED and ran.exit_code >= 0
        drawn = answers.output(
            title,
            text,
            how,
            masker,
            code_=ran.exit_code if ran is not None and exited else None,
            seconds=None if ran is None else ran.seconds,
            truncated=(ran is not None or not last) and self.output.is_cut,
        )
        return drawn, answers.output_file(title, text, masker) if last else None


def _end(ran: Ran, timeout: float) -> tuple[Run, str]:
    match ran.ending:
        case Ending.TIMED_OUT:
            return Run.TIMED_OUT, f"\n(killed: it ran longer than {timeout:g} s)"
        case Ending.FLOODED:
            return Run.STOPPED, "\n(killed: it wrote without end)"
        case Ending.EXITED if ran.exit_code < 0:
            return Run.FAILED, f"\n(ended by signal {-ran.exit_code})"
    return (Run.DONE if ran.exit_code == 0 else Run.FAILED), ""


# --- the actor -------------------------------------------------------------------------------------------------------

#: Seconds until an unfinished command is acknowledged, if it is recorded: Slack gives up after 3.
ACK_SECONDS = 2.0
#: How long a command may take to be recorded, in seconds.
RECORD_SECONDS = 25.0
#: Seconds until the next look for interrupted commands after a failed one.
LOOK_BACK_SECONDS = 5.0
#: Pauses, in seconds, before each try to send the answer of a long command.
_TELLING = (0.0, 1.0, 5.0)


async def carry_out(runner: Name, command: Command) -> Json | None:
    """Have the actor `runner` carry out a command of an authorized person; return the payload of the acknowledgement.

    Returns once the payload is known or the command is recorded. A repetition is not carried out again. Raises
    StoreUnavailable (or the error of an unavailable actor) if the command could not be recorded. Then it must not be
    acknowledged.
    """
    return await ask(runner, CarryOut(command), timeout=RECORD_SECONDS, retry=True)


def build(config_commands: dict[str, str], runs: Runs) -> Table:
    """Return the table of all commands under a configuration."""
    built_in = (*builtin.ENTRIES, *grant_commands.ENTRIES, HELP)
    return Table((*built_in, *slash_command_table.custom(config_commands, runs.handle, built_in)))


@frozen
class LookBack:
    """A message to itself: look for commands that an earlier server run left unfinished."""


class CommandRunner(Actor):
    """The actor that carries out commands; registered as `slack/commands`. If it stops, running commands are killed;
    the next incarnation reports that in their messages."""

    refusals = (Refused, IntercomError, StoreUnavailable)

    def __init__(self, deps: CommandDeps) -> None:
        super().__init__()
        self._deps = deps
        self._table = build(dict(deps.config.commands), Runs())
        self._has_looked = False

    def on_start(self) -> None:
        # By message, not here: the start of the server waits for this actor, and a store that is down restarts only
        # later.
        self.actor_ref.tell(LookBack())

    async def on_receive(self, message: object) -> None:
        if not self._has_looked:
            await self._look_back()
        if isinstance(message, CarryOut):
            self.spawn(_carry_out, self._deps, self._table, message.command, self.defer())

    async def _look_back(self) -> None:
        try:
            left = await self._deps.store.transact(idempotency.unfinished)
        except STORE_FAULTS:
            self.set_timer("look back", LOOK_BACK_SECONDS, LookBack())
            raise
        # Set before the first command: commands that begin from now on are not interrupted ones.
        self._has_looked = True
        self.spawn(_close, self._deps, left)


class _Acknowledgement:
    """The acknowledgement of one command, sent once: with the answer, or before it is known."""

    def __init__(self, reply: Reply[Json | None]) -> None:
        self._reply = reply
        self._is_held = self._is_late = False

    @property
    def is_acknowledged(self) -> bool:
        return self._reply.done

    def hold(self) -> None:
        """Delay the acknowledgement until `record`, however late it gets: the command changes something."""
        self._is_held = True

    def record(self) -> None:
        """Note that the command is recorded."""
        self._is_held = False
        if self._is_late:
            self.give()

    async def give_in_time(self) -> None:
        """Acknowledge when Slack's time limit is near, unless the command is held."""
        await trio.sleep(ACK_SECONDS)
        self._is_late = True
        if not self._is_held:
            self.give()

    def give(self, payload: Json | None = None) -> None:
        if not self.is_acknowledged:
            self._reply.set(payload)

    def refuse(self, why: Exception) -> None:
        """Fail, so that Slack delivers the command again."""
        if not self.is_acknowledged:
            self._reply.fail(why)


async def _carry_out(deps: CommandDeps, known: Table, command: Command, reply: Reply[Json | None]) -> None:
    ack = _Acknowledgement(reply)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ack.give_in_time)
        payload = await _answer(deps, known, command, ack)
        nursery.cancel_scope.cancel()
    if not ack.is_acknowledged:
        ack.give(payload)
    elif payload is not None:
        await _tell(deps, command.response_url, payload)


async def _answer(deps: CommandDeps, known: Table, command: Command, ack: _Acknowledgement) -> Json | None:
    """Return the message for the person; never raises. A command that could not be recorded is refused, so that Slack
    delivers it again."""
    told: Drawn | str | None
    try:
        told = await _do(deps, known, command, ack)
    except Repeated as repeated:
        told = repeated.answer
    except STORE_FAULTS as why:
        ack.refuse(why)
        told = "this could not be recorded just now, and may not have been done; try again"
    except IntercomError as refusal:
        told = f"{refusal}"
    except (Refused, *UNANSWERED):
        told = "a part of the server is restarting; try again"
    except Exception:
        log.exception("the command %s failed", command.act_id)
        told = "this failed; the server's log says why"
    if isinstance(told, str):
        text = deps.masker.mask(told).text
        told = Drawn(fitted(text, 2_900), (blocks.section(blocks.plain(text)),))
    return None if told is None else {"response_type": "ephemeral", **told.content()}


async def _do(deps: CommandDeps, known: Table, command: Command, ack: _Acknowledgement) -> Drawn | str | None:
    said = slash_command_table.read(command.text)
    entry = known.find(said.name or HELP.name)
    if entry.acts:
        ack.hold()
        await deps.check_new(command.act_id)
    arguments = slash_command_table.parse(
        said.text,
        {each.name: each.value for each in entry.options},
        # The handler of a custom command itself rejects arguments.
        most=None if entry.category is Category.CUSTOM else len(entry.parameters),
        takes_text=any(each.takes_rest for each in entry.parameters),
    )
    return await entry.handler(CommandCall(deps, command, known, entry, arguments, ack.record, ack.give))


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
        note = each.note
        try:
            if each.process is not None and await end_left(Started(*each.process)):
                log.warning("the command %s had outlived the server that started it, and was ended", each.act_id)
            told = command_call.UNKNOWN
            if "row" in note:
                told = command_call.INTERRUPTED
                title = f"{note['name']}: {deps.config.commands.get(note['name'], 'no longer configured')}"
                draw = partial(answers.output, title, told, Run.STOPPED, deps.masker)
                drawn = await trio.to_thread.run_sync(draw)
                await deps.show(note["row"], note["to"], drawn, None, note["asked"])
            await deps.finish(each.act_id, told)
        except STORE_FAULTS as why:
            # The next start finds it again.
            log.warning("an interrupted command could not be closed: %s", why)
