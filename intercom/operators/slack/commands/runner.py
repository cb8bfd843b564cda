"""The actor that carries out commands, each in a task of its own."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Busy, Down, Name, NotRunning, Refused, Reply, ask
from intercom.model.errors import IntercomError
from intercom.operators.slack.commands import (
    checkpoints,
    children,
    custom,
    files,
    help,
    once,
    sessions,
    steering,
    table,
    typed,
)
from intercom.operators.slack.commands.call import Call, Surroundings
from intercom.operators.slack.commands.table import Entry, Table
from intercom.operators.slack.draw import blocks
from intercom.operators.slack.draw import output as drawing
from intercom.operators.slack.draw.drawn import Drawn
from intercom.operators.slack.draw.output import Run
from intercom.operators.slack.draw.text import fitted
from intercom.operators.slack.envelopes import Command
from intercom.operators.slack.errors import RateLimited, SlackRefused, Unreachable
from intercom.operators.slack.means import NotRecorded
from intercom.operators.slack.messages import CarryOut
from intercom.store import command_runs
from intercom.store.command_runs import Unfinished
from intercom.workspace.running import Started, end_left

log = logging.getLogger(__name__)

#: Seconds until a command that is not done yet is acknowledged, if it is on record: Slack gives up after 3.
ACK_SECONDS = 2.0
#: Seconds a command may take to be put on record.
RECORD_SECONDS = 25.0
#: Seconds until an actor that could not see what an earlier life left looks again.
LOOK_BACK_SECONDS = 5.0
#: Pauses, in seconds, before each try to tell somebody how a command ended that took long.
_TELLING = (0.0, 1.0, 5.0)

_PASSING = (Refused, Down, NotRunning, Busy, trio.TooSlowError)

Payload = dict[str, Any]


@frozen
class Commands:
    """The slash commands as the connection sees them; `runner` names the actor that carries them out."""

    runner: Name

    async def run(self, command: Command) -> Payload | None:
        """Carry out a command of an authorized person: what the acknowledgement is to hold, as soon as it is known or
        the command is on record. The same command again is not carried out again. Raises NotRecorded (or what an actor
        that is away raises) when it could not be recorded: then it is not to be acknowledged."""
        return await ask(self.runner, CarryOut(command), timeout=RECORD_SECONDS, retry=True)


def build(config_commands: dict[str, str], runs: custom.Runs) -> Table:
    """The table of all commands there are under a configuration."""
    built_in = (
        sessions.SESSIONS,
        children.START,
        steering.PAUSE,
        sessions.RESUME,
        sessions.CLEAR,
        steering.STEER,
        steering.TASK,
        children.LOGS,
        checkpoints.TAKE,
        checkpoints.LIST,
        checkpoints.RESTORE,
        files.LIST,
        files.SHOW,
        help.ENTRY,
    )
    return Table((*built_in, *table.custom(config_commands, runs.handle, built_in)))


@frozen
class LookBack:
    """Told by the actor itself: see what an earlier life of the server left."""


class CommandRunner(Actor):
    """Registered as `slack/commands`.

    When it ends, commands that run are killed; the next incarnation says so in their messages.
    """

    refusals = (Refused, IntercomError, NotRecorded)

    def __init__(self, house: Surroundings) -> None:
        super().__init__()
        self._house = house
        self._table = build(dict(house.config.commands), custom.Runs())
        self._has_looked = False

    def on_start(self) -> None:
        # Not here: a store that is down is not restarted while the server's start waits for this one.
        self.actor_ref.tell(LookBack())

    async def on_receive(self, message: Any) -> Any:
        if not self._has_looked:
            await self._look_back()
        if isinstance(message, CarryOut):
            self.spawn(_carry_out, self._house, self._table, message.command, self.defer())

    async def _look_back(self) -> None:
        try:
            left = await self._house.transact(command_runs.unfinished)
        except NotRecorded:
            self.set_timer("look back", LOOK_BACK_SECONDS, LookBack())
            raise
        # Before the first command: what is under way from then on is not interrupted.
        self._has_looked = True
        self.spawn(_close, self._house, left)


class _Acknowledgement:
    """The reply to the asker, given once: with the answer, or before it is known."""

    def __init__(self, reply: Reply[Payload | None]) -> None:
        self._reply = reply
        self._is_held = self._is_late = False
        self.given = False

    def hold(self) -> None:
        """The command changes something: it is not acknowledged, however late it is, until it is on `record`."""
        self._is_held = True

    def record(self) -> None:
        """The command is on record."""
        self._is_held = False
        if self._is_late:
            self.give()

    def hurry(self) -> None:
        """Slack waits no longer."""
        self._is_late = True
        if not self._is_held:
            self.give()

    def give(self, payload: Payload | None = None) -> None:
        if not self.given and not self._reply.done:
            self._reply.set(payload)
        self.given = True

    def refuse(self, why: Exception) -> None:
        """Have Slack deliver the command again."""
        if not self.given and not self._reply.done:
            self._reply.fail(why)
        self.given = True


async def _carry_out(house: Surroundings, known: Table, command: Command, reply: Reply[Payload | None]) -> None:
    ack = _Acknowledgement(reply)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_acknowledge_in_time, ack)
        payload = await _answer(house, known, command, ack)
        nursery.cancel_scope.cancel()
    if not ack.given:
        ack.give(payload)
    elif payload is not None:
        await _tell(house, command.response_url, payload)


async def _acknowledge_in_time(ack: _Acknowledgement) -> None:
    await trio.sleep(ACK_SECONDS)
    ack.hurry()


async def _answer(house: Surroundings, known: Table, command: Command, ack: _Acknowledgement) -> Payload | None:
    """What the person is to be told; never raises. A command that could not be recorded is refused, for Slack to
    deliver it again."""
    try:
        told = await _do(house, known, command, ack)
    except once.Repeated as repeated:
        told = repeated.answer
    except NotRecorded as why:
        ack.refuse(why)
        told = "this could not be put on record just now, and may not have been done; try again"
    except IntercomError as refusal:
        told = f"{refusal}"
    except _PASSING:
        told = "a part of the server is restarting; try again"
    except Exception:
        log.exception("the command %s failed", command.act_id)
        told = "this failed for a reason that the server's log tells"
    return None if told is None else payload_of(told, house)


async def _do(house: Surroundings, known: Table, command: Command, ack: _Acknowledgement) -> Drawn | str | None:
    said = typed.read(command.text)
    entry = known.find(said.name or help.ENTRY.name)
    if entry.acts:
        ack.hold()
        await once.check(house, command.act_id)
    arguments = typed.parse(
        said.text,
        {each.name: each.value for each in entry.options},
        # A command of the configuration says itself that it takes none.
        most=None if entry.category is table.Category.CUSTOM else len(entry.parameters),
        takes_text=any(each.takes_rest for each in entry.parameters),
    )
    return await entry.handler(Call(house, command, known, entry, arguments, ack.record, ack.give))


def payload_of(told: Drawn | str, house: Surroundings) -> Payload:
    """A message that only the person sees."""
    if isinstance(told, str):
        text = house.masker.mask(told).text
        told = Drawn(fitted(text, 2_900), (blocks.section(blocks.plain(text)),))
    return {"response_type": "ephemeral", "text": told.text, "blocks": list(told.blocks)}


async def _tell(house: Surroundings, response_url: str, payload: Payload) -> None:
    """Tell a person what came of a command that was acknowledged before it was done."""
    for pause in _TELLING:
        await trio.sleep(pause)
        try:
            await house.web.respond(response_url, payload)
            return
        except RateLimited as limited:
            await trio.sleep(min(limited.retry_after, 60.0))
        except SlackRefused as refused:
            log.warning("the answer to a command could not be given: %s", refused)
            return
        except Unreachable as away:
            log.info("the answer to a command could not be given yet: %s", away)
    log.warning("the answer to a command could not be given: slack is not reachable")


async def _close(house: Surroundings, left: tuple[Unfinished, ...]) -> None:
    """End what still runs of commands that an earlier life of the server left, and say in their messages that they were
    interrupted."""
    for each in left:
        try:
            if each.process is not None and await end_left(Started(*each.process)):
                log.warning("the command %s had outlived the server that started it, and was ended", each.act_id)
            told = once.UNKNOWN
            if "row" in each.note:
                told = once.INTERRUPTED
                await _show_interrupted(house, each.note)
            work = partial(command_runs.finish, act_id=each.act_id, answer={"told": told}, at=house.now())
            await house.transact(work)
        except NotRecorded as why:
            # The next start finds it again.
            log.warning("an interrupted command could not be closed: %s", why)


async def _show_interrupted(house: Surroundings, note: dict[str, Any]) -> None:
    title = f"{note['name']}: {house.config.commands.get(note['name'], 'no longer configured')}"
    draw = partial(drawing.output, title, once.INTERRUPTED, Run.STOPPED, house.masker)
    drawn = await trio.to_thread.run_sync(draw)
    await house.show(note["row"], note["to"], drawn, None, note["asked"])


__all__ = ["CommandRunner", "Commands", "Entry", "build", "payload_of"]
