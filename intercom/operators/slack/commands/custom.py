"""Commands of the configuration: they run exactly as configured, and their output is shown during and after the run."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio
from attrs import define, field

from intercom.model.errors import FileError, IntercomError, InvalidArguments
from intercom.operators.slack.commands import call as commands_call
from intercom.operators.slack.commands.call import Call, Workspace, elsewhere
from intercom.operators.slack.draw import answers
from intercom.operators.slack.draw.answers import Run
from intercom.operators.slack.draw.blocks import Drawn, FileDrawn
from intercom.store import idempotency
from intercom.store.client import STORE_FAULTS
from intercom.workspace.command_runner import Ending, Output, Ran, Started, run

#: Seconds until the message of a running command is posted, and between its updates. A command that ends earlier is
#: shown once, at its end.
FIRST_SECONDS = 1.0
EVERY_SECONDS = 2.0

#: How many commands run at the same time.
AT_ONCE = 4


@define
class Runs:
    """Runs commands of the configuration, a few at a time."""

    _running: int = field(default=0, init=False)

    async def handle(self, call: Call) -> Drawn | None:
        """Run the command of this name. It is acknowledged once it is recorded; the channel shows its output."""
        if call.arguments.words:
            raise InvalidArguments(
                f"{call.entry.name} takes no arguments: it runs exactly what the configuration says; only --session is"
                " understood"
            )
        command = call.deps.config.commands[call.entry.name]
        workspace = await call.workspace()
        channel = await call.channel()
        if self._running >= AT_ONCE:
            raise IntercomError(f"{AT_ONCE} commands run already; try again when one has ended", code="busy")
        self._running += 1
        try:
            note = {"line": call.line, "row": call.key, "to": channel, "name": call.entry.name, "asked": call.asked}
            await commands_call.begin(call, note, None if workspace.session is None else workspace.session.id)
            call.accept()
            shown = _Shown(call, channel, workspace, f"{call.entry.name}: {command}")
            await _run(call, command, shown)
            await commands_call.finish(call, None)
        finally:
            self._running -= 1
        return None if channel == call.command.channel else elsewhere(channel)


@define
class _Shown:
    """The message about one run."""

    call: Call
    channel: str
    workspace: Workspace
    title: str

    async def draw(self, run: Run, text: str, *, ran: Ran | None = None, cut: bool = False, last: bool = False) -> None:
        code = ran.exit_code if ran is not None and ran.ending is Ending.EXITED and ran.exit_code >= 0 else None
        seconds = None if ran is None else ran.seconds
        # In a worker thread: the search for secrets in a long text takes time.
        drawn, file = await trio.to_thread.run_sync(self._draw, run, text, code, seconds, cut, last)
        deps = self.call.deps
        await deps.show(self.call.key, self.channel, drawn, file, self.call.asked, f"in {self.workspace.root}")

    def _draw(
        self, run: Run, text: str, code: int | None, seconds: float | None, cut: bool, last: bool
    ) -> tuple[Drawn, FileDrawn | None]:
        masker = self.call.deps.masker
        drawn = answers.output(self.title, text, run, masker, code_=code, seconds=seconds, truncated=cut)
        return drawn, answers.output_file(self.title, text, masker) if last else None


async def _run(call: Call, command: str, shown: _Shown) -> None:
    config, deps = call.deps.config, call.deps
    output = Output(config.command_output_limit_bytes)
    timeout = config.timeouts.command_timeout_seconds
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow, output, shown)
        try:
            ran: Ran | None = await run(
                command,
                shown.workspace.root,
                output,
                timeout=timeout,
                environ=deps.environ,
                on_start=partial(_note_process, call),
            )
            note = ""
        except FileError as refused:
            ran, note = None, str(refused)
        nursery.cancel_scope.cancel()
    if ran is None:
        await shown.draw(Run.FAILED, note, last=True)
        return
    how, note = _end(ran, timeout)
    await shown.draw(how, f"{output.text()}{note}", ran=ran, cut=output.is_cut, last=True)


async def _note_process(call: Call, process: Started) -> None:
    """Record the process, so that a server that starts after a kill can end it."""
    work = partial(
        idempotency.started, act_id=call.command.act_id, pid=process.pid, began=process.at, at=call.deps.now()
    )
    with suppress(*STORE_FAULTS):
        await call.deps.store.transact(work)


async def _follow(output: Output, shown: _Shown) -> None:
    await trio.sleep(FIRST_SECONDS)
    seen = -1
    while True:
        if (total := output.total) != seen:
            # A store that is down for a while does not end the command; its output is shown later.
            with suppress(*STORE_FAULTS):
                await shown.draw(Run.RUNNING, output.text(whole_lines=True), cut=output.is_cut)
                seen = total
        await trio.sleep(EVERY_SECONDS)


def _end(ran: Ran, timeout: float) -> tuple[Run, str]:
    match ran.ending:
        case Ending.TIMED_OUT:
            return Run.TIMED_OUT, f"\n(killed: it ran longer than {timeout:g} s)"
        case Ending.FLOODED:
            return Run.STOPPED, "\n(killed: it wrote without end)"
        case Ending.EXITED if ran.exit_code < 0:
            return Run.FAILED, f"\n(ended by signal {-ran.exit_code})"
    return (Run.DONE if ran.exit_code == 0 else Run.FAILED), ""
